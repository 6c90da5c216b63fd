//! A store that can be taken down: every call then fails, as if nobody were there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use onetap_store::{Batch, BoxStream, Channel, Commit, Error, Key, Log, Position, Record, Store};

/// Another store, behind a switch. Who watches already goes on watching: nothing rings while nothing is written.
#[derive(Debug)]
pub(crate) struct Switch {
    store: Arc<dyn Store>,
    down: AtomicBool,
}

impl Switch {
    pub(crate) fn new(store: Arc<dyn Store>) -> Switch {
        Switch { store, down: AtomicBool::new(false) }
    }

    pub(crate) fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    pub(crate) fn is_down(&self) -> bool {
        self.down.load(Ordering::SeqCst)
    }

    /// The store that notes failures is behind this one, so that this failure is counted here.
    fn up(&self, operation: &'static str) -> Result<(), Error> {
        if self.is_down() {
            onetap_telemetry::count("kv_error_total", &[("operation", operation)]);
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
        self.store.watch(channel).await
    }

    fn max_value(&self) -> usize {
        self.store.max_value()
    }
}
