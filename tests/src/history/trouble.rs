//! Faults inside one process: a store whose calls are lost, late, or held up, by a seed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onetap_store::testing::{Answer, Call, Request, TestStore};
use onetap_store::{Error, Store};
use tokio::time::sleep;

use super::journal::Journal;
use super::schedule::Kind;
use super::seed::Seed;

/// A bad line to a store.
struct Trouble {
    journal: Arc<Journal>,
    seed: Mutex<Seed>,
    lease: Duration,
    /// How many calls of a hundred meet a fault.
    often: u64,
}

/// `store`, with a fault in `often` calls of a hundred; what is late is later than `lease`.
pub fn troubled(
    store: Arc<dyn Store>,
    journal: Arc<Journal>,
    seed: Seed,
    lease: Duration,
    often: u64,
) -> Arc<dyn Store> {
    let trouble = Arc::new(Trouble { journal, seed: Mutex::new(seed), lease, often });
    TestStore::scripted(store, move |call| Arc::clone(&trouble).meet(call))
}

impl Trouble {
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

    async fn meet(self: Arc<Self>, call: Call) -> Answer {
        if let Request::Watch(_) | Request::Connect = call.request {
            return call.send().await;
        }
        let (kind, there, back, past) = self.draw();
        let from = self.journal.clock().now();
        sleep(there).await;
        let answer = match kind {
            None => call.send().await,
            Some(Kind::Reset) => call.fail(&Error::not_sent("no connection, on purpose")),
            Some(Kind::RequestLost) => {
                sleep(self.lease / 2).await;
                call.fail(&Error::unknown("no answer in time, on purpose"))
            }
            Some(Kind::ReplyLost) => {
                let _ = call.send().await;
                call.fail(&Error::unknown("answer lost, on purpose"))
            }
            // The caller has long given up when it lands.
            Some(Kind::Delayed) => {
                let late = call.clone();
                tokio::spawn(async move {
                    sleep(past).await;
                    let _ = late.send().await;
                });
                sleep(self.lease / 2).await;
                call.fail(&Error::unknown("no answer in time, on purpose"))
            }
            // Between the decision to send and the sending, as a stopped process would.
            Some(_) => {
                sleep(past).await;
                call.send().await
            }
        };
        sleep(back).await;
        if let Some(kind) = kind {
            self.journal.fault(kind.name(), from);
        }
        answer
    }
}
