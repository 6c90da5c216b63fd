//! For tests, ours and those of whoever writes a backend: what a store promises, and a store that misbehaves.

pub mod conformance;
mod faulty;
mod jitter;
pub mod random;

pub use faulty::{Fault, Faulty, Gate};
pub use jitter::seed_jitter;
pub(crate) use jitter::seeded;
