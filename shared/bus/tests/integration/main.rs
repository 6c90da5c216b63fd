//! Events that are published, followed and seeded.

mod follow;
mod publish;
mod seed;
#[path = "../support/mod.rs"]
mod support;
