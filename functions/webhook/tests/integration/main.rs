//! The webhook, by its requests, deliveries and processes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod cargo_lambda;
mod delivery;
mod events;
mod metrics;
mod plan;
mod processes;
mod request;
#[path = "../support/mod.rs"]
mod support;
