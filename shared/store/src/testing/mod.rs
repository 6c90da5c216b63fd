//! Support for tests of this crate and of other backends: the conformance suite, fault injection and random batches.

pub mod conformance;
mod faulty;
pub mod random;

pub use faulty::{Fault, Faulty, Gate};
