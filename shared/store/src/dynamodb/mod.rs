//! DynamoDB: one table. A batch that changes one item is a conditional write, one that changes or checks several is a transaction, and
//! a check alone is a read. Batches of a `commit_each` that name a log or a state in common are joined, where that is possible.
//!
//! The steps of `memory.rs` are one request here: *check* is its conditions, *append* and *set* are its items. Some
//! conditions compare a value that the caller does not know (a log's last position, the stored sequence number): it is
//! read first. DynamoDB has no pub/sub, so *publish* does nothing: a watcher polls, and reads the log on every tick.
//!
//! Expiry is decided by the caller's clock. With clock skew, two callers may hold a lease at the same time, but only
//! one of them can commit under it. A global table judges a condition in one region only: in two regions both can commit.

mod clear;
mod client;
mod connector;
mod item;
mod join;
mod plan;
mod read;
mod send;
mod signer;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use futures_util::{StreamExt, stream};
use onetap_config::MAX_DURATION;
use tokio::time::{Instant, sleep};

use crate::jitter::jitter;
use crate::{
    Batch, BoxStream, Channel, Commit, Credentials, DEFAULT_POLL_INTERVAL, DEFAULT_TIMEOUT, Error, Key, Log,
    Position, Record, Refusal, Store, Write,
};
use client::{Access, Origin};
use item::{Item, ItemKey};
use join::Joined;
use plan::{Cleared, Plan, Seen, mismatches};
use send::Outcome;

/// DynamoDB items are at most 400 KB, with attribute names; the partition key may take 2 KB of them.
const MAX_VALUE: usize = 400 * 1024 - 4 * 1024;

/// How many batches of a `commit_each` are sent at the same time, each over a connection of its own. A batch of ten messages
/// needs ten; a hundred at once would spend the time limit on opening connections.
const MAX_CONCURRENT_COMMITS: usize = 32;

/// A commit, and the logs that it has cleared.
type Committed = (Commit, Cleared);

/// A store in one DynamoDB table, whose key attributes are `pk` and `sk`, both strings.
///
/// ```
/// # use onetap_store::{Credentials, DynamoDb};
/// let store = DynamoDb::new("onetap", "eu-central-1", Credentials::new("AKID", "secret"));
/// let local = DynamoDb::new("onetap", "local", Credentials::new("any", "any")).endpoint("http://localhost:8000");
/// # let _ = (store, local);
/// ```
pub struct DynamoDb {
    table: String,
    access: Access,
    timeout: Duration,
    poll_interval: Duration,
    /// By how many milliseconds the clock is ahead. Only tests set it.
    skew: Arc<AtomicI64>,
}

