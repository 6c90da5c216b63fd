//! What the page shows, and what of it has changed since the page was told: one state, and small differences of it.

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

/// So many keys are shown; the longest untouched go first.
const KEYS: usize = 10_000;
/// So many records are kept, and so many of them are in a snapshot.
const RECORDS: (usize, usize) = (2_000, 200);
/// So many replies are kept, and so many of them are in a snapshot.
const REPLIES: (usize, usize) = (500, 50);
/// A value is shown up to here.
const SHOWN: usize = 400;
/// A client that is so many messages behind begins anew with a snapshot.
const BEHIND: usize = 64;

/// A reply that the LINE stub took.
#[derive(Clone, Serialize)]
pub(crate) struct Reply {
    pub(crate) at: u64,
    pub(crate) user: String,
    pub(crate) text: String,
    pub(crate) path: &'static str,
    pub(crate) quick_replies: Vec<serde_json::Value>,
    pub(crate) delivery: String,
}

/// What can be set at the playground.
#[derive(Clone, Serialize)]
pub(crate) struct Settings {
    pub(crate) store: StoreSetting,
    pub(crate) weather: WeatherSetting,
}

#[derive(Clone, Serialize)]
pub(crate) struct StoreSetting {
    pub(crate) kind: &'static str,
    pub(crate) down: bool,
}

#[derive(Clone, Serialize)]
pub(crate) struct WeatherSetting {
    pub(crate) delay_ms: u64,
}

/// A record of a log, as it was committed.
#[derive(Clone, Serialize)]
struct Told {
    log: String,
    position: String,
    text: String,
    at: u64,
}

/// A key's value: as much of it as is shown, and what it takes to know it again.
struct Held {
    value: String,
    hash: u64,
    seq: Option<u64>,
    expires_at: Option<u64>,
    touched: u64,
}

#[derive(Serialize)]
struct Shown<'a> {
    key: &'a str,
    value: &'a str,
    expires_at: Option<u64>,
}

/// Everything that is shown.
pub(crate) struct View {
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    keys: HashMap<String, Held>,
    touches: u64,
    set: BTreeSet<String>,
    gone: BTreeSet<String>,
    records: VecDeque<Told>,
    records_total: u64,
    replies: VecDeque<Reply>,
    settings: Settings,
    queue: Counts,
    /// How many of the newest records and replies nobody was told yet.
    untold: (usize, usize),
    settings_untold: bool,
    told: broadcast::Sender<Bytes>,
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
            touches: 0,
            set: BTreeSet::new(),
            gone: BTreeSet::new(),
            records: VecDeque::new(),
            records_total: 0,
            replies: VecDeque::new(),
            settings,
            queue: Counts::default(),
            untold: (0, 0),
            settings_untold: false,
            told: broadcast::channel(BEHIND).0,
        };
        View { state: Mutex::new(state), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let answer = change(&mut self.state());
        self.changed.notify_one();
        answer
    }

    /// Returns when something has changed since the last call.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Looks at it again, though nothing that is kept here has changed.
    pub(crate) fn touch(&self) {
        self.changed.notify_one();
    }

    /// Notes what an applied batch did. The keys of which the mirror knew something else than the batch expected: an
    /// answer has overtaken another, and only the store knows.
    pub(crate) fn applied(&self, batch: &Batch, positions: &[Position], sent: u64) -> Vec<Key> {
        self.change(|state| state.apply(batch, positions, sent))
    }

    /// Notes what the store says of a key.
    pub(crate) fn found(&self, key: &Key, there: Option<&str>) {
        self.change(|state| match there {
            None => state.remove(key.as_str()),
            Some(text) => {
                let held = state.keys.get(key.as_str());
                if held.is_none_or(|held| held.hash != hash(text)) {
                    let expires_at = held.and_then(|held| held.expires_at);
                    state.hold(key.as_str(), text, expires_at);
                }
            }
        });
    }

    pub(crate) fn replied(&self, reply: Reply) {
        self.change(|state| {
            state.replies.push_back(reply);
            state.untold.1 += 1;
            if state.replies.len() > REPLIES.0 {
                state.replies.pop_front();
            }
        });
    }

    /// Changes the settings; those that hold now.
    pub(crate) fn set(&self, change: impl FnOnce(&mut Settings)) -> Settings {
        self.change(|state| {
            change(&mut state.settings);
            state.settings_untold = true;
            state.settings.clone()
        })
    }

    /// Tells everybody what has changed.
    pub(crate) fn flush(&self, queue: Counts) {
        self.state().flush(queue, now_ms());
    }

    /// All of it, and what comes after it.
    pub(crate) fn subscribe(&self, queue: Counts) -> (Bytes, broadcast::Receiver<Bytes>) {
        let mut state = self.state();
        // Those who listen already are told first, so that the snapshot has nothing that its reader is told again.
        state.flush(queue, now_ms());
        let receiver = state.told.subscribe();
        (state.snapshot(now_ms()), receiver)
    }
}

