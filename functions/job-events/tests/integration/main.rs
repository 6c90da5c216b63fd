//! The gateway, by what clients are told and by its program.

mod client;
mod gateway;
mod program;
#[path = "../../../../shared/bus/tests/support/mod.rs"]
mod support;
