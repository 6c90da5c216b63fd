//! One storm: everything that happens, and what came of it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use http::StatusCode;
use job_events::{Config, JobEvents};
use onetap_bus::Stages;
use onetap_config::Secret;
use onetap_local::client::Client;
use onetap_servers::HttpStub;
use onetap_sqs::{SqsEvent, poll};
use onetap_store::testing::random::Random;
use onetap_store::testing::{Fault, TestStore};
use onetap_store::{Log, read_to_end};
use onetap_tests::functions::JOB_SECRET;
use queue_consumer::QueueConsumer;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::audience::{Seen, follow, millis};
use super::jobs::Jobs;
use super::store::RestartingStore;
use super::worker::Worker;

/// Time limit for all clients together, after the time in which the events are sent.
const PATIENCE: Duration = Duration::from_secs(180);
const CONSUMERS: usize = 4;
const GATEWAYS: usize = 2;
/// The longest stream of the first gateway until its clients have reconnected as often as `Size` says. No job ends before
/// that. Afterwards its streams are long: on a slow machine the reconnects would be most of the work.
const SHORT: Duration = Duration::from_secs(2);
/// The longest of the other streams. They stay open while the store restarts and consumers die.
const LONG: Duration = Duration::from_secs(3600);
const KILLS_PER_RESTART: usize = 5;

/// How much there is of everything.
#[derive(Clone, Copy)]
pub struct Size {
    pub clients: usize,
    pub jobs: usize,
    /// Events of a job.
    pub events: usize,
    /// The time in which the events are sent.
    pub time: Duration,
    /// Restarts of the store in this time.
    pub restarts: usize,
    /// Reconnects of clients whose streams are short.
    pub reconnects: usize,
    /// The stages, as `EVENT_STAGES` describes them, if not the usual ones.
    pub stages: Option<&'static str>,
}

/// What came of it.
#[derive(Default)]
pub struct Outcome {
    pub reconnects: usize,
    pub restarts: usize,
    /// Batches in whose middle a consumer was killed.
    pub interrupted: usize,
    /// Batches that a second consumer was given while the first handled them, and that failed for the second.
    doubled: usize,
    /// Events that a client has not seen.
    pub lost: usize,
    /// Events that a client has seen again.
    pub repeated: usize,
    /// Clients that saw anything else than the log of their job in its order.
    wrong: Vec<String>,
}

impl Outcome {
    pub fn assert_good(&self, size: &Size) {
        let some = self.wrong.first().map(String::as_str).unwrap_or_default();
        assert!(self.wrong.is_empty(), "{} clients are wrong, among them {some}", self.wrong.len());
        assert_eq!((self.lost, self.repeated), (0, 0));
        assert_eq!(self.restarts, size.restarts, "the store restarts while clients look on");
        assert!(self.interrupted > 0, "a consumer dies in the middle of a batch");
        assert!(self.doubled > 0, "a batch is delivered again while it is handled");
        assert!(self.reconnects >= size.reconnects, "clients reconnect");
    }

    /// Compares what a client has seen with the log.
    fn compare(&mut self, client: usize, seen: &Seen, log: &[(String, String)]) {
        let distinct: HashSet<_> = seen.events.iter().collect();
        self.lost += log.iter().filter(|event| !distinct.contains(event)).count();
        self.repeated += seen.events.len() - distinct.len();
        if seen.events != log || !seen.unexpected.is_empty() {
            self.wrong.push(format!("client {client}: {seen:#?}\nits job's log: {log:#?}"));
        }
    }
}

fn gateway(store: &RestartingStore, stages: &Stages, longest: Duration) -> JobEvents {
    let config = Config {
        secrets: vec![Secret::new(JOB_SECRET)],
        allow_origin: "*".parse().unwrap(),
        max: longest,
        keepalive: Duration::from_millis(500),
        grace: Duration::from_millis(200),
        stages: stages.clone(),
    };
    JobEvents::new(store.open(), config)
}

/// Counts the streams of a gateway, whose first ones are short.
struct Streams {
    /// How many of its streams are short.
    short: usize,
    opened: AtomicUsize,
    /// Notified when all short ones were opened.
    all_short_opened: Notify,
}

impl Streams {
    fn new(short: usize) -> Arc<Streams> {
        Arc::new(Streams { short, opened: AtomicUsize::new(0), all_short_opened: Notify::new() })
    }

    fn is_next_short(&self) -> bool {
        self.opened.load(Ordering::SeqCst) < self.short
    }

    fn opened(&self) {
        if self.opened.fetch_add(1, Ordering::SeqCst) + 1 == self.short {
            self.all_short_opened.notify_one();
        }
    }
}

/// A process of its own; in memory a task, on a store that takes its time, so that there is a middle to die in.
fn consumer(store: &RestartingStore, stages: Option<&'static str>) -> Worker {
    let Some(variables) = store.variables() else {
        let slow = TestStore::faulty(store.open(), |call| {
            let time = Duration::from_millis(5 + call as u64 % 20);
            if call % 2 == 0 { Fault::SentLate(time) } else { Fault::AnsweredLate(time) }
        });
        let config = queue_consumer::Config { stages: table(stages), ..Default::default() };
        return Worker::task(QueueConsumer::new(slow, config));
    };
    let stages = stages.map(|json| ("EVENT_STAGES", json.to_owned()));
    Worker::process(&variables.iter().cloned().chain(stages).collect::<Vec<_>>())
}

