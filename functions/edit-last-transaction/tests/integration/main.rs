//! The function, by its answers, its races and its program.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod answers;
mod deadline;
mod events;
mod limits;
mod once;
mod openapi;
mod processes;
mod races;
mod redis;
mod seed_002;
mod spreadsheet;
mod start;
#[path = "../support/mod.rs"]
mod support;
mod transactions;
