//! The gateway, by what clients are told and by its program.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod client;
mod follower;
mod gateway;
mod program;
mod server;
#[path = "../../../../shared/bus/tests/support/mod.rs"]
mod support;
