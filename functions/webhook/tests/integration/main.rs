//! The webhook, by its requests, deliveries and processes.

mod cargo_lambda;
mod delivery;
mod events;
mod plan;
mod processes;
mod request;
#[path = "../support/mod.rs"]
mod support;
