//! A record that is appended once for its marker, and the state that it leaves if it is the newest.

use std::sync::Arc;
use std::time::Duration;

use onetap_store::{Batch, Commit, Expect, Found, Keep, Key, Log, Store, Value};
use tokio::time::sleep;

use super::client::TTL_BEYOND_RUN;
use super::event::{Answer, Call, Layer};
use super::journal::Journal;

/// Part of the name of every key that only `put_if_newer` writes.
pub const NEWEST_KEY_PART: &str = "/newest/";

/// How often a batch is sent while its outcome is unknown.
const SENDS: u32 = 4;

/// What several clients publish, each with its own text.
#[derive(Debug)]
pub(super) struct Publication {
    pub(super) marker: Key,
    pub(super) log: Log,
    pub(super) text: String,
    /// The key that holds the newest state, and the sequence number of this one.
    pub(super) state: Option<(Key, u64)>,
    /// Before it is sent again.
    pub(super) pause: Duration,
}

impl Publication {
    /// Sends it until the outcome is known: the position of the marker's record.
    pub(super) async fn send(&self, store: &Arc<dyn Store>, journal: &Journal) -> Answer {
        let (marker, log) = (self.marker.as_str().to_owned(), self.log.as_str().to_owned());
        let call_id = journal.call(Layer::Api, Call::Publish { marker, log });
        let batch = self.batch();
        let mut answer = Answer::NotSent;
        for _ in 0..SENDS {
            match store.commit(&batch).await {
                Ok(Commit::Applied(positions)) => {
                    answer = Answer::Result(positions[0].to_string());
                    break;
                }
                Ok(Commit::Refused(refusal)) => {
                    let there = refusal.get(&self.marker).and_then(Found::text).map(str::to_owned);
                    answer = there.map_or(Answer::Nothing("gone".to_owned()), Answer::Result);
                    break;
                }
                Err(error) if error.maybe_applied() => answer = Answer::Unknown,
                Err(_) => {}
            }
            sleep(self.pause).await;
        }
        journal.answer(call_id, answer.clone());
        answer
    }

    fn batch(&self) -> Batch {
        let keep = Keep::all_for(TTL_BEYOND_RUN);
        let batch = Batch::new()
            .put(&self.marker, Expect::Absent, Value::PositionOf(0), TTL_BEYOND_RUN)
            .append(&self.log, self.text.as_str(), keep);
        match &self.state {
            Some((key, seq)) => {
                let state = serde_json::json!({ "seq": seq, "text": self.text });
                batch.put_if_newer(key, *seq, state.to_string(), TTL_BEYOND_RUN)
            }
            None => batch,
        }
    }
}
