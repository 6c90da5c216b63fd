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
mod send;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use tokio::time::{Instant, sleep, timeout_at};

use crate::batch::seq_of;
use crate::config::Credentials;
use crate::{
    Batch, BoxStream, Channel, Commit, Error, Expect, Key, Log, Mismatch, Position, Record, Store, Value,
    Write,
};
use item::{Attributes, Kept, Place};
use send::{Action, Change, Sent};

/// An item holds 400 KB with its names; the key may take 2 of them.
const MAX_VALUE: usize = 400 * 1024 - 4 * 1024;

/// A record outlives its own end by so many seconds before it may be swept, because its log lives until the *last*
/// append's end.
const RECORD_GRACE: u64 = 7 * 24 * 3600;

/// How long `read` waits at a hole for the record that belongs there: transactions become visible item by item.
const HOLE_PATIENCE: Duration = Duration::from_millis(100);

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
        let late = || Err(Error::unknown("no answer in time"));
        let mut lost = false;
        let answer = timeout_at(deadline, self.attempt(batch, deadline, &mut lost)).await;
        let answer = answer.unwrap_or_else(|_| late());
        answer.map_err(|error| if lost { error.after_a_lost_reply() } else { error })
    }

    /// Sends the batch until it is applied or refused. What is sent again is what lost a race for a log's head or
    /// for a newer state, or ran into another transaction: neither is a refusal.
    async fn attempt(&self, batch: &Batch, deadline: Instant, lost: &mut bool) -> Result<Commit, Error> {
        let mut seen = self.look(batch).await?;
        for attempt in 0.. {
            let now = self.now();
            // Judge: where the items were read anyway, a refusal needs no transaction.
            let failed = |(key, expect): &(&Key, &Expect)| {
                seen.get(&Place::value(key)).is_some_and(|kept| !expect.holds(live(kept, now)))
            };
            let refusal: Vec<Mismatch> = batch
                .expectations()
                .filter(failed)
                .map(|(key, _)| mismatch(key, seen.get(&Place::value(key)).and_then(Option::as_ref), now))
                .collect();
            if !refusal.is_empty() {
                return Ok(Commit::Refused(refusal));
            }

            let (changes, positions) = plan(batch, &seen, now)?;
            match self.send(&changes, now, batch.is_repeatable(), lost).await? {
                Sent::Applied => return Ok(Commit::Applied(positions)),
                Sent::Refused(there) => {
                    let refusal: Vec<Mismatch> = batch
                        .expectations()
                        .filter_map(|(key, _)| {
                            Some(mismatch(key, there.get(&Place::value(key))?.as_ref(), now))
                        })
                        .collect();
                    if !refusal.is_empty() {
                        return Ok(Commit::Refused(refusal));
                    }
                    // A head or a state moved on. The refusal brought where to, so that no new read is needed.
                    seen.extend(there);
                }
                Sent::Contended => {
                    let pause = jitter(attempt);
                    if Instant::now() + pause >= deadline {
                        return Err(Error::not_sent("other transactions kept the items busy"));
                    }
                    sleep(pause).await;
                }
            }
        }
        Err(Error::not_sent("other transactions kept the items busy"))
    }

    /// What must be known before the batch can be written as conditions: heads of logs and states with a sequence
    /// number. The rest of the batch is read along, so that what is done already costs no transaction.
    async fn look(&self, batch: &Batch) -> Result<HashMap<Place, Option<Kept>>, Error> {
        let blind = |write: &Write| !matches!(write, Write::Append { .. } | Write::PutIfNewer { .. });
        if batch.writes().iter().all(blind) {
            return Ok(HashMap::new());
        }
        let places = batch.writes().iter().filter_map(|write| match write {
            Write::Append { log, .. } => Some(Place::head(log)),
            Write::Publish { .. } => None,
            Write::Check { key, .. }
            | Write::Put { key, .. }
            | Write::Delete { key, .. }
            | Write::PutIfNewer { key, .. } => Some(Place::value(key)),
        });
        self.get_all(places.collect()).await
    }
}

