//! Several batches in one round trip, each answered by its ticket.

use std::fmt;

use tokio::time::Instant;

use crate::{Batch, Commit, Error, Store};

/// Batches that are sent together and committed each by itself ([`Store::commit_each`]). Every batch that is added has a
/// ticket, and its answer is taken by that ticket: no lists have to be kept in step.
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use onetap_store::{Key, Lease, Memory, Round, Store, idem::{Claimed, Config, Idempotency}, lease};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store: Arc<dyn Store> = Arc::new(Memory::new());
/// # let idem = Idempotency::new(store.clone(), Config::default());
/// let claim = idem.call("event:42").claim()?;
/// let lock = lease::Request::new(Key::new("lock:7")?, Duration::from_secs(5));
///
/// let mut round = Round::new();
/// let claimed = round.add(claim.batch());
/// let locked = round.add(lock.batch());
/// let mut answers = round.send(&*store).await; // one round trip
///
/// let claimed = claim.outcome(answers.sent(), answers.take(claimed)?)?;
/// let locked = lock.outcome(&store, answers.sent(), answers.take(locked)?);
/// # assert!(matches!((claimed, locked), (Claimed::Mine(_), lease::Acquire::Acquired(_))));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Round {
    batches: Vec<Batch>,
}

/// The right to the answer of one batch of a [`Round`].
#[derive(Debug)]
#[must_use = "the batch's answer is taken with it"]
pub struct Ticket(usize);

/// The answers to a [`Round`].
pub struct Answers {
    sent: Instant,
    answers: Vec<Option<Result<Commit, Error>>>,
}

impl Round {
    /// A round without a batch.
    pub fn new() -> Round {
        Round::default()
    }

    /// Adds a batch.
    pub fn add(&mut self, batch: Batch) -> Ticket {
        self.batches.push(batch);
        Ticket(self.batches.len() - 1)
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Sends the batches; an empty round makes no call.
    pub async fn send(self, store: &dyn Store) -> Answers {
        let sent = Instant::now();
        let answers = match self.batches.as_slice() {
            [] => Vec::new(),
            batches => store.commit_each(batches).await,
        };
        Answers { sent, answers: answers.into_iter().map(Some).collect() }
    }

    /// The answers of a round that is not sent, or was given up on: `error` for every batch.
    pub fn failed(&self, error: &Error) -> Answers {
        let answers = self.batches.iter().map(|_| Some(Err(error.clone()))).collect();
        Answers { sent: Instant::now(), answers }
    }
}

impl Answers {
    /// When the round was sent: leases count from here.
    pub fn sent(&self) -> Instant {
        self.sent
    }

    /// The answer to the batch that `ticket` was given for.
    pub fn take(&mut self, ticket: Ticket) -> Result<Commit, Error> {
        let answer = self.answers.get_mut(ticket.0).and_then(Option::take);
        answer.unwrap_or_else(|| Err(Error::unknown("the store left a batch unanswered")))
    }

    /// The errors among the answers that were not taken yet.
    pub fn errors(&self) -> impl Iterator<Item = &Error> {
        self.answers.iter().flatten().filter_map(|answer| answer.as_ref().err())
    }
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers").field("len", &self.answers.len()).finish_non_exhaustive()
    }
}
