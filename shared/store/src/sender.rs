//! Calls to a store that end at the caller's deadline, and are sent again while their replies are lost.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use crate::resend::is_undone;
use crate::{Batch, Commit, Error, Key, Log, Record, Store, read_to_end};

/// Pauses between the sends of one batch: with a store timeout of 500 ms, about three seconds in all.
const RESEND_PAUSES: [Duration; 4] = [
    Duration::from_millis(20),
    Duration::from_millis(80),
    Duration::from_millis(200),
    Duration::from_millis(400),
];

/// Time limit for a call that records work already done, even if the deadline has passed. It is shorter than the time
/// that the layers for Lambda keep between the deadline and the end of the invocation.
pub const LATE_CALL_TIMEOUT: Duration = Duration::from_millis(200);

/// Which failed calls are worth another send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Those whose reply was lost, to learn whether they were applied. A request that was not sent has changed
    /// nothing, and the caller hears of it at once.
    LostReplies,
    /// All that may succeed later: work was done outside the store, and its outcome should be recorded. Such a call may
    /// also run [past the deadline](LATE_CALL_TIMEOUT).
    AllFailures,
}

/// A store, and how long its caller can wait.
#[derive(Clone, Copy, Debug)]
pub struct Sender<'a> {
    /// The store.
    pub store: &'a dyn Store,
    /// When calls end.
    pub deadline: Option<Instant>,
}

/// The answer to a batch that a [`Sender`] has sent.
#[derive(Debug)]
#[must_use]
pub struct Sent {
    /// The answer to the last send.
    pub answer: Result<Commit, Error>,
    /// Whether the reply to one of the sends was lost.
    pub lost: bool,
}

impl<'a> Sender<'a> {
    /// The values of `keys`.
    pub async fn get_all(&self, keys: &[Key], retry: Retry) -> Result<Vec<Option<String>>, Error> {
        self.in_time(retry, self.store.get_all(keys)).await
    }

    /// The value of `key`.
    pub async fn get(&self, key: &Key, retry: Retry) -> Result<Option<String>, Error> {
        self.in_time(retry, self.store.get(key)).await
    }

    /// All records of `log`.
    pub async fn read_to_end(&self, log: &Log) -> Result<Vec<Record>, Error> {
        self.in_time(Retry::LostReplies, read_to_end(self.store, log)).await
    }

    /// Commits `batch`, and sends it once only.
    pub async fn commit_once(&self, batch: &Batch) -> Result<Commit, Error> {
        self.in_time(Retry::LostReplies, self.store.commit(batch)).await
    }

    /// Commits `batch`, sending it again as [`Retry`] says.
    pub async fn commit(&self, batch: &Batch, retry: Retry) -> Sent {
        let unanswered =
            || Sent { answer: Err(Error::unknown("the store left a batch unanswered")), lost: true };
        self.send(std::slice::from_ref(batch), retry).await.pop().unwrap_or_else(unanswered)
    }

    /// Commits `batches` in one round trip, and in further ones those that are worth another send, as [`Retry`] says.
    ///
    /// The batches must recognise themselves: by the rule of [`Batch::is_repeatable`], or by the token of their owner, which the
    /// caller finds in a refusal. A batch that a later one of them may have undone is sent once. An error says "maybe applied" if
    /// that is true of any of the sends.
    pub async fn send(&self, batches: &[Batch], retry: Retry) -> Vec<Sent> {
        let is_lost = |answer: &Result<Commit, Error>| answer.as_ref().is_err_and(Error::maybe_applied);
        let first = self.send_all(batches, retry).await.into_iter();
        let mut sent: Vec<Sent> = first.map(|answer| Sent { lost: is_lost(&answer), answer }).collect();
        for pause in RESEND_PAUSES {
            let is_worthwhile = |n: usize| {
                sent[n].answer.as_ref().is_err_and(Error::is_retryable)
                    && match sent[n].lost {
                        true => !is_undone(&batches[n], &batches[n + 1..]),
                        false => retry == Retry::AllFailures,
                    }
            };
            let again: Vec<usize> = (0..sent.len()).filter(|n| is_worthwhile(*n)).collect();
            if again.is_empty() || !self.has_time_for(pause) {
                break;
            }
            sleep(pause).await;
            let resent: Vec<Batch> = again.iter().map(|n| batches[*n].clone()).collect();
            for (n, answer) in again.into_iter().zip(self.send_all(&resent, retry).await) {
                sent[n] = Sent { lost: sent[n].lost || is_lost(&answer), answer };
            }
        }
        let mark_lost = |Sent { answer, lost }| {
            let answer = if lost { answer.map_err(Error::after_a_lost_reply) } else { answer };
            Sent { answer, lost }
        };
        sent.into_iter().map(mark_lost).collect()
    }

    /// Commits `batches` in one round trip, and sends none of them again.
    pub async fn send_once(&self, batches: &[Batch]) -> Vec<Sent> {
        let answers = self.send_all(batches, Retry::LostReplies).await.into_iter();
        answers.map(|answer| Sent { lost: false, answer }).collect()
    }

    async fn send_all(&self, batches: &[Batch], retry: Retry) -> Vec<Result<Commit, Error>> {
        match batches {
            [] => Vec::new(),
            [batch] => vec![self.in_time(retry, self.store.commit(batch)).await],
            _ => {
                let call = async { Ok(self.store.commit_each(batches).await) };
                let answers = self.in_time(retry, call).await;
                answers.unwrap_or_else(|error| batches.iter().map(|_| Err(error.clone())).collect())
            }
        }
    }

    /// Whether the deadline has passed.
    pub fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Whether the deadline comes later than `pause` from now.
    pub fn has_time_for(&self, pause: Duration) -> bool {
        self.deadline.is_none_or(|deadline| Instant::now() + pause < deadline)
    }

    /// Ends a call at the deadline, whatever timeout the store has; after the deadline it is not begun.
    async fn in_time<T>(
        &self,
        retry: Retry,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let Some(deadline) = self.deadline else { return call.await };
        let now = Instant::now();
        let end = match retry {
            Retry::LostReplies if deadline <= now => {
                return Err(Error::not_sent("the deadline has passed"));
            }
            Retry::LostReplies => deadline,
            Retry::AllFailures => deadline.max(now + LATE_CALL_TIMEOUT),
        };
        let cut_off = |_| Err(Error::unknown("the deadline came before the store's answer"));
        timeout_at(end, call).await.unwrap_or_else(cut_off)
    }
}
