//! A lease: a key that holds the owner's token until its TTL ends.
//!
//! ```text
//! acquire ├──────── ttl ────────┤            counted from the first send, so that a late reply never
//!         │ renew ├──────── ttl ────────┤    makes the holder believe in more than the store does
//!         │                     │ release   only what still holds my token is removed
//! acquire ├─ min_hold ─┤                     release_after keeps it to the end of a minimum hold, then it is free
//! ```
//!
//! Holding a lease is only a *hint*: a process can pause between its check and its write. A write that only the holder
//! may make goes into a batch with [`Lease::guard`] (fencing): the store refuses the batch if the lease is no longer
//! held.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use crate::MIN_TTL;
use crate::{Batch, Commit, Error, Expect, Found, Key, Refusal, Request as _, Store};

/// The least pause between two renewals, so that a store that fails is not asked without a pause.
const RENEW_PAUSE: Duration = Duration::from_millis(50);

/// A random token that no other owner has.
pub fn unique_token() -> String {
    let mut bytes = [0u8; 16];
    // Fail without randomness: with a weak token, two owners could both believe that they hold the lease.
    #[allow(clippy::expect_used)]
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    format!("{:032x}", u128::from_be_bytes(bytes))
}

/// The TTL of a lease, unless another one is set. It limits how long others wait for a holder that died.
pub const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// A request for a lease: [acquire](Acquire::acquire) it, or send it together with others, in a [`Round`](crate::Round).
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use onetap_store::{Key, Memory, Store, lease::{AcquireOutcome, Acquire}};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onetap_store::Error> {
/// # let store: Arc<dyn Store> = Arc::new(Memory::new());
/// let request = Acquire::new(store.clone(), Key::new("report:today")?).ttl(Duration::from_secs(5));
/// if let AcquireOutcome::Acquired(lease) = request.acquire().await? {
///     // … the work …
///     let _ = lease.release().await?;
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Acquire {
    store: Arc<dyn Store>,
    key: Key,
    token: String,
    ttl: Duration,
}

impl Acquire {
    /// A request for `key`, with a token of its own.
    pub fn new(store: Arc<dyn Store>, key: Key) -> Acquire {
        Acquire { store, key, token: unique_token(), ttl: DEFAULT_TTL }
    }

    /// Sets how long the lease lasts unless it is renewed ([`DEFAULT_TTL`]).
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Acquire {
        self.ttl = ttl;
        self
    }

    /// Sets a label, which stands after the token. Another caller that finds the lease held can read it.
    #[must_use]
    pub fn label(mut self, label: &str) -> Acquire {
        self.token = format!("{} {label}", self.token);
        self
    }

    /// Acquires the lease, if nobody holds it.
    pub async fn acquire(self) -> Result<AcquireOutcome, Error> {
        let sent = Instant::now();
        let answer = match self.store.commit(&self.batch()).await {
            // The first send may have been applied. The same request again shows that: it cannot acquire twice.
            Err(error) if error.maybe_applied() => {
                self.store.commit(&self.batch()).await.map_err(Error::after_a_lost_reply)?
            }
            answer => answer?,
        };
        self.outcome(sent, answer)
    }
}

impl crate::Request for Acquire {
    type Outcome = AcquireOutcome;

    /// The batch that acquires the lease. It is idempotent: a second send is refused with its own token.
    fn batch(&self) -> Batch {
        Batch::new().put(&self.key, Expect::Absent, self.token.as_str(), self.ttl)
    }

    fn outcome(self, sent_at: Instant, answer: Commit) -> Result<AcquireOutcome, Error> {
        let there = match &answer {
            Commit::Applied(_) => Some(self.token.as_str()),
            Commit::Refused(refusal) => refusal.get(&self.key).and_then(Found::text),
        };
        let until = sent_at + self.ttl;
        if there == Some(self.token.as_str()) && Instant::now() < until {
            let Acquire { store, key, token, ttl } = self;
            return Ok(AcquireOutcome::Acquired(Lease { store, key, token, ttl, since: sent_at, until }));
        }
        let label = there.and_then(|token| token.split_once(' ')).map(|(_, label)| label.to_owned());
        Ok(AcquireOutcome::Held { label })
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

/// The answer to [`Lease::acquire`]. `Debug` shows no label.
#[must_use]
pub enum AcquireOutcome {
    /// The caller holds it until it expires or is released.
    Acquired(Lease),
    /// Another caller holds it, or the answer arrived after the lease had expired.
    Held {
        /// The [label](Acquire::label) of the holder, if it has one.
        label: Option<String>,
    },
}

impl fmt::Debug for AcquireOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcquireOutcome::Acquired(lease) => f.debug_tuple("Acquired").field(lease).finish(),
            AcquireOutcome::Held { .. } => f.write_str("Held"),
        }
    }
}

