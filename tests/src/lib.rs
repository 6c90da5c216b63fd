//! What the tests of several crates share.

pub mod cloud;
pub mod crash;
pub mod emf;
pub mod emulator;
pub mod functions;
pub mod fuzz;
pub mod history;
pub mod load;
pub mod recording;
pub mod stage;
