//! Faults inside one process: a store whose calls are lost, late, or held up, by a seed.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use onetap_store::{Batch, Commit, Error, Key, Log, Position, Record, Store, forward};
use tokio::time::sleep;

use super::journal::Journal;
use super::schedule::Kind;
use super::seed::Seed;

/// A store behind a bad line.
pub struct Trouble {
    store: Arc<dyn Store>,
    journal: Arc<Journal>,
    seed: Mutex<Seed>,
    lease: Duration,
    /// How many calls of a hundred meet a fault.
    often: u64,
}

impl fmt::Debug for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trouble").field("often", &self.often).finish_non_exhaustive()
    }
}

impl Trouble {
    /// `store`, with a fault in `often` calls of a hundred; what is late is later than `lease`.
    pub fn new(
        store: Arc<dyn Store>,
        journal: Arc<Journal>,
        seed: Seed,
        lease: Duration,
        often: u64,
    ) -> Trouble {
        Trouble { store, journal, seed: Mutex::new(seed), lease, often }
    }

    /// What happens to the next call, and how long its two ways take.
    fn draw(&self) -> (Option<Kind>, Duration, Duration, Duration) {
        let mut seed = self.seed.lock().unwrap();
        let way = Duration::from_millis(3);
        let (there, back) = (seed.up_to(way), seed.up_to(way));
        let past = self.lease + seed.up_to(self.lease);
        let kinds = [Kind::RequestLost, Kind::ReplyLost, Kind::Delayed, Kind::Stopped, Kind::Reset];
        let kind = seed.percent(self.often).then(|| kinds[seed.below(kinds.len() as u64) as usize]);
        (kind, there, back, past)
    }

    async fn meet<T, F>(&self, call: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let (kind, there, back, past) = self.draw();
        let from = self.journal.clock().now();
        sleep(there).await;
        let answer = match kind {
            None => call.await,
            Some(Kind::Reset) => Err(Error::not_sent("no connection, on purpose")),
            Some(Kind::RequestLost) => {
                sleep(self.lease / 2).await;
                Err(Error::unknown("no answer in time, on purpose"))
            }
            Some(Kind::ReplyLost) => {
                let _ = call.await;
                Err(Error::unknown("answer lost, on purpose"))
            }
            // The caller has long given up when it lands.
            Some(Kind::Delayed) => {
                tokio::spawn(async move {
                    sleep(past).await;
                    let _ = call.await;
                });
                sleep(self.lease / 2).await;
                Err(Error::unknown("no answer in time, on purpose"))
            }
            // Between the decision to send and the sending, as a stopped process would.
            Some(_) => {
                sleep(past).await;
                call.await
            }
        };
        sleep(back).await;
        if let Some(kind) = kind {
            self.journal.fault(kind.name(), from);
        }
        answer
    }
}

#[async_trait]
impl Store for Trouble {
    async fn get_all(&self, keys: &[Key]) -> Result<Vec<Option<String>>, Error> {
        let (store, keys) = (Arc::clone(&self.store), keys.to_vec());
        self.meet(async move { store.get_all(&keys).await }).await
    }

    async fn commit(&self, batch: &Batch) -> Result<Commit, Error> {
        let (store, batch) = (Arc::clone(&self.store), batch.clone());
        self.meet(async move { store.commit(&batch).await }).await
    }

    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        let (store, sent) = (Arc::clone(&self.store), batches.to_vec());
        let answers = self.meet(async move { Ok(store.commit_each(&sent).await) }).await;
        answers.unwrap_or_else(|error| batches.iter().map(|_| Err(error.clone())).collect())
    }

    async fn read(&self, log: &Log, after: Option<Position>, limit: usize) -> Result<Vec<Record>, Error> {
        let (store, log) = (Arc::clone(&self.store), log.clone());
        self.meet(async move { store.read(&log, after, limit).await }).await
    }

    forward!(store: watch, connect, max_value);
}