impl State {
    fn apply(&mut self, batch: &Batch, positions: &[Position], sent: u64) -> Vec<Key> {
        let mut doubtful = Vec::new();
        let mut appended = positions.iter();
        for write in batch.writes() {
            if let Some((key, expect)) = write.expectation()
                && let Some(held) = self.live(key.as_str(), sent)
                && !expected(expect, held.hash)
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
                    self.hold(key.as_str(), &text, expiry(*ttl, sent));
                }
                Write::PutIfNewer { key, seq, json, ttl } => {
                    let there = self.live(key.as_str(), sent).and_then(|held| held.seq);
                    if there.is_none_or(|there| there < *seq) {
                        self.hold(key.as_str(), json, expiry(*ttl, sent));
                    }
                }
                Write::Delete { key, .. } if doubtful.last() != Some(key) => self.remove(key.as_str()),
                Write::Append { log, text, .. } => {
                    let position = appended.next().map(Position::to_string).unwrap_or_default();
                    self.record(Told {
                        log: log.as_str().to_owned(),
                        position,
                        text: text.clone(),
                        at: sent,
                    });
                }
                Write::Delete { .. } | Write::Check { .. } | Write::Publish { .. } => {}
            }
        }
        doubtful
    }

    fn live(&self, key: &str, now: u64) -> Option<&Held> {
        self.keys.get(key).filter(|held| held.expires_at.is_none_or(|end| now < end))
    }

    fn hold(&mut self, key: &str, text: &str, expires_at: Option<u64>) {
        self.touches += 1;
        let value = cut(text);
        let held = Held { value, hash: hash(text), seq: seq_of(text), expires_at, touched: self.touches };
        self.keys.insert(key.to_owned(), held);
        self.gone.remove(key);
        self.set.insert(key.to_owned());
        // In portions, because finding the oldest is a look at all.
        if self.keys.len() > KEYS + KEYS / 20 {
            let mut touched: Vec<u64> = self.keys.values().map(|held| held.touched).collect();
            let surplus = touched.len() - KEYS;
            let (_, newest_gone, _) = touched.select_nth_unstable(surplus - 1);
            let bound = *newest_gone;
            self.drop_where(|held| held.touched <= bound);
        }
    }

    fn remove(&mut self, key: &str) {
        if self.keys.remove(key).is_some() {
            self.set.remove(key);
            self.gone.insert(key.to_owned());
        }
    }

    fn drop_where(&mut self, over: impl Fn(&Held) -> bool) {
        let gone: Vec<String> =
            self.keys.iter().filter(|(_, held)| over(held)).map(|(key, _)| key.clone()).collect();
        gone.iter().for_each(|key| self.remove(key));
    }

    fn record(&mut self, record: Told) {
        self.records.push_back(record);
        self.records_total += 1;
        self.untold.0 += 1;
        if self.records.len() > RECORDS.0 {
            self.records.pop_front();
        }
    }

    fn flush(&mut self, queue: Counts, now: u64) {
        self.drop_where(|held| held.expires_at.is_some_and(|end| end <= now));
        let mut frames: Vec<Bytes> = Vec::new();
        if !self.set.is_empty() || !self.gone.is_empty() {
            let set: Vec<Shown<'_>> =
                self.set.iter().filter_map(|key| Some(shown(key, self.keys.get(key)?))).collect();
            frames.push(frame("keys", &json!({ "set": set, "gone": self.gone })));
        }
        if self.untold.0 > 0 {
            frames.push(frame("records", &json!(newest(&self.records, self.untold.0))));
        }
        for reply in newest(&self.replies, self.untold.1) {
            frames.push(frame("reply", &json!(reply)));
        }
        if self.settings_untold {
            frames.push(frame("settings", &json!(self.settings)));
        }
        if self.queue != queue {
            frames.push(frame("queue", &json!(queue)));
        }
        self.set.clear();
        self.gone.clear();
        (self.untold, self.settings_untold, self.queue) = ((0, 0), false, queue);
        for frame in frames {
            // Nobody listening is no error.
            let _ = self.told.send(frame);
        }
    }

    fn snapshot(&self, now: u64) -> Bytes {
        let keys: Vec<Shown<'_>> = self.keys.iter().map(|(key, held)| shown(key, held)).collect();
        let all = json!({
            "now": now,
            "store": self.settings.store,
            "weather": self.settings.weather,
            "keys": keys,
            "replies": newest(&self.replies, REPLIES.1),
            "queue": self.queue,
            "records": newest(&self.records, RECORDS.1),
            "records_total": self.records_total,
        });
        frame("snapshot", &all)
    }
}

fn newest<T>(all: &VecDeque<T>, most: usize) -> Vec<&T> {
    all.iter().skip(all.len().saturating_sub(most)).collect()
}

fn shown<'a>(key: &'a str, held: &'a Held) -> Shown<'a> {
    Shown { key, value: &held.value, expires_at: held.expires_at }
}

fn frame(name: &str, data: &serde_json::Value) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn expiry(ttl: Ttl, sent: u64) -> Option<u64> {
    ttl.millis().map(|life| sent.saturating_add(life))
}

/// Whether a key that holds this is what was expected.
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
