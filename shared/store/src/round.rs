//! Several batches in one round trip, each answered by its ticket.

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use crate::{Batch, Commit, Error, Store};

/// Batches that are sent together and committed each by itself ([`Store::commit_each`]). Every batch that is added has a
/// ticket, and its answer is taken by that ticket, so that no caller matches two lists by their indices.
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use onetap_store::{Key, Lease, Memory, Round, Store, idem::{Claimed, Idempotency}, lease};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store: Arc<dyn Store> = Arc::new(Memory::new());
/// # let idem = Idempotency::new(store.clone());
/// let claim = idem.call("event:42").claim()?;
/// let lock = lease::Request::new(Key::new("lock:7")?);
///
/// let mut round = Round::new();
/// let claimed = round.add(claim.batch());
/// let locked = round.add(lock.batch());
/// let mut answers = round.send(&*store).await; // one round trip
///
/// let claimed = claim.outcome(answers.sent_at(), answers.take(claimed)?)?;
/// let locked = lock.outcome(&store, answers.sent_at(), answers.take(locked)?);
/// # assert!(matches!((claimed, locked), (Claimed::Mine(_), lease::Acquire::Acquired(_))));
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
#[must_use = "a round does nothing until it is sent"]
pub struct Round {
    /// What tells this round's tickets from another's.
    id: Arc<()>,
    batches: Vec<Batch>,
}

/// Names one batch of a [`Round`], whose answer it takes once.
#[derive(Debug)]
#[must_use = "the batch's answer is taken with it"]
pub struct Ticket {
    round: Arc<()>,
    batch: usize,
}

/// The answers to a [`Round`].
pub struct Answers {
    round: Arc<()>,
    sent_at: Instant,
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
        Ticket { round: Arc::clone(&self.id), batch: self.batches.len() - 1 }
    }

    /// Sends the batches; an empty round makes no call.
    pub async fn send(&self, store: &dyn Store) -> Answers {
        let sent_at = Instant::now();
        let answers = match self.batches.as_slice() {
            [] => Vec::new(),
            batches => store.commit_each(batches).await,
        };
        self.answered(sent_at, answers)
    }

    /// The batches, for a sender of its own.
    #[cfg(feature = "sqs")]
    pub(crate) fn batches(&self) -> &[Batch] {
        &self.batches
    }

    /// The answers to all batches, in their order.
    pub(crate) fn answered(&self, sent_at: Instant, answers: Vec<Result<Commit, Error>>) -> Answers {
        Answers { round: Arc::clone(&self.id), sent_at, answers: answers.into_iter().map(Some).collect() }
    }

    /// Answers every batch with `error`: for a round that is not sent, or that took too long.
    pub fn fail(&self, error: &Error) -> Answers {
        self.answered(Instant::now(), self.batches.iter().map(|_| Err(error.clone())).collect())
    }
}

impl Answers {
    /// When the round was sent. The leases that it took begin here.
    pub fn sent_at(&self) -> Instant {
        self.sent_at
    }

    /// The answer to the batch that `ticket` names. A ticket of another round is an error.
    pub fn take(&mut self, ticket: Ticket) -> Result<Commit, Error> {
        if !Arc::ptr_eq(&self.round, &ticket.round) {
            return Err(Error::unknown("the ticket is of another round"));
        }
        let answer = self.answers.get_mut(ticket.batch).and_then(Option::take);
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::Faulty;
    use crate::{Expect, Found, Key, Memory};

    fn put(name: &str, value: &str) -> Batch {
        Batch::new().put(&Key::new(name).unwrap(), Expect::Absent, value, Duration::from_secs(60))
    }

    #[tokio::test]
    async fn each_ticket_has_the_answer_to_its_batch_in_whatever_order() {
        let store = Memory::new();
        let mut round = Round::new();
        let a = Key::new("a").unwrap();
        let (first, second, third) =
            (round.add(put("a", "1")), round.add(put("a", "2")), round.add(put("b", "3")));
        let mut answers = round.send(&store).await;
        assert!(matches!(answers.take(third), Ok(Commit::Applied(_))));
        assert!(
            matches!(answers.take(second), Ok(Commit::Refused(refusal)) if refusal.get(&a) == Some(Found::Text("1")))
        );
        assert!(matches!(answers.take(first), Ok(Commit::Applied(_))));
    }

    #[tokio::test]
    async fn a_ticket_of_another_round_is_an_error_and_takes_nothing() {
        let store = Memory::new();
        let (mut one, mut other) = (Round::new(), Round::new());
        let (mine, theirs) = (one.add(put("a", "1")), other.add(put("b", "2")));
        let mut answers = one.send(&store).await;
        assert!(answers.take(theirs).is_err());
        assert!(matches!(answers.take(mine), Ok(Commit::Applied(_))));
    }

    #[tokio::test]
    async fn an_empty_round_makes_no_call() {
        let counted = Faulty::counting(std::sync::Arc::new(Memory::new()));
        Round::new().send(&*counted).await;
        assert_eq!(counted.calls(), 0);
    }

    #[test]
    fn a_round_that_fails_has_the_error_for_every_batch() {
        let mut round = Round::new();
        let (first, second) = (round.add(put("a", "1")), round.add(put("b", "2")));
        let mut answers = round.fail(&Error::not_sent("down"));
        assert_eq!(answers.errors().count(), 2);
        assert!(answers.take(first).is_err() && answers.take(second).is_err());
    }
}
