//! The store and the time of one delivery. After one failure of the store the delivery goes on without it.

use std::sync::atomic::{AtomicBool, Ordering};

use onetap_ledger::Moment;
use onetap_store::{Answers, Error, Key, Round};
use tokio::time::{Instant, timeout_at};

use crate::Webhook;

/// What all events of a delivery share.
pub(crate) struct Session<'a> {
    pub(crate) webhook: &'a Webhook,
    pub(crate) now: Moment,
    pub(crate) deadline: Instant,
    store_is_up: AtomicBool,
}

impl<'a> Session<'a> {
    pub(crate) fn new(webhook: &'a Webhook, deadline: Instant) -> Session<'a> {
        Session { webhook, now: Moment::now(), deadline, store_is_up: AtomicBool::new(true) }
    }

    /// The deadline of everything that comes before a reply, which needs its own time.
    pub(crate) fn before_reply(&self) -> Instant {
        self.deadline - self.webhook.config.times.reply
    }

    pub(crate) fn store_is_up(&self) -> bool {
        self.store_is_up.load(Ordering::Relaxed)
    }

    /// Makes no further store call in this delivery if the store failed. A value that cannot be read is a failure of one
    /// event, not of the store.
    pub(crate) fn note_failure(&self, error: &Error) {
        let down = matches!(error, Error::Unavailable { .. } | Error::Rejected { .. });
        if down && self.store_is_up.swap(false, Ordering::Relaxed) {
            tracing::warn!(%error, "the store failed: this delivery goes on without it");
        }
    }

    /// The value of `key`.
    pub(crate) async fn get(&self, key: &Key) -> Result<Option<String>, Error> {
        if !self.store_is_up() {
            return Err(late());
        }
        let answer = timeout_at(self.before_reply(), self.webhook.store.get(key)).await;
        answer.unwrap_or_else(|_| Err(late())).inspect_err(|error| self.note_failure(error))
    }

    /// Sends `round`; an error for every batch where the store has failed, or takes longer than the delivery has.
    pub(crate) async fn send(&self, round: Round) -> Answers {
        let failed = round.failed(&late());
        if !self.store_is_up() {
            return failed;
        }
        let answers = timeout_at(self.deadline, round.send(&*self.webhook.store)).await.unwrap_or(failed);
        answers.errors().for_each(|error| self.note_failure(error));
        answers
    }
}

fn late() -> Error {
    Error::unknown("no time left in this delivery")
}
