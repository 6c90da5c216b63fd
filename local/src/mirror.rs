//! A store whose writes can be watched, whatever backend it is: what an applied batch did is noted in the view.

use std::sync::Arc;

use async_trait::async_trait;
use onetap_store::{Batch, BoxStream, Channel, Commit, Error, Key, Log, Position, Record, Store};

use crate::clock::now_ms;
use crate::view::View;

/// Another store, mirrored. Only what this process writes is seen.
#[derive(Debug)]
pub(crate) struct Mirror {
    store: Arc<dyn Store>,
    view: Arc<View>,
}

impl Mirror {
    pub(crate) fn new(store: Arc<dyn Store>, view: Arc<View>) -> Mirror {
        Mirror { store, view }
    }

    /// Lives are counted from before the call: what is shown never outlives what is there by more than a clock's error.
    async fn note(&self, batch: &Batch, answer: &Result<Commit, Error>, sent: u64) {
        let Ok(Commit::Applied(positions)) = answer else { return };
        // Answers overtake each other on their way here. Where one contradicts the mirror, the store is asked.
        for key in self.view.applied(batch, positions, sent) {
            if let Ok(there) = self.store.get(&key).await {
                self.view.found(&key, there.as_deref());
            }
        }
    }
}

#[async_trait]
impl Store for Mirror {
    async fn get(&self, key: &Key) -> Result<Option<String>, Error> {
        self.store.get(key).await
    }

    async fn commit(&self, batch: &Batch) -> Result<Commit, Error> {
        let sent = now_ms();
        let answer = self.store.commit(batch).await;
        self.note(batch, &answer, sent).await;
        answer
    }

    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        let sent = now_ms();
        let answers = self.store.commit_each(batches).await;
        for (batch, answer) in batches.iter().zip(&answers) {
            self.note(batch, answer, sent).await;
        }
        answers
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
