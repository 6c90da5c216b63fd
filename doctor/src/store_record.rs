//! A record of what was written through a store, and whether it failed, until the store is closed.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onetap_store::testing::{Answer, Call, TestStore};
use onetap_store::{Batch, Error, Store, Write};

/// Pause before a failure is passed on: a promise may repeat the call at once, and would keep its thread busy where the
/// failure takes no time.
const FAILURE_PAUSE: Duration = Duration::from_millis(20);

/// Remembers the name of every key and log that a batch writes, so that all of them can be removed.
#[derive(Debug, Default)]
pub(crate) struct StoreRecord {
    written: Mutex<BTreeSet<String>>,
    /// The first call that did not reach the service, or got no answer.
    failure: Mutex<Option<Error>>,
    closed: AtomicBool,
    /// Writes whose answers have not come.
    under_way: AtomicUsize,
}

/// One write under way.
struct UnderWay<'a>(&'a AtomicUsize);

impl UnderWay<'_> {
    fn new(count: &AtomicUsize) -> UnderWay<'_> {
        count.fetch_add(1, Ordering::SeqCst);
        UnderWay(count)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl StoreRecord {
    /// `store`, recorded here.
    pub(crate) fn of(self: &Arc<Self>, store: Arc<dyn Store>) -> Arc<dyn Store> {
        let record = Arc::clone(self);
        TestStore::scripted(store, move |call| Arc::clone(&record).record(call))
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

    async fn record(self: Arc<Self>, call: Call) -> Answer {
        // Before the batches are sent: they may be applied although the answer never comes.
        let under_way = (!call.batches().is_empty()).then(|| UnderWay::new(&self.under_way));
        if self.closed.load(Ordering::SeqCst) {
            drop(under_way);
            return pending().await;
        }
        let names = call.batches().iter().flat_map(Batch::writes).filter_map(Write::name);
        self.written.lock().unwrap_or_else(PoisonError::into_inner).extend(names.map(str::to_owned));
        let answer = call.send().await;
        if let Some(error) = answer.errors().find(|error| error.is_retryable()) {
            self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| error.clone());
            tokio::time::sleep(FAILURE_PAUSE).await;
        }
        answer
    }
}
