//! Jobs whose events go through a queue: several times each, in random order, the last one when the others are done.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use onetap_bus::{Job, Stage, Stages};
use onetap_sqs::{Queue, SqsBatchResponse, SqsMessage, completed};
use onetap_store::Record;
use onetap_store::lease::unique_token;
use onetap_store::testing::random::Random;
use serde_json::{Value, json};
use tokio::time::sleep;

/// Longer than a batch takes on a busy machine: a batch that is delivered again before it is done cannot be deleted, and on a
/// slow machine none ever would be. (`storm` gives the batches of one consumer to another one at the same time.)
const VISIBILITY: Duration = Duration::from_secs(10);

pub struct Jobs {
    pub jobs: Vec<Job>,
    pub queue: Queue,
    /// Sequence numbers of each job that were not published yet, by the number of the job.
    missing: Mutex<Vec<HashSet<u64>>>,
    /// Jobs that wait for their last event; `None` once jobs may end.
    held: Mutex<Option<Vec<usize>>>,
    /// Stage and sequence number of the events of a job, without its last one.
    events: Vec<(String, u64)>,
    last: (String, u64),
}

impl Jobs {
    /// `count` jobs of `events` events each, of all stages.
    pub fn new(count: usize, events: usize, stages: &Stages) -> Jobs {
        let domain = format!("t{}", &unique_token()[..16]);
        let job = |n: usize| Job::new(&domain, format!("{domain}-{n}")).unwrap();
        let (ending, others): (Vec<&Stage>, _) = stages.iter().partition(|stage| stage.ends().is_some());
        let names: Vec<&str> =
            others.iter().map(|stage| if stage.name() == "*" { "queued" } else { stage.name() }).collect();
        let nth = |n: usize| {
            let seq = |name: &&str| Some(((*name).to_owned(), stages.seq(name, n as u64)?));
            names.iter().filter_map(seq).collect::<Vec<_>>()
        };
        let events: Vec<(String, u64)> = (0..events).flat_map(nth).take(events - 1).collect();
        Jobs {
            jobs: (0..count).map(job).collect(),
            queue: Queue::new("jobs").with_visibility(VISIBILITY),
            missing: Mutex::new(vec![events.iter().map(|(_, seq)| *seq).collect(); count]),
            held: Mutex::new(Some(Vec::new())),
            events,
            last: (ending[0].name().to_owned(), ending[0].ends().unwrap()),
        }
    }

    /// Sends each event but the last ones one to three times within `time`.
    pub async fn send(&self, time: Duration, random: &mut Random) {
        let mut deliveries = Vec::new();
        for job in 0..self.jobs.len() {
            for event in &self.events {
                deliveries.extend(std::iter::repeat_n((job, event), 1 + random.below(3)));
            }
        }
        for n in (1..deliveries.len()).rev() {
            deliveries.swap(n, random.below(n + 1));
        }
        let parts = 50;
        for part in deliveries.chunks(deliveries.len().div_ceil(parts)) {
            for (job, event) in part {
                self.queue.send(self.text(*job, event));
            }
            sleep(time / parts as u32).await;
        }
    }

    /// Takes note of what a consumer has answered. After a job's last event but one, its last one is sent, twice, as soon as
    /// jobs may end.
    ///
    /// Not earlier: `EventSource` is told to stop once the job has ended and the grace period is over.
    pub fn answered(&self, batch: &[SqsMessage], response: &SqsBatchResponse) {
        for message in completed(batch, response) {
            let event: Value = serde_json::from_str(message.body.as_deref().unwrap()).unwrap();
            let job = self.jobs.iter().position(|job| event["job_id"] == job.id()).unwrap();
            let mut missing = self.missing.lock().unwrap();
            if missing[job].remove(&event["seq"].as_u64().unwrap()) && missing[job].is_empty() {
                match &mut *self.held.lock().unwrap() {
                    Some(held) => held.push(job),
                    None => self.send_last(job),
                }
            }
        }
    }

    /// From now on jobs may end.
    pub fn let_end(&self) {
        let held = self.held.lock().unwrap().take();
        held.into_iter().flatten().for_each(|job| self.send_last(job));
    }

    fn send_last(&self, job: usize) {
        (0..2).for_each(|_| self.queue.send(self.text(job, &self.last)));
    }

    fn text(&self, job: usize, (stage, seq): &(String, u64)) -> String {
        let job = &self.jobs[job];
        let event = json!({
            "job_id": job.id(), "domain": job.domain(), "stage": stage, "seq": seq,
            "data": {"status": "done"}, "timestamp": "2025-11-03T08:15:30.5",
        });
        event.to_string()
    }

    /// Each event of a job is in its log once, and nothing else.
    pub fn assert_published_once(&self, job: usize, log: &[Record]) {
        let mut published: Vec<String> = log.iter().map(|record| record.text.clone()).collect();
        let mut sent: Vec<String> =
            self.events.iter().chain([&self.last]).map(|event| self.text(job, event)).collect();
        published.sort();
        sent.sort();
        assert_eq!(published, sent, "job {job}");
    }
}
