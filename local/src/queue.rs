//! The job queue and its consumer: the function is invoked with batches as Lambda would invoke it, and can be killed.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onetap_bus::Job;
use onetap_sqs::{Queue, SqsEvent, completed};
use onetap_store::{Commit, Store};
use queue_consumer::QueueConsumer;
use serde::Serialize;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::crashing_store::CrashingStore;
use crate::job_plan::JobPlan;
use crate::view::View;

/// A message that was received and not deleted is delivered again after this time.
const VISIBILITY_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for one invocation of the function, so that it ends before its messages are delivered again.
const INVOCATION_TIMEOUT: Duration = Duration::from_millis(1800);
/// Time between the death of a consumer and the start of the next.
const RESTART_DELAY: Duration = Duration::from_secs(1);
/// A message that was received this often becomes a dead letter. As in `template.yaml`: an outage of the store must not
/// turn good messages into dead letters.
const MAX_RECEIVES: u32 = 100;
/// Messages in a batch, as Lambda's default.
const BATCH_SIZE: usize = 10;
/// Largest number of messages, dead letters included.
const MAX_MESSAGES: usize = 10_000;

/// The domain of the playground's jobs.
pub(crate) const DOMAIN: &str = "scan";

/// Totals since the start, and the queue's present state.
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
    /// Until the next one starts.
    Killed,
}

/// The queue holds its largest number of messages.
pub(crate) struct QueueFull;

/// The queue with its dead letters, and the progress of its jobs.
pub(crate) struct JobQueue {
    messages: Queue,
    dead_letters: Queue,
    plan: JobPlan,
    view: Arc<View>,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    counts: Counts,
    /// The jobs whose last event is not sent yet, by the name of their log.
    unfinished: HashMap<String, UnfinishedJob>,
}

struct UnfinishedJob {
    /// The events that are not committed yet.
    pending: HashSet<String>,
    /// The messages to send once nothing is pending.
    last: Vec<String>,
}

impl JobQueue {
    pub(crate) fn new(view: Arc<View>, plan: JobPlan) -> JobQueue {
        let dead_letters = Queue::new("jobs-dead");
        let messages = Queue::new("jobs")
            .with_visibility(VISIBILITY_TIMEOUT)
            .with_dead_letters(&dead_letters, MAX_RECEIVES);
        JobQueue { messages, dead_letters, plan, view, progress: Mutex::default() }
    }

    /// What happens in each job.
    pub(crate) fn plan(&self) -> &JobPlan {
        &self.plan
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.progress().counts);
        self.view.touch();
    }

    pub(crate) fn counts(&self) -> Counts {
        let (len, in_flight) = (self.messages.len(), self.messages.in_flight());
        let counts = self.progress().counts.clone();
        Counts { waiting: len.saturating_sub(in_flight), in_flight, dead: self.dead_letters.len(), ..counts }
    }

    /// Sends all events of these jobs, each `copies` times. Returns the number of events of a job, and of messages in
    /// all.
    ///
    /// A job's last event is sent once the others are committed, as the last stage of a pipeline would: it ends the
    /// streams that follow the job.
    pub(crate) fn send(
        &self,
        jobs: &[Job],
        copies: usize,
        shuffled: bool,
    ) -> Result<(usize, usize), QueueFull> {
        let mut messages = Vec::new();
        let mut unfinished = Vec::new();
        let mut per_job = 0;
        for job in jobs {
            let mut events = self.plan.events(job);
            per_job = events.len();
            let last = events.pop().into_iter().flat_map(|text| vec![text; copies]).collect();
            messages.extend(events.iter().flat_map(|text| vec![text.clone(); copies]));
            let pending = events.into_iter().collect();
            unfinished.push((log(job), UnfinishedJob { pending, last }));
        }
        if shuffled {
            shuffle(&mut messages);
        }
        let mut progress = self.progress();
        let pending: usize = progress.unfinished.values().map(|job| job.pending.len()).sum();
        if self.messages.len() + self.dead_letters.len() + pending.max(messages.len()) > MAX_MESSAGES {
            return Err(QueueFull);
        }
        progress.counts.sent += messages.len() as u64;
        progress.unfinished.extend(unfinished);
        drop(progress);
        messages.into_iter().for_each(|message| self.messages.send(message));
        self.view.touch();
        Ok((per_job, per_job * copies * jobs.len()))
    }

    /// Counts the commit of one event, and sends the job's last event when it was the last pending one.
    pub(crate) fn committed(&self, log: &str, event: &str, commit: &Commit) {
        let mut progress = self.progress();
        match commit {
            Commit::Applied(_) => progress.counts.effects += 1,
            Commit::Refused(_) => progress.counts.duplicates += 1,
        }
        let job = progress.unfinished.get_mut(log);
        let last = job.is_some_and(|job| job.pending.remove(event) && job.pending.is_empty());
        let job = if last { progress.unfinished.remove(log) } else { None };
        let last = job.map(|job| job.last).unwrap_or_default();
        progress.counts.sent += last.len() as u64;
        drop(progress);
        last.into_iter().for_each(|message| self.messages.send(message));
        self.view.touch();
    }

    /// Invokes the function with batch after batch, until the shutdown; the batch that runs then is finished.
    pub(crate) async fn consume(
        &self,
        function: QueueConsumer,
        store: Arc<CrashingStore>,
        shutdown: CancellationToken,
    ) {
        loop {
            let mut event = SqsEvent::default();
            event.records = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                records = self.messages.receive(BATCH_SIZE) => records,
            };
            let records = event.records.clone();
            self.count(|counts| {
                counts.delivered += records.len() as u64;
                counts.consumer = Consumer::Working;
            });
            let response = tokio::select! {
                response = function.handle(event, Instant::now() + INVOCATION_TIMEOUT) => Some(response),
                // The invocation is dropped where it stands. Its messages are not deleted, so they are delivered again.
                () = store.crashed() => None,
            };
            for done in response.iter().flat_map(|response| completed(&records, response)) {
                self.messages.delete(done.receipt_handle.as_deref().unwrap_or_default());
            }
            if response.is_none() {
                self.count(|counts| (counts.consumer, counts.kills) = (Consumer::Killed, counts.kills + 1));
                tokio::select! { () = shutdown.cancelled() => {}, () = sleep(RESTART_DELAY) => {} }
            }
            self.count(|counts| counts.consumer = Consumer::Idle);
        }
    }

    /// The function, on a store that can crash it.
    pub(crate) fn consumer(
        self: &Arc<JobQueue>,
        store: Arc<dyn Store>,
        config: queue_consumer::Config,
    ) -> (QueueConsumer, Arc<CrashingStore>) {
        let store = Arc::new(CrashingStore::new(store, Arc::clone(self)));
        (QueueConsumer::new(Arc::clone(&store) as Arc<dyn Store>, config), store)
    }
}

/// The name of the job's log, as the bus writes it.
fn log(job: &Job) -> String {
    format!("{}:job:{}", job.domain(), job.id())
}

/// Puts the items into a random order.
fn shuffle<T>(all: &mut [T]) {
    for n in (1..all.len()).rev() {
        // Without randomness the order stays: nothing depends on it.
        let other = getrandom::u64().map_or(n, |random| (random % (n as u64 + 1)) as usize);
        all.swap(n, other);
    }
}
