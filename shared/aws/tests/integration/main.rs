//! Signatures, and calls of SQS.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod config;
mod messages;
mod outcomes;
mod requests;
mod signer;
mod support;
