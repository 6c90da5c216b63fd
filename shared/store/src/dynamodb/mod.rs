//! DynamoDB: one table, a conditional write for a batch of one, a transaction for more.
//!
//! The steps of `memory.rs` are one request here: *check* is its conditions, *append* and *set* are its items. Some
//! conditions compare a value that the caller does not know (a log's last position, the stored sequence number): it is
//! read first. DynamoDB has no pub/sub, so *publish* does nothing: a watcher polls, and reads the log on every tick.
//!
//! Expiry is decided by the caller's clock. With clock skew, two callers may hold a lease at the same time, but only
//! one of them can commit under it.

mod clear;
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

    /// Commits the batch, and returns what it has cleared.
    async fn commit_by<'a>(
        &self,
        batch: &'a Batch,
        deadline: Instant,
    ) -> Result<(Commit, Cleared<'a>), Error> {
        batch.validate(MAX_VALUE)?;
        let mut lost = false;
        let answer = connector::by(deadline, self.attempt(batch, deadline, &mut lost)).await;
        answer.map_err(|error| if lost { error.after_a_lost_reply() } else { error })
    }

    /// Sends the batch until it is applied or refused. It is sent again after a conflict with another transaction, or
    /// if a log's head or a state with a sequence number has changed since it was read: none of these is a refusal.
    async fn attempt<'a>(
        &self,
        batch: &'a Batch,
        deadline: Instant,
        lost: &mut bool,
    ) -> Result<(Commit, Cleared<'a>), Error> {
        let mut seen =
            connector::by(deadline, self.read_ahead(batch, deadline)).await.map_err(nothing_written)?;
        let mut emptied = Vec::new();
        for attempt in 0.. {
            let now = self.now();
            let Plan { writes, positions, cleared, gone } = plan(batch, &seen, now)?;
            // Check: an expectation that fails on an item that is known already needs no request.
            let refusal = mismatches(batch, &seen, now)?;
            if !refusal.is_empty() {
                return Ok((Commit::Refused(refusal), Vec::new()));
            }
            if emptied != gone {
                let heads = connector::by(deadline, self.delete_leftovers(&gone, now, deadline)).await;
                seen.extend(heads.map_err(nothing_written)?);
                emptied = gone;
                // The plan is made again: it may take long to delete many records, and a head may have changed.
                continue;
            }
            match self.send(&writes, now, batch.is_repeatable(), lost).await? {
                Outcome::Applied => return Ok((Commit::Applied(positions), cleared)),
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
        let needs_no_read = |write: &Write| {
            !matches!(write, Write::Append { .. } | Write::Clear { .. } | Write::PutIfNewer { .. })
        };
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

/// Logs that a batch has cleared, each with its last position.
type Cleared<'a> = Vec<(&'a Log, Position)>;

/// The requests of a batch.
struct Plan<'a> {
    writes: Vec<ItemWrite>,
    /// The positions of its appends.
    positions: Vec<Position>,
    /// The logs that are cleared by it.
    cleared: Cleared<'a>,
    /// The logs that it clears and that are gone already, each with its last position, if there is a head that has it.
    gone: Vec<(&'a Log, Option<Position>)>,
}

/// The writes of the batch, and what comes before and after them.
fn plan<'a>(batch: &'a Batch, seen: &Seen, now: u64) -> Result<Plan<'a>, Error> {
    let mut writes: Vec<ItemWrite> = Vec::new();
    let head_of = |log: &Log| seen.get(&ItemKey::named(log.as_str())).and_then(Option::as_ref);

    // Append: the position in the head increases by one, on condition that it is still the one that was read, and the
    // record takes the new position. After a log has ended, positions start again at the clock, so that no position
    // is used twice.
    let mut positions = Vec::new();
    for write in batch.writes() {
        let Write::Append { log, text, keep } = write else {
            continue;
        };
        let key = ItemKey::named(log.as_str());
        let text = Content::Text(text.clone());
        // The head moves once, by all records that the batch appends to the log.
        let moved = writes.iter_mut().find(|write| write.key == key).map(|write| &mut write.action);
        let (position, record) = if let Some(Action::Put(head)) = moved {
            let position = head.content.last()?.successor();
            head.content = Content::Log(position);
            (position, Item { content: text, ..*head })
        } else {
            let mut record = Item::new(text, keep.ttl, now).swept_later(keep.ttl);
            let head = head_of(log);
            let (position, condition) = match (head, head.map(|head| head.last(now)).transpose()?.flatten()) {
                (Some(head), Some(last)) => {
                    record.sweep = record.sweep.zip(head.sweep).map(|(own, earlier)| own.max(earlier));
                    (last.successor(), Condition::Log(last))
                }
                (Some(Item { content: Content::Log(last), .. }), None) => {
                    (Position::new(now.max(last.parts().0.saturating_add(1)), 1), Condition::EndedLog(*last))
                }
                _ => (Position::new(now, 1), Condition::NoLog),
            };
            let head = Item { content: Content::Log(position), ..record };
            writes.push(ItemWrite { key, condition, action: Action::Put(head) });
            (position, record)
        };
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
            Write::Append { .. } | Write::Clear { .. } | Write::Publish { .. } => continue,
        };
        let condition = Condition::Value(expect);
        writes.push(ItemWrite { key: ItemKey::named(key.as_str()), condition, action });
    }

    // Clear: the head becomes a tombstone, on condition that it is still the one that was read. Where the log is gone
    // already, nothing changes, on condition that this is still so.
    let (mut cleared, mut gone, mut checks) = (Vec::new(), Vec::new(), Vec::new());
    for write in batch.writes() {
        let Write::Clear { log } = write else {
            continue;
        };
        let key = ItemKey::named(log.as_str());
        let head = head_of(log);
        match (head, head.map(|head| head.last(now)).transpose()?.flatten()) {
            (Some(_), Some(last)) => {
                let action = Action::Put(Item::tombstone(last, now));
                writes.push(ItemWrite { key, condition: Condition::Log(last), action });
                cleared.push((log, last));
            }
            (Some(Item { content: Content::Log(last), sweep, .. }), None) => {
                let (condition, tombstone) = (Condition::EndedLog(*last), Item::tombstone(*last, now));
                // The head of a log that has expired may stay in the table for years.
                if sweep.is_none_or(|sweep| Some(sweep) > tombstone.sweep) {
                    writes.push(ItemWrite { key, condition, action: Action::Put(tombstone) });
                } else {
                    checks.push(ItemWrite { key, condition, action: Action::Check });
                }
                gone.push((log, Some(*last)));
            }
            _ => {
                checks.push(ItemWrite { key, condition: Condition::NoLog, action: Action::Check });
                gone.push((log, None));
            }
        }
    }
    // A single check needs no request: the log was read.
    if !(writes.is_empty() && checks.len() == 1) {
        writes.extend(checks);
    }
    Ok(Plan { writes, positions, cleared, gone })
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
        let deadline = Instant::now() + self.limit;
        let (commit, cleared) = self.commit_by(batch, deadline).await?;
        self.delete_cleared(cleared, deadline).await;
        Ok(commit)
    }

    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        let deadline = Instant::now() + self.limit;
        let in_order = |group: Vec<usize>| async move {
            let commits =
                stream::iter(group).then(|n| async move { (n, self.commit_by(&batches[n], deadline).await) });
            commits.collect::<Vec<_>>().await
        };
        let answers = join_all(groups(batches).into_iter().map(in_order)).await;
        let mut answers: Vec<_> = answers.into_iter().flatten().collect();
        answers.sort_by_key(|(n, _)| *n);
        let (mut commits, mut all_cleared) = (Vec::with_capacity(batches.len()), Vec::new());
        for (_, answer) in answers {
            commits.push(answer.map(|(commit, cleared)| {
                all_cleared.extend(cleared);
                commit
            }));
        }
        self.delete_cleared(all_cleared, deadline).await;
        commits
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
