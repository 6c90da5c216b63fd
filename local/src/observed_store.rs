//! A store whose writes are shown on the page, on any backend: the view is told what each applied batch did.

use std::sync::Arc;

use async_trait::async_trait;
use onetap_store::{Batch, Commit, Error, Store, forward};

use crate::clock::now_ms;
use crate::view::View;

/// Another store, observed. Only the writes of this process are seen.
#[derive(Debug)]
pub(crate) struct ObservedStore {
    store: Arc<dyn Store>,
    view: Arc<View>,
}

impl ObservedStore {
    pub(crate) fn new(store: Arc<dyn Store>, view: Arc<View>) -> ObservedStore {
        ObservedStore { store, view }
    }

    /// Tells the view what the batch did. A TTL counts from `sent`, the time before the call: the page never shows a
    /// key for longer than the store keeps it, except for clock error.
    async fn observe(&self, batch: &Batch, commit: &Result<Commit, Error>, sent: u64) {
        let Ok(Commit::Applied(positions)) = commit else { return };
        // Replies can arrive in another order than the commits. Where one contradicts the view, the store is read.
        for key in self.view.applied(batch, positions, sent) {
            if let Ok(there) = self.store.get(&key).await {
                self.view.found(&key, there.as_deref());
            }
        }
    }
}

#[async_trait]
impl Store for ObservedStore {
    async fn commit(&self, batch: &Batch) -> Result<Commit, Error> {
        let sent = now_ms();
        let commit = self.store.commit(batch).await;
        self.observe(batch, &commit, sent).await;
        commit
    }

    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        let sent = now_ms();
        let commits = self.store.commit_each(batches).await;
        for (batch, commit) in batches.iter().zip(&commits) {
            self.observe(batch, commit, sent).await;
        }
        commits
    }

    forward!(store: get_all, read, watch, connect, capabilities, max_value);
}
