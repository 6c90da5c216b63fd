//! Events that are published, followed and seeded.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod cost;
mod example;
mod follow;
mod length;
mod publish;
mod seed;
mod stages;
#[path = "../support/mod.rs"]
mod support;
