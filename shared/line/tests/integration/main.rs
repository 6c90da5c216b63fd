//! Signatures, webhook types and replies.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod official_sdks;
mod reply;
mod signature;
mod webhook;
