//! DynamoDB: one table, a conditional write for a batch of one, a transaction for more.
//!
//! The steps of `memory.rs` are one request here: *check* is its conditions, *append* and *set* are its items. Some
//! conditions compare a value that the caller does not know (a log's last position, the stored sequence number): it is
//! read first. DynamoDB has no pub/sub, so *publish* does nothing: a watcher polls, and reads the log on every tick.
//!
//! Expiry is decided by the caller's clock. With clock skew, two callers may hold a lease at the same time, but only
//! one of them can commit under it.

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
use item::{Condition, Content, Item, ItemKey};
use send::{Action, ItemWrite, Outcome};

/// DynamoDB items are at most 400 KB, with attribute names; the partition key may take 2 KB of them.
const MAX_VALUE: usize = 400 * 1024 - 4 * 1024;

/// DynamoDB may delete a record so many seconds after the record's own expiry. The record must not go earlier, because
/// every append extends the TTL of the whole log.
const RECORD_GRACE_SECONDS: u64 = 7 * 24 * 3600;

/// A store in one DynamoDB table.
pub struct DynamoDb {
    table: String,
    region: String,
    endpoint: Option<String>,
    credentials: Credentials,
    limit: Duration,
    poll: Duration,
    skew: i64,
    /// Built at the first request, so that it does not delay the start of a function.
    client: OnceLock<Client>,
}

