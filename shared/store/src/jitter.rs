//! Random pauses, so that two callers that collided do not collide again.

use std::time::Duration;

/// A random time up to `max`. Without randomness all callers pause alike, which is slower and not wrong.
pub(crate) fn jitter(max: Duration) -> Duration {
    let mut bytes = [0u8; 4];
    #[cfg(feature = "testing")]
    if let Some(number) = crate::testing::seeded() {
        return fraction(max, number);
    }
    let _ = getrandom::fill(&mut bytes);
    fraction(max, u32::from_be_bytes(bytes))
}

fn fraction(max: Duration, number: u32) -> Duration {
    max.mul_f64(f64::from(number) / f64::from(u32::MAX))
}
