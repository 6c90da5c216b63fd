//! An edit: read, decide, write if it is still what was read.
//!
//! ```text
//! read ──▶ step ──▶ commit ──▶ applied: done                                       1 read, 1 write
//!            ▲         │
//!            │         ├─▶ refused: a conflict. The refusal brings the values
//!            └─────────┤   that are there now, and the step is taken again from them.   +1 write
//!                      │
//!                      └─▶ reply lost: it may have been applied.
//!                            with a marker   the same batch again; the marker shows whether it was
//!                            idempotent      read; all that was written is there: done; else the step again
//!                            otherwise       an error that says "maybe applied"
//! ```
//!
//! The *step* is a function from what is there to the writes and an answer. It may be called more than once, so it does
//! nothing else:
//!
//! ```
//! # use std::{sync::Arc, time::Duration};
//! use onetap_store::{Batch, Edit, Key, Memory, Store};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store: Arc<dyn Store> = Arc::new(Memory::new());
//! let stock = Key::new("stock:7")?;
//! let take_one = |there: &onetap_store::Values| {
//!     let left: u32 = there.get(&stock).unwrap_or("3").parse().map_err(|_| "not a number")?;
//!     let left = left.checked_sub(1).ok_or("sold out")?;
//!     let writes = Batch::new().put(&stock, there.expect(&stock), left.to_string(), Duration::from_secs(60));
//!     Ok::<_, &str>((writes, left))
//! };
//! assert_eq!(Edit::of(&stock).apply(&*store, take_one).await?, 2);
//! assert_eq!(store.get(&stock).await?.as_deref(), Some("2"));
//! # Ok(()) }
//! ```
//!
//! # What it promises
//!
//! - The writes of one step are applied, all of them or none. If the step puts [`Values::expect`] on each, they are applied
//!   only to the values that the step was given.
//! - No update is lost: of several edits at once each one's step has seen what the others wrote before it.
//! - With a [`Writer`] that adds a marker to the batch, as a run of `onetap-idem` does, the writes are applied once, through lost
//!   replies and crashes.
//! - Calls to the store end at the [deadline](Edit::deadline), and none begins after it.
//! - After each of its first 4 conflicts an edit pauses for a random time up to 12 ms. After 100 conflicts it fails with
//!   [`TooManyConflicts`](Error::TooManyConflicts).
//!
//! # What it does not promise
//!
//! - A value of a key that the step reads and does not write may change before the commit. Add
//!   `.check(&key, there.expect(&key))` to the batch if it must not.
//! - Without a marker, and unless the step is [idempotent](Edit::idempotent), a lost reply leaves the outcome unknown: the
//!   value that is there cannot tell whose write it was. (Two increments write the same number.)

use std::fmt;
use std::time::Duration;

use futures_util::future::ready;
use tokio::time::{Instant, sleep};

use crate::jitter::jitter;
use crate::sender::{Retry, Sender};
use crate::{Batch, Commit, Expect, Found, Key, Lease, Log, Refusal, Store, Value, Write};

/// How often the step is taken. Each conflict is another writer's success: of eight writers that never pause, none was seen
/// to have 30 in a row.
const MAX_STEPS: u32 = 100;

/// The longest pause after a conflict.
const MAX_PAUSE: Duration = Duration::from_millis(12);

/// How many conflicts are followed by a pause. After more, the edit retries at once: the values that a refusal brought
/// become outdated during a pause, so that an edit that always pauses may never succeed.
const MAX_PAUSES: u32 = 4;

/// What is known to be there: the values of the keys that the edit reads, and of those that a refusal named.
///
/// Of any other key it is guessed that nothing is there. If that is wrong the store refuses the batch, and the next
/// step knows better.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Values(Vec<(Key, Option<String>)>);

impl Values {
    /// The value of `key`, if there is one.
    pub fn get(&self, key: &Key) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == key)?.1.as_deref()
    }

    /// The expectation that `key` still has the value that is known.
    pub fn expect(&self, key: &Key) -> Expect {
        self.get(key).map_or(Expect::Absent, |text| Expect::Is(text.to_owned()))
    }

    /// Whether `key` was read, or named by a refusal.
    pub fn knows(&self, key: &Key) -> bool {
        self.0.iter().any(|(known, _)| known == key)
    }

    /// Whether nothing was read and nothing refused yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn update(&mut self, refusal: Refusal) {
        for (key, there) in refusal {
            match self.0.iter_mut().find(|(known, _)| *known == key) {
                Some((_, value)) => *value = there,
                None => self.0.push((key, there)),
            }
        }
    }
}

