//! The four functions as `scripts/build` makes them. A program of its own: it has to wait for that build, and
//! `scripts/test` runs the other programs meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod binaries;
mod binaries_output;
mod deploy;
mod emulator;
mod load;
mod outside;
