//! What is delivered, and what must have become of it.

use std::collections::{BTreeMap, HashMap, HashSet};

use onetap_bus::Job;
use onetap_sqs::{Queue, SqsEvent};
use onetap_store::{Log, Position, Record};

use super::Dice;
use crate::support::{World, event_text};

/// A job's twenty events.
const SEQS: [u64; 20] = [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23, 30, 31, 32, 33, 40, 41, 42, 51];

pub fn stage(seq: u64) -> &'static str {
    ["queued", "vision", "rule", "answer", "reward", "done"][usize::try_from(seq).unwrap() / 10]
}

pub struct Plan {
    /// Every job with its events, by seq.
    pub jobs: Vec<(Job, BTreeMap<u64, String>)>,
    /// What the queue is sent: each event 1 to 4 times (oftener once), and what is malformed once, shuffled.
    pub deliveries: Vec<String>,
    pub malformed: Vec<String>,
}

impl Plan {
    pub fn new(world: &World, jobs: usize, dice: &mut Dice) -> Plan {
        let job = |n: usize| {
            let job = world.job(&n.to_string());
            let events = SEQS.map(|seq| (seq, event_text(&job, stage(seq), seq, r#"{"status":"done"}"#)));
            (job, BTreeMap::from(events))
        };
        let jobs: Vec<_> = (0..jobs).map(job).collect();
        let mut deliveries: Vec<String> = Vec::new();
        for text in jobs.iter().flat_map(|(_, events)| events.values()) {
            deliveries.extend(std::iter::repeat_n(text.clone(), 1 + dice.below(4).min(dice.below(4))));
        }
        let malformed: Vec<String> = (0..20).map(|n| malformed(&world.job("0"), n)).collect();
        dice.shuffle(&mut deliveries);
        // Among the first, because they stay until they have come as often as the queue allows.
        deliveries.splice(..0, malformed.iter().cloned());
        let first = deliveries.len().min(malformed.len() * 4);
        dice.shuffle(&mut deliveries[..first]);
        Plan { jobs, deliveries, malformed }
    }

    pub fn events(&self) -> impl Iterator<Item = &String> {
        self.jobs.iter().flat_map(|(_, events)| events.values())
    }

    /// Whether the queue holds nothing but what can never be published.
    pub fn is_all_but_malformed_gone(&self, queue: &Queue) -> bool {
        queue.len() <= self.malformed.len() && queue.bodies().iter().all(|body| self.malformed.contains(body))
    }

    /// The ids of a batch's messages that can be published.
    pub fn well_formed(&self, event: &SqsEvent) -> HashSet<String> {
        let good = event
            .records
            .iter()
            .filter(|message| message.body.as_ref().is_some_and(|body| !self.malformed.contains(body)));
        good.filter_map(|message| message.message_id.clone()).collect()
    }

    /// The job's own log, in its order.
    pub async fn log(&self, world: &World, n: usize) -> Vec<Record> {
        let job = &self.jobs[n].0;
        world.read(&Log::new(format!("{}:job:{}", job.domain(), job.id())).unwrap()).await
    }

    /// Every event is in the stream and in its job's log exactly once, every job's state is its highest seq, the queue
    /// is empty and the dead letters are the malformed ones.
    pub async fn assert_kept(&self, world: &World, queue: &Queue, dead: &Queue) {
        assert_eq!(queue.len(), 0, "the queue is empty");
        assert_eq!(sorted(dead.bodies()), sorted(self.malformed.clone()), "the malformed, and no other");
        for (n, (job, events)) in self.jobs.iter().enumerate() {
            let log = self.log(world, n).await;
            let texts = log.iter().map(|record| record.text.clone()).collect();
            assert_eq!(sorted(texts), sorted(events.values().cloned().collect()), "log of job {n}");
            let state = job.state(&*world.store).await.unwrap();
            let json = |text: &String| serde_json::from_str::<serde_json::Value>(text).unwrap();
            assert_eq!(state.as_ref().map(json), events.values().next_back().map(json), "state of job {n}");
        }
        if world.has_shard_streams() {
            let mut streams: HashMap<u64, Vec<Record>> = HashMap::new();
            for shard in 0..world.config.shard_count {
                let log = Log::new(format!("{}:events:{shard}", world.domain)).unwrap();
                streams.insert(shard, world.read(&log).await);
            }
            let all = streams.values().flatten().map(|record| record.text.clone()).collect();
            assert_eq!(sorted(all), sorted(self.events().cloned().collect()), "the streams");
            for (job, events) in &self.jobs {
                let stream = &streams[&job.shard(world.config.shard_count)];
                for text in events.values() {
                    assert!(stream.iter().any(|record| record.text == *text), "in its own shard");
                }
            }
        }
    }

    /// Each event was published once.
    pub fn assert_published(&self, published: Vec<String>) {
        assert_eq!(sorted(published), sorted(self.events().cloned().collect()), "published");
    }
}

pub fn pairs(log: &[Record]) -> Vec<(Position, String)> {
    log.iter().map(|record| (record.position, record.text.clone())).collect()
}

/// Sorted, and each cut to what an assertion can show.
fn sorted(mut texts: Vec<String>) -> Vec<String> {
    texts.sort();
    let cut = |text: String| if text.len() > 300 { text.replace(' ', "")[..60].to_owned() } else { text };
    texts.into_iter().map(cut).collect()
}

/// Something that is no event, in one of many ways; no two are alike.
pub fn malformed(job: &Job, n: usize) -> String {
    let good = |stage: &str, seq: u64| event_text(job, stage, seq, &format!(r#"{{"n":{n}}}"#));
    let with_id = |id: &str| good("vision", 10).replace(&format!(r#""{}""#, job.id()), id);
    match n % 10 {
        0 => format!("not json {n}"),
        1 => format!(r#"{{"job_id":"{}","n":{n}}}"#, job.id()),
        2 => good("rule", 31),
        3 => good("vision", 19).replace('{', &format!("{{{}", " ".repeat(128 * 1024))),
        4 => with_id(r#""{job}""#),
        5 => with_id(r#""a\nb""#),
        6 => with_id(&format!("\"{}\"", "x".repeat(10_000))),
        7 => good("vision", 10).replace("2025-11-03T", "yesterday "),
        8 => good("vision", 10).replace(&format!(r#""domain":"{}""#, job.domain()), r#""domain":"user""#),
        _ => format!("[{}]", good("vision", 10)),
    }
}
