//! Which names of a store were used: what a request may touch is a promise of its own.

use std::collections::BTreeSet;
use std::sync::Arc;

use onetap_bus::Job;
use onetap_ledger::Month;
use onetap_store::testing::{Request, TestStore};
use onetap_store::{Batch, Key, Memory, Store, Write};

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

/// An empty store in memory, with a record of what it is asked.
pub fn recording() -> Arc<TestStore> {
    TestStore::recording(Arc::new(Memory::new()))
}

/// What was used of a recording store since the last look.
pub fn touched(store: &TestStore) -> Touched {
    let mut touched = Touched::default();
    for request in store.requests() {
        match &request {
            Request::GetAll(keys) => touched.keys.extend(keys.iter().map(|key| key.as_str().to_owned())),
            Request::Read { log, .. } => _ = touched.logs.insert(log.as_str().to_owned()),
            Request::Watch(channel) => _ = touched.channels.insert(channel.as_str().to_owned()),
            Request::Commit(_) | Request::CommitEach(_) | Request::Connect => {}
        }
        for write in request.batches().iter().flat_map(Batch::writes) {
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
    }
    touched
}

/// What a key holds, without its being recorded.
pub async fn peek(store: &TestStore, key: &str) -> Option<String> {
    store.below().get(&Key::new(key).ok()?).await.ok().flatten()
}
