//! The in-memory backend, and the reference implementation. The Redis backends (in Lua) and the DynamoDB backend (in
//! condition expressions) do the same four steps in the same order: *check* the expectations, *append*, *set* (put,
//! delete and clear), *publish*.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use tokio::sync::broadcast;
use tokio::time::Instant;

use crate::seq_of;
use crate::{
    Batch, BoxStream, Capabilities, Channel, Commit, Error, Key, Log, Position, Record, Refusal, Store, Ttl,
    Value, Write,
};

/// A store in this process: its data is lost when this value is dropped. It uses tokio's clock, which a test can pause.
#[derive(Default)]
pub struct Memory(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    entries: HashMap<String, Entry>,
    notifiers: HashMap<Channel, broadcast::Sender<()>>,
    commits: u64,
}

/// The content of a key or log, and its expiry time.
struct Entry {
    content: Content,
    expires_at: Option<Instant>,
}

enum Content {
    Text(String),
    Log(Vec<Record>),
}

impl Entry {
    fn new(content: Content, ttl: Ttl, now: Instant) -> Entry {
        let expires_at = match ttl {
            Ttl::Forever => None,
            Ttl::Of(ttl) => Some(now + ttl),
        };
        Entry { content, expires_at }
    }

    /// An expired entry counts as absent, also while it is still in the map.
    fn is_live(&self, now: Instant) -> bool {
        self.expires_at.is_none_or(|until| now < until)
    }
}

impl State {
    fn live(&self, name: &str, now: Instant) -> Option<&Content> {
        self.entries.get(name).filter(|entry| entry.is_live(now)).map(|entry| &entry.content)
    }

    fn text(&self, key: &Key, now: Instant) -> Result<Option<&str>, Error> {
        match self.live(key.as_str(), now) {
            Some(Content::Text(text)) => Ok(Some(text)),
            Some(Content::Log(_)) => Err(Error::wrong_type()),
            None => Ok(None),
        }
    }

    fn records(&self, log: &Log, now: Instant) -> Result<&[Record], Error> {
        match self.live(log.as_str(), now) {
            Some(Content::Log(records)) => Ok(records),
            Some(Content::Text(_)) => Err(Error::wrong_type()),
            None => Ok(&[]),
        }
    }

    fn put(&mut self, name: &str, content: Content, ttl: Ttl, now: Instant) {
        self.entries.insert(name.to_owned(), Entry::new(content, ttl, now));
    }

    fn commit(&mut self, batch: &Batch, now: Instant) -> Result<Commit, Error> {
        // Check: compare every expectation with the stored value. If one fails, the batch is refused, and the refusal
        // lists every one that failed. A log in the place of a value (or the reverse) is an error. Nothing is written
        // before this step is complete.
        let mut refusal = Vec::new();
        for write in batch.writes() {
            if let Write::PutIfNewer { key, .. } = write {
                self.text(key, now)?;
            } else if let Some((key, expect)) = write.expectation() {
                let there = self.text(key, now)?;
                if !expect.holds(there) {
                    refusal.push((key.clone(), there.map(str::to_owned)));
                }
            }
        }
        if !refusal.is_empty() {
            return Ok(Commit::Refused(Refusal::new(refusal)));
        }

        // Then the logs: those that must exist, and those whose names belong to values.
        for write in batch.writes() {
            if let Write::Clear { log } = write {
                self.records(log, now)?;
            } else if let Some(log) = write.existing_log() {
                if self.records(log, now)?.is_empty() {
                    refusal.push((Key::from(log), None));
                }
            }
        }
        if !refusal.is_empty() {
            return Ok(Commit::Refused(Refusal::new(refusal)));
        }
        for write in batch.writes() {
            if let Write::Append { log, .. } = write {
                self.records(log, now)?;
            }
        }
        self.commits += 1;

        // Append: before Set, because a put may store the position of an append. Positions count the commits of the
        // whole store, so they increase in every log.
        let mut positions = Vec::new();
        for write in batch.writes() {
            let Write::Append { log, text, keep } = write else {
                continue;
            };
            let position = Position::new(self.commits, positions.len() as u64);
            let record = Record { position, text: text.clone() };
            positions.push(position);
            let stored = self.entries.remove(log.as_str()).filter(|entry| entry.is_live(now));
            let (mut records, expires_at) = match stored {
                Some(Entry { content: Content::Log(records), expires_at }) => (records, expires_at),
                _ => (Vec::new(), None),
            };
            records.push(record);
            let Some(keep) = keep else {
                let entry = Entry { content: Content::Log(records), expires_at };
                self.entries.insert(log.as_str().to_owned(), entry);
                continue;
            };
            let surplus = records.len() - keep.about.unwrap_or(usize::MAX).clamp(1, records.len());
            records.drain(..surplus);
            self.put(log.as_str(), Content::Log(records), keep.ttl, now);
        }

        // Set: apply the puts, deletes and clears. All expectations hold at this point.
        for write in batch.writes() {
            match write {
                Write::Put { key, value, ttl, .. } => {
                    let text = match value {
                        Value::Text(text) => text.clone(),
                        Value::PositionOf(n) => positions[*n].to_string(),
                    };
                    self.put(key.as_str(), Content::Text(text), *ttl, now);
                }
                Write::PutIfNewer { key, seq, json, ttl } => {
                    let there = self.text(key, now).ok().flatten();
                    if there.and_then(seq_of).is_none_or(|there| there < *seq) {
                        self.put(key.as_str(), Content::Text(json.clone()), *ttl, now);
                    }
                }
                Write::Delete { key, .. } => drop(self.entries.remove(key.as_str())),
                Write::Clear { log } => drop(self.entries.remove(log.as_str())),
                Write::Check { .. } | Write::Append { .. } | Write::Publish { .. } => {}
            }
        }

        // Publish: last, so that a watcher that is notified reads the new values. A watcher gets no text here: only
        // subscribers of other programs, on Redis, read it. A channel may have no watchers.
        for write in batch.writes() {
            let Write::Publish { channel, .. } = write else {
                continue;
            };
            if let Some(notifier) = self.notifiers.get(channel) {
                let _ = notifier.send(());
            }
        }

        // Expired entries only use memory, so they are removed on every 1024th commit.
        if self.commits % 1024 == 0 {
            self.entries.retain(|_, entry| entry.is_live(now));
        }
        Ok(Commit::Applied(positions))
    }
}

