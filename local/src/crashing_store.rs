//! The consumer's store, which can crash the consumer in the middle of a batch: it commits half of the batch and never
//! answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use onetap_store::{Batch, Commit, Error, Store, Write, forward};
use tokio::sync::Notify;

use crate::queue::JobQueue;

/// Another store, with a crash on demand. It also reports to the queue what each commit of an event did.
pub(crate) struct CrashingStore {
    store: Arc<dyn Store>,
    queue: Arc<JobQueue>,
    armed: AtomicBool,
    crashed: Notify,
}

impl std::fmt::Debug for CrashingStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CrashingStore({:?})", self.store)
    }
}

impl CrashingStore {
    pub(crate) fn new(store: Arc<dyn Store>, queue: Arc<JobQueue>) -> CrashingStore {
        CrashingStore { store, queue, armed: AtomicBool::new(false), crashed: Notify::new() }
    }

    /// Makes the next batch crash.
    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    /// Returns when half of a batch is committed: the invocation that waits for the rest must be dropped.
    pub(crate) async fn crashed(&self) {
        self.crashed.notified().await;
    }

    async fn commit_and_report(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        let commits = self.store.commit_each(batches).await;
        for (batch, commit) in batches.iter().zip(&commits) {
            // An event's last append is the one to its job's log.
            let mut appends = batch.writes().iter().filter_map(|write| match write {
                Write::Append { log, text, .. } => Some((log, text)),
                _ => None,
            });
            if let (Some((log, text)), Ok(commit)) = (appends.next_back(), commit) {
                self.queue.committed(log.as_str(), text, commit);
            }
        }
        commits
    }
}

#[async_trait]
impl Store for CrashingStore {
    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        if self.armed.swap(false, Ordering::SeqCst) {
            let half = batches.len().div_ceil(2);
            self.commit_and_report(&batches[..half]).await;
            self.crashed.notify_one();
            return std::future::pending().await;
        }
        self.commit_and_report(batches).await
    }

    forward!(store: get_all, commit, read, watch, connect, capabilities, max_value);
}
