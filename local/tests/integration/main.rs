//! The runner, its program, its page and its demonstration.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod browser;
mod demo;
mod event_source;
mod own_bot;
mod runner;
mod runner_program;
mod support;
mod weather;
