//! Support for tests of this crate and of other backends: the conformance suite, fault injection and random batches.

pub mod conformance;
mod faulty;
mod jitter;
pub mod random;

pub use faulty::{Fault, Faulty, Gate};
pub use jitter::seed_jitter;
pub(crate) use jitter::seeded;
