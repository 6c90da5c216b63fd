//! The store in this process: the semantics, in the fewest words. The other backends say the same in Lua and in
//! DynamoDB's expressions, in the same paragraphs: *judge*, *append*, *set*, *publish*.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use tokio::sync::broadcast;
use tokio::time::Instant;

use crate::batch::seq_of;
use crate::{
    Batch, BoxStream, Channel, Commit, Error, Key, Log, Mismatch, Position, Record, Store, Ttl, Value, Write,
};

/// A store that lives and dies with this value. Clocked by tokio, so that a test can pause it.
#[derive(Default)]
pub struct Memory(Mutex<State>);

#[derive(Default)]
struct State {
    texts: HashMap<Key, Kept<String>>,
    logs: HashMap<Log, Kept<Vec<Record>>>,
    rings: HashMap<Channel, broadcast::Sender<()>>,
    commits: u64,
}

/// Something with an end.
struct Kept<T> {
    what: T,
    until: Option<Instant>,
}

impl<T> Kept<T> {
    fn new(what: T, ttl: Ttl, now: Instant) -> Kept<T> {
        let until = match ttl {
            Ttl::Forever => None,
            Ttl::Of(life) => Some(now + life),
        };
        Kept { what, until }
    }

    /// An expired value is absent, whether or not it was swept yet.
    fn live(&self, now: Instant) -> Option<&T> {
        self.until.is_none_or(|until| now < until).then_some(&self.what)
    }
}

impl State {
    fn text(&self, key: &Key, now: Instant) -> Option<&str> {
        self.texts.get(key)?.live(now).map(String::as_str)
    }

    fn commit(&mut self, batch: &Batch, now: Instant) -> Commit {
        // Judge: every expectation against what is there; one that fails refuses all, and all that fail are told.
        let failed = batch.expectations().filter(|(key, expect)| !expect.holds(self.text(key, now)));
        let refusal: Vec<Mismatch> = failed
            .map(|(key, _)| Mismatch { key: key.clone(), there: self.text(key, now).map(str::to_owned) })
            .collect();
        if !refusal.is_empty() {
            return Commit::Refused(refusal);
        }
        self.commits += 1;

        // Append: first, because a value may name the position. The count of commits orders all logs alike.
        let mut positions = Vec::new();
        for write in batch.writes() {
            let Write::Append { log, text, keep } = write else {
                continue;
            };
            let position = Position::new(self.commits, positions.len() as u64);
            let mut records =
                self.logs.remove(log).filter(|kept| kept.live(now).is_some()).map_or(vec![], |k| k.what);
            records.push(Record { position, text: text.clone() });
            let surplus = records.len() - keep.about.unwrap_or(usize::MAX).clamp(1, records.len());
            records.drain(..surplus);
            self.logs.insert(log.clone(), Kept::new(records, keep.ttl, now));
            positions.push(position);
        }

        // Set: what was expected makes way for what was asked.
        for write in batch.writes() {
            match write {
                Write::Put { key, value, ttl, .. } => {
                    let text = match value {
                        Value::Text(text) => text.clone(),
                        Value::PositionOf(n) => positions[*n].to_string(),
                    };
                    self.texts.insert(key.clone(), Kept::new(text, *ttl, now));
                }
                Write::PutIfNewer { key, seq, json, ttl } => {
                    if self.text(key, now).and_then(seq_of).is_none_or(|there| there < *seq) {
                        self.texts.insert(key.clone(), Kept::new(json.clone(), *ttl, now));
                    }
                }
                Write::Delete { key, .. } => drop(self.texts.remove(key)),
                Write::Check { .. } | Write::Append { .. } | Write::Publish { .. } => {}
            }
        }

        // Publish: those who listen read what was just written. Nobody listening is no error.
        for write in batch.writes() {
            let Write::Publish { channel, .. } = write else {
                continue;
            };
            if self.rings.get(channel).is_some_and(|ring| ring.send(()).is_err()) {
                self.rings.remove(channel);
            }
        }

        // What expired is only in the way of memory, so now and then is soon enough.
        if self.commits.is_multiple_of(1024) {
            self.texts.retain(|_, kept| kept.live(now).is_some());
            self.logs.retain(|_, kept| kept.live(now).is_some());
        }
        Commit::Applied(positions)
    }
}

impl Memory {
    /// An empty store.
    pub fn new() -> Memory {
        Memory::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere cannot have left half a commit: nothing in `State::commit` panics between two writes.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How much it holds: what that is, is other people's.
impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Memory").field("texts", &state.texts.len()).field("logs", &state.logs.len()).finish()
    }
}

#[async_trait]
impl Store for Memory {
    async fn get(&self, key: &Key) -> Result<Option<String>, Error> {
        Ok(self.state().text(key, Instant::now()).map(str::to_owned))
    }

    async fn commit(&self, batch: &Batch) -> Result<Commit, Error> {
        batch.validate(self.max_value())?;
        Ok(self.state().commit(batch, Instant::now()))
    }

    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        stream::iter(batches).then(|batch| self.commit(batch)).collect().await
    }

    async fn read(&self, log: &Log, after: Option<Position>, limit: usize) -> Result<Vec<Record>, Error> {
        let state = self.state();
        let records = state.logs.get(log).and_then(|kept| kept.live(Instant::now()));
        let unseen = records.into_iter().flatten().filter(|record| after < Some(record.position));
        Ok(unseen.take(limit).cloned().collect())
    }

    async fn watch(&self, channel: &Channel) -> Result<BoxStream<'static, Result<(), Error>>, Error> {
        let ring =
            self.state().rings.entry(channel.clone()).or_insert_with(|| broadcast::channel(64).0).subscribe();
        let next = |mut ring: broadcast::Receiver<()>| async move {
            match ring.recv().await {
                // Having fallen behind is one more reason to read again.
                Ok(()) | Err(broadcast::error::RecvError::Lagged(_)) => Some((Ok(()), ring)),
                Err(broadcast::error::RecvError::Closed) => None,
            }
        };
        Ok(stream::unfold(ring, next).boxed())
    }

    fn max_value(&self) -> usize {
        8 << 20
    }
}
