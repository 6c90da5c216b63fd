//! The store in this process: the semantics, in the fewest words. The other backends say the same in Lua and in
//! DynamoDB's expressions, in the same paragraphs: *judge*, *append*, *set* (and delete), *publish*.

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
    kept: HashMap<String, Kept>,
    rings: HashMap<Channel, broadcast::Sender<()>>,
    commits: u64,
}

/// What a name holds, one or the other, and its end.
struct Kept {
    what: What,
    until: Option<Instant>,
}

enum What {
    Text(String),
    Log(Vec<Record>),
}

impl Kept {
    fn new(what: What, ttl: Ttl, now: Instant) -> Kept {
        let until = match ttl {
            Ttl::Forever => None,
            Ttl::Of(life) => Some(now + life),
        };
        Kept { what, until }
    }

    /// What is expired is absent, whether or not it was swept yet.
    fn is_live(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

impl State {
    fn live(&self, name: &str, now: Instant) -> Option<&What> {
        self.kept.get(name).filter(|kept| kept.is_live(now)).map(|kept| &kept.what)
    }

    fn text(&self, key: &Key, now: Instant) -> Result<Option<&str>, Error> {
        match self.live(key.as_str(), now) {
            Some(What::Text(text)) => Ok(Some(text)),
            Some(What::Log(_)) => Err(Error::wrong_type()),
            None => Ok(None),
        }
    }

    fn records(&self, log: &Log, now: Instant) -> Result<&[Record], Error> {
        match self.live(log.as_str(), now) {
            Some(What::Log(records)) => Ok(records),
            Some(What::Text(_)) => Err(Error::wrong_type()),
            None => Ok(&[]),
        }
    }

    fn put(&mut self, name: &str, what: What, ttl: Ttl, now: Instant) {
        self.kept.insert(name.to_owned(), Kept::new(what, ttl, now));
    }

    fn commit(&mut self, batch: &Batch, now: Instant) -> Result<Commit, Error> {
        // Judge: every expectation against what is there; one that fails refuses all, and all that fail are told. A
        // name that holds the other kind is an error before anything is written.
        let mut refusal = Vec::new();
        for write in batch.writes() {
            if let Write::Append { log, .. } = write {
                self.records(log, now)?;
            } else if let Write::PutIfNewer { key, .. } = write {
                self.text(key, now)?;
            } else if let Some((key, expect)) = write.expectation() {
                let there = self.text(key, now)?;
                if !expect.holds(there) {
                    refusal.push(Mismatch { key: key.clone(), there: there.map(str::to_owned) });
                }
            }
        }
        if !refusal.is_empty() {
            return Ok(Commit::Refused(refusal));
        }
        self.commits += 1;

        // Append: first, because a value may name the position. The count of commits orders all logs alike.
        let mut positions = Vec::new();
        for write in batch.writes() {
            let Write::Append { log, text, keep } = write else {
                continue;
            };
            let position = Position::new(self.commits, positions.len() as u64);
            let mut records = match self.kept.remove(log.as_str()).filter(|kept| kept.is_live(now)) {
                Some(Kept { what: What::Log(records), .. }) => records,
                _ => Vec::new(),
            };
            records.push(Record { position, text: text.clone() });
            let surplus = records.len() - keep.about.unwrap_or(usize::MAX).clamp(1, records.len());
            records.drain(..surplus);
            self.put(log.as_str(), What::Log(records), keep.ttl, now);
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
                    self.put(key.as_str(), What::Text(text), *ttl, now);
                }
                Write::PutIfNewer { key, seq, json, ttl } => {
                    let there = self.text(key, now).ok().flatten();
                    if there.and_then(seq_of).is_none_or(|there| there < *seq) {
                        self.put(key.as_str(), What::Text(json.clone()), *ttl, now);
                    }
                }
                Write::Delete { key, .. } => drop(self.kept.remove(key.as_str())),
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
            self.kept.retain(|_, kept| kept.is_live(now));
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
        // A panic elsewhere cannot have left half a commit: nothing in `State::commit` panics between two writes.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How much it holds: what that is, is other people's.
impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("names", &self.state().kept.len()).finish()
    }
}

#[async_trait]
impl Store for Memory {
    async fn get(&self, key: &Key) -> Result<Option<String>, Error> {
        Ok(self.state().text(key, Instant::now())?.map(str::to_owned))
    }

    async fn commit(&self, batch: &Batch) -> Result<Commit, Error> {
        batch.validate(self.max_value())?;
        self.state().commit(batch, Instant::now())
    }

    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        stream::iter(batches).then(|batch| self.commit(batch)).collect().await
    }

    async fn read(&self, log: &Log, after: Option<Position>, limit: usize) -> Result<Vec<Record>, Error> {
        let state = self.state();
        let records = state.records(log, Instant::now())?;
        let unseen = records.iter().filter(|record| after < Some(record.position));
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
