//! The gateway, by what clients are told and by its program.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod client;
mod gateway;
mod program;
#[path = "../../../../shared/bus/tests/support/mod.rs"]
mod support;
