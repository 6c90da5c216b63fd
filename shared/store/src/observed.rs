//! Logs and metrics of a store: a log line and a few metrics for each call, without keys and values.

use std::sync::Arc;

use async_trait::async_trait;
use metrics::{counter, histogram};
use tokio::time::Instant;

use crate::{Batch, BoxStream, Channel, Commit, Error, Key, Log, Position, Record, Store, forward};

/// What a key holds, by its name: a word for metrics, without the ids in the name.
pub type KeyKind = fn(&Key) -> &'static str;

/// A wrapper that logs and measures every call of a store. [`open`](crate::open) returns every store like this.
#[derive(Debug)]
pub struct Observed {
    store: Arc<dyn Store>,
    kind: KeyKind,
}

impl Observed {
    /// Wraps `store`.
    pub fn new(store: Arc<dyn Store>) -> Observed {
        Observed::with_kinds(store, |_| "other")
    }

    /// Wraps `store`, and counts its hits and misses by the `kind` of their key.
    pub fn with_kinds(store: Arc<dyn Store>, kind: KeyKind) -> Observed {
        Observed { store, kind }
    }

    /// Counts and logs records that a reader above the store cannot use, like calls that fail to decode.
    pub fn count_unreadable(records: usize) {
        if records > 0 {
            counter!("kv_error_total", "operation" => "decode").increment(records as u64);
            tracing::error!(operation = "decode", records, "kv_error");
        }
    }

    fn found(&self, key: &Key, found: bool) {
        let name = if found { "kv_hit_total" } else { "kv_miss_total" };
        counter!(name, "kind" => (self.kind)(key)).increment(1);
        tracing::debug!(found, "kv_get");
    }

    /// A batch that only reads counts as a read.
    fn committed(&self, batch: &Batch, answer: &Result<Commit, Error>) {
        match (batch.read_key(), answer) {
            (Some(key), Ok(answer)) => self.found(key, matches!(answer, Commit::Refused(_))),
            (Some(_), Err(error)) => failed("get", error),
            (None, Ok(answer)) => {
                tracing::debug!(success = matches!(answer, Commit::Applied(_)), "kv_set");
            }
            (None, Err(error)) => failed("set", error),
        }
    }
}

fn failed(operation: &'static str, error: &Error) {
    counter!("kv_error_total", "operation" => operation).increment(1);
    tracing::error!(operation, %error, "kv_error");
}

#[async_trait]
impl Store for Observed {
    async fn get_all(&self, keys: &[Key]) -> Result<Vec<Option<String>>, Error> {
        let start = Instant::now();
        let answer = self.store.get_all(keys).await;
        histogram!("kv_get_latency").record(start.elapsed());
        match &answer {
            Ok(values) => {
                keys.iter().zip(values).for_each(|(key, value)| self.found(key, value.is_some()));
            }
            Err(error) => failed("get", error),
        }
        answer
    }

    async fn commit(&self, batch: &Batch) -> Result<Commit, Error> {
        let start = Instant::now();
        let answer = self.store.commit(batch).await;
        histogram!("kv_set_latency").record(start.elapsed());
        self.committed(batch, &answer);
        answer
    }

    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        let start = Instant::now();
        let answers = self.store.commit_each(batches).await;
        histogram!("kv_set_latency").record(start.elapsed());
        batches.iter().zip(&answers).for_each(|(batch, answer)| self.committed(batch, answer));
        answers
    }

    async fn read(&self, log: &Log, after: Option<Position>, limit: usize) -> Result<Vec<Record>, Error> {
        let answer = self.store.read(log, after, limit).await;
        if let Err(error) = &answer {
            failed("read", error);
        }
        answer
    }

    async fn watch(&self, channel: &Channel) -> Result<BoxStream<'static, Result<(), Error>>, Error> {
        let answer = self.store.watch(channel).await;
        if let Err(error) = &answer {
            failed("watch", error);
        }
        answer
    }

    forward!(store: connect, capabilities, max_value);
}