/// The batch as items, and the positions of its appends.
fn plan(
    batch: &Batch,
    seen: &HashMap<Place, Option<Kept>>,
    now: u64,
) -> Result<(Vec<Change>, Vec<Position>), Error> {
    let mut changes = Vec::new();

    // Append: the head moves on by one if it is still where it was read, and the record takes that position. A new
    // log begins at the clock, so that no position of one that expired comes again.
    let mut positions = Vec::new();
    for write in batch.writes() {
        let Write::Append { log, text, keep } = write else {
            continue;
        };
        let head = seen.get(&Place::head(log)).and_then(Option::as_ref);
        let last = head.map(|head| head.text.parse::<Position>()).transpose();
        let last = last.map_err(|_| Error::decode("a log's head is no position"))?.map(Position::parts);
        let alive = head.is_some_and(|head| head.live(now).is_some());
        let (position, expect) = match (last, head) {
            (Some((epoch, n)), Some(head)) if alive => {
                (Position::new(epoch, n + 1), Expect::Is(head.text.clone()))
            }
            // An expired head may be replaced while it is still there, and once it was swept.
            (Some((epoch, _)), Some(head)) => {
                (Position::new(now.max(epoch + 1), 1), Expect::AbsentOr(head.text.clone()))
            }
            _ => (Position::new(now, 1), Expect::Absent),
        };
        let moved = Kept::new(position.to_string(), keep.ttl, now);
        changes.push(Change { place: Place::head(log), expect: Some(expect), action: Action::Put(moved, 0) });
        let record = Kept::new(text.clone(), keep.ttl, now);
        let action = Action::Put(record, RECORD_GRACE);
        changes.push(Change { place: Place::record(log, position), expect: None, action });
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
                (key, expect.clone(), Action::Put(Kept::new(text, *ttl, now), 0))
            }
            Write::PutIfNewer { key, seq, json, ttl } => {
                let there = seen.get(&Place::value(key)).and_then(Option::as_ref);
                let there = there.and_then(|kept| kept.live(now));
                if there.and_then(seq_of).is_some_and(|there| there >= *seq) {
                    continue;
                }
                let expect = there.map_or(Expect::Absent, |there| Expect::Is(there.to_owned()));
                (key, expect, Action::Put(Kept::new(json.clone(), *ttl, now), 0))
            }
            Write::Append { .. } | Write::Publish { .. } => continue,
        };
        changes.push(Change { place: Place::value(key), expect: Some(expect), action });
    }
    Ok((changes, positions))
}

fn live(kept: &Option<Kept>, now: u64) -> Option<&str> {
    kept.as_ref().and_then(|kept| kept.live(now))
}

fn mismatch(key: &Key, there: Option<&Kept>, now: u64) -> Mismatch {
    Mismatch { key: key.clone(), there: there.and_then(|kept| kept.live(now)).map(str::to_owned) }
}

/// Up to 5, 10, 20, … 80 ms, at random, so that two that collided do not meet again.
fn jitter(attempt: u32) -> Duration {
    let mut byte = [0u8; 2];
    let _ = getrandom::fill(&mut byte);
    let most = 5_000u64 << attempt.min(4);
    Duration::from_micros(1 + u64::from(u16::from_be_bytes(byte)) * most / u64::from(u16::MAX))
}

#[async_trait]
impl Store for DynamoDb {
    async fn get(&self, key: &Key) -> Result<Option<String>, Error> {
        let place = Place::value(key);
        let got = timeout_at(Instant::now() + self.limit, self.get_one(&place)).await;
        let kept = got.unwrap_or_else(|_| Err(Error::unknown("no answer in time")))?;
        Ok(live(&kept, self.now()).map(str::to_owned))
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
        let deadline = Instant::now() + self.limit;
        let patience = Instant::now() + HOLE_PATIENCE.min(self.limit / 2);
        loop {
            let page = timeout_at(deadline, self.query(log, after, limit)).await;
            let items = page.unwrap_or_else(|_| Err(Error::unknown("no answer in time")))?;
            let (records, whole) = records(&items, after, limit, self.now())?;
            // A hole that stays is one that was swept: what is there is all there will be.
            if whole || Instant::now() >= patience {
                return Ok(records);
            }
            sleep(Duration::from_millis(10)).await;
        }
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

/// The log's records among `items` (records in order, then the head), and whether none is missing in between.
fn records(
    items: &[Attributes],
    after: Option<Position>,
    limit: usize,
    now: u64,
) -> Result<(Vec<Record>, bool), Error> {
    let mut found = Vec::new();
    let mut head = None;
    for item in items {
        let place = Place::of(item)?;
        if place.is_head() {
            head = Some(Kept::read(item)?);
        } else if let Some(position) = place.position() {
            found.push(Record { position, text: Kept::read(item)?.text });
        }
    }
    // The head says whether the log still lives, and which of the records belong to an earlier life.
    let Some(last) = head.filter(|head| head.live(now).is_some()) else {
        return Ok((Vec::new(), true));
    };
    let last: Position = last.text.parse().map_err(|_| Error::decode("a log's head is no position"))?;
    let (epoch, count) = last.parts();
    found.retain(|record| record.position.parts().0 == epoch && record.position <= last);
    let seen = after.map(Position::parts).filter(|(major, _)| *major == epoch).map_or(0, |(_, n)| n);
    let mut next = seen;
    let dense = found.iter().take(limit).all(|record| {
        next += 1;
        record.position.parts().1 == next
    });
    found.truncate(limit);
    Ok((found, dense && (next >= count || next - seen >= limit as u64)))
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
