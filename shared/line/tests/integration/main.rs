//! Signatures, webhook types, messages and calls.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod calls;
mod messages;
mod messaging_api;
mod official_sdks;
mod push;
mod reply;
mod signature;
mod support;
mod webhook;
