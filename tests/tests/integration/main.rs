//! What needs more than one crate.

mod crash_points;
mod crates;
mod docs;
mod fuzz;
mod history;
mod injection;
mod limits;
mod template;
