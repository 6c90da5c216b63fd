//! The function, by its answers, its races and its program.

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
mod start;
#[path = "../support/mod.rs"]
mod support;
