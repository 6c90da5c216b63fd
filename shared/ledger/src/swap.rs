//! The swap: read, change, write if it is still what was read. The one part that touches a store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onetap_store::{Commit, Error, Key, Mismatch, Store};
use tokio::time::{Instant, sleep, timeout_at};

use crate::{Attempt, ChangeError as Failure, Step};

/// So many swaps may be lost: each loss is somebody else's success, and among eight who never stop no one was seen to
/// lose thirty in a row.
const ROUNDS: u32 = 100;

/// After each of its first losses an attempt gives way, for a random time up to this. Later ones it answers at once: the
/// value that a refusal brought grows old while one waits, so that who always waits never wins.
const PAUSE: Duration = Duration::from_millis(12);
const GIVES_WAY: u32 = 4;

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

    /// What the store holds, whatever it is; an answer that comes after `deadline` is none.
    pub async fn get(
        &self,
        store: &Arc<dyn Store>,
        deadline: Option<Instant>,
    ) -> Result<Option<String>, Failure> {
        before(deadline, store.get(&self.key)).await.map_err(|error| match error {
            // Something is there that is no text at all: to us as broken as any other nonsense.
            Error::Decode { .. } => Failure::Broken,
            error => Failure::Unreadable(error),
        })
    }
}

/// A call to the store that ends when its caller's time does, and does not begin after that.
async fn before<T>(
    deadline: Option<Instant>,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let Some(deadline) = deadline else { return call.await };
    if Instant::now() >= deadline {
        return Err(Error::not_sent("no time is left"));
    }
    timeout_at(deadline, call).await.unwrap_or_else(|_| Err(Error::unknown("no answer before the deadline")))
}

/// The step to commit next: the first one where `refusal` is empty, else one from what the refusal found.
///
/// For callers that commit the step together with something else. After its first losses it waits a moment, so that two
/// who collided do not meet again, and who has lost more often goes first.
pub async fn next(
    store: &Arc<dyn Store>,
    slot: &Slot,
    attempt: &Attempt,
    refusal: &[Mismatch],
) -> Result<Step, Failure> {
    // A first step that was only a guess has lost to nobody.
    let guessed = attempt.steps() == 1 && !attempt.reads_first();
    if !refusal.is_empty() && !guessed && attempt.steps() <= GIVES_WAY {
        let mut byte = [0u8; 1];
        // Without randomness all wait alike, which is slower and not wrong.
        let _ = getrandom::fill(&mut byte);
        sleep(PAUSE * u32::from(byte[0]) / 255).await;
    }
    let there = match Mismatch::find(refusal, &slot.key) {
        Some(found) => found.there.clone(),
        // A store under contention may name only other keys.
        None if attempt.reads_first() || !refusal.is_empty() => slot.get(store, attempt.deadline()).await?,
        None => None,
    };
    attempt.step(there.as_deref())
}

/// Makes the change: one read where it needs one, one swap, and one more swap for each that was lost.
///
/// A swap whose reply is lost may have landed. The value is then read again: if it is what the step would have made,
/// it has; if not, the change is made anew from it, which as a set of fields it can be any number of times.
///
/// At the attempt's deadline it ends with what then was the matter: [`Failure::Unreadable`] or [`Failure::Unwritable`].
pub async fn run(store: &Arc<dyn Store>, slot: &Slot, attempt: &Attempt) -> Result<Step, Failure> {
    let mut refusal = Vec::new();
    for _ in 0..ROUNDS {
        let step = next(store, slot, attempt, &refusal).await?;
        refusal = match before(attempt.deadline(), store.commit(&step.batch(slot))).await {
            Ok(Commit::Applied(_)) => return Ok(step),
            Ok(Commit::Refused(refusal)) => refusal,
            Err(error) if error.maybe_applied() => {
                let there = slot.get(store, attempt.deadline()).await;
                let there = there.map_err(|_| Failure::Unwritable(error))?;
                if step.made(there.as_deref()) {
                    return Ok(step);
                }
                vec![Mismatch { key: slot.key.clone(), there }]
            }
            Err(Error::TooLarge { .. }) => return Err(Failure::TooLarge),
            Err(Error::Decode { .. }) => return Err(Failure::Broken),
            Err(error) => return Err(Failure::Unwritable(error)),
        };
    }
    Err(Failure::Outrun)
}
