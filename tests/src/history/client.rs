//! A client of the linearizability test: makes random calls one after another, on keys that all clients share. Its seed
//! determines them.
//!
//! A run is divided into rounds of equal length, and each round has new keys, so that the history of a key is short:
//! the time of the linearizability check grows fast with the number of concurrent calls on a key.

use std::sync::Arc;
use std::time::Duration;

use onetap_idem as idem;
use onetap_idem::{ClaimOutcome, Idempotency, Policy, Returned};
use onetap_store::{Batch, Edit, Error, Keep, Key, Log, Position, Record, Store, Values};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use super::book::{self, Asked, BOOK_KEY_PART};
use super::check::number;
use super::event::{Answer, Call, Layer};
use super::journal::Journal;
use super::publish::{NEWEST_KEY_PART, Publication};
use super::recorder::recorded;
use super::sabotage::Fence;
use super::seed::Seed;

/// Prefix of the keys of idempotency records.
pub const RECORD_PREFIX: &str = "idem:";
/// Part of the name of every counter that is incremented by compare-and-swap only.
pub const CAS_KEY_PART: &str = "/swap/";
/// Part of the name of every idempotency key whose function runs at most once.
pub const AT_MOST_ONCE_KEY_PART: &str = "/once/";
/// Part of the name of every event's marker.
pub const EVENT_KEY_PART: &str = "/event/";

/// A TTL that is longer than any run.
pub(super) const TTL_BEYOND_RUN: Duration = Duration::from_secs(3600);
/// More records than any log of a round has.
const WHOLE_LOG: usize = 10_000;
/// How many records a follower reads at a time.
const PAGE: usize = 3;

/// The parameters of a run, the same for all clients.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Prefix of all names.
    pub prefix: String,
    /// When the run began, by the journals' clock.
    pub start: u64,
    /// When it ends.
    pub end: u64,
    /// Length of a round, in microseconds.
    pub round: u64,
    /// TTL of a lease.
    pub lease: Duration,
    /// Longest pause between two operations.
    pub pause: Duration,
    /// A fence of the clients that is down.
    pub sabotage: Option<Fence>,
}

/// One client.
#[derive(Debug)]
pub struct Client {
    pub(super) store: Arc<dyn Store>,
    pub(super) idem: Idempotency,
    pub(super) journal: Arc<Journal>,
    pub(super) plan: Plan,
    name: String,
    pub(super) seed: Seed,
    /// Number of unique values so far.
    values_made: u64,
    /// The round of the current operation: all of its names are of this round.
    pub(super) round: u64,
    /// The log that it read last, and the last position.
    followed: Option<(String, Position)>,
}

impl Client {
    /// The client `name` on `store`. Its store calls are recorded in `journal`.
    pub fn new(store: Arc<dyn Store>, journal: Arc<Journal>, plan: Plan, name: String, seed: Seed) -> Client {
        let recorded = recorded(store, Arc::clone(&journal));
        Client::with_recorded_store(recorded, journal, plan, name, seed)
    }

    /// The same on a store whose calls are already recorded.
    pub fn with_recorded_store(
        store: Arc<dyn Store>,
        journal: Arc<Journal>,
        plan: Plan,
        name: String,
        seed: Seed,
    ) -> Client {
        let idem = idempotency(&store, &plan, Policy::AtLeastOnce);
        Client { store, idem, journal, plan, name, seed, values_made: 0, round: 0, followed: None }
    }

    /// Makes calls until the run ends.
    pub async fn run(mut self) {
        loop {
            let now = self.journal.clock().now();
            if now >= self.plan.end {
                return;
            }
            self.round = now.saturating_sub(self.plan.start) / self.plan.round;
            match self.seed.below(100) {
                0..15 => self.swap().await,
                15..32 => self.lock().await,
                32..40 => self.visit().await,
                40..50 => self.keep_book().await,
                50..57 => self.execute().await,
                57..62 => self.run_at_most_once().await,
                62..72 => self.deposit().await,
                72..84 => self.publish().await,
                84..88 => self.use_slate().await,
                88..95 => self.receive().await,
                _ => self.read_something().await,
            }
            let pause = self.seed.up_to(self.plan.pause);
            sleep(pause).await;
        }
    }

    /// Increments a counter by compare-and-swap. It does not retry after an unknown outcome: that would be another
    /// increment.
    async fn swap(&mut self) {
        let key = self.key("swap", 2);
        let store = Arc::clone(&self.store);
        let step = |there: &Values| {
            let next = format!("{} {}", number(there.get(&key)) + 1, self.unique());
            Ok::<_, Error>((Batch::new().put(&key, there.expect(&key), next, TTL_BEYOND_RUN), ()))
        };
        // The checker uses the store's answers, which are recorded.
        let _ = Edit::of(&key).apply(&*store, step).await;
    }

