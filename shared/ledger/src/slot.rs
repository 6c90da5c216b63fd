//! Where a user's last transaction is kept.

use std::fmt;
use std::time::Duration;

use onetap_store::Key;

/// The place of one user's last transaction. `Debug` does not show whose.
#[derive(Clone, PartialEq, Eq)]
pub struct Slot {
    key: Key,
    life: Duration,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("life", &self.life).finish_non_exhaustive()
    }
}

impl Slot {
    /// The place for a user id of 1 to 64 letters, digits, `_` and `-`. Any other is refused: a colon or a slash in
    /// it could name somebody else's key.
    pub fn new(user_id: &str, life: Duration) -> Option<Slot> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        let valid = (1..=64).contains(&user_id.len()) && user_id.bytes().all(plain);
        let key = valid.then(|| Key::new(format!("user:{user_id}:last_transaction")))?.ok()?;
        Some(Slot { key, life })
    }

    /// The key, `user:{user_id}:last_transaction`.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// How long a transaction lives after it was written.
    pub fn life(&self) -> Duration {
        self.life
    }
}