/// The answer to [`Lease::renew`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum RenewOutcome {
    /// The lease lasts for another TTL.
    Renewed,
    /// It expired, and nobody has acquired it since. It is not renewed: the next caller may acquire it. Or the answer arrived
    /// after the renewed lease had expired too.
    Lapsed,
    /// Somebody else holds it.
    Lost,
}

/// The answer to [`Lease::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// It is free: by this call, by an earlier one whose reply was lost, or because it had expired. After
    /// [`release_after`](Lease::release_after) it is free when the minimum hold has ended.
    Released,
    /// Somebody else holds it now, and nothing was changed: the work took longer than the lease. (Or an earlier release
    /// was applied and its reply was lost: the two cannot be told apart.)
    Outlasted,
}

/// A lease that is held. Dropping it does not release it (a `Drop` cannot wait for a store, and Lambda may freeze the
/// process first): call [`release`](Lease::release), or let it expire.
pub struct Lease {
    store: Arc<dyn Store>,
    key: Key,
    token: String,
    ttl: Duration,
    since: Instant,
    until: Instant,
}

impl Lease {
    /// Acquires `key` for [`DEFAULT_TTL`], if nobody holds it. [`Acquire`] has the settings.
    pub async fn acquire(store: Arc<dyn Store>, key: Key) -> Result<AcquireOutcome, Error> {
        Acquire::new(store, key).acquire().await
    }

    /// Renews the lease, if it is still held, for its TTL from the moment of this call.
    pub async fn renew(&mut self) -> Result<RenewOutcome, Error> {
        let sent = Instant::now();
        let batch = Batch::new().put(&self.key, self.mine(), self.token.as_str(), self.ttl);
        Ok(match self.store.commit(&batch).await? {
            Commit::Applied(_) => {
                self.until = sent + self.ttl;
                if Instant::now() < self.until { RenewOutcome::Renewed } else { RenewOutcome::Lapsed }
            }
            Commit::Refused(refusal) => match refusal.get(&self.key) {
                Some(Found::Nothing) => RenewOutcome::Lapsed,
                _ => RenewOutcome::Lost,
            },
        })
    }

    /// Runs `job`, and renews the lease every third of its TTL meanwhile. A renewal that the store does not answer is tried again for as
    /// long as the lease may last. If the lease is lost, `job` is dropped where it waits, and the answer is why: lapsed, or lost to
    /// another holder.
    ///
    /// An answer of the job does not mean that the lease is still held: a job that blocks its thread holds up the renewals too. What
    /// may be written only under the lease carries its [guard](Lease::guard).
    pub async fn while_renewing<T>(&mut self, job: impl Future<Output = T>) -> Result<T, RenewOutcome> {
        let mut job = pin!(job);
        loop {
            let next = self.until.checked_sub(self.ttl - self.ttl / 3).unwrap_or(self.until);
            if let Ok(made) = timeout_at(next.max(Instant::now() + RENEW_PAUSE), &mut job).await {
                return Ok(made);
            }
            match self.renew().await {
                Ok(RenewOutcome::Renewed) => {}
                Err(_) if Instant::now() < self.until => {}
                Err(_) => return Err(RenewOutcome::Lapsed),
                Ok(lost) => return Err(lost),
            }
        }
    }

    /// Releases the lease, if it is still held.
    pub async fn release(self) -> Result<ReleaseOutcome, Error> {
        self.release_after(Duration::ZERO).await
    }

