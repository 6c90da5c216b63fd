//! A store that records what was written through it, and whether it failed, until it is closed.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use onetap_store::{Batch, BoxStream, Channel, Commit, Error, Key, Log, Position, Record, Store, forward};

/// Pause before a failure is passed on: a promise may repeat the call at once, and would keep its thread busy where the
/// failure takes no time.
const FAILURE_PAUSE: Duration = Duration::from_millis(20);

/// Remembers the name of every key and log that a batch writes, so that all of them can be removed.
#[derive(Debug)]
pub(crate) struct RecordedStore {
    store: Arc<dyn Store>,
    written: Mutex<BTreeSet<String>>,
    /// The first call that did not reach the service, or got no answer.
    failure: Mutex<Option<Error>>,
    closed: AtomicBool,
    /// Writes whose answers have not come.
    under_way: AtomicUsize,
}

/// One write under way.
struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl RecordedStore {
    pub(crate) fn new(store: Arc<dyn Store>) -> RecordedStore {
        RecordedStore {
            store,
            written: Mutex::default(),
            failure: Mutex::default(),
            closed: AtomicBool::new(false),
            under_way: AtomicUsize::new(0),
        }
    }

    /// The names that were written so far.
    pub(crate) fn written(&self) -> Vec<String> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// Lets no further call through: it waits for ever. A task of a promise that was given up would go on, and repeat a
    /// call that fails.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Whether a write may still be applied.
    pub(crate) fn is_writing(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) > 0
    }

    /// Why a call did not reach the service, or got no answer; none if every call did.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn wait_if_closed(&self) {
        if self.closed.load(Ordering::SeqCst) {
            pending().await
        }
    }

    async fn noted<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &answer
            && error.is_retryable()
        {
            self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| error.clone());
            tokio::time::sleep(FAILURE_PAUSE).await;
        }
        answer
    }

    /// Before the batches are sent: they may be applied although the answer never comes.
    async fn record(&self, batches: &[Batch]) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let under_way = UnderWay(&self.under_way);
        if self.closed.load(Ordering::SeqCst) {
            drop(under_way);
            return pending().await;
        }
        let names = batches.iter().flat_map(Batch::writes).filter_map(|write| write.name());
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.extend(names.map(str::to_owned));
        drop(written);
        under_way
    }
}

#[onetap_store::async_trait]
impl Store for RecordedStore {
    async fn get_all(&self, keys: &[Key]) -> Result<Vec<Option<String>>, Error> {
        self.wait_if_closed().await;
        self.noted(self.store.get_all(keys).await).await
    }

    async fn commit(&self, batch: &Batch) -> Result<Commit, Error> {
        let _under_way = self.record(std::slice::from_ref(batch)).await;
        self.noted(self.store.commit(batch).await).await
    }

    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        let _under_way = self.record(batches).await;
        join_all(self.store.commit_each(batches).await.into_iter().map(|answer| self.noted(answer))).await
    }

    async fn read(&self, log: &Log, after: Option<Position>, limit: usize) -> Result<Vec<Record>, Error> {
        self.wait_if_closed().await;
        self.noted(self.store.read(log, after, limit).await).await
    }

    async fn watch(&self, channel: &Channel) -> Result<BoxStream<'static, Result<(), Error>>, Error> {
        self.wait_if_closed().await;
        self.noted(self.store.watch(channel).await).await
    }

    async fn connect(&self) -> Result<(), Error> {
        self.wait_if_closed().await;
        self.noted(self.store.connect().await).await
    }

    forward!(store: max_value);
}
