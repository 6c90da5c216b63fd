//! Calls to a store that end at the caller's deadline, and are sent again while their replies are lost.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

#[cfg(feature = "sqs")]
use crate::{Answers, Round, resend::is_undone};
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
pub(crate) const LATE_CALL_TIMEOUT: Duration = Duration::from_millis(200);

/// Which failed calls are worth another send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// Those whose reply was lost, to learn whether they were applied. A request that was not sent has changed
    /// nothing, and the caller hears of it at once.
    LostReplies,
    /// All that may succeed later: work was done outside the store, and its outcome should be recorded. Such a call may
    /// also run [past the deadline](LATE_CALL_TIMEOUT).
    AllFailures,
}

/// A store, and how long its caller can wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) deadline: Option<Instant>,
}

impl<'a> Sender<'a> {
    /// The values of `keys`.
    pub(crate) async fn get_all(&self, keys: &[Key], retry: Retry) -> Result<Vec<Option<String>>, Error> {
        self.in_time(retry, self.store.get_all(keys)).await
    }

    /// The value of `key`.
    pub(crate) async fn get(&self, key: &Key, retry: Retry) -> Result<Option<String>, Error> {
        self.in_time(retry, self.store.get(key)).await
    }

    /// All records of `log`.
    pub(crate) async fn read_to_end(&self, log: &Log) -> Result<Vec<Record>, Error> {
        self.in_time(Retry::LostReplies, read_to_end(self.store, log)).await
    }

    /// Commits `batch`, and sends it once only.
    pub(crate) async fn commit_once(&self, batch: &Batch) -> Result<Commit, Error> {
        self.in_time(Retry::LostReplies, self.store.commit(batch)).await
    }

    /// Commits `batch`, sending it again as [`Retry`] says, and tells whether a reply was lost on the way.
    ///
    /// The batch must recognise itself: by the [rule](crate::resend), or by the token of its owner, which the caller finds in
    /// a refusal. An error says "maybe applied" if that is true of any of the sends.
    pub(crate) async fn commit(&self, batch: &Batch, retry: Retry) -> Result<(Commit, bool), Error> {
        let mut unknown = None;
        let mut pauses = RESEND_PAUSES.into_iter();
        loop {
            let error = match self.in_time(retry, self.store.commit(batch)).await {
                Ok(answer) => return Ok((answer, unknown.is_some())),
                Err(error) => error,
            };
            if error.maybe_applied() && unknown.is_none() {
                unknown = Some(error.clone());
            }
            let worthwhile = error.is_retryable() && (retry == Retry::AllFailures || unknown.is_some());
            match pauses.next().filter(|pause| worthwhile && self.has_time_for(*pause)) {
                Some(pause) => sleep(pause).await,
                None => return Err(unknown.unwrap_or(error)),
            }
        }
    }

    /// Sends `round`, and in further rounds those of its batches that are worth another send, as [`commit`](Sender::commit)
    /// does with one. Its batches must recognise themselves. One that a later batch of the round may have
    /// [undone](is_undone) is sent once.
    #[cfg(feature = "sqs")]
    pub(crate) async fn send(&self, round: &Round, retry: Retry) -> Answers {
        let sent_at = Instant::now();
        let batches = round.batches();
        let mut answers = self.commit_each(batches, retry).await;
        for pause in RESEND_PAUSES {
            let worthwhile = |n: usize, error: &Error| {
                error.is_retryable()
                    && match error.maybe_applied() {
                        true => !is_undone(&batches[n], &batches[n + 1..]),
                        false => retry == Retry::AllFailures,
                    }
            };
            let again: Vec<usize> = (0..answers.len())
                .filter(|n| answers[*n].as_ref().is_err_and(|error| worthwhile(*n, error)))
                .collect();
            if again.is_empty() || !self.has_time_for(pause) {
                break;
            }
            sleep(pause).await;
            let resent: Vec<Batch> = again.iter().map(|n| batches[*n].clone()).collect();
            for (n, answer) in again.into_iter().zip(self.commit_each(&resent, retry).await) {
                let lost = answers[n].as_ref().is_err_and(Error::maybe_applied);
                answers[n] = match answer {
                    Err(error) if lost => Err(error.after_a_lost_reply()),
                    answer => answer,
                };
            }
        }
        round.answered(sent_at, answers)
    }

    /// Sends `round` once only.
    #[cfg(feature = "sqs")]
    pub(crate) async fn send_once(&self, round: &Round) -> Answers {
        let sent_at = Instant::now();
        round.answered(sent_at, self.commit_each(round.batches(), Retry::LostReplies).await)
    }

    #[cfg(feature = "sqs")]
    async fn commit_each(&self, batches: &[Batch], retry: Retry) -> Vec<Result<Commit, Error>> {
        if batches.is_empty() {
            return Vec::new();
        }
        let call = async { Ok(self.store.commit_each(batches).await) };
        let answers = self.in_time(retry, call).await;
        answers.unwrap_or_else(|error| batches.iter().map(|_| Err(error.clone())).collect())
    }

    /// Whether the deadline has passed.
    pub(crate) fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Whether the deadline comes later than `pause` from now.
    pub(crate) fn has_time_for(&self, pause: Duration) -> bool {
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
