//! The chat, the swap, and erasing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod chat;
mod erase;
mod swap;