    /// An idempotent call that several clients make. Sometimes it fails, or takes longer than its lease.
    async fn execute(&mut self) {
        let key = self.name("job", 3);
        let (value, fails) = (self.unique(), self.seed.percent(15));
        let work = self.work();
        let call_id = self.journal.call(Layer::Api, Call::Execute { key: key.clone(), counter: None });
        let run = || async move {
            sleep(work).await;
            if fails { Err("it failed") } else { Ok(value) }
        };
        let answer = self.idem.execute(&key, run).await;
        self.journal.answer(call_id, result(answer));
    }

    /// The same with `Policy::AtMostOnce`: an unknown outcome is better than a second run.
    async fn run_at_most_once(&mut self) {
        let key = self.name("once", 2);
        let value = self.unique();
        let work = self.work();
        let call_id = self.journal.call(Layer::Api, Call::Execute { key: key.clone(), counter: None });
        let journal = Arc::clone(&self.journal);
        let run = || async {
            let running = journal.call(Layer::Api, Call::Run(key.clone()));
            sleep(work).await;
            journal.answer(running, Answer::Nothing("done".to_owned()));
            Ok::<String, &str>(value)
        };
        let answer = self.idem.call(&key).policy(Policy::AtMostOnce).execute(run).await;
        let answer = answer.map(Returned::into_value);
        self.journal.answer(call_id, result(answer));
    }

    /// Increments a counter and records the result of the idempotent call in the same batch.
    async fn deposit(&mut self) {
        let key = self.name("deposit", 4);
        let counter = self.key("sum", 1);
        let unique = self.unique();
        let intended = Call::Execute { key: key.clone(), counter: Some(counter.as_str().to_owned()) };
        let call_id = self.journal.call(Layer::Api, intended);
        let deposit = |there: &Values| {
            let next = format!("{} {unique}", number(there.get(&counter)) + 1);
            let writes = Batch::new().put(&counter, there.expect(&counter), next.as_str(), TTL_BEYOND_RUN);
            Ok::<_, Error>((writes, next))
        };
        // There are three ways to write with a record. The second first assumes that the keys are absent.
        let answer = match self.seed.below(3) {
            0 => result(self.idem.edit(&key, Edit::of(&counter), deposit).await),
            1 => result(self.idem.transact(&key, async |there| deposit(&there)).await),
            _ => self.claim_and_record(&key, Edit::of(&counter), deposit).await,
        };
        self.journal.answer(call_id, answer);
    }

    /// Makes an edit under a claim that was sent by hand. Without the claim, and after a failure, it gives up.
    async fn claim_and_record(
        &self,
        key: &str,
        edit: Edit<'_>,
        step: impl FnMut(&Values) -> Result<(Batch, String), Error>,
    ) -> Answer {
        let (claim, sent) = (self.idem.call(key).claim().expect("a short key"), Instant::now());
        let answer = self.store.commit(&claim.batch()).await;
        let recorded = match answer.and_then(|answer| claim.outcome(sent, answer)) {
            Ok(ClaimOutcome::Mine(mut run)) => run.edit(&*self.store, &edit, step).await.ok(),
            Ok(ClaimOutcome::Done(done)) => done.value().ok(),
            _ => None,
        };
        recorded.map_or(Answer::Nothing("not recorded".to_owned()), Answer::Result)
    }

    /// Appends one record for an event that several clients publish, and keeps the newest event of its subject. Retries until
    /// the outcome is known. Some events of a subject have the same sequence number.
    async fn publish(&mut self) {
        let event = self.seed.below(16);
        let at = format!("{}/{}", self.plan.prefix, self.round);
        let key = |name: String| Key::new(name).expect("a short name");
        let marker = key(format!("{at}{EVENT_KEY_PART}{event}"));
        let state = key(format!("{at}{NEWEST_KEY_PART}{}", event % 2));
        let text = format!("{}#{}", marker.as_str(), self.unique());
        let pause = self.seed.up_to(self.plan.lease / 4);
        let publication =
            Publication { marker, log: self.log(), text, state: Some((state, event / 4)), pause };
        publication.send(&self.store, &self.journal).await;
    }

    /// Appends to a log that clients clear, clears it or reads it. It does not retry: an append whose outcome is unknown
    /// may happen at any later time.
    async fn use_slate(&mut self) {
        let log = Log::new(self.name("slate", 2)).expect("a short name");
        let what = self.seed.below(10);
        let keep = Keep::all_for(TTL_BEYOND_RUN);
        let batch = match what {
            0..5 => (0..=what % 3).fold(Batch::new(), |batch, _| batch.append(&log, self.unique(), keep)),
            5..7 => Batch::new().clear(&log),
            _ => {
                let _ = self.read(&log, None, WHOLE_LOG).await;
                return;
            }
        };
        let _ = self.store.commit(&batch).await;
    }

