//! Jitter from a seed, for runs that are to be the same each time.

use std::cell::RefCell;

use super::random::Random;

thread_local! {
    static SEEDED: RefCell<Option<Random>> = const { RefCell::new(None) };
}

/// From now on the pauses of edits on this thread are drawn from `seed`.
pub fn seed_jitter(seed: u64) {
    SEEDED.set(Some(Random::new(seed)));
}

/// The next number, on a thread that was seeded.
pub(crate) fn seeded() -> Option<u32> {
    SEEDED.with_borrow_mut(|random| random.as_mut().map(|random| (random.number() >> 32) as u32))
}
