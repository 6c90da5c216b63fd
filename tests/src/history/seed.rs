//! Numbers that look random and are the same every time.

use std::time::Duration;

/// A stream of numbers, all of which follow from the first (SplitMix64).
#[derive(Clone, Debug)]
pub struct Seed(u64);

impl Seed {
    /// The stream that begins here.
    pub fn new(seed: u64) -> Seed {
        Seed(seed)
    }

    /// `ONETAP_SEED`, or one that nobody had before. Whoever asks prints it.
    pub fn from_env() -> u64 {
        match std::env::var("ONETAP_SEED") {
            Ok(text) => text.trim().parse().expect("ONETAP_SEED is a whole number"),
            Err(_) => u64::from(getrandom::u32().expect("the system's randomness")),
        }
    }

    /// Another stream, which depends on this one's seed and on `label`, and on nothing drawn since.
    pub fn fork(&self, label: u64) -> Seed {
        let mut fork = Seed(self.0 ^ label.wrapping_add(1).wrapping_mul(0xD6E8_FEB8_6659_FD93));
        fork.next();
        fork
    }

    /// The next number.
    #[allow(clippy::should_implement_trait, reason = "a stream without an end needs no Option")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is at least one.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// True with this probability in percent.
    pub fn percent(&mut self, often: u64) -> bool {
        self.below(100) < often
    }

    /// A length of time up to `most`.
    pub fn up_to(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.below(u64::try_from(most.as_micros()).unwrap_or(u64::MAX)))
    }

    /// The same things in another order.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for n in (1..things.len()).rev() {
            things.swap(n, self.below(n as u64 + 1) as usize);
        }
    }
}
