//! Support for tests of this crate and of other backends: the conformance suite, a store with a script, and random batches.

pub mod conformance;
mod fault;
mod jitter;
pub mod random;
mod test_store;

pub use fault::{Fault, Gate};
pub use jitter::seed_jitter;
pub(crate) use jitter::seeded;
pub use test_store::{Answer, Call, Request, TestStore};