impl FromIterator<(Key, Option<String>)> for Values {
    fn from_iter<I: IntoIterator<Item = (Key, Option<String>)>>(read: I) -> Values {
        Values(read.into_iter().collect())
    }
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Values").field("keys", &self.0.len()).finish_non_exhaustive()
    }
}

/// An edit of some keys: see the [module](self).
#[derive(Clone, Debug, Default)]
#[must_use = "an edit does nothing until it is applied"]
pub struct Edit<'a> {
    keys: Vec<Key>,
    /// What the caller has read.
    known: Option<Values>,
    guess: bool,
    idempotent: bool,
    deadline: Option<Instant>,
    lease: Option<&'a Lease>,
}

impl<'a> Edit<'a> {
    /// An edit whose step is given the value of `key`.
    pub fn of(key: &Key) -> Edit<'a> {
        Edit::of_all([key.clone()])
    }

    /// An edit whose step is given the values of `keys`. They are read in one round trip, not as one snapshot.
    pub fn of_all(keys: impl IntoIterator<Item = Key>) -> Edit<'a> {
        Edit { keys: keys.into_iter().collect(), ..Edit::default() }
    }

    /// Begins with the guess that nothing is there, instead of a read: one round trip less where that is usual, one more
    /// where it is not.
    pub fn guessing_absent(self) -> Edit<'a> {
        Edit { guess: true, ..self }
    }

    /// Begins with what the caller has read, perhaps in the round trip of another request, instead of a read of its own, if that is
    /// all that the edit reads. A value that has changed since is a conflict like any other.
    pub fn knowing(self, known: &Values) -> Edit<'a> {
        let known = self.keys.iter().all(|key| known.knows(key)).then(|| known.clone());
        Edit { known: known.or(self.known), ..self }
    }

    /// Declares that taking the step twice is as good as once, as for a step that sets fields or deletes. After a lost reply
    /// the edit then reads the keys, and the logs that it appends to: it succeeds if all that it wrote is there, and takes the
    /// step again if not.
    pub fn idempotent(self) -> Edit<'a> {
        Edit { idempotent: true, ..self }
    }

    /// The deadline, if one is set.
    pub fn get_deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Sets the deadline: no call to the store begins after it, and none runs past it.
    pub fn deadline(self, deadline: Option<Instant>) -> Edit<'a> {
        Edit { deadline, ..self }
    }

    /// Writes only while `lease` is held; see [`Lease::guard`].
    pub fn guarded_by(self, lease: &'a Lease) -> Edit<'a> {
        Edit { lease: Some(lease), ..self }
    }

    /// Makes the edit, and returns the answer of the step that was applied. A step without writes needs no commit.
    pub async fn apply<T, E>(
        &self,
        store: &dyn Store,
        mut step: impl FnMut(&Values) -> Result<(Batch, T), E>,
    ) -> Result<T, Error<E>> {
        let sender = Sender { store, deadline: self.deadline };
        let writer = ByValues { sender, idempotent: self.idempotent };
        let ended = self.write_by(writer, |there| ready(step(&there))).await;
        ended.map_err(Error::from)
    }

    /// Makes the edit as [`apply`](Edit::apply) does, for any writer and any step, also one that waits.
    ///
    /// The loop ends with the value that the writer has committed. If a refusal shows that an earlier step was applied, whose
    /// reply was lost, that is the value of that step.
    pub async fn write_by<T, E, F, Fut>(
        &self,
        mut writer: impl Writer<T>,
        mut step: F,
    ) -> Result<T, Ended<T, E>>
    where
        F: FnMut(Values) -> Fut,
        Fut: Future<Output = Result<(Batch, T), E>>,
    {
        let mut there = self.read(&mut writer).await.map_err(Ended::Unread)?;
        // The writes of an earlier step may be applied: the reply to them was lost, and what is there does not show it.
        let mut lost = None;
        for conflicts in 0..MAX_STEPS {
            self.pause_after(conflicts).await;
            let (writes, value) = match writer.during(step(there.clone())).await {
                Ok(made) => made,
                Err(error) => return Err(Ended::Step(error).unless(lost)),
            };
            let writes = match self.lease {
                Some(lease) => lease.guard(writes),
                None => writes,
            };
            let refusal = match writer.write(writes, value).await {
                Ok(Written::Applied(value)) => return Ok(value),
                Ok(Written::TakenOver(value)) => return Err(Ended::TakenOver(value)),
                Ok(Written::Refused(refusal)) => refusal,
                Ok(Written::Unconfirmed(found, error)) => {
                    lost = lost.or(Some(error));
                    found
                }
                Err(error) => return Err(Ended::Unwritten(error).unless(lost)),
            };
            if self.lease.is_some_and(|lease| lease.is_refused_by(&refusal)) {
                return Err(Ended::LeaseLost.unless(lost));
            }
            if writer.sender().is_over() {
                return Err(Ended::TooManyConflicts.unless(lost));
            }
            there.update(refusal);
        }
        Err(Ended::TooManyConflicts.unless(lost))
    }

    async fn read<T>(&self, writer: &mut impl Writer<T>) -> Result<Values, crate::Error> {
        if let Some(known) = &self.known {
            return Ok(known.clone());
        }
        if self.guess || self.keys.is_empty() {
            return Ok(Values::default());
        }
        let sender = writer.sender();
        let there = writer.during(sender.get_all(&self.keys, Retry::LostReplies)).await?;
        Ok(Values(self.keys.iter().cloned().zip(there).collect()))
    }

    async fn pause_after(&self, conflicts: u32) {
        // A first step that was only a guess had no rival.
        let is_guess = self.known.is_none() && (self.guess || self.keys.is_empty());
        let first = if is_guess { 2 } else { 1 };
        if (first..=MAX_PAUSES).contains(&conflicts) {
            sleep(jitter(MAX_PAUSE)).await;
        }
    }
}

