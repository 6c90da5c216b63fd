//! The queue and its consumer: jobs go in, the function is called as Lambda would call it, and may be killed.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onetap_bus::{Job, next_seq};
use onetap_sqs::{Queue, SqsEvent, settle};
use onetap_store::{Commit, Store};
use queue_consumer::QueueConsumer;
use serde::Serialize;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::clock::timestamp;
use crate::fuse::Fuse;
use crate::stopping::Stopping;
use crate::view::View;

/// A message that was received and not deleted comes again after this time.
const VISIBILITY: Duration = Duration::from_secs(2);
/// What a call of the function has, so that it ends before its messages come again.
const CALL: Duration = Duration::from_millis(1800);
/// So long after a consumer was killed another one starts.
const RESTART: Duration = Duration::from_secs(1);
/// What was received so often goes to the dead letters: as in `template.yaml`, more often than it can come while the
/// store is down for a while.
const RECEIVES: u32 = 100;
/// As Lambda hands them out.
const BATCH: usize = 10;
/// The queue takes no more than this, dead letters included.
const FULL: usize = 10_000;

/// The domain of the jobs that are made here.
pub(crate) const DOMAIN: &str = "scan";
const STAGES: [&str; 5] = ["vision", "rule", "answer", "reward", "done"];

/// What the queue has done so far, and how it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    /// Messages put on the queue.
    pub(crate) sent: u64,
    /// Messages that the consumer received.
    pub(crate) delivered: u64,
    /// Events that were new: appended to their jobs' logs.
    pub(crate) effects: u64,
    /// Events that were there already.
    pub(crate) duplicates: u64,
    pub(crate) waiting: usize,
    pub(crate) in_flight: usize,
    pub(crate) dead: usize,
    pub(crate) consumer: Consumer,
    pub(crate) kills: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Consumer {
    #[default]
    Idle,
    Working,
    /// Until another one starts.
    Killed,
}

/// The queue is full.
pub(crate) struct Full;

/// The queue with its dead letters, and what is known of its jobs.
pub(crate) struct Jobs {
    queue: Queue,
    dead: Queue,
    view: Arc<View>,
    ledger: Mutex<Ledger>,
}

#[derive(Default)]
struct Ledger {
    counts: Counts,
    /// By its log: a job that still lacks some of its events, and the messages that are to end it.
    open: HashMap<String, Open>,
}

struct Open {
    left: HashSet<String>,
    last: Vec<String>,
}

