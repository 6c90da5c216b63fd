//! Stores with one fence taken down. Each is a mistake that somebody could make in a backend or above it, and the
//! checker must see every one of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onetap_store::testing::{Answer, Call, Request, TestStore};
use onetap_store::{Batch, Commit, Error, Expect, Key, Store, Ttl, Value, Write};
use serde::{Deserialize, Serialize};

/// The fence that is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fence {
    /// A guard is not looked at: a stale owner writes over its successor.
    Guard,
    /// A swap writes whatever is there: updates are lost.
    Swap,
    /// A claim takes what somebody holds.
    Claim,
    /// A release removes whoever's lock is there.
    Release,
    /// A renewal revives a lease that has lapsed.
    Renewal,
    /// A stale owner's result replaces its successor's.
    Result,
    /// A marker is written apart from its append.
    Marker,
    /// Half of a batch is kept when the other half is refused.
    Atomicity,
    /// What may have happened is reported as not sent.
    Honesty,
    /// An append whose answer was lost is sent again without its marker.
    Resend,
    /// A swap whose answer was lost is sent again, against whatever is there now.
    ResentSwap,
    /// A refusal is taken for a yes.
    Refusal,
    /// A lease ends before its time.
    ShortLife,
    /// What has expired still counts.
    LongLife,
    /// Reads come from a replica that is behind.
    FreshReads,
    /// A clear is taken and not done.
    Clear,
    /// Only the first of several appends to a log is in the batch, and the others follow it.
    Appends,
    /// An older state replaces a newer one.
    Newest,
    /// A page that is full leaves out its first record.
    Page,
    /// The answers to the first two batches of a round are swapped.
    Round,
    /// A FIFO queue does not say that it is one. (The clients look at this one, and at the next.)
    GroupOrder,
    /// Messages count as done whatever the response to their batch says.
    PartialFailures,
    /// The records of a ledger are appended before the batch that they belong to.
    EarlyRecords,
    /// The records of a ledger are appended after the batch that they belong to.
    LateRecords,
    /// The records of a ledger are sometimes forgotten.
    ForgottenRecords,
}

impl Fence {
    /// All of them.
    pub const ALL: [Fence; 25] = [
        Fence::Guard,
        Fence::Swap,
        Fence::Claim,
        Fence::Release,
        Fence::Renewal,
        Fence::Result,
        Fence::Marker,
        Fence::Atomicity,
        Fence::Honesty,
        Fence::Resend,
        Fence::ResentSwap,
        Fence::Refusal,
        Fence::ShortLife,
        Fence::LongLife,
        Fence::FreshReads,
        Fence::Clear,
        Fence::Appends,
        Fence::Newest,
        Fence::Page,
        Fence::Round,
        Fence::GroupOrder,
        Fence::PartialFailures,
        Fence::EarlyRecords,
        Fence::LateRecords,
        Fence::ForgottenRecords,
    ];
}

/// What a store does that has a fence down.
struct Sabotage {
    store: Arc<dyn Store>,
    fence: Fence,
    /// What reads were answered, for the one that goes on answering it.
    seen: Mutex<HashMap<Key, Option<String>>>,
    /// How often it was asked for what it sometimes forgets.
    asked: AtomicUsize,
}

/// `store` without `fence`.
pub fn sabotaged(store: Arc<dyn Store>, fence: Fence) -> Arc<dyn Store> {
    let sabotage =
        Sabotage { store: store.clone(), fence, seen: Mutex::default(), asked: AtomicUsize::new(0) };
    let sabotage = Arc::new(sabotage);
    TestStore::scripted(store, move |call| Arc::clone(&sabotage).run(call))
}

impl Sabotage {
    async fn run(self: Arc<Self>, call: Call) -> Answer {
        if !call.batches().is_empty() {
            let mut answers = Vec::new();
            for batch in call.batches() {
                answers.push(self.commit(batch).await);
            }
            if self.fence == Fence::Round && answers.len() > 1 {
                answers.swap(0, 1);
            }
            return Answer::Commits(answers);
        }
        let mut answer = call.send().await;
        match (self.fence, &call.request, &mut answer) {
            (Fence::FreshReads, Request::GetAll(keys), Answer::Values(Ok(values))) => {
                let mut seen = self.seen.lock().unwrap();
                for (key, value) in keys.iter().zip(values) {
                    match seen.remove(key) {
                        Some(old) => *value = old,
                        None => _ = seen.insert(key.clone(), value.clone()),
                    }
                }
            }
            (Fence::Page, Request::Read { limit, .. }, Answer::Records(Ok(records)))
                if records.len() == *limit =>
            {
                records.remove(0);
            }
            _ => {}
        }
        answer
    }

