//! A lease: a key that was absent and now holds my token, for a while.
//!
//! ```text
//! acquire ├──────── ttl ────────┤            counted from the first send, so that a late reply never
//!         │ renew ├──────── ttl ────────┤    makes the holder believe in more than the store does
//!         │                     │ release   only what still holds my token is removed
//! ```
//!
//! Holding a lease is a *hint*: a process can stop between looking and writing. What must be written only by the
//! holder goes into a batch with [`Lease::guard`], and the store itself refuses it once the lease is gone.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::{Batch, Commit, Error, Expect, Key, Mismatch, Store};

/// A value no one else has: what makes equality identity.
pub fn unique_token() -> String {
    let mut bytes = [0u8; 16];
    // Without randomness there is no token, and a weak one would let two owners believe in one lease.
    #[allow(clippy::expect_used)]
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    format!("{:032x}", u128::from_be_bytes(bytes))
}

/// A request for a lease, apart from the sending: for callers that send it together with other batches, in a
/// [`Round`](crate::Round).
#[derive(Clone)]
pub struct Request {
    key: Key,
    token: String,
    ttl: Duration,
}

impl Request {
    /// A request for `key`, with a token of its own.
    pub fn new(key: Key, ttl: Duration) -> Request {
        Request { key, token: unique_token(), ttl }
    }

    /// The same with a label behind its token, for whoever finds the lease held and asks what for.
    #[must_use]
    pub fn labelled(mut self, label: &str) -> Request {
        self.token = format!("{} {label}", self.token);
        self
    }

    /// The label of whoever holds the lease, where `answer` is a refusal and there is one.
    pub fn label_of_holder<'a>(&self, answer: &'a Commit) -> Option<&'a str> {
        let Commit::Refused(refusal) = answer else { return None };
        let (_, label) = Mismatch::find(refusal, &self.key)?.there.as_deref()?.split_once(' ')?;
        Some(label)
    }

    /// The batch that takes the lease. Sent again it takes it no second time, and recognises itself.
    pub fn batch(&self) -> Batch {
        Batch::new().put(&self.key, Expect::Absent, self.token.as_str(), self.ttl)
    }

    /// What the store's answer means, for a batch first sent at `sent`.
    pub fn outcome(self, store: &Arc<dyn Store>, sent: Instant, answer: Commit) -> Acquire {
        let mine = match answer {
            Commit::Applied(_) => true,
            Commit::Refused(refusal) => {
                Mismatch::find(&refusal, &self.key).is_some_and(|m| m.there.as_deref() == Some(&self.token))
            }
        };
        let until = sent + self.ttl;
        if mine && Instant::now() < until {
            let Request { key, token, ttl } = self;
            Acquire::Acquired(Lease { store: Arc::clone(store), key, token, ttl, until })
        } else {
            Acquire::Held
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

/// The answer to [`Lease::acquire`].
#[derive(Debug)]
#[must_use]
pub enum Acquire {
    /// It is mine until it lapses or is released.
    Acquired(Lease),
    /// Somebody holds it (or the answer came after what it granted had lapsed).
    Held,
}

/// The answer to [`Lease::renew`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Renewal {
    /// Mine for another term.
    Renewed,
    /// It ended and nobody took it. It is not revived: whoever takes it next has the right to it.
    Lapsed,
    /// Somebody else holds it.
    Lost,
}

/// The answer to [`Lease::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Release {
    /// It is free, by this call, by one before it whose reply was lost, or because it had lapsed.
    Released,
    /// Somebody else holds it now, and it was left alone: the work outlasted the lease. (Or a release before this one
    /// freed it and its reply was lost; nobody can tell the two apart.)
    Outlasted,
}

/// A key that holds my token. Dropping it releases nothing (a `Drop` cannot wait for a store, and Lambda freezes
/// before it would run): [`release`](Lease::release) it, or let it lapse.
pub struct Lease {
    store: Arc<dyn Store>,
    key: Key,
    token: String,
    ttl: Duration,
    until: Instant,
}

impl Lease {
    /// Takes `key` for `ttl`, if nobody holds it.
    pub async fn acquire(store: &Arc<dyn Store>, key: Key, ttl: Duration) -> Result<Acquire, Error> {
        let request = Request::new(key, ttl);
        let sent = Instant::now();
        let answer = match store.commit(&request.batch()).await {
            // It may be mine already. The same request again tells, and cannot take it twice.
            Err(error) if error.maybe_applied() => {
                store.commit(&request.batch()).await.map_err(Error::after_a_lost_reply)?
            }
            answer => answer?,
        };
        Ok(request.outcome(store, sent, answer))
    }

    /// Makes the lease last `ttl` from now, if it is still mine.
    pub async fn renew(&mut self) -> Result<Renewal, Error> {
        let sent = Instant::now();
        let batch = Batch::new().put(&self.key, self.mine(), self.token.as_str(), self.ttl);
        Ok(match self.store.commit(&batch).await? {
            Commit::Applied(_) => {
                self.until = sent + self.ttl;
                Renewal::Renewed
            }
            Commit::Refused(refusal) => match Mismatch::find(&refusal, &self.key) {
                Some(Mismatch { there: None, .. }) => Renewal::Lapsed,
                _ => Renewal::Lost,
            },
        })
    }

    /// Frees the lease, if it is still mine.
    pub async fn release(self) -> Result<Release, Error> {
        let batch = self.release_batch();
        let answer = match self.store.commit(&batch).await {
            Err(error) if error.maybe_applied() => {
                self.store.commit(&batch).await.map_err(Error::after_a_lost_reply)?
            }
            answer => answer?,
        };
        Ok(self.released(answer))
    }

    /// The batch that frees the lease, for callers that send it together with others.
    pub fn release_batch(&self) -> Batch {
        Batch::new().delete(&self.key, self.token.as_str())
    }

    /// What the store's answer to [`release_batch`](Lease::release_batch) means.
    pub fn released(&self, answer: Commit) -> Release {
        match answer {
            Commit::Applied(_) => Release::Released,
            Commit::Refused(refusal) => match Mismatch::find(&refusal, &self.key) {
                Some(Mismatch { there: None, .. }) => Release::Released,
                _ => Release::Outlasted,
            },
        }
    }

    /// `batch`, refused by the store unless this lease is still held when it is applied.
    pub fn guard(&self, batch: Batch) -> Batch {
        batch.guard(&self.key, &self.token)
    }

    /// The latest moment at which the lease may still be held, by this process's clock.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// Whether these values show that this lease is no longer held.
    pub(crate) fn is_refused_by(&self, found: &[Mismatch]) -> bool {
        Mismatch::find(found, &self.key).is_some_and(|found| found.there.as_deref() != Some(&self.token))
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
