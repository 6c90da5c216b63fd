//! DynamoDB: one table, a conditional write for a batch of one, a transaction for more.
//!
//! The same paragraphs as in `memory.rs`, spread over a request: *judge* is the conditions, *append* and *set* are
//! the items. What the conditions must compare and the caller does not know (a log's last position, the sequence
//! number that is there) is read first. There is no pub/sub: *publish* is the log itself, and a watcher reads again
//! on every tick.
//!
//! The caller's clock judges expiry. With skew two may hold a lease, but only one of them commits under it.

mod connector;
mod item;
mod read;
mod send;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use tokio::time::{Instant, sleep};

use crate::batch::seq_of;
use crate::config::Credentials;
use crate::jitter::jitter;
use crate::{
    Batch, BoxStream, Channel, Commit, Error, Expect, Key, Log, Mismatch, Position, Record, Store, Value,
    Write,
};
use item::{Condition, Held, Kept, Place};
use send::{Action, Change, Sent};

/// An item holds 400 KB with its names; the key may take 2 of them.
const MAX_VALUE: usize = 400 * 1024 - 4 * 1024;

/// A record outlives its own end by so many seconds before it may be swept, because its log lives until the *last*
/// append's end.
const RECORD_GRACE: u64 = 7 * 24 * 3600;

/// A store in one DynamoDB table.
pub struct DynamoDb {
    table: String,
    region: String,
    endpoint: Option<String>,
    credentials: Credentials,
    limit: Duration,
    poll: Duration,
    skew: i64,
    /// Built when it is first needed: a function that starts must not wait for it.
    client: OnceLock<Client>,
}

impl fmt::Debug for DynamoDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoDb").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl DynamoDb {
    /// The table `table` (`pk` and `sk`, both strings), each call within `limit`. Connects to nothing yet.
    pub fn new(
        table: &str,
        region: &str,
        endpoint: Option<&str>,
        credentials: &Credentials,
        limit: Duration,
        poll: Duration,
    ) -> DynamoDb {
        DynamoDb {
            table: table.to_owned(),
            region: region.to_owned(),
            endpoint: endpoint.map(str::to_owned),
            credentials: credentials.clone(),
            limit,
            poll,
            skew: 0,
            client: OnceLock::new(),
        }
    }

    /// The same store with a clock that is wrong by so many milliseconds: to show what skew can and cannot do.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn with_skew(self, millis: i64) -> DynamoDb {
        DynamoDb { skew: millis, ..self }
    }

    fn now(&self) -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(now.as_millis()).unwrap_or(u64::MAX).saturating_add_signed(self.skew)
    }

    async fn commit_by(&self, batch: &Batch, deadline: Instant) -> Result<Commit, Error> {
        batch.validate(MAX_VALUE)?;
        let mut lost = false;
        let answer = connector::by(deadline, self.attempt(batch, deadline, &mut lost)).await;
        answer.map_err(|error| if lost { error.after_a_lost_reply() } else { error })
    }

    /// Sends the batch until it is applied or refused. What is sent again is what lost a race for a log's head or
    /// for a newer state, or ran into another transaction: neither is a refusal.
    async fn attempt(&self, batch: &Batch, deadline: Instant, lost: &mut bool) -> Result<Commit, Error> {
        let mut seen = connector::by(deadline, self.look(batch, deadline)).await.map_err(only_read)?;
        for attempt in 0.. {
            let now = self.now();
            let (changes, positions) = plan(batch, &seen, now)?;
            // Judge: of items that were read, or that a refusal brought, no transaction needs to.
            let refusal = judge(batch, &seen, now)?;
            if !refusal.is_empty() {
                return Ok(Commit::Refused(refusal));
            }
            match self.send(&changes, now, batch.is_repeatable(), lost).await? {
                Sent::Applied => return Ok(Commit::Applied(positions)),
                // An expectation failed, or a head or a state moved on: the refusal brought where to.
                Sent::Refused(there) => seen.extend(there),
                Sent::Contended => {
                    let pause = backoff(attempt);
                    if Instant::now() + pause >= deadline {
                        break;
                    }
                    sleep(pause).await;
                }
            }
        }
        Err(Error::not_sent("other transactions kept the items busy"))
    }

    /// What must be known before the batch can be written as conditions: heads of logs and states with a sequence
    /// number. The rest of the batch is read along, so that what is done already costs no transaction.
    async fn look(&self, batch: &Batch, deadline: Instant) -> Result<Seen, Error> {
        let blind = |write: &Write| !matches!(write, Write::Append { .. } | Write::PutIfNewer { .. });
        if batch.writes().iter().all(blind) {
            return Ok(HashMap::new());
        }
        let places = batch.writes().iter().filter_map(Write::name).map(Place::named);
        self.get_all(places.collect(), deadline).await
    }
}

/// Items as they were found, `None` where there was none.
type Seen = HashMap<Place, Option<Kept>>;

/// The expectations that fail on what was seen.
fn judge(batch: &Batch, seen: &Seen, now: u64) -> Result<Vec<Mismatch>, Error> {
    let mut refusal = Vec::new();
    for (key, expect) in batch.expectations() {
        let Some(kept) = seen.get(&Place::named(key.as_str())) else { continue };
        let there = live(kept, now)?;
        if !expect.holds(there) {
            refusal.push(Mismatch { key: key.clone(), there: there.map(str::to_owned) });
        }
    }
    Ok(refusal)
}

