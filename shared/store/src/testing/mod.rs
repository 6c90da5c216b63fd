//! For tests, ours and those of whoever writes a backend: what a store promises, and a store that misbehaves.

pub mod conformance;
mod faulty;
pub mod random;

pub use faulty::{Fault, Faulty, Gate};