/// Commits the writes of an edit's steps, and finds out after a lost reply whether they were applied.
#[allow(
    async_fn_in_trait,
    reason = "an edit is generic over its writer, so that its future is `Send` if the writer's is"
)]
pub trait Writer<T> {
    /// The store and the deadline.
    fn sender(&self) -> Sender<'_>;

    /// Waits for `work`: the read, or a step. A writer that holds a claim renews it meanwhile.
    async fn during<O>(&self, work: impl Future<Output = O>) -> O;

    /// Commits `writes`, the answer of their step with them.
    async fn write(&mut self, writes: Batch, value: T) -> Result<Written<T>, crate::Error>;
}

/// What became of the writes of a step.
#[derive(Debug)]
pub enum Written<T> {
    /// All of them are applied. If an earlier step was, whose reply was lost, this is the value of that step.
    Applied(T),
    /// None of them: the writer is no longer the owner of what it writes for.
    TakenOver(T),
    /// None of them: this is there instead.
    Refused(Refusal),
    /// All or none of them: the reply was lost, and what is there does not show it.
    Unconfirmed(Refusal, crate::Error),
}

/// Knows whether its writes were applied by the values that are there.
struct ByValues<'a> {
    sender: Sender<'a>,
    idempotent: bool,
}

impl<T> Writer<T> for ByValues<'_> {
    fn sender(&self) -> Sender<'_> {
        self.sender
    }

    async fn during<O>(&self, work: impl Future<Output = O>) -> O {
        work.await
    }

    async fn write(&mut self, writes: Batch, value: T) -> Result<Written<T>, crate::Error> {
        if writes.writes().is_empty() {
            return Ok(Written::Applied(value));
        }
        let (sender, writes) = (&self.sender, writes.sent_once());
        let error = match sender.commit_once(&writes).await {
            Ok(Commit::Applied(_)) => return Ok(Written::Applied(value)),
            Ok(Commit::Refused(refusal)) => return Ok(Written::Refused(refusal)),
            Err(error) if error.maybe_applied() && self.idempotent => error,
            Err(error) => return Err(error),
        };
        let keys: Vec<Key> = writes.expectations().map(|(key, _)| key.clone()).collect();
        let there = sender.get_all(&keys, Retry::LostReplies).await.map_err(|_| error.clone())?;
        let found = Refusal::new(keys.into_iter().zip(there));
        let is_confirmed = values_are_found(&writes, &found)
            && logs_are_found(sender, &writes).await.map_err(|_| error.clone())?;
        Ok(if is_confirmed { Written::Applied(value) } else { Written::Unconfirmed(found, error) })
    }
}

