//! The store's promises on every backend, and what each backend does in trouble.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod backends;
mod billed;
mod config;
mod dynamodb;
mod dynamodb_clear;
mod dynamodb_client;
mod dynamodb_join;
mod dynamodb_request;
mod lost_replies;
mod memory;
mod observed;
mod oracle;
mod race;
mod redis_transport;
mod renewing;
mod script;
mod sources;
#[path = "../support/mod.rs"]
mod support;
mod transport;
mod wire;
