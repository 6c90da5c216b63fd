//! What needs more than one crate.

mod binaries;
mod binaries_output;
mod crash_points;
mod dependencies;
mod deploy;
mod docs;
mod emulator;
mod fuzz;
mod history;
mod injection;
mod limits;
mod load;
mod template;
