//! What the page shows: one state, and the updates that carry its changes to the pages.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use onetap_store::{Batch, Expect, Key, Position, Ttl, Value, Write, seq_of};
use serde::Serialize;
use serde_json::json;
use tokio::sync::{Notify, broadcast};

use crate::clock::now_ms;
use crate::queue::Counts;
use crate::weather::WeatherSetting;

/// Largest number of keys; the least recently written are dropped first.
const MAX_KEYS: usize = 10_000;
const MAX_RECORDS: usize = 2_000;
const MAX_RECORDS_IN_SNAPSHOT: usize = 200;
const MAX_REPLIES: usize = 500;
const MAX_REPLIES_IN_SNAPSHOT: usize = 50;
/// What the names of users' keys and logs begin with.
const USER_PREFIX: &str = "user:";
/// Characters of a value that are shown.
const MAX_VALUE_CHARS: usize = 400;
/// Updates that are kept for slow clients. A client that misses one gets a new snapshot.
const MAX_BUFFERED_UPDATES: usize = 64;

/// A reply that the LINE stub took.
#[derive(Clone, Serialize)]
pub(crate) struct Reply {
    pub(crate) at: u64,
    pub(crate) user: String,
    pub(crate) text: String,
    pub(crate) path: &'static str,
    pub(crate) quick_replies: Vec<serde_json::Value>,
    pub(crate) delivery: String,
    /// The number of its event in the delivery.
    pub(crate) event: usize,
    /// How the look-up of its forecast ended, once that is known.
    pub(crate) forecast: Option<&'static str>,
}

/// What can be set at the playground.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Settings {
    pub(crate) store: StoreSetting,
    pub(crate) weather: WeatherSetting,
}

#[derive(Clone, PartialEq, Eq, Serialize)]
pub(crate) struct StoreSetting {
    pub(crate) kind: &'static str,
    pub(crate) down: bool,
}

/// A record of a job's log or of the bus, as it was committed. A user's ledger is not among them: the page reads it as
/// another program would, and learns of its changes by the key that every change writes.
#[derive(Clone, Serialize)]
struct LogRecord {
    log: String,
    position: String,
    text: String,
    at: u64,
}

/// A key's value: the part that is shown, and a hash by which the whole value is recognised.
struct KeyEntry {
    value: String,
    hash: u64,
    seq: Option<u64>,
    expires_at: Option<u64>,
    /// The number of the write that set it.
    written: u64,
}

/// A key as the page reads it.
#[derive(Serialize)]
struct ShownKey<'a> {
    key: &'a str,
    value: &'a str,
    expires_at: Option<u64>,
}

/// What the page shows.
pub(crate) struct View {
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    keys: HashMap<String, KeyEntry>,
    writes: u64,
    records: VecDeque<LogRecord>,
    records_total: u64,
    replies: VecDeque<Reply>,
    settings: Settings,
    queue: Counts,
    unsent: Unsent,
    updates: broadcast::Sender<Bytes>,
}

/// What has changed since the last update.
#[derive(Default)]
struct Unsent {
    set: BTreeSet<String>,
    gone: BTreeSet<String>,
    /// How many of the newest records are new.
    records: usize,
    /// How many of the newest replies are new.
    replies: usize,
    forecasts: Vec<ForecastNote>,
    settings: bool,
}

/// How the look-up of a reply's forecast ended.
#[derive(Serialize)]
struct ForecastNote {
    delivery: String,
    event: usize,
    forecast: &'static str,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("View(…)")
    }
}

