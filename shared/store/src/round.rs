//! Several requests in one round trip, each answered by its ticket.

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use crate::{Batch, Commit, Error, Expect, Found, Key, Store};

/// What a [`Round`] can ask of a store: a batch to send, and what the store's answer to it means. A [`Batch`] is its own
/// request, and its outcome is the [`Commit`].
pub trait Request {
    /// What the caller gets.
    type Outcome;

    /// The batch that is sent.
    fn batch(&self) -> Batch;

    /// What the store's answer means, for a batch first sent at `sent_at`.
    fn outcome(self, sent_at: Instant, answer: Commit) -> Result<Self::Outcome, Error>;
}

impl Request for Batch {
    type Outcome = Commit;

    fn batch(&self) -> Batch {
        self.clone()
    }

    fn outcome(self, _: Instant, answer: Commit) -> Result<Commit, Error> {
        Ok(answer)
    }
}

/// A read of one key, in the round trip of other requests. The outcome is the value, if there is one.
#[derive(Clone, Debug)]
pub struct Read(Key);

impl Read {
    /// A read of `key`. Several keys are several requests.
    pub fn new(key: Key) -> Read {
        Read(key)
    }
}

impl Request for Read {
    type Outcome = Option<String>;

    /// A check for an absent key: if there is a value, the check is refused, and the refusal contains the value.
    fn batch(&self) -> Batch {
        Batch::new().check(&self.0, Expect::Absent)
    }

    fn outcome(self, _: Instant, answer: Commit) -> Result<Option<String>, Error> {
        Ok(match answer {
            Commit::Applied(_) => None,
            Commit::Refused(refusal) => refusal.get(&self.0).and_then(Found::text).map(str::to_owned),
        })
    }
}

/// Requests that are sent together and answered each by itself ([`Store::commit_each`]). Every request that is added has a
/// ticket, and its outcome is taken by that ticket, so that no caller matches two lists by their indices.
///
/// ```
/// # use std::sync::Arc;
/// # use onetap_store::{Key, Memory, Read, Round, Store, lease};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store: Arc<dyn Store> = Arc::new(Memory::new());
/// let mut round = Round::new();
/// let lock = round.add(lease::Acquire::new(store.clone(), Key::new("lock:7")?));
/// let profile = round.add(Read::new(Key::new("profile:7")?));
/// let mut answers = round.send(&*store).await; // one round trip
///
/// let locked: lease::AcquireOutcome = answers.take(lock)?;
/// let profile: Option<String> = answers.take(profile)?;
/// # assert!(matches!(locked, lease::AcquireOutcome::Acquired(_)));
/// # assert_eq!(profile, None);
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
#[must_use = "a round does nothing until it is sent"]
pub struct Round {
    /// What tells this round's tickets from another's.
    id: Arc<()>,
    batches: Vec<Batch>,
}

/// A request that was added to a [`Round`], whose outcome it takes once.
#[must_use = "the outcome of the request is taken with it"]
pub struct Ticket<R = Batch> {
    round: Arc<()>,
    batch: usize,
    request: R,
}

/// The answers to a [`Round`].
pub struct Answers {
    round: Arc<()>,
    sent_at: Instant,
    answers: Vec<Option<Result<Commit, Error>>>,
}

impl Round {
    /// A round without a request.
    pub fn new() -> Round {
        Round::default()
    }

    /// Adds a request.
    pub fn add<R: Request>(&mut self, request: R) -> Ticket<R> {
        let batch = request.batch();
        self.push(request, batch)
    }

    /// Adds a request whose batch is [likely](Batch::likely) to be applied.
    pub fn add_likely<R: Request>(&mut self, request: R) -> Ticket<R> {
        let batch = request.batch().likely();
        self.push(request, batch)
    }

    fn push<R>(&mut self, request: R, batch: Batch) -> Ticket<R> {
        self.batches.push(batch);
        Ticket { round: Arc::clone(&self.id), batch: self.batches.len() - 1, request }
    }

    /// Sends the requests; an empty round makes no call.
    pub async fn send(&self, store: &dyn Store) -> Answers {
        let sent_at = Instant::now();
        let answers = match self.batches.as_slice() {
            [] => Vec::new(),
            batches => store.commit_each(batches).await,
        };
        self.answered(sent_at, answers)
    }

    /// The answers to all batches, in their order.
    fn answered(&self, sent_at: Instant, answers: Vec<Result<Commit, Error>>) -> Answers {
        Answers { round: Arc::clone(&self.id), sent_at, answers: answers.into_iter().map(Some).collect() }
    }

    /// Answers every request with `error`: for a round that is not sent, or that took too long.
    pub fn fail(&self, error: &Error) -> Answers {
        self.answered(Instant::now(), self.batches.iter().map(|_| Err(error.clone())).collect())
    }
}

impl Answers {
    /// The outcome of the request that `ticket` names. A ticket of another round is an error.
    pub fn take<R: Request>(&mut self, ticket: Ticket<R>) -> Result<R::Outcome, Error> {
        if !Arc::ptr_eq(&self.round, &ticket.round) {
            return Err(Error::unknown("the ticket is of another round"));
        }
        let answer = self.answers.get_mut(ticket.batch).and_then(Option::take);
        let answer = answer.unwrap_or_else(|| Err(Error::unknown("the store left a request unanswered")))?;
        ticket.request.outcome(self.sent_at, answer)
    }

    /// The errors among the answers that were not taken yet.
    pub fn errors(&self) -> impl Iterator<Item = &Error> {
        self.answers.iter().flatten().filter_map(|answer| answer.as_ref().err())
    }
}

impl<R> fmt::Debug for Ticket<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("batch", &self.batch).finish_non_exhaustive()
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
    use crate::Memory;
    use crate::testing::TestStore;

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
        let counted = TestStore::counting(std::sync::Arc::new(Memory::new()));
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