    /// Releases the lease, if it is still held, but not before it was held for `min_hold` (a cooldown): nobody else
    /// acquires it until then. See [`release_batch_after`](Lease::release_batch_after).
    pub async fn release_after(self, min_hold: Duration) -> Result<ReleaseOutcome, Error> {
        let answer = match self.store.commit(&self.release_batch_after(min_hold)).await {
            // A new batch, because less is left of the minimum hold.
            Err(error) if error.maybe_applied() => self
                .store
                .commit(&self.release_batch_after(min_hold))
                .await
                .map_err(Error::after_a_lost_reply)?,
            answer => answer?,
        };
        Ok(self.released(answer))
    }

    /// The release of the lease after a minimum hold, to be sent together with others in a [`Round`](crate::Round).
    pub fn releasing_after(self, min_hold: Duration) -> Release {
        Release { lease: self, min_hold }
    }

    /// The batch that releases the lease, for callers that send it together with others.
    pub fn release_batch(&self) -> Batch {
        Batch::new().delete(&self.key, self.token.as_str()).gone_is_success()
    }

    /// The batch that releases the lease after a minimum hold: it shortens the life of the key to what is left of
    /// `min_hold`, and removes the key if nothing is left. Like the TTL, `min_hold` counts from the first send of the
    /// acquisition. A `min_hold` longer than the TTL ends with the TTL.
    ///
    /// The rest is counted when the batch is made, and begins when the store applies it: send the batch at once.
    pub fn release_batch_after(&self, min_hold: Duration) -> Batch {
        let end = self.since.checked_add(min_hold).map_or(self.until, |end| end.min(self.until));
        let rest = end.saturating_duration_since(Instant::now());
        if rest < MIN_TTL {
            return self.release_batch();
        }
        Batch::new().put(&self.key, self.mine(), self.token.as_str(), rest)
    }

    /// Interprets the store's answer to [`release_batch`](Lease::release_batch) or
    /// [`release_batch_after`](Lease::release_batch_after).
    pub fn released(&self, answer: Commit) -> ReleaseOutcome {
        match answer {
            Commit::Applied(_) => ReleaseOutcome::Released,
            Commit::Refused(refusal) => match refusal.get(&self.key) {
                Some(Found::Nothing) => ReleaseOutcome::Released,
                _ => ReleaseOutcome::Outlasted,
            },
        }
    }

    /// Adds the fencing check to `batch`: the store refuses it unless this lease is still held.
    pub fn guard(&self, batch: Batch) -> Batch {
        batch.guard(&self.key, &self.token)
    }

    /// The latest moment at which the lease may still be held, by this process's clock.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// The lease as it is sent to another process, which goes on with it. This process must not use it any more.
    pub fn save(self) -> SavedLease {
        let since = now_ms().saturating_sub(millis(self.since.elapsed()));
        SavedLease { key: self.key.as_str().to_owned(), token: self.token, ttl: millis(self.ttl), since }
    }

    /// Whether these values show that this lease is no longer held.
    pub(crate) fn is_refused_by(&self, found: &Refusal) -> bool {
        found.get(&self.key).is_some_and(|there| there != Found::Text(&self.token))
    }

    fn mine(&self) -> Expect {
        Expect::Is(self.token.clone())
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("ttl", &self.ttl).field("until", &self.until).finish_non_exhaustive()
    }
}

/// A lease on its way to another process, from [`Lease::save`], as JSON. Whoever has it can release the lease. `Debug` shows
/// neither key nor token.
#[derive(Clone, Serialize, Deserialize)]
pub struct SavedLease {
    key: String,
    token: String,
    /// In milliseconds.
    ttl: u64,
    /// When it was acquired, in milliseconds since 1970: a minimum hold counts from there.
    since: u64,
}

impl SavedLease {
    /// The lease, to be [renewed](Lease::renew) before anything is done under it: only the answer to a renewal shows whether it
    /// is still held. A lease that has lapsed meanwhile is not revived.
    pub fn restore(self, store: Arc<dyn Store>) -> Result<Lease, Error> {
        let now = Instant::now();
        let age = Duration::from_millis(now_ms().saturating_sub(self.since));
        Ok(Lease {
            store,
            key: Key::new(self.key)?,
            token: self.token,
            ttl: Duration::from_millis(self.ttl),
            since: now.checked_sub(age).unwrap_or(now),
            until: now,
        })
    }
}