    async fn commit(&self, batch: &Batch) -> Result<Commit, Error> {
        match self.fence {
            Fence::EarlyRecords if is_ledgers(batch) => {
                let (appends, rest) = apart(batch);
                self.torn(vec![appends, rest]).await
            }
            Fence::LateRecords if is_ledgers(batch) => {
                let (appends, rest) = apart(batch);
                self.torn(vec![rest, appends]).await
            }
            Fence::ForgottenRecords if is_ledgers(batch) => {
                let is_forgotten = self.asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(5);
                let (_, rest) = apart(batch);
                self.store.commit(if is_forgotten { &rest } else { batch }).await
            }
            Fence::Marker if has_append(batch) && !is_ledgers(batch) => {
                // The effect first, the note of it after: what crashes in between happens again.
                let (mut appends, mut marker) = (Batch::new(), Batch::new());
                let mut last = None;
                for write in batch.writes() {
                    match write.clone() {
                        Write::Put { key, expect, ttl, .. } => last = Some((key, expect, ttl)),
                        write => appends = and(appends, write),
                    }
                }
                let Commit::Applied(positions) = self.store.commit(&appends).await? else {
                    return Err(Error::unknown("an append was refused"));
                };
                if let (Some((key, expect, ttl)), Some(position)) = (last, positions.first()) {
                    marker = marker.put(&key, expect, position.to_string(), ttl);
                }
                Ok(match self.store.commit(&marker).await? {
                    Commit::Applied(_) => Commit::Applied(positions),
                    refused => refused,
                })
            }
            Fence::Atomicity if batch.writes().len() > 1 && !has_append(batch) => {
                let parts = batch.writes().iter().cloned().map(|write| and(Batch::new(), write));
                self.torn(parts.collect()).await
            }
            Fence::Appends if batch.writes().iter().all(is_append) => {
                let parts = batch.writes().iter().cloned().map(|write| and(Batch::new(), write));
                self.torn(parts.collect()).await
            }
            Fence::Honesty => self.store.commit(batch).await.map_err(|_| Error::not_sent("no connection")),
            Fence::Resend if has_append(batch) => match self.store.commit(batch).await {
                Err(error) if error.maybe_applied() => self.resent(batch).await,
                answer => answer,
            },
            Fence::ResentSwap if is_swap(batch) => match self.store.commit(batch).await {
                Err(error) if error.maybe_applied() => self.resent(batch).await,
                answer => answer,
            },
            Fence::Refusal => match self.store.commit(batch).await? {
                Commit::Refused(_) if !has_append(batch) => Ok(Commit::Applied(Vec::new())),
                answer => Ok(answer),
            },
            _ => self.store.commit(&self.weakened(batch).await?).await,
        }
    }

    /// The batch as this store understands it.
    async fn weakened(&self, batch: &Batch) -> Result<Batch, Error> {
        let mut weakened = Batch::new();
        for write in batch.writes() {
            let blind = match (self.fence, write) {
                (Fence::Guard, Write::Check { .. }) | (Fence::Clear, Write::Clear { .. }) => continue,
                (Fence::Swap, Write::Put { expect: Expect::Is(old), value, .. }) => {
                    *value != Value::Text(old.clone())
                }
                (Fence::Claim, Write::Put { expect: Expect::Absent, value: Value::Text(_), .. })
                | (Fence::Release, Write::Delete { .. })
                | (Fence::Result, Write::Put { expect: Expect::AbsentOr(_), .. }) => true,
                _ => false,
            };
            let write = write.clone();
            weakened = match (self.fence, write) {
                (_, Write::Put { key, value, ttl, .. }) if blind => {
                    let expect = self.store.get(&key).await?.map_or(Expect::Absent, Expect::Is);
                    with(weakened, &key, expect, value, ttl)
                }
                (Fence::Newest, Write::PutIfNewer { key, json, ttl, .. }) => {
                    let expect = self.store.get(&key).await?.map_or(Expect::Absent, Expect::Is);
                    with(weakened, &key, expect, Value::Text(json), ttl)
                }
                (_, Write::Delete { key, .. }) if blind => match self.store.get(&key).await? {
                    Some(there) => weakened.delete(&key, there),
                    None => weakened,
                },
                (Fence::Renewal, Write::Put { key, expect: Expect::Is(old), value, ttl })
                    if value == Value::Text(old.clone()) =>
                {
                    with(weakened, &key, Expect::AbsentOr(old), value, ttl)
                }
                (Fence::ShortLife, Write::Put { key, expect, value, ttl: Ttl::Of(life) })
                    if is_lease(life) =>
                {
                    with(weakened, &key, expect, value, Ttl::Of(life / 2))
                }
                (Fence::LongLife, Write::Put { key, expect, value, ttl: Ttl::Of(life) })
                    if is_lease(life) =>
                {
                    with(weakened, &key, expect, value, Ttl::Of(life * 3))
                }
                (_, write) => and(weakened, write),
            };
        }
        Ok(weakened)
    }

