//! The chat, the swap, erasing, and all of it against a model.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod chat;
mod erase;
mod ids;
mod model;
mod retention;
mod statement;
mod swap;