impl fmt::Debug for DynamoDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoDb").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl DynamoDb {
    /// A store in `table` (key attributes `pk` and `sk`, both strings). `limit` is the time limit of each call. Does
    /// not connect yet.
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

    /// The same store with a clock that is wrong by so many milliseconds, for tests of clock skew.
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

    /// Sends the batch until it is applied or refused. It is sent again after a conflict with another transaction, or
    /// if a log's head or a state with a sequence number has changed since it was read: none of these is a refusal.
    async fn attempt(&self, batch: &Batch, deadline: Instant, lost: &mut bool) -> Result<Commit, Error> {
        let mut seen =
            connector::by(deadline, self.read_ahead(batch, deadline)).await.map_err(nothing_written)?;
        for attempt in 0.. {
            let now = self.now();
            let (writes, positions) = plan(batch, &seen, now)?;
            // Check: an expectation that fails on an item that is known already needs no request.
            let refusal = mismatches(batch, &seen, now)?;
            if !refusal.is_empty() {
                return Ok(Commit::Refused(refusal));
            }
            match self.send(&writes, now, batch.is_repeatable(), lost).await? {
                Outcome::Applied => return Ok(Commit::Applied(positions)),
                // An expectation failed, or a head or a state has changed: the refusal contains the current items.
                Outcome::Refused(there) => seen.extend(there),
                Outcome::Conflict => {
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

    /// Reads what the conditions need: the heads of logs, and states with a sequence number. If there are any, all
    /// other keys of the batch are read too, so that a batch that will be refused costs no transaction.
    async fn read_ahead(&self, batch: &Batch, deadline: Instant) -> Result<Seen, Error> {
        let needs_no_read = |write: &Write| !matches!(write, Write::Append { .. } | Write::PutIfNewer { .. });
        if batch.writes().iter().all(needs_no_read) {
            return Ok(HashMap::new());
        }
        let keys = batch.writes().iter().filter_map(Write::name).map(ItemKey::named);
        self.get_all_items(keys.collect(), deadline).await
    }
}

/// Items as they were read, `None` for an absent item.
type Seen = HashMap<ItemKey, Option<Item>>;

/// The expectations that fail on the items that were read.
fn mismatches(batch: &Batch, seen: &Seen, now: u64) -> Result<Vec<Mismatch>, Error> {
    let mut refusal = Vec::new();
    for (key, expect) in batch.expectations() {
        let Some(item) = seen.get(&ItemKey::named(key.as_str())) else { continue };
        let there = live(item, now)?;
        if !expect.holds(there) {
            refusal.push(Mismatch { key: key.clone(), there: there.map(str::to_owned) });
        }
    }
    Ok(refusal)
}

/// The writes of the batch, and the positions of its appends.
fn plan(batch: &Batch, seen: &Seen, now: u64) -> Result<(Vec<ItemWrite>, Vec<Position>), Error> {
    let mut writes = Vec::new();

    // Append: the position in the head increases by one, on condition that it is still the one that was read, and the
    // record takes the new position. After a log has expired, positions start again at the clock, so that no position
    // is used twice.
    let mut positions = Vec::new();
    for write in batch.writes() {
        let Write::Append { log, text, keep } = write else {
            continue;
        };
        let key = ItemKey::named(log.as_str());
        let head = seen.get(&key).and_then(Option::as_ref);
        let mut record = Item::new(Content::Text(text.clone()), keep.ttl, now);
        record.sweep = record.sweep.map(|second| second + RECORD_GRACE_SECONDS);
        let (position, condition) = match (head, head.map(|head| head.last(now)).transpose()?.flatten()) {
            (Some(head), Some(last)) => {
                record.sweep = record.sweep.zip(head.sweep).map(|(own, earlier)| own.max(earlier));
                (last.successor(), Condition::Log(last))
            }
            (Some(Item { content: Content::Log(last), .. }), None) => (
                Position::new(now.max(last.parts().0.saturating_add(1)), 1),
                Condition::Value(Expect::Absent),
            ),
            _ => (Position::new(now, 1), Condition::Value(Expect::Absent)),
        };
        let moved = Item { content: Content::Log(position), ..record.clone() };
        writes.push(ItemWrite { key, condition, action: Action::Put(moved) });
        let key = ItemKey::record(log, position);
        writes.push(ItemWrite { key, condition: Condition::Any, action: Action::Put(record) });
        positions.push(position);
    }

    // Set: the puts and deletes, each with its expectation as the condition.
    for write in batch.writes() {
        let (key, expect, action) = match write {
            Write::Check { key, expect } => (key, expect.clone(), Action::Check),
            Write::Delete { key, expect } => (key, expect.clone(), Action::Delete),
            Write::Put { key, expect, value, ttl } => {
                let text = match value {
                    Value::Text(text) => text.clone(),
                    Value::PositionOf(n) => positions[*n].to_string(),
                };
                (key, expect.clone(), Action::Put(Item::new(Content::Text(text), *ttl, now)))
            }
            Write::PutIfNewer { key, seq, json, ttl } => {
                let there = seen.get(&ItemKey::named(key.as_str()));
                let there = there.map(|item| live(item, now)).transpose()?.flatten();
                if there.and_then(seq_of).is_some_and(|there| there >= *seq) {
                    continue;
                }
                let expect = there.map_or(Expect::Absent, |there| Expect::Is(there.to_owned()));
                (key, expect, Action::Put(Item::new(Content::Text(json.clone()), *ttl, now)))
            }
            Write::Append { .. } | Write::Publish { .. } => continue,
        };
        let condition = Condition::Value(expect);
        writes.push(ItemWrite { key: ItemKey::named(key.as_str()), condition, action });
    }
    Ok((writes, positions))
}

/// The error of a read before a write: nothing was written.
fn nothing_written(error: Error) -> Error {
    match error {
        Error::Unavailable { reason, .. } => Error::not_sent(reason),
        other => other,
    }
}

fn live(item: &Option<Item>, now: u64) -> Result<Option<&str>, Error> {
    Ok(item.as_ref().map(|item| item.text(now)).transpose()?.flatten())
}

/// A random delay of up to 5, 10, 20, … 80 ms, so that two transactions that conflicted do not conflict again.
fn backoff(attempt: u32) -> Duration {
    Duration::from_micros(1) + jitter(Duration::from_millis(5) * (1 << attempt.min(4)))
}

#[async_trait]
impl Store for DynamoDb {
    async fn get_all(&self, keys: &[Key]) -> Result<Vec<Option<String>>, Error> {
        let deadline = Instant::now() + self.limit;
        let names: Vec<ItemKey> = keys.iter().map(|key| ItemKey::named(key.as_str())).collect();
        let found = match &names[..] {
            [] => return Ok(Vec::new()),
            [one] => {
                let item = connector::by(deadline, self.get_one(one)).await?;
                HashMap::from([(one.clone(), item)])
            }
            _ => connector::by(deadline, self.get_all_items(names.clone(), deadline)).await?,
        };
        let now = self.now();
        let value = |name| found.get(name).map_or(Ok(None), |item| live(item, now));
        names.iter().map(|name| Ok(value(name)?.map(str::to_owned))).collect()
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

/// Groups batches that share a key or a log, each group in order. Groups can run at the same time.
fn groups(batches: &[Batch]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(HashSet<&str>, Vec<usize>)> = Vec::new();
    for (n, batch) in batches.iter().enumerate() {
        let names: HashSet<&str> = batch.writes().iter().filter_map(Write::name).collect();
        let (related, mut others): (Vec<_>, Vec<_>) =
            groups.into_iter().partition(|(theirs, _)| !theirs.is_disjoint(&names));
        let joined =
            related.into_iter().fold((names, vec![n]), |(mut names, mut members), (more, earlier)| {
                names.extend(more);
                members.extend(earlier);
                (names, members)
            });
        others.push(joined);
        groups = others;
    }
    for (_, members) in &mut groups {
        members.sort_unstable();
    }
    groups.into_iter().map(|(_, members)| members).collect()
}