impl fmt::Debug for DynamoDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoDb").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl DynamoDb {
    /// A store in `table`, with credentials that do not change, as a Lambda function has them. Does not connect yet.
    ///
    /// Requests are signed by this machine's clock, which also says what has expired: if it is wrong by more than minutes,
    /// DynamoDB rejects them.
    pub fn new(table: impl Into<String>, region: impl Into<String>, credentials: Credentials) -> DynamoDb {
        DynamoDb::over(Access::new(Origin::Own { region: region.into(), credentials }), table.into())
    }

    /// A store in `table` over a client of the AWS SDK: with its credentials provider, which refreshes them (ECS, EC2,
    /// SSO), its region, endpoint and HTTP client.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use onetap_store::{DynamoDb, Store};
    /// // With the crate aws-config: `Client::new(&aws_config::load_from_env().await)`.
    /// fn store(client: &aws_sdk_dynamodb::Client) -> Arc<dyn Store> {
    ///     Arc::new(DynamoDb::with_client(client.clone(), "orders"))
    /// }
    /// # let _ = store;
    /// ```
    ///
    /// The store sends over a copy of the client whose retries are off: only the store knows which requests may be sent
    /// twice. [`timeout`](DynamoDb::timeout) holds beside the client's own timeouts. Two things differ from
    /// [`new`](DynamoDb::new), because the HTTP client is not the store's own:
    ///
    /// - It does not report whether a request that failed was sent. So every write that fails without an answer *may have been
    ///   applied*, also if there was no connection, or if the client was built without a credentials provider. (If its provider
    ///   fails, nothing was sent, and the error says so.)
    /// - [`connect`](Store::connect) does nothing.
    pub fn with_client(client: Client, table: impl Into<String>) -> DynamoDb {
        DynamoDb::over(Access::new(Origin::Given(client)), table.into())
    }

    fn over(access: Access, table: String) -> DynamoDb {
        DynamoDb {
            table,
            access,
            timeout: DEFAULT_TIMEOUT,
            poll_interval: DEFAULT_POLL_INTERVAL,
            skew: Arc::default(),
        }
    }

    /// Sets the address, for a server that is not the region's own.
    #[must_use]
    pub fn endpoint(mut self, url: impl Into<String>) -> DynamoDb {
        self.access.endpoint = Some(url.into());
        self
    }

    /// Sets the time limit of each call, connecting included ([`DEFAULT_TIMEOUT`]).
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> DynamoDb {
        self.timeout = timeout.min(MAX_DURATION);
        self
    }

    /// Sets how often a [watcher](Store::watch) is notified ([`DEFAULT_POLL_INTERVAL`]): DynamoDB has no pub/sub.
    #[must_use]
    pub fn poll_interval(mut self, interval: Duration) -> DynamoDb {
        self.poll_interval = interval;
        self
    }

    /// The same store with a clock that is wrong by so many milliseconds, for tests of clock skew.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn with_skew(self, millis: i64) -> DynamoDb {
        self.with_clock(Arc::new(AtomicI64::new(millis)))
    }

    /// The same store with a clock that a test moves: it is ahead by so many milliseconds.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn with_clock(self, ahead: Arc<AtomicI64>) -> DynamoDb {
        DynamoDb { skew: ahead, ..self }
    }

    fn now(&self) -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        millis.saturating_add_signed(self.skew.load(Ordering::Relaxed))
    }

    /// Commits batches one after the other. Those that can be joined are one transaction.
    async fn commit_in_order(&self, batches: &[&Batch], deadline: Instant) -> Vec<Result<Committed, Error>> {
        let mut answers = Vec::with_capacity(batches.len());
        while answers.len() < batches.len() {
            let rest = &batches[answers.len()..];
            let joined = Joined::of(rest.iter().copied());
            // The joined batches may be applied, although their refusal says otherwise.
            let mut lost = false;
            if let Some(joint) = self.commit_joined(&joined, deadline, &mut lost).await {
                answers.extend(joint);
                continue;
            }
            for batch in &rest[..joined.len().max(1)] {
                let mut lost = lost;
                answers.push(self.commit_by(batch, deadline, &mut lost).await);
            }
        }
        answers
    }

    /// Commits several batches as one. `None` if they are not several, or if one of them may have to be refused: then each
    /// is committed by itself.
    async fn commit_joined(
        &self,
        joined: &Joined<'_>,
        deadline: Instant,
        lost: &mut bool,
    ) -> Option<Vec<Result<Committed, Error>>> {
        if joined.len() < 2 {
            return None;
        }
        match self.commit_by(&joined.batch(), deadline, lost).await {
            Ok((Commit::Applied(positions), mut cleared)) => {
                let commits = joined.commits(positions).into_iter();
                Some(commits.map(|commit| Ok((commit, std::mem::take(&mut cleared)))).collect())
            }
            Err(error) if error.is_retryable() => Some(vec![Err(error); joined.len()]),
            Ok((Commit::Refused(_), _)) | Err(_) => None,
        }
    }

    /// Commits the batch, and returns what it has cleared. `lost`: a reply to it was lost, before this call or in it.
    async fn commit_by(&self, batch: &Batch, deadline: Instant, lost: &mut bool) -> Result<Committed, Error> {
        batch.validate(MAX_VALUE)?;
        let answer = connector::by(deadline, self.attempt(batch, deadline, lost)).await;
        answer.map_err(|error| if *lost { error.after_a_lost_reply() } else { error })
    }

    /// Sends the batch until it is applied or refused. It is sent again after a conflict with another transaction, or
    /// if a log's head or a state with a sequence number has changed since it was read: none of these is a refusal.
    async fn attempt(&self, batch: &Batch, deadline: Instant, lost: &mut bool) -> Result<Committed, Error> {
        let mut seen =
            connector::by(deadline, self.read_ahead(batch, deadline)).await.map_err(Error::before_a_write)?;
        let mut emptied = Vec::new();
        // What is there under every key of the batch is known from after the loss of a reply.
        let mut is_evident = names_all(batch, &seen);
        for attempt in 0.. {
            let now = self.now();
            // Check: an expectation that fails on an item that is known already needs no request.
            let refusal = mismatches(batch, &seen, now)?;
            if !refusal.is_empty() && *lost && !is_evident {
                // DynamoDB may have named only some of them, and not the one by which the batch recognises itself.
                seen.extend(connector::by(deadline, self.read_named(batch, deadline)).await?);
                is_evident = true;
                continue;
            }
            if !refusal.is_empty() {
                return Ok((Commit::Refused(Refusal::new(refusal)), Vec::new()));
            }
            let Plan { writes, positions, cleared, gone } = Plan::of(batch, &seen, now)?;
            if emptied != gone {
                let heads = connector::by(deadline, self.delete_leftovers(&gone, now, deadline)).await;
                seen.extend(heads.map_err(Error::before_a_write)?);
                emptied = gone;
                // The plan is made again: it may take long to delete many records, and a head may have changed.
                continue;
            }
            is_evident = false;
            match self.send(&writes, now, batch.is_repeatable(), lost).await? {
                Outcome::Applied => return Ok((Commit::Applied(positions), cleared)),
                // An expectation failed, or a head or a state has changed: the refusal contains the current items.
                Outcome::Refused(there) => {
                    is_evident = names_all(batch, &there);
                    seen.extend(there);
                }
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
        self.read_named(batch, deadline).await
    }

    /// Reads what is there under every name of the batch.
    async fn read_named(&self, batch: &Batch, deadline: Instant) -> Result<Seen, Error> {
        let keys = batch.writes().iter().filter_map(Write::name).map(ItemKey::named);
        self.get_all_items(keys.collect(), deadline).await
    }
}

/// Whether these items are all that the expectations of the batch are about.
fn names_all(batch: &Batch, items: &Seen) -> bool {
    batch.expectations().all(|(key, _)| items.contains_key(&ItemKey::named(key.as_str())))
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
        let deadline = Instant::now() + self.timeout;
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
        let deadline = Instant::now() + self.timeout;
        let (commit, cleared) = self.commit_by(batch, deadline, &mut false).await?;
        self.delete_cleared(cleared, deadline).await;
        Ok(commit)
    }

    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        let deadline = Instant::now() + self.timeout;
        let in_order = |group: Vec<usize>| async move {
            let related: Vec<&Batch> = group.iter().map(|n| &batches[*n]).collect();
            group.into_iter().zip(self.commit_in_order(&related, deadline).await).collect::<Vec<_>>()
        };
        let groups: Vec<_> = groups(batches).into_iter().map(in_order).collect();
        let answers: Vec<_> = stream::iter(groups).buffer_unordered(MAX_CONCURRENT_COMMITS).collect().await;
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
        let tick = |interval: Duration| async move {
            sleep(interval).await;
            Some((Ok(()), interval))
        };
        Ok(stream::unfold(self.poll_interval, tick).boxed())
    }

    async fn connect(&self) -> Result<(), Error> {
        if !self.access.has_own_connector() {
            return Ok(());
        }
        let any = ItemKey::named("any");
        connector::connect_only(Instant::now() + self.timeout, self.get_one(&any)).await.map(|_| ())
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
