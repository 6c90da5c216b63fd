//! What kills the consumer in the middle of a batch: a store that does half of what it is asked, and never answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use onetap_store::{Batch, BoxStream, Channel, Commit, Error, Key, Log, Position, Record, Store, Write};
use tokio::sync::Notify;

use crate::queue::Jobs;

/// The consumer's store. It also tells the queue what became of each event.
pub(crate) struct Fuse {
    store: Arc<dyn Store>,
    jobs: Arc<Jobs>,
    armed: AtomicBool,
    blown: Notify,
}

impl std::fmt::Debug for Fuse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fuse({:?})", self.store)
    }
}

impl Fuse {
    pub(crate) fn new(store: Arc<dyn Store>, jobs: Arc<Jobs>) -> Fuse {
        Fuse { store, jobs, armed: AtomicBool::new(false), blown: Notify::new() }
    }

    /// The next batch is the last of its call.
    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    /// Returns when half of a batch is committed, and the call must die.
    pub(crate) async fn blown(&self) {
        self.blown.notified().await;
    }

    async fn commit_all(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        let answers = self.store.commit_each(batches).await;
        for (batch, answer) in batches.iter().zip(&answers) {
            // An event's last append is the one to its job's log.
            let mut appends = batch.writes().iter().filter_map(|write| match write {
                Write::Append { log, text, .. } => Some((log, text)),
                _ => None,
            });
            if let (Some((log, text)), Ok(answer)) = (appends.next_back(), answer) {
                self.jobs.answered(log.as_str(), text, answer);
            }
        }
        answers
    }
}

#[async_trait]
impl Store for Fuse {
    async fn get(&self, key: &Key) -> Result<Option<String>, Error> {
        self.store.get(key).await
    }

    async fn commit(&self, batch: &Batch) -> Result<Commit, Error> {
        self.store.commit(batch).await
    }

    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        if self.armed.swap(false, Ordering::SeqCst) {
            let half = batches.len().div_ceil(2);
            self.commit_all(&batches[..half]).await;
            self.blown.notify_one();
            return std::future::pending().await;
        }
        self.commit_all(batches).await
    }

    async fn read(&self, log: &Log, after: Option<Position>, limit: usize) -> Result<Vec<Record>, Error> {
        self.store.read(log, after, limit).await
    }

    async fn watch(&self, channel: &Channel) -> Result<BoxStream<'static, Result<(), Error>>, Error> {
        self.store.watch(channel).await
    }

    fn max_value(&self) -> usize {
        self.store.max_value()
    }
}
