//! A store that can be taken down: every call then fails, as if nobody were there.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt;
use onetap_store::{Batch, BoxStream, Channel, Commit, Error, Key, Log, Position, Record, Store};
use tokio::sync::watch;

/// Another store, behind a switch. Subscriptions break when it is taken down, as those of a server do.
#[derive(Debug)]
pub(crate) struct Switch {
    store: Arc<dyn Store>,
    down: watch::Sender<bool>,
}

impl Switch {
    pub(crate) fn new(store: Arc<dyn Store>) -> Switch {
        Switch { store, down: watch::Sender::new(false) }
    }

    pub(crate) fn set_down(&self, down: bool) {
        self.down.send_replace(down);
    }

    pub(crate) fn is_down(&self) -> bool {
        *self.down.borrow()
    }

    /// The store that notes failures is behind this one, so that this failure is counted here.
    fn up(&self, operation: &'static str) -> Result<(), Error> {
        if self.is_down() {
            metrics::counter!("kv_error_total", "operation" => operation).increment(1);
            return Err(Error::not_sent("taken down at the playground"));
        }
        Ok(())
    }
}

#[async_trait]
impl Store for Switch {
    async fn get(&self, key: &Key) -> Result<Option<String>, Error> {
        self.up("get")?;
        self.store.get(key).await
    }

    async fn commit(&self, batch: &Batch) -> Result<Commit, Error> {
        self.up("set")?;
        self.store.commit(batch).await
    }

    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        match self.up("set") {
            Ok(()) => self.store.commit_each(batches).await,
            Err(error) => vec![Err(error); batches.len()],
        }
    }

    async fn read(&self, log: &Log, after: Option<Position>, limit: usize) -> Result<Vec<Record>, Error> {
        self.up("read")?;
        self.store.read(log, after, limit).await
    }

    async fn watch(&self, channel: &Channel) -> Result<BoxStream<'static, Result<(), Error>>, Error> {
        self.up("watch")?;
        let mut down = self.down.subscribe();
        let taken_down = async move { drop(down.wait_for(|down| *down).await) };
        Ok(self.store.watch(channel).await?.take_until(Box::pin(taken_down)).boxed())
    }

    fn max_value(&self) -> usize {
        self.store.max_value()
    }
}
