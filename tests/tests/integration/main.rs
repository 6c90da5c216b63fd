//! What needs more than one crate.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod contributing;
mod crash_points;
mod crates;
mod docs;
mod eight_processes;
mod fuzz;
mod history;
mod ignored;
mod injection;
mod jobs;
mod limits;
mod own_bot;
mod streams;
mod template;
