//! The chat and the swap.

mod chat;
mod swap;