    /// Changes a ledger. A call with a key is made by several clients.
    async fn keep_book(&mut self) {
        let (ledger, kind, job) = (self.seed.below(2), self.seed.below(100), self.seed.below(2));
        let user = format!("{}-{}-{ledger}", self.plan.prefix, self.round);
        let is_keyed = self.seed.percent(60);
        let key = format!("{}/{}{BOOK_KEY_PART}{ledger}/{kind}/{job}", self.plan.prefix, self.round);
        let key = is_keyed.then_some(key);
        // With the key everything is the same, whoever calls.
        let text = key.clone().unwrap_or_else(|| format!("{} {user}", self.unique()));
        let drawn = self.seed.next();
        let shared = ((self.round * 2 + ledger) * 100 + kind) * 2 + job;
        let mut choice = Seed::new(if is_keyed { shared } else { drawn });
        let mut date = || ["2025-10-31", "2025-11-29", "2025-12-01"][choice.below(3) as usize].to_owned();
        let asked = match kind {
            0..25 => Asked::Note(vec![book::item(&text)]),
            25..40 => Asked::Note([1, 2, 3].map(|n| book::item(&format!("{text} {n}"))).to_vec()),
            40..55 => {
                let (item, date) = (book::item(&text), date());
                Asked::Put { item, id: book::id(choice.next()), date }
            }
            55..70 => Asked::Remark(text),
            70..85 => Asked::Date(date()),
            85..97 => Asked::Delete,
            _ => Asked::Erase,
        };
        let pause = self.seed.up_to(self.plan.lease / 2);
        let renews = self.seed.percent(40);
        let request = book::Request { user, asked, key, renews };
        request.make(&self.store, &self.idem, &self.journal, pause).await;
    }

    /// Reads a key or a log, or follows the log by a page from where it was.
    async fn read_something(&mut self) {
        let kind = ["swap", "lock", "data", "newest"][self.seed.below(4) as usize];
        if self.seed.percent(50) {
            let key = self.key(kind, 2);
            let call_id = self.journal.call(Layer::Api, Call::OwnGet(key.as_str().to_owned()));
            let answer = self.store.get(&key).await;
            self.journal.answer(call_id, (&answer).into());
            return;
        }
        let log = self.log();
        let limit = if self.seed.percent(50) { PAGE } else { WHOLE_LOG };
        let after =
            self.followed.take().filter(|(name, _)| name == log.as_str()).map(|(_, position)| position);
        if let Ok(records) = self.read(&log, after, limit).await {
            let last = records.last().map(|record| record.position).or(after);
            self.followed = last.map(|last| (log.as_str().to_owned(), last));
        }
    }

    /// Reads a log for its own sake.
    async fn read(&self, log: &Log, after: Option<Position>, limit: usize) -> Result<Vec<Record>, Error> {
        let call_id = self.journal.call(Layer::Api, Call::OwnRead(log.as_str().to_owned()));
        let answer = self.store.read(log, after, limit).await;
        self.journal.answer(call_id, (&answer).into());
        answer
    }

    /// How long a piece of work takes: usually short, sometimes longer than a lease.
    pub(super) fn work(&mut self) -> Duration {
        let long = self.seed.percent(10);
        self.seed.up_to(if long { self.plan.lease * 2 } else { self.plan.lease / 10 })
    }

    pub(super) fn unique(&mut self) -> String {
        self.values_made += 1;
        format!("{}.{}", self.name, self.values_made)
    }

    pub(super) fn name(&mut self, kind: &str, of: u64) -> String {
        format!("{}/{}/{kind}/{}", self.plan.prefix, self.round, self.seed.below(of))
    }

    pub(super) fn key(&mut self, kind: &str, of: u64) -> Key {
        Key::new(self.name(kind, of)).expect("a short name")
    }

    fn log(&self) -> Log {
        Log::new(format!("{}/{}/log", self.plan.prefix, self.round)).expect("a short name")
    }
}

/// An engine on `store`, with the lease of the run.
pub(super) fn idempotency(store: &Arc<dyn Store>, plan: &Plan, policy: Policy) -> Idempotency {
    let config = idem::Config::default()
        .prefix(RECORD_PREFIX)
        .result_ttl(TTL_BEYOND_RUN)
        .lease_ttl(plan.lease)
        .wait_timeout(plan.lease * 2)
        .wait_interval(Duration::from_millis(20))
        .policy(policy);
    Idempotency::with_config(Arc::clone(store), config)
}

fn result<E>(answer: Result<String, idem::Error<String, E>>) -> Answer {
    match answer {
        Ok(value) => Answer::Result(value),
        Err(error) => Answer::Nothing(error.outcome().to_owned()),
    }
}

/// Reads every key and log of a history, after all clients have stopped.
pub async fn last_look(store: Arc<dyn Store>, journal: Arc<Journal>, names: (Vec<String>, Vec<String>)) {
    let store = recorded(store, journal);
    for key in names.0 {
        let key = Key::new(key).expect("a name that was used");
        until_answered(async || store.get(&key).await).await;
    }
    for log in names.1 {
        let log = Log::new(log).expect("a name that was used");
        until_answered(async || store.read(&log, None, WHOLE_LOG).await).await;
    }
}

async fn until_answered<T>(call: impl AsyncFn() -> Result<T, Error>) {
    for _ in 0..20 {
        if call().await.is_ok() {
            return;
        }
        sleep(Duration::from_millis(500)).await;
    }
    panic!("the store does not answer after the run");
}