/// Whether every value that these writes put or delete is there or gone, and at least one of them was not before.
fn values_are_found(writes: &Batch, found: &Refusal) -> bool {
    let there = |key| found.get(key).and_then(Found::text);
    let mut is_changed = false;
    for write in writes.writes() {
        match write {
            Write::Put { key, expect, value: Value::Text(text), .. } if there(key) == Some(text) => {
                is_changed |= !expect.holds(Some(text));
            }
            Write::Delete { key, .. } if there(key).is_none() => is_changed = true,
            Write::Put { .. } | Write::Delete { .. } | Write::PutIfNewer { .. } => return false,
            Write::Check { .. } | Write::Append { .. } | Write::Clear { .. } | Write::Publish { .. } => {}
        }
    }
    is_changed
}

/// Whether every record that these writes append is in its log, and every log that they clear is empty.
async fn logs_are_found(sender: &Sender<'_>, writes: &Batch) -> Result<bool, crate::Error> {
    let mut appended: Vec<(&Log, Vec<&str>)> = Vec::new();
    for write in writes.writes() {
        match write {
            Write::Append { log, text, .. } => match appended.iter_mut().find(|(other, _)| *other == log) {
                Some((_, texts)) => texts.push(text),
                None => appended.push((log, vec![text])),
            },
            Write::Clear { log } if !sender.read_to_end(log).await?.is_empty() => return Ok(false),
            _ => {}
        }
    }
    for (log, texts) in appended {
        let records = sender.read_to_end(log).await?;
        let mut unmatched = records.iter();
        // In their order, with the records of others between them.
        if !texts.iter().all(|text| unmatched.any(|record| record.text == *text)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// How the loop of [`write_by`](Edit::write_by) ended without an answer: an [`Error`] whose `TakenOver` has the value of the step.
#[derive(Debug)]
#[allow(missing_docs, reason = "they are those of `Error`")]
pub enum Ended<T, E> {
    Step(E),
    Unread(crate::Error),
    Unwritten(crate::Error),
    TooManyConflicts,
    LeaseLost,
    TakenOver(T),
}

impl<T, E> Ended<T, E> {
    /// The same end, unless writes of an earlier step may be applied: then that is what the caller has to know.
    fn unless(self, lost: Option<crate::Error>) -> Ended<T, E> {
        lost.map_or(self, Ended::Unwritten)
    }
}

/// Why an edit has no answer. `E` is the step's own error.
///
/// "Nothing was written" is certain. If the reply to an earlier step's writes was lost, and what is there does not show
/// whether they were applied, the error is [`Unwritten`](Error::Unwritten) and [maybe
/// applied](crate::Error::maybe_applied), however the edit ended after it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error<E> {
    /// The step gave up. Nothing was written.
    Step(E),
    /// What is there could not be read. Nothing was written.
    Unread(crate::Error),
    /// The store did not confirm the writes of this step or of an earlier one. Whether they may have been applied, the error
    /// [says](crate::Error::maybe_applied).
    Unwritten(crate::Error),
    /// Other writers were always first, or until the deadline. Nothing was written.
    TooManyConflicts,
    /// The [lease](Edit::guarded_by) is no longer held. Nothing was written.
    LeaseLost,
    /// Another owner has taken over what the [`Writer`] writes for. Nothing was written.
    TakenOver,
}

impl<T, E> From<Ended<T, E>> for Error<E> {
    fn from(ended: Ended<T, E>) -> Error<E> {
        match ended {
            Ended::Step(error) => Error::Step(error),
            Ended::Unread(error) => Error::Unread(error),
            Ended::Unwritten(error) => Error::Unwritten(error),
            Ended::TooManyConflicts => Error::TooManyConflicts,
            Ended::LeaseLost => Error::LeaseLost,
            Ended::TakenOver(_) => Error::TakenOver,
        }
    }
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Step(error) => error.fmt(f),
            Error::Unread(error) | Error::Unwritten(error) => error.fmt(f),
            Error::TooManyConflicts => f.write_str("other writers were always first"),
            Error::LeaseLost => f.write_str("the lease is no longer held"),
            Error::TakenOver => f.write_str("another owner has taken over"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for Error<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // `Display` has said what they say.
            Error::Unread(error) | Error::Unwritten(error) => error.source(),
            _ => None,
        }
    }
}