/// A consumer that is given batches while another consumer handles them, as after a visibility timeout that is too short. The
/// store applies its calls, and it sees no reply, as if they had run out of time. Its responses are ignored: the other consumer
/// answers for the batch.
fn double(store: &RestartingStore, stages: Option<&'static str>) -> Worker {
    let config = queue_consumer::Config { stages: table(stages), ..Default::default() };
    Worker::task(QueueConsumer::new(TestStore::faulty(store.open(), |_| Fault::ReplyLost), config))
}

/// The stages that this JSON describes, or the usual ones.
fn table(json: Option<&str>) -> Stages {
    json.map_or_else(Stages::default, |json| Stages::from_json(json).unwrap())
}

/// Runs all of it until every client was told that its job is over.
pub async fn storm(store: &mut RestartingStore, size: &Size, seed: u64) -> Outcome {
    let (mut random, mut outcome) = (Random::new(seed), Outcome::default());
    let stages = table(size.stages);
    let jobs = Jobs::new(size.jobs, size.events, &stages);
    // Each client's first stream is no reconnect.
    let streams = [size.clients.div_ceil(GATEWAYS) + size.reconnects, 0].map(Streams::new);
    let gateways = streams.each_ref().map(|streams| {
        let gateways = Arc::new([SHORT, LONG].map(|longest| gateway(store, &stages, longest)));
        let streams = streams.clone();
        HttpStub::serving(move |request| {
            let (gateways, streams) = (gateways.clone(), streams.clone());
            async move {
                let longest = usize::from(!streams.is_next_short());
                let response = gateways[longest].handle(request).await;
                if response.status() == StatusCode::OK {
                    streams.opened();
                }
                response
            }
        })
    });
    let consumers = [(); CONSUMERS].map(|()| consumer(store, size.stages));
    let double = double(store, size.stages);
    let doubled = AtomicUsize::new(0);

    let browsers = gateways.each_ref().map(|gateway| Client::new(&gateway.url()));
    let clients: Vec<_> = (0..size.clients)
        .map(|n| {
            // A third is there before the first event; the others join in the middle, or when all is over.
            let latest = if n % 3 == 0 { 1 } else { size.time.as_millis() as usize * 3 / 2 };
            let joins = millis(&mut random, 0, latest);
            let (browser, job) = (browsers[n % GATEWAYS].clone(), jobs.jobs[n % size.jobs].clone());
            tokio::spawn(follow(browser, job, joins, Random::new(random.number())))
        })
        .collect();
    let (answers, doubled) = (&jobs, &doubled);
    let consume = join_all(consumers.iter().enumerate().map(|(n, consumer)| {
        let double = (n == 0).then_some(&double);
        poll(&jobs.queue, move |event: SqsEvent| async move {
            let batch = event.records.clone();
            let again = async {
                let response = double?.invoke(event.clone()).await?;
                let has_failed = response.batch_item_failures.len() == batch.len();
                Some(doubled.fetch_add(usize::from(has_failed), Ordering::SeqCst))
            };
            let (response, _) = tokio::join!(consumer.invoke(event.clone()), again);
            response.iter().for_each(|response| answers.answered(&batch, response));
            response
        })
    }));
    let mut dice = Random::new(random.number());
    let kill = async {
        // A fixed number: if handling a batch takes longer than the time between two kills, no batch would ever be done.
        for _ in 0..size.restarts * KILLS_PER_RESTART {
            sleep(millis(&mut dice, 100, 400)).await;
            consumers[dice.below(CONSUMERS)].kill();
        }
        std::future::pending::<()>().await;
    };
    let mut dice = Random::new(random.number());
    let restart = async {
        let between = size.time.as_millis() as usize / size.restarts;
        for _ in 0..size.restarts {
            sleep(millis(&mut dice, between / 3, between * 2 / 3)).await;
            store.stop().await;
            sleep(millis(&mut dice, between / 10, between / 3)).await;
            store.start().await;
            outcome.restarts += 1;
        }
    };
    let end_jobs = async {
        streams[0].all_short_opened.notified().await;
        jobs.let_end();
    };
    let seen =
        async { tokio::join!(join_all(clients), restart, jobs.send(size.time, &mut random), end_jobs).0 };
    let seen = tokio::select! {
        _ = consume => unreachable!("consumers go on until they are dropped"),
        () = kill => unreachable!("it waits after the last kill"),
        seen = timeout(size.time + PATIENCE, seen) => seen.expect("every client is told that its job is over"),
    };
    let seen: Vec<Seen> = seen.into_iter().map(Result::unwrap).collect();

    let opened = streams.iter().map(|streams| streams.opened.load(Ordering::SeqCst)).sum::<usize>();
    outcome.reconnects = opened - size.clients;
    outcome.doubled = doubled.load(Ordering::SeqCst);
    outcome.interrupted = consumers.iter().map(|consumer| consumer.interrupted.load(Ordering::SeqCst)).sum();
    for (n, job) in jobs.jobs.iter().enumerate() {
        let log = Log::new(format!("{}:job:{}", job.domain(), job.id())).unwrap();
        let records = read_to_end(&*store.open(), &log).await.unwrap();
        jobs.assert_published_once(n, &records);
        let log: Vec<_> =
            records.into_iter().map(|record| (record.position.to_string(), record.text)).collect();
        for (client, seen) in seen.iter().enumerate().skip(n).step_by(size.jobs) {
            outcome.compare(client, seen, &log);
        }
    }
    outcome
}