/// The batch as items, and the positions of its appends.
fn plan(batch: &Batch, seen: &Seen, now: u64) -> Result<(Vec<Change>, Vec<Position>), Error> {
    let mut changes = Vec::new();

    // Append: the head moves on by one if it is still where it was read, and the record takes that position. A new
    // life begins at the clock, so that no position of an earlier one comes again.
    let mut positions = Vec::new();
    for write in batch.writes() {
        let Write::Append { log, text, keep } = write else {
            continue;
        };
        let place = Place::named(log.as_str());
        let head = seen.get(&place).and_then(Option::as_ref);
        let mut record = Kept::new(Held::Text(text.clone()), keep.ttl, now);
        record.sweep = record.sweep.map(|second| second + RECORD_GRACE);
        let (position, condition) = match (head, head.map(|head| head.last(now)).transpose()?.flatten()) {
            (Some(head), Some(last)) => {
                record.sweep = record.sweep.zip(head.sweep).map(|(own, earlier)| own.max(earlier));
                (last.successor(), Condition::Log(last))
            }
            (Some(Kept { held: Held::Log(last), .. }), None) => (
                Position::new(now.max(last.parts().0.saturating_add(1)), 1),
                Condition::Value(Expect::Absent),
            ),
            _ => (Position::new(now, 1), Condition::Value(Expect::Absent)),
        };
        let moved = Kept { held: Held::Log(position), ..record.clone() };
        changes.push(Change { place, condition, action: Action::Put(moved) });
        let place = Place::record(log, position);
        changes.push(Change { place, condition: Condition::Any, action: Action::Put(record) });
        positions.push(position);
    }

    // Set: what was expected makes way for what was asked.
    for write in batch.writes() {
        let (key, expect, action) = match write {
            Write::Check { key, expect } => (key, expect.clone(), Action::Check),
            Write::Delete { key, expect } => (key, expect.clone(), Action::Delete),
            Write::Put { key, expect, value, ttl } => {
                let text = match value {
                    Value::Text(text) => text.clone(),
                    Value::PositionOf(n) => positions[*n].to_string(),
                };
                (key, expect.clone(), Action::Put(Kept::new(Held::Text(text), *ttl, now)))
            }
            Write::PutIfNewer { key, seq, json, ttl } => {
                let there = seen.get(&Place::named(key.as_str()));
                let there = there.map(|kept| live(kept, now)).transpose()?.flatten();
                if there.and_then(seq_of).is_some_and(|there| there >= *seq) {
                    continue;
                }
                let expect = there.map_or(Expect::Absent, |there| Expect::Is(there.to_owned()));
                (key, expect, Action::Put(Kept::new(Held::Text(json.clone()), *ttl, now)))
            }
            Write::Append { .. } | Write::Publish { .. } => continue,
        };
        let condition = Condition::Value(expect);
        changes.push(Change { place: Place::named(key.as_str()), condition, action });
    }
    Ok((changes, positions))
}

/// The error of a read ahead of a write: whatever became of it, nothing was written.
fn only_read(error: Error) -> Error {
    match error {
        Error::Unavailable { reason, .. } => Error::not_sent(reason),
        other => other,
    }
}

fn live(kept: &Option<Kept>, now: u64) -> Result<Option<&str>, Error> {
    Ok(kept.as_ref().map(|kept| kept.text(now)).transpose()?.flatten())
}

/// Up to 5, 10, 20, … 80 ms, at random, so that two that collided do not meet again.
fn backoff(attempt: u32) -> Duration {
    Duration::from_micros(1) + jitter(Duration::from_millis(5) * (1 << attempt.min(4)))
}

#[async_trait]
impl Store for DynamoDb {
    async fn get(&self, key: &Key) -> Result<Option<String>, Error> {
        let place = Place::named(key.as_str());
        let kept = connector::by(Instant::now() + self.limit, self.get_one(&place)).await?;
        Ok(live(&kept, self.now())?.map(str::to_owned))
    }

    async fn commit(&self, batch: &Batch) -> Result<Commit, Error> {
        self.commit_by(batch, Instant::now() + self.limit).await
    }

    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        let deadline = Instant::now() + self.limit;
        let in_order = |group: Vec<usize>| async move {
            let commits =
                stream::iter(group).then(|n| async move { (n, self.commit_by(&batches[n], deadline).await) });
            commits.collect::<Vec<_>>().await
        };
        let mut answers: Vec<_> = join_all(groups(batches).into_iter().map(in_order)).await.concat();
        answers.sort_by_key(|(n, _)| *n);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    async fn read(&self, log: &Log, after: Option<Position>, limit: usize) -> Result<Vec<Record>, Error> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        self.read_log(log, after, limit).await
    }

    async fn watch(&self, _channel: &Channel) -> Result<BoxStream<'static, Result<(), Error>>, Error> {
        let tick = |poll: Duration| async move {
            sleep(poll).await;
            Some((Ok(()), poll))
        };
        Ok(stream::unfold(self.poll, tick).boxed())
    }

    fn max_value(&self) -> usize {
        MAX_VALUE
    }
}

/// Batches that share a key or a log, together and in order.
fn groups(batches: &[Batch]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(HashSet<&str>, Vec<usize>)> = Vec::new();
    for (n, batch) in batches.iter().enumerate() {
        let names: HashSet<&str> = batch.writes().iter().filter_map(Write::name).collect();
        let (akin, mut apart): (Vec<_>, Vec<_>) =
            groups.into_iter().partition(|(others, _)| !others.is_disjoint(&names));
        let joined = akin.into_iter().fold((names, vec![n]), |(mut names, mut members), (more, earlier)| {
            names.extend(more);
            members.extend(earlier);
            (names, members)
        });
        apart.push(joined);
        groups = apart;
    }
    for (_, members) in &mut groups {
        members.sort_unstable();
    }
    groups.into_iter().map(|(_, members)| members).collect()
}
