//! A store that remembers which names were used: what a request may touch is a promise of its own.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use onetap_bus::Job;
use onetap_ledger::Month;
use onetap_store::{
    Batch, BoxStream, Channel, Commit, Error, Key, Log, Memory, Position, Record, Store, Write, forward,
};

/// The names that were used, whatever for. Names of test data: `Debug` may show them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Keys that were read, checked or written.
    pub keys: BTreeSet<String>,
    /// Logs that were read or appended to.
    pub logs: BTreeSet<String>,
    /// Channels that were published on or watched.
    pub channels: BTreeSet<String>,
}

impl Touched {
    /// Whether nothing was asked of the store.
    pub fn is_empty(&self) -> bool {
        *self == Touched::default()
    }
}

/// What spec §3 keeps under a user's id, the logs of the ledger apart.
pub fn keys_of_a_user(user: &str) -> [String; 5] {
    [
        format!("processing:user:{user}"),
        format!("user:{user}:profile"),
        format!("user:{user}:last_transaction"),
        format!("user:{user}:ledger"),
        format!("user:{user}:pending"),
    ]
}

/// Where the sample's forecasts are kept. They are nobody's.
pub fn forecast_keys() -> impl Iterator<Item = String> {
    onetap_weather::places::all().iter().map(|place| format!("weather:sample:{}", place.name()))
}

/// Whether this is the log of a month of the user's ledger.
pub fn is_log_of_a_user(log: &str, user: &str) -> bool {
    log.strip_prefix(&format!("user:{user}:ledger:")).is_some_and(|month| Month::parse(month).is_some())
}

/// What spec §3 writes for an event, with four shards.
pub fn names_of_an_event(domain: &str, id: &str, stage: &str, seq: u64) -> Touched {
    let shard = Job::new(domain, id).map(|job| job.shard(4)).unwrap_or_default();
    Touched {
        keys: BTreeSet::from([
            format!("published:{id}:{stage}:{seq}"),
            format!("router:published:{id}:{seq}"),
            format!("{domain}:state:{id}"),
        ]),
        logs: BTreeSet::from([format!("{domain}:events:{shard}"), format!("{domain}:job:{id}")]),
        channels: BTreeSet::from([format!("{domain}:events:{id}")]),
    }
}

/// Another store, and what was used of it.
#[derive(Debug)]
pub struct Recording {
    store: Arc<dyn Store>,
    touched: Mutex<Touched>,
}

impl Recording {
    /// Remembers what is used of `store`.
    pub fn new(store: Arc<dyn Store>) -> Arc<Recording> {
        Arc::new(Recording { store, touched: Mutex::default() })
    }

    /// An empty store in memory.
    pub fn memory() -> Arc<Recording> {
        Recording::new(Arc::new(Memory::new()))
    }

    /// What was used since the last look.
    pub fn take(&self) -> Touched {
        std::mem::take(&mut self.touched.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What a key holds, without its being remembered.
    pub async fn peek(&self, key: &str) -> Option<String> {
        self.store.get(&Key::new(key).ok()?).await.ok().flatten()
    }

    fn note(&self, note: impl FnOnce(&mut Touched)) {
        note(&mut self.touched.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn note_batch(&self, batch: &Batch) {
        self.note(|touched| {
            for write in batch.writes() {
                match write {
                    Write::Append { log, .. } | Write::Clear { log } => {
                        touched.logs.insert(log.as_str().to_owned())
                    }
                    Write::Publish { channel, .. } => touched.channels.insert(channel.as_str().to_owned()),
                    Write::Check { key, .. }
                    | Write::Put { key, .. }
                    | Write::Delete { key, .. }
                    | Write::PutIfNewer { key, .. } => touched.keys.insert(key.as_str().to_owned()),
                };
            }
        });
    }
}

#[async_trait]
impl Store for Recording {
    async fn get_all(&self, keys: &[Key]) -> Result<Vec<Option<String>>, Error> {
        self.note(|touched| touched.keys.extend(keys.iter().map(|key| key.as_str().to_owned())));
        self.store.get_all(keys).await
    }

    async fn commit(&self, batch: &Batch) -> Result<Commit, Error> {
        self.note_batch(batch);
        self.store.commit(batch).await
    }

    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        batches.iter().for_each(|batch| self.note_batch(batch));
        self.store.commit_each(batches).await
    }

    async fn read(&self, log: &Log, after: Option<Position>, limit: usize) -> Result<Vec<Record>, Error> {
        self.note(|touched| _ = touched.logs.insert(log.as_str().to_owned()));
        self.store.read(log, after, limit).await
    }

    async fn watch(&self, channel: &Channel) -> Result<BoxStream<'static, Result<(), Error>>, Error> {
        self.note(|touched| _ = touched.channels.insert(channel.as_str().to_owned()));
        self.store.watch(channel).await
    }

    forward!(store: connect, max_value);
}
