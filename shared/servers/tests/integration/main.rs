//! The test servers themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod dynamo;
mod faults;
mod gateway;
mod official_clients;
mod redis;
mod runtime;
mod support;
