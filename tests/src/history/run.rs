//! One run: clients, faults, a last look, the verdict. Here on memory; `lanes.rs` has the runs on servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use onetap_store::testing::seed_jitter;
use onetap_store::{Memory, Store};
use tokio::time::{Instant, sleep, timeout};

use super::arena::{Backend, rules};
use super::check::{Report, check};
use super::client::{Client, Plan, last_look};
use super::history::History;
use super::journal::{Clock, Journal, Pages};
use super::recorder::recorded;
use super::sabotage::{Fence, sabotaged};
use super::schedule::Kind;
use super::seed::Seed;
use super::trouble::troubled;

pub(super) const LEASE: Duration = Duration::from_millis(800);
const ROUND: Duration = Duration::from_secs(3);
/// How many clients there are on memory.
const CLIENTS: u64 = 8;

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// On what.
    pub backend: Backend,
    /// From what.
    pub seed: u64,
    /// What everybody did.
    pub history: History,
    /// What the checker says.
    pub report: Report,
}

impl Outcome {
    pub(super) fn new(backend: Backend, seed: u64, history: History) -> Outcome {
        let report = check(&history, &rules(backend));
        Outcome { backend, seed, history, report }
    }

    /// Keeps the history under `target`, and says where.
    pub fn save(&self) -> PathBuf {
        let this = std::env::current_exe().expect("a program knows where it is");
        let target = this.ancestors().find(|path| path.ends_with("target")).unwrap_or(Path::new("."));
        let file = target.join("history").join(format!("{}-{}.txt", self.backend.name(), self.seed));
        self.history.save(&file).expect("a history can be kept");
        file
    }

    /// Fails unless nothing is wrong, enough was done, and every fault happened.
    pub fn assert_sound(&self, least: usize) {
        let (seed, name) = (self.seed, self.backend.name());
        if !self.report.violations.is_empty() {
            let all: String = self.report.violations.iter().map(ToString::to_string).collect();
            let file = self.save();
            panic!("ONETAP_SEED={seed} on {name}, history in {}:\n{all}", file.display());
        }
        assert!(self.report.calls >= least, "ONETAP_SEED={seed} on {name}: only {} calls", self.report.calls);
        let changes = self.history.ledger_changes();
        assert!(changes >= least / 50, "ONETAP_SEED={seed} on {name}: only {changes} changes of ledgers");
        for kind in Kind::on(self.backend) {
            let happened = self.history.faults.iter().any(|fault| fault.kind == kind.name());
            assert!(happened, "ONETAP_SEED={seed} on {name}: no fault of the kind {:?}", kind.name());
        }
    }
}

/// Where a fence is taken down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// In the store: it answers otherwise than it was asked.
    Store,
    /// Above it: it is asked otherwise than was meant.
    Caller,
}

pub(super) fn plan(clock: Clock, length: Duration) -> Plan {
    let micros = |length: Duration| u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
    let start = clock.now();
    // A prefix of its own, because DynamoDB Local is shared.
    let prefix = format!("h{:08x}", getrandom::u32().expect("the system's randomness"));
    let pause = Duration::from_millis(25);
    Plan {
        prefix,
        start,
        end: start + micros(length),
        round: micros(ROUND),
        lease: LEASE,
        pause,
        sabotage: None,
    }
}

/// A run on memory: tasks of one thread on a paused clock, so that the same seed gives the same run, and half a minute
/// takes a moment. `sabotage` takes a fence down.
pub fn on_memory(seed: u64, length: Duration, sabotage: Option<(Fence, Side)>) -> Outcome {
    seed_jitter(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        let clock = Clock::Tokio(Instant::now());
        let sabotaged = sabotage.and_then(|(fence, side)| (side == Side::Caller).then_some(fence));
        let plan = Plan { sabotage: sabotaged, ..plan(clock, length) };
        let clients: Vec<_> = (0..CLIENTS)
            .map(|n| {
                let seed = Seed::new(seed).fork(n);
                tokio::spawn(killed_and_replaced(n, store.clone(), clock, plan.clone(), seed, sabotage))
            })
            .collect();
        let mut history = History::default();
        for client in clients {
            for pages in client.await.expect("a client does not panic") {
                history.add(&pages.text());
            }
        }
        // What is still on its way lands now.
        sleep(LEASE * 3).await;
        look(&mut history, store, clock).await;
        Outcome::new(Backend::Memory, seed, history)
    })
}

/// One client after the other, each killed at some moment, until the run ends.
async fn killed_and_replaced(
    n: u64,
    store: Arc<dyn Store>,
    clock: Clock,
    plan: Plan,
    mut seed: Seed,
    sabotage: Option<(Fence, Side)>,
) -> Vec<Pages> {
    let mut journals = Vec::new();
    while clock.now() < plan.end {
        let (pages, name) = (Pages::default(), format!("client {n}.{}", journals.len()));
        let journal = Journal::new(clock, &name, 0, pages.clone());
        journals.push(pages);
        let often = 4 + seed.below(8);
        let mut store = troubled(store.clone(), journal.clone(), seed.fork(0), plan.lease, often);
        if let Some((fence, Side::Store)) = sabotage {
            store = sabotaged(store, fence);
        }
        store = recorded(store, journal.clone());
        if let Some((fence, Side::Caller)) = sabotage {
            store = sabotaged(store, fence);
        }
        let client = Client::with_recorded_store(store, journal.clone(), plan.clone(), name, seed.fork(1));
        let life = Duration::from_secs(3) + seed.up_to(Duration::from_secs(9));
        let killed = timeout(life, client.run()).await.is_err();
        if killed {
            journal.fault(Kind::Killed.name(), clock.now());
        }
    }
    journals
}

pub(super) async fn look(history: &mut History, store: Arc<dyn Store>, clock: Clock) {
    let pages = Pages::default();
    let journal = Journal::new(clock, "last look", 0, pages.clone());
    let (keys, logs) = history.names();
    last_look(store, journal, (keys.into_iter().collect(), logs.into_iter().collect())).await;
    history.add(&pages.text());
}
