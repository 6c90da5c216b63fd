//! The store and the time of one delivery. After one failure of the store the delivery goes on without it; only a write whose
//! reply was lost is looked up.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onetap_idem::{Call, Idempotency};
use onetap_line::Client;
use onetap_line::webhook::Event;
use onetap_store::{
    Answers, Batch, Commit, Error, ErrorKind, Key, Log, Position, Record, Round, Store, async_trait, edit,
    forward, read_to_end,
};
use tokio::time::{Instant, timeout_at};

use crate::{Channel, Config};

/// Time that a bot's answer leaves for the commit of its writes.
const COMMIT_RESERVE: Duration = Duration::from_millis(100);

/// What all deliveries share.
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) idem: Idempotency,
    pub(crate) config: Config,
    /// In the order of the configuration's channels.
    pub(crate) clients: Vec<Client>,
    pub(crate) now_ms: Arc<dyn Fn() -> i64 + Send + Sync>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("store", &self.store)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// What all events of a delivery share.
pub(crate) struct Session<'a> {
    pub(crate) engine: &'a Engine,
    /// The channel that the delivery came to, by its number.
    channel: usize,
    pub(crate) now_ms: i64,
    pub(crate) deadline: Instant,
    store_is_up: AtomicBool,
}

impl<'a> Session<'a> {
    pub(crate) fn new(engine: &'a Engine, channel: usize, deadline: Instant) -> Session<'a> {
        Session { engine, channel, now_ms: (engine.now_ms)(), deadline, store_is_up: AtomicBool::new(true) }
    }

    /// The client of the delivery's channel.
    pub(crate) fn line(&self) -> &'a Client {
        &self.engine.clients[self.channel]
    }

    /// The delivery's channel.
    pub(crate) fn channel(&self) -> &'a Channel {
        &self.engine.config.channels[self.channel]
    }

    /// The deadline of everything that comes before a reply, which needs its own time.
    pub(crate) fn before_reply(&self) -> Instant {
        self.deadline - self.engine.config.times.reply
    }

    pub(crate) fn store_is_up(&self) -> bool {
        self.store_is_up.load(Ordering::Relaxed)
    }

    /// The deadline of a bot's answer: its writes come after it.
    pub(crate) fn answer_deadline(&self) -> Instant {
        self.before_reply() - COMMIT_RESERVE.min(self.engine.config.times.delivery / 10)
    }

    /// The idempotent call of an event, if it has an id to be known by.
    pub(crate) fn call(&self, event: &Event) -> Option<Call> {
        let id = event.webhook_event_id.as_deref()?;
        Some(self.engine.idem.call(&format!("line:{id}")))
    }

    /// Makes no further store call in this delivery if the store failed. A value that cannot be read is a failure of one
    /// event, not of the store; and what ends after the time for it does not show that the store is down.
    pub(crate) fn note_failure(&self, error: &Error) {
        let down = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Rejected);
        let is_late = Instant::now() >= self.before_reply();
        if down && !is_late && self.store_is_up.swap(false, Ordering::Relaxed) {
            tracing::warn!(%error, "the store failed: this delivery goes on without it");
        }
    }

    /// The same for an edit that failed.
    pub(crate) fn note_failed_edit<E>(&self, error: &edit::Error<E>) {
        if let edit::Error::Unread(error) | edit::Error::Unwritten(error) = error {
            self.note_failure(error);
        }
    }

    /// The store, for an edit: it makes no call once another event of the delivery has seen it fail. A failure of the edit's
    /// own is for the edit: it looks up what a lost reply may have written.
    pub(crate) fn store(&self) -> WhileUp<'_> {
        WhileUp { store: &*self.engine.store, is_up: &self.store_is_up }
    }

    /// The values of `keys`, in their order.
    pub(crate) async fn get_all(&self, keys: &[Key]) -> Result<Vec<Option<String>>, Error> {
        let answer = timeout_at(self.before_reply(), self.store().get_all(keys)).await;
        answer.unwrap_or_else(|_| Err(late())).inspect_err(|error| self.note_failure(error))
    }

    /// All records of `log`.
    pub(crate) async fn records(&self, log: &Log) -> Result<Vec<Record>, Error> {
        let store = self.store();
        let answer = timeout_at(self.before_reply(), read_to_end(&store, log)).await;
        answer.unwrap_or_else(|_| Err(late())).inspect_err(|error| self.note_failure(error))
    }

    /// Sends `round`; an error for every batch where the store has failed, or takes longer than the delivery has.
    pub(crate) async fn send(&self, round: Round) -> Answers {
        if !self.store_is_up() {
            return round.fail(&late());
        }
        let answers = timeout_at(self.deadline, round.send(&*self.engine.store)).await;
        let answers = answers.unwrap_or_else(|_| round.fail(&late()));
        answers.errors().for_each(|error| self.note_failure(error));
        answers
    }
}

fn late() -> Error {
    Error::unknown("no time left in this delivery")
}

/// A store that is called only while the delivery has not seen it fail.
#[derive(Debug)]
pub(crate) struct WhileUp<'a> {
    store: &'a dyn Store,
    is_up: &'a AtomicBool,
}

impl WhileUp<'_> {
    fn check(&self) -> Result<(), Error> {
        match self.is_up.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(Error::not_sent("the store has failed in this delivery")),
        }
    }
}

#[async_trait]
impl Store for WhileUp<'_> {
    async fn get_all(&self, keys: &[Key]) -> Result<Vec<Option<String>>, Error> {
        self.check()?;
        self.store.get_all(keys).await
    }

    async fn commit(&self, batch: &Batch) -> Result<Commit, Error> {
        self.check()?;
        self.store.commit(batch).await
    }

    async fn read(&self, log: &Log, after: Option<Position>, limit: usize) -> Result<Vec<Record>, Error> {
        self.check()?;
        self.store.read(log, after, limit).await
    }

    forward!(store: commit_each, watch, connect, capabilities, max_value);
}