impl fmt::Debug for SavedLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SavedLease").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn now_ms() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A request to release a lease, from [`Lease::releasing_after`].
#[derive(Debug)]
pub struct Release {
    lease: Lease,
    min_hold: Duration,
}

impl crate::Request for Release {
    type Outcome = ReleaseOutcome;

    fn batch(&self) -> Batch {
        self.lease.release_batch_after(self.min_hold)
    }

    fn outcome(self, _: Instant, answer: Commit) -> Result<ReleaseOutcome, Error> {
        Ok(self.lease.released(answer))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::Memory;
    use crate::testing::{Fault, TestStore};

    const TTL: Duration = Duration::from_secs(5);
    const MIN_HOLD: Duration = Duration::from_secs(2);
    const MILLISECOND: Duration = Duration::from_millis(1);

    async fn acquired(store: &Arc<dyn Store>, key: &Key) -> Lease {
        match Acquire::new(store.clone(), key.clone()).ttl(TTL).acquire().await.unwrap() {
            AcquireOutcome::Acquired(lease) => lease,
            AcquireOutcome::Held { .. } => panic!("held"),
        }
    }

    /// Releases a lease after `worked` of the time, and returns how long after its acquisition its key was there.
    async fn lasted(store: Arc<dyn Store>, worked: Duration, min_hold: Duration) -> Duration {
        let (key, start) = (Key::new("lock").unwrap(), Instant::now());
        let lease = acquired(&store, &key).await;
        advance(worked).await;
        assert_eq!(lease.release_after(min_hold).await.unwrap(), ReleaseOutcome::Released);
        while store.get(&key).await.unwrap().is_some() {
            advance(MILLISECOND).await;
        }
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_minimum_hold_counts_from_the_acquisition_and_ends_with_the_ttl() {
        for (worked, min_hold, end) in [
            (Duration::ZERO, MIN_HOLD, MIN_HOLD),
            (Duration::from_millis(300), MIN_HOLD, MIN_HOLD),
            (MIN_HOLD - MILLISECOND, MIN_HOLD, MIN_HOLD),
            (MIN_HOLD, MIN_HOLD, MIN_HOLD),
            (Duration::from_secs(3), MIN_HOLD, Duration::from_secs(3)),
            (Duration::from_millis(300), Duration::ZERO, Duration::from_millis(300)),
            (Duration::from_millis(300), TTL * 2, TTL),
            (TTL - MILLISECOND, Duration::MAX, TTL),
            (TTL * 2, Duration::MAX, TTL * 2),
        ] {
            let store: Arc<dyn Store> = Arc::new(Memory::new());
            assert_eq!(lasted(store, worked, min_hold).await, end, "{worked:?} of work, {min_hold:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_minimum_hold_is_no_longer_for_a_lost_reply() {
        for fault in [Fault::ReplyLost, Fault::RequestLost] {
            let store = TestStore::first(Arc::new(Memory::new()), vec![Fault::Pass, fault]);
            assert_eq!(lasted(store, Duration::from_millis(300), MIN_HOLD).await, MIN_HOLD);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewed_lease_keeps_the_beginning_of_its_minimum_hold() {
        let (store, key) = (Arc::new(Memory::new()) as Arc<dyn Store>, Key::new("lock").unwrap());
        let mut lease = acquired(&store, &key).await;
        advance(MIN_HOLD).await;
        assert_eq!(lease.renew().await.unwrap(), RenewOutcome::Renewed);
        assert_eq!(lease.release_after(MIN_HOLD).await.unwrap(), ReleaseOutcome::Released);
        assert_eq!(store.get(&key).await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_is_answered_after_its_ttl_is_none() {
        for (late, renewal) in [(TTL - MILLISECOND, RenewOutcome::Renewed), (TTL, RenewOutcome::Lapsed)] {
            let store =
                TestStore::first(Arc::new(Memory::new()), vec![Fault::Pass, Fault::AnsweredLate(late)]);
            let mut lease = acquired(&(store as Arc<dyn Store>), &Key::new("lock").unwrap()).await;
            let sent = Instant::now();
            assert_eq!(lease.renew().await.unwrap(), renewal, "{late:?}");
            assert_eq!(lease.until(), sent + TTL);
        }
    }
}