impl View {
    pub(crate) fn new(settings: Settings) -> View {
        let state = State {
            keys: HashMap::new(),
            writes: 0,
            records: VecDeque::new(),
            records_total: 0,
            replies: VecDeque::new(),
            settings,
            queue: Counts::default(),
            unsent: Unsent::default(),
            updates: broadcast::channel(MAX_BUFFERED_UPDATES).0,
        };
        View { state: Mutex::new(state), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.notify_one();
        result
    }

    /// Returns when something has changed since the last call.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Asks for an update: something outside of the view, such as the queue, has changed.
    pub(crate) fn touch(&self) {
        self.changed.notify_one();
    }

    /// Shows what an applied batch did. Returns the keys whose value here is not what the batch expected: replies
    /// arrived in another order than the commits, and the store must be read.
    pub(crate) fn applied(&self, batch: &Batch, positions: &[Position], sent: u64) -> Vec<Key> {
        self.change(|state| state.apply(batch, positions, sent))
    }

    /// Shows the value that a read of the store found.
    pub(crate) fn found(&self, key: &Key, there: Option<&str>) {
        self.change(|state| match there {
            None => state.remove(key.as_str()),
            Some(text) => {
                let entry = state.keys.get(key.as_str());
                if entry.is_none_or(|entry| entry.hash != hash(text)) {
                    let expires_at = entry.and_then(|entry| entry.expires_at);
                    state.set(key.as_str(), text, expires_at);
                }
            }
        });
    }

    /// Shows a reply.
    pub(crate) fn replied(&self, reply: Reply) {
        self.change(|state| {
            state.replies.push_back(reply);
            state.unsent.replies += 1;
            if state.replies.len() > MAX_REPLIES {
                state.replies.pop_front();
            }
        });
    }

    /// Shows how the look-ups of a delivery's forecasts ended, by event. Its replies came before.
    pub(crate) fn looked_up(&self, delivery: &str, forecasts: &[Option<&'static str>]) {
        self.change(|state| {
            for reply in state.replies.iter_mut().filter(|reply| reply.delivery == delivery) {
                reply.forecast = forecasts.get(reply.event).copied().flatten();
                let (delivery, event) = (delivery.to_owned(), reply.event);
                let looked_up = reply.forecast.map(|forecast| ForecastNote { delivery, event, forecast });
                state.unsent.forecasts.extend(looked_up);
            }
        });
    }

    /// Changes the settings, and returns the new ones.
    pub(crate) fn set(&self, change: impl FnOnce(&mut Settings)) -> Settings {
        self.change(|state| {
            let before = state.settings.clone();
            change(&mut state.settings);
            state.unsent.settings |= state.settings != before;
            state.settings.clone()
        })
    }

    /// Sends what has changed to every client.
    pub(crate) fn flush(&self, queue: Counts) {
        self.state().flush(queue, now_ms());
    }

    /// A snapshot, and the updates after it.
    pub(crate) fn subscribe(&self, queue: Counts) -> (Bytes, broadcast::Receiver<Bytes>) {
        let mut state = self.state();
        // First the other clients get what the snapshot includes: its reader must not get it as an update too.
        state.flush(queue, now_ms());
        let receiver = state.updates.subscribe();
        (state.snapshot(now_ms()), receiver)
    }
}

impl State {
    fn apply(&mut self, batch: &Batch, positions: &[Position], sent: u64) -> Vec<Key> {
        let mut doubtful = Vec::new();
        let mut appended = positions.iter();
        for write in batch.writes() {
            if let Some((key, expect)) = write.expectation()
                && let Some(entry) = self.live(key.as_str(), sent)
                && !expected(expect, entry.hash)
            {
                doubtful.push(key.clone());
            }
            match write {
                Write::Put { key, value, ttl, .. } => {
                    let text = match value {
                        Value::Text(text) => text.clone(),
                        Value::PositionOf(n) => {
                            positions.get(*n).map(Position::to_string).unwrap_or_default()
                        }
                    };
                    self.set(key.as_str(), &text, expiry(*ttl, sent));
                }
                Write::PutIfNewer { key, seq, json, ttl } => {
                    let there = self.live(key.as_str(), sent).and_then(|entry| entry.seq);
                    if there.is_none_or(|there| there < *seq) {
                        self.set(key.as_str(), json, expiry(*ttl, sent));
                    }
                }
                Write::Delete { key, .. } if doubtful.last() != Some(key) => self.remove(key.as_str()),
                Write::Append { log, text, .. } => {
                    let position = appended.next().map(Position::to_string).unwrap_or_default();
                    if !log.as_str().starts_with(USER_PREFIX) {
                        let (log, text) = (log.as_str().to_owned(), text.clone());
                        self.append(LogRecord { log, position, text, at: sent });
                    }
                }
                // The records that are shown are those that were appended, also to a log that is cleared later.
                Write::Delete { .. } | Write::Check { .. } | Write::Clear { .. } | Write::Publish { .. } => {}
            }
        }
        doubtful
    }

    fn live(&self, key: &str, now: u64) -> Option<&KeyEntry> {
        self.keys.get(key).filter(|entry| entry.expires_at.is_none_or(|end| now < end))
    }

    fn set(&mut self, key: &str, text: &str, expires_at: Option<u64>) {
        self.writes += 1;
        let (hash, seq) = (hash(text), seq_of(text));
        let entry = KeyEntry { value: shorten(text), hash, seq, expires_at, written: self.writes };
        self.keys.insert(key.to_owned(), entry);
        self.unsent.gone.remove(key);
        self.unsent.set.insert(key.to_owned());
        // One in twenty at a time, because finding the oldest looks at all of them.
        if self.keys.len() > MAX_KEYS + MAX_KEYS / 20 {
            let mut written: Vec<u64> = self.keys.values().map(|entry| entry.written).collect();
            let surplus = written.len() - MAX_KEYS;
            let (_, newest_dropped, _) = written.select_nth_unstable(surplus - 1);
            let bound = *newest_dropped;
            self.remove_where(|entry| entry.written <= bound);
        }
    }

    fn remove(&mut self, key: &str) {
        if self.keys.remove(key).is_some() {
            self.unsent.set.remove(key);
            self.unsent.gone.insert(key.to_owned());
        }
    }

    fn remove_where(&mut self, unwanted: impl Fn(&KeyEntry) -> bool) {
        let gone: Vec<String> =
            self.keys.iter().filter(|(_, entry)| unwanted(entry)).map(|(key, _)| key.clone()).collect();
        gone.iter().for_each(|key| self.remove(key));
    }

    fn append(&mut self, record: LogRecord) {
        self.records.push_back(record);
        self.records_total += 1;
        self.unsent.records += 1;
        if self.records.len() > MAX_RECORDS {
            self.records.pop_front();
        }
    }

    fn flush(&mut self, queue: Counts, now: u64) {
        self.remove_where(|entry| entry.expires_at.is_some_and(|end| end <= now));
        let unsent = std::mem::take(&mut self.unsent);
        let mut updates: Vec<Bytes> = Vec::new();
        if !unsent.set.is_empty() || !unsent.gone.is_empty() {
            let set: Vec<ShownKey<'_>> =
                unsent.set.iter().filter_map(|key| Some(shown(key, self.keys.get(key)?))).collect();
            updates.push(event("keys", &json!({ "set": set, "gone": unsent.gone })));
        }
        if unsent.records > 0 {
            updates.push(event("records", &json!(newest(&self.records, unsent.records))));
        }
        for reply in newest(&self.replies, unsent.replies) {
            updates.push(event("reply", &json!(reply)));
        }
        for looked_up in &unsent.forecasts {
            updates.push(event("forecast", &json!(looked_up)));
        }
        if unsent.settings {
            updates.push(event("settings", &json!(self.settings)));
        }
        if self.queue != queue {
            updates.push(event("queue", &json!(queue)));
        }
        self.queue = queue;
        for update in updates {
            // It fails if no client is connected.
            let _ = self.updates.send(update);
        }
    }

    fn snapshot(&self, now: u64) -> Bytes {
        let keys: Vec<ShownKey<'_>> = self.keys.iter().map(|(key, entry)| shown(key, entry)).collect();
        let all = json!({
            "now": now,
            "store": self.settings.store,
            "weather": self.settings.weather,
            "keys": keys,
            "replies": newest(&self.replies, MAX_REPLIES_IN_SNAPSHOT),
            "queue": self.queue,
            "records": newest(&self.records, MAX_RECORDS_IN_SNAPSHOT),
            "records_total": self.records_total,
        });
        event("snapshot", &all)
    }
}

fn newest<T>(all: &VecDeque<T>, most: usize) -> Vec<&T> {
    all.iter().skip(all.len().saturating_sub(most)).collect()
}

fn shown<'a>(key: &'a str, entry: &'a KeyEntry) -> ShownKey<'a> {
    ShownKey { key, value: &entry.value, expires_at: entry.expires_at }
}

/// A Server-Sent Event.
fn event(name: &str, data: &serde_json::Value) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_VALUE_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn expiry(ttl: Ttl, sent: u64) -> Option<u64> {
    ttl.millis().map(|ttl| sent.saturating_add(ttl))
}

/// Whether a value with this hash meets the expectation.
fn expected(expect: &Expect, there: u64) -> bool {
    match expect {
        Expect::Absent => false,
        Expect::Is(text) | Expect::AbsentOr(text) => hash(text) == there,
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