    /// One batch after the other, each by itself, and the answer of the first that matters.
    async fn torn(&self, parts: Vec<Batch>) -> Result<Commit, Error> {
        let mut positions = Vec::new();
        for part in parts {
            match self.store.commit(&part).await? {
                Commit::Applied(more) => positions.extend(more),
                refused => return Ok(refused),
            }
        }
        Ok(Commit::Applied(positions))
    }

    /// Sent once more in a form that the second time does harm.
    async fn resent(&self, batch: &Batch) -> Result<Commit, Error> {
        let mut again = Batch::new();
        for write in batch.writes() {
            again = match write.clone() {
                Write::Put { value: Value::PositionOf(_), .. } => again,
                Write::Put { key, expect: Expect::Is(_), value, ttl } => {
                    let there = self.store.get(&key).await?.map_or(Expect::Absent, Expect::Is);
                    with(again, &key, there, value, ttl)
                }
                write => and(again, write),
            };
        }
        self.store.commit(&again).await
    }
}

/// Leases are the only short lives here.
fn is_lease(life: Duration) -> bool {
    life < Duration::from_secs(60)
}

fn with(batch: Batch, key: &Key, expect: Expect, value: Value, ttl: Ttl) -> Batch {
    batch.put(key, expect, value, ttl)
}

fn and(batch: Batch, write: Write) -> Batch {
    match write {
        Write::Check { key, expect } => batch.check(&key, expect),
        Write::Put { key, expect, value, ttl } => batch.put(&key, expect, value, ttl),
        Write::Delete { key, expect: Expect::Is(is), gone_is_success } => {
            let delete = Batch::new().delete(&key, is);
            batch.and(if gone_is_success { delete.gone_is_success() } else { delete })
        }
        Write::Append { log, text, keep: Some(keep) } => batch.append(&log, text, keep),
        Write::Append { log, text, keep: None } => batch.append_to_existing(&log, text),
        Write::Clear { log } => batch.clear(&log),
        Write::PutIfNewer { key, seq, json, ttl } => batch.put_if_newer(&key, seq, json, ttl),
        Write::Publish { channel, text } => batch.publish(&channel, text),
        Write::Delete { .. } => batch,
    }
}

fn has_append(batch: &Batch) -> bool {
    batch.writes().iter().any(is_append)
}

/// Whether it has records of a ledger, beside other writes.
fn is_ledgers(batch: &Batch) -> bool {
    let is_record =
        |write: &Write| matches!(write, Write::Append { text, .. } if text.starts_with(r#"{"op":"#));
    batch.writes().iter().any(is_record) && !batch.writes().iter().all(is_append)
}

/// The appends of a batch, and the rest of it.
fn apart(batch: &Batch) -> (Batch, Batch) {
    let (appends, rest): (Vec<Write>, Vec<Write>) = batch.writes().iter().cloned().partition(is_append);
    [appends, rest].map(|writes| writes.into_iter().fold(Batch::new(), and)).into()
}

fn is_append(write: &Write) -> bool {
    matches!(write, Write::Append { .. })
}

fn is_swap(batch: &Batch) -> bool {
    matches!(batch.writes(), [Write::Put { expect: Expect::Is(old), value, .. }] if *value != Value::Text(old.clone()))
}