impl Memory {
    /// An empty store.
    pub fn new() -> Memory {
        Memory::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // A poisoned lock is safe to use: `State::commit` does not panic between two writes, so no commit is half done.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A watcher of a channel. The last one that ends removes the notifier.
struct Watcher {
    /// `None` only while it is dropped.
    receiver: Option<broadcast::Receiver<()>>,
    channel: Channel,
    state: Weak<Mutex<State>>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let Some(state) = self.state.upgrade() else { return };
        let notifiers = &mut lock(&state).notifiers;
        // Under the lock, so that of two watchers that end at once the second one sees that it is the last.
        self.receiver = None;
        if notifiers.get(&self.channel).is_some_and(|notifier| notifier.receiver_count() == 0) {
            notifiers.remove(&self.channel);
        }
    }
}

/// Shows only the number of keys and logs, and of channels that are watched: keys and values are user data.
impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { entries, notifiers, .. } = &*self.state();
        f.debug_struct("Memory").field("names", &entries.len()).field("channels", &notifiers.len()).finish()
    }
}

#[async_trait]
impl Store for Memory {
    async fn get_all(&self, keys: &[Key]) -> Result<Vec<Option<String>>, Error> {
        let (state, now) = (self.state(), Instant::now());
        keys.iter().map(|key| Ok(state.text(key, now)?.map(str::to_owned))).collect()
    }

    async fn commit(&self, batch: &Batch) -> Result<Commit, Error> {
        batch.validate(self.max_value())?;
        self.state().commit(batch, Instant::now())
    }

    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        stream::iter(batches).then(|batch| self.commit(batch)).collect().await
    }

    async fn read(&self, log: &Log, after: Option<Position>, limit: usize) -> Result<Vec<Record>, Error> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let state = self.state();
        let records = state.records(log, Instant::now())?;
        let newer = records.iter().filter(|record| after < Some(record.position));
        Ok(newer.take(limit).cloned().collect())
    }

    async fn watch(&self, channel: &Channel) -> Result<BoxStream<'static, Result<(), Error>>, Error> {
        let receiver = self
            .state()
            .notifiers
            .entry(channel.clone())
            .or_insert_with(|| broadcast::channel(64).0)
            .subscribe();
        let watcher =
            Watcher { receiver: Some(receiver), channel: channel.clone(), state: Arc::downgrade(&self.0) };
        let next = |mut watcher: Watcher| async move {
            match watcher.receiver.as_mut()?.recv().await {
                // A receiver that lags has missed notifications. One is enough to make the watcher read again.
                Ok(()) | Err(broadcast::error::RecvError::Lagged(_)) => Some((Ok(()), watcher)),
                Err(broadcast::error::RecvError::Closed) => None,
            }
        };
        Ok(stream::unfold(watcher, next).boxed())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn max_value(&self) -> usize {
        8 << 20
    }
}
