//! Signatures, webhook types and replies.

mod official_sdks;
mod reply;
mod signature;
mod webhook;
