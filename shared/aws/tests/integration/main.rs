//! Signatures, and calls of SQS.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod config;
mod emulator;
mod messages;
mod outcomes;
mod queues;
mod requests;
mod rights;
mod signer;
mod support;
