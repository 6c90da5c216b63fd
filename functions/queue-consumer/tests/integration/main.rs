//! The consumer, by its batches, crashes, outages and its program.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod consumer;
mod crash;
#[path = "../harness/mod.rs"]
mod harness;
mod metrics;
mod outage;
mod producers;
mod program;
mod schema;
mod sqs;
#[path = "../../../../shared/bus/tests/support/mod.rs"]
mod support;
