//! A store that can be taken down: every call then fails, as if the server could not be reached.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt;
use onetap_store::{Batch, BoxStream, Channel, Commit, Error, Key, Log, Position, Record, Store, forward};
use tokio::sync::watch;

/// Another store, with an outage on demand. An outage also ends the open subscriptions, as a server that stops does.
#[derive(Debug)]
pub struct OutageStore {
    store: Arc<dyn Store>,
    down: watch::Sender<bool>,
}

impl OutageStore {
    /// `store`, without an outage.
    pub fn new(store: Arc<dyn Store>) -> OutageStore {
        OutageStore { store, down: watch::Sender::new(false) }
    }

    /// Begins or ends an outage.
    pub fn set_down(&self, down: bool) {
        self.down.send_replace(down);
    }

    /// Fails during an outage. The store below, which counts its own failures, is not called then: this one is counted
    /// here.
    fn check(&self, operation: &'static str) -> Result<(), Error> {
        if *self.down.borrow() {
            metrics::counter!("kv_error_total", "operation" => operation).increment(1);
            return Err(Error::not_sent("taken down at the playground"));
        }
        Ok(())
    }
}

#[async_trait]
impl Store for OutageStore {
    async fn get_all(&self, keys: &[Key]) -> Result<Vec<Option<String>>, Error> {
        self.check("get")?;
        self.store.get_all(keys).await
    }

    async fn commit(&self, batch: &Batch) -> Result<Commit, Error> {
        self.check("set")?;
        self.store.commit(batch).await
    }

    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        match self.check("set") {
            Ok(()) => self.store.commit_each(batches).await,
            Err(error) => vec![Err(error); batches.len()],
        }
    }

    async fn read(&self, log: &Log, after: Option<Position>, limit: usize) -> Result<Vec<Record>, Error> {
        self.check("read")?;
        self.store.read(log, after, limit).await
    }

    async fn watch(&self, channel: &Channel) -> Result<BoxStream<'static, Result<(), Error>>, Error> {
        self.check("watch")?;
        let mut down = self.down.subscribe();
        let taken_down = async move { drop(down.wait_for(|down| *down).await) };
        Ok(self.store.watch(channel).await?.take_until(Box::pin(taken_down)).boxed())
    }

    forward!(store: connect, capabilities, max_value);
}
