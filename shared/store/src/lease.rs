//! A lease: a key that holds the owner's token until its TTL ends.
//!
//! ```text
//! acquire ├──────── ttl ────────┤            counted from the first send, so that a late reply never
//!         │ renew ├──────── ttl ────────┤    makes the holder believe in more than the store does
//!         │                     │ release   only what still holds my token is removed
//! ```
//!
//! Holding a lease is only a *hint*: a process can pause between its check and its write. A write that only the holder
//! may make goes into a batch with [`Lease::guard`] (fencing): the store refuses the batch if the lease is no longer
//! held.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::{Batch, Commit, Error, Expect, Key, Mismatch, Store};

/// A random token that no other owner has.
pub fn unique_token() -> String {
    let mut bytes = [0u8; 16];
    // Fail without randomness: with a weak token, two owners could both believe that they hold the lease.
    #[allow(clippy::expect_used)]
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    format!("{:032x}", u128::from_be_bytes(bytes))
}

/// A request for a lease that is not sent yet, for callers that send it together with other batches, in a
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

    /// The same with a label after its token. Another caller that finds the lease held can read the label.
    #[must_use]
    pub fn labelled(mut self, label: &str) -> Request {
        self.token = format!("{} {label}", self.token);
        self
    }

    /// The label of the current holder, if `answer` is a refusal and the holder has a label.
    pub fn label_of_holder<'a>(&self, answer: &'a Commit) -> Option<&'a str> {
        let Commit::Refused(refusal) = answer else { return None };
        let (_, label) = Mismatch::find(refusal, &self.key)?.there.as_deref()?.split_once(' ')?;
        Some(label)
    }

    /// The batch that acquires the lease. It is idempotent: a second send is refused with its own token.
    pub fn batch(&self) -> Batch {
        Batch::new().put(&self.key, Expect::Absent, self.token.as_str(), self.ttl)
    }

    /// Interprets the store's answer. `sent` is the time of the first send.
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
    /// The caller holds it until it expires or is released.
    Acquired(Lease),
    /// Somebody else holds it, or the answer arrived after the lease had expired.
    Held,
}

/// The answer to [`Lease::renew`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Renewal {
    /// The lease lasts for another TTL.
    Renewed,
    /// It expired, and nobody has acquired it since. It is not renewed: the next caller may acquire it.
    Lapsed,
    /// Somebody else holds it.
    Lost,
}

/// The answer to [`Lease::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Release {
    /// It is free: by this call, by an earlier one whose reply was lost, or because it had expired.
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
    until: Instant,
}

impl Lease {
    /// Acquires `key` for `ttl`, if nobody holds it.
    pub async fn acquire(store: &Arc<dyn Store>, key: Key, ttl: Duration) -> Result<Acquire, Error> {
        let request = Request::new(key, ttl);
        let sent = Instant::now();
        let answer = match store.commit(&request.batch()).await {
            // The first send may have been applied. The same request again shows that: it cannot acquire twice.
            Err(error) if error.maybe_applied() => {
                store.commit(&request.batch()).await.map_err(Error::after_a_lost_reply)?
            }
            answer => answer?,
        };
        Ok(request.outcome(store, sent, answer))
    }

    /// Renews the lease for its TTL from now, if it is still held.
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

    /// Releases the lease, if it is still held.
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

    /// The batch that releases the lease, for callers that send it together with others.
    pub fn release_batch(&self) -> Batch {
        Batch::new().delete(&self.key, self.token.as_str())
    }

    /// Interprets the store's answer to [`release_batch`](Lease::release_batch).
    pub fn released(&self, answer: Commit) -> Release {
        match answer {
            Commit::Applied(_) => Release::Released,
            Commit::Refused(refusal) => match Mismatch::find(&refusal, &self.key) {
                Some(Mismatch { there: None, .. }) => Release::Released,
                _ => Release::Outlasted,
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