impl Jobs {
    pub(crate) fn new(view: Arc<View>) -> Jobs {
        let dead = Queue::new("jobs-dead");
        let queue = Queue::new("jobs").with_visibility(VISIBILITY).with_dead_letters(&dead, RECEIVES);
        Jobs { queue, dead, view, ledger: Mutex::default() }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.ledger().counts);
        self.view.touch();
    }

    pub(crate) fn counts(&self) -> Counts {
        let (len, in_flight) = (self.queue.len(), self.queue.in_flight());
        let counts = self.ledger().counts.clone();
        Counts { waiting: len.saturating_sub(in_flight), in_flight, dead: self.dead.len(), ..counts }
    }

    /// Sends all events of these jobs, each `copies` times: how many events a job has, and how many messages that is.
    ///
    /// A job's very last event is sent once the others have come through, as the end of a pipeline is: it ends the
    /// streams of those who follow the job.
    pub(crate) fn send(&self, jobs: &[Job], copies: usize, shuffled: bool) -> Result<(usize, usize), Full> {
        let mut messages = Vec::new();
        let mut opened = Vec::new();
        let mut per_job = 0;
        for job in jobs {
            let mut events: Vec<String> =
                STAGES.iter().flat_map(|stage| (0..2).filter_map(|sub| event(job, stage, sub))).collect();
            per_job = events.len();
            let last = events.pop().into_iter().flat_map(|text| vec![text; copies]).collect();
            messages.extend(events.iter().flat_map(|text| vec![text.clone(); copies]));
            opened.push((log(job), Open { left: events.into_iter().collect(), last }));
        }
        if shuffled {
            shuffle(&mut messages);
        }
        let mut ledger = self.ledger();
        let open: usize = ledger.open.values().map(|open| open.left.len()).sum();
        if self.queue.len() + self.dead.len() + open.max(messages.len()) > FULL {
            return Err(Full);
        }
        ledger.counts.sent += messages.len() as u64;
        ledger.open.extend(opened);
        drop(ledger);
        messages.into_iter().for_each(|message| self.queue.send(message));
        self.view.touch();
        Ok((per_job, per_job * copies * jobs.len()))
    }

    /// Notes the store's answer to one event of a job's log.
    pub(crate) fn answered(&self, log: &str, text: &str, answer: &Commit) {
        let mut ledger = self.ledger();
        match answer {
            Commit::Applied(_) => ledger.counts.effects += 1,
            Commit::Refused(_) => ledger.counts.duplicates += 1,
        }
        let last =
            ledger.open.get_mut(log).is_some_and(|open| open.left.remove(text) && open.left.is_empty());
        let last = last.then(|| ledger.open.remove(log)).flatten().map(|open| open.last).unwrap_or_default();
        ledger.counts.sent += last.len() as u64;
        drop(ledger);
        last.into_iter().for_each(|message| self.queue.send(message));
        self.view.touch();
    }

    /// Calls the function with batch after batch, until it is told to stop; the batch that runs then is finished.
    pub(crate) async fn consume(&self, function: QueueConsumer, fuse: Arc<Fuse>, mut stopping: Stopping) {
        loop {
            let mut event = SqsEvent::default();
            event.records = tokio::select! {
                biased;
                () = stopping.asked() => return,
                records = self.queue.receive(BATCH) => records,
            };
            let records = event.records.clone();
            self.count(|counts| {
                counts.delivered += records.len() as u64;
                counts.consumer = Consumer::Working;
            });
            let answer = tokio::select! {
                answer = function.handle(event, Instant::now() + CALL) => Some(answer),
                // The call ends where it stands. Nobody deletes its messages: they come again.
                () = fuse.blown() => None,
            };
            for done in answer.iter().flat_map(|answer| settle(&records, answer)) {
                self.queue.delete(done.receipt_handle.as_deref().unwrap_or_default());
            }
            if answer.is_none() {
                self.count(|counts| (counts.consumer, counts.kills) = (Consumer::Killed, counts.kills + 1));
                tokio::select! { () = stopping.asked() => {}, () = sleep(RESTART) => {} }
            }
            self.count(|counts| counts.consumer = Consumer::Idle);
        }
    }

    /// The function, on a store that can stop it halfway.
    pub(crate) fn consumer(
        self: &Arc<Jobs>,
        store: Arc<dyn Store>,
        config: queue_consumer::Config,
    ) -> (QueueConsumer, Arc<Fuse>) {
        let fuse = Arc::new(Fuse::new(store, Arc::clone(self)));
        (QueueConsumer::new(Arc::clone(&fuse) as Arc<dyn Store>, config), fuse)
    }
}

fn event(job: &Job, stage: &str, sub: u64) -> Option<String> {
    let status = if sub == 0 { "started" } else { "finished" };
    let event = json!({
        "job_id": job.id(),
        "domain": job.domain(),
        "stage": stage,
        "seq": next_seq(stage, sub)?,
        "data": { "status": status },
        "timestamp": timestamp(),
    });
    Some(event.to_string())
}

/// The job's own log, by the name that spec and bus give it.
fn log(job: &Job) -> String {
    format!("{}:job:{}", job.domain(), job.id())
}

/// In an order of chance.
fn shuffle<T>(all: &mut [T]) {
    for n in (1..all.len()).rev() {
        // Without randomness the order stays: nothing here rests on it.
        let other = getrandom::u64().map_or(n, |chance| (chance % (n as u64 + 1)) as usize);
        all.swap(n, other);
    }
}
