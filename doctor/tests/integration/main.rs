//! The doctor on real and on stubbed services: every fault is found, and nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod dynamodb;
mod line;
mod program;
mod redis;
mod support;
mod upstash;
mod weather;
