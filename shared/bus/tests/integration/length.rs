//! What the store is asked for does not grow with the length of a job's log: counted at the server.

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use onetap_bus::{Bus, Config, Event, Follower, Job, Published, Resume, Stages};
use onetap_servers::{Backend, Environment, Proxy, TcpProxy};
use onetap_store::{Batch, Commit, Keep, Log, Position, Store};
use support::{TOKENS, event_text};

/// Events in the long log: as many as an answer of a language model may have.
const LONG: u64 = 10_000;
const SHORT: u64 = 10;
/// All numbers have as many digits.
const FIRST_SEQ: u64 = 100_000;
/// How many bytes more the digits of positions and lengths may take in a long log, for each event. An event has 150.
const MORE_DIGITS: u64 = 20;
/// Appends in one batch.
const MAX_APPENDS: u64 = 25;

/// A store whose server counts.
struct Counted {
    environment: Environment,
    /// DynamoDB's own requests.
    http: Option<Proxy>,
    tcp: TcpProxy,
    store: Arc<dyn Store>,
    config: Config,
}

/// What something cost.
#[derive(Debug)]
struct Cost {
    /// Commands that Redis ran, those in scripts included; on DynamoDB, requests.
    commands: u64,
    /// Bytes to the server, and back.
    bytes: [u64; 2],
}

impl Cost {
    fn assert_equals(&self, other: &Cost, events: u64, what: &str) {
        assert_eq!(self.commands, other.commands, "{what}: {self:?} {other:?}");
        for (bytes, others) in self.bytes.iter().zip(other.bytes) {
            assert!(bytes.abs_diff(others) <= MORE_DIGITS * events, "{what}: {self:?} {other:?}");
        }
    }
}

impl Counted {
    async fn start(backend: Backend) -> Counted {
        let environment = Environment::start(backend).await;
        let variable = backend.address_variable();
        let mut url = environment.lookup(variable).unwrap();
        let is_dynamodb = environment.lookup("DYNAMODB_TABLE").is_some();
        let http = if is_dynamodb { Some(Proxy::start(&url).await) } else { None };
        if let Some(http) = &http {
            url = http.url();
        }
        let (scheme, address) = url.split_once("://").unwrap();
        let tcp = TcpProxy::start(address).await;
        let store = environment.store_with(variable, tcp.url().replace("redis:", &format!("{scheme}:")));
        let stages = Stages::from_json(TOKENS).unwrap();
        let config = Config { stages, ..Config::default() };
        Counted { environment, http, tcp, store, config }
    }

    async fn commands(&mut self) -> u64 {
        match &self.http {
            Some(http) => http.requests() as u64,
            None => self.environment.redis().unwrap().commands().await,
        }
    }

    async fn cost(&mut self, work: impl Future<Output = ()>) -> Cost {
        let (commands, before) = (self.commands().await, self.tcp.bytes());
        work.await;
        let [to, back] = self.tcp.bytes();
        Cost { commands: self.commands().await - commands, bytes: [to - before[0], back - before[1]] }
    }

    fn token(&self, job: &Job, seq: u64) -> Event {
        Event::parse(event_text(job, "token", FIRST_SEQ + seq, r#""字""#), &self.config.stages).unwrap()
    }

    fn bus(&self) -> Bus {
        Bus::new(self.store.clone(), self.config.clone())
    }

    /// A job with so many events in its log. Returns the position of the last but four.
    async fn job(&self, name: &str, events: u64) -> (Job, Position) {
        let job = Job::new("cost", name).unwrap();
        let log = Log::new(format!("cost:job:{name}")).unwrap();
        let mut positions = Vec::new();
        for first in (0..events).step_by(MAX_APPENDS as usize) {
            let mut batch = Batch::new();
            for seq in first..events.min(first + MAX_APPENDS) {
                batch = batch.append(
                    &log,
                    self.token(&job, seq).text(),
                    Keep::all_for(Duration::from_secs(7200)),
                );
            }
            match self.store.commit(&batch).await.unwrap() {
                Commit::Applied(appended) => positions.extend(appended),
                Commit::Refused(refusal) => panic!("{refusal:?}"),
            }
        }
        assert_eq!(positions.len() as u64, events);
        (job, positions[positions.len() - 5])
    }
}

async fn publish(bus: Bus, events: Vec<Event>) {
    for outcome in bus.publish_each(&events).await {
        assert!(matches!(outcome, Ok(Published::New(_))), "{outcome:?}");
    }
}

async fn resume(store: Arc<dyn Store>, stages: Stages, job: Job, last: Position) {
    let resume = Resume { after: Some(last), last_seq: None };
    let mut follower = Follower::start(store, stages, job, resume).await.unwrap();
    assert!(!follower.has_gap());
    for _ in 0..4 {
        assert!(follower.next().await.unwrap().unwrap().position > last);
    }
}

async fn the_cost_is_that_of_a_short_log(backend: Backend) {
    let mut store = Counted::start(backend).await;
    let (short, short_end) = store.job("0", SHORT).await;
    let (long, long_end) = store.job("1", LONG).await;
    let bus = store.bus();
    // Connections and scripts come first: they are paid once.
    publish(bus.clone(), vec![store.token(&Job::new("cost", "2").unwrap(), 0)]).await;

    for count in [1, 10] {
        let events =
            |job: &Job, first: u64| (first..first + count).map(|seq| store.token(job, seq)).collect();
        let (on_short, on_long) = (events(&short, LONG + count), events(&long, LONG + count));
        let on_short = store.cost(publish(bus.clone(), on_short)).await;
        let on_long = store.cost(publish(bus.clone(), on_long)).await;
        on_long.assert_equals(&on_short, count, "publish");
    }
    // They have eleven events more by now: the page after the client's last event is read, and nothing before it.
    let (client, stages) = (store.store.clone(), store.config.stages.clone());
    let on_short = store.cost(resume(client.clone(), stages.clone(), short, short_end)).await;
    let on_long = store.cost(resume(client, stages, long, long_end)).await;
    on_long.assert_equals(&on_short, 4 + 11, "resume");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn publishing_and_resuming_at_10_000_events_cost_what_they_do_at_10_on_redis() {
    the_cost_is_that_of_a_short_log(Backend::Redis).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn publishing_and_resuming_at_10_000_events_cost_what_they_do_at_10_on_upstash() {
    the_cost_is_that_of_a_short_log(Backend::Upstash).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn publishing_and_resuming_at_10_000_events_cost_what_they_do_at_10_on_dynamodb() {
    the_cost_is_that_of_a_short_log(Backend::DynamoDb).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn ten_tokens_are_one_request_on_upstash() {
    let store = Counted::start(Backend::Upstash).await;
    let (bus, job) = (store.bus(), Job::new("cost", "1").unwrap());
    publish(bus.clone(), vec![store.token(&job, 0)]).await;
    let before = store.environment.gateway().unwrap().requests();
    publish(bus, (1..=10).map(|seq| store.token(&job, seq)).collect()).await;
    assert_eq!(store.environment.gateway().unwrap().requests() - before, 1);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn ten_tokens_are_one_round_trip_on_redis() {
    let store = Counted::start(Backend::Redis).await;
    let (bus, job) = (store.bus(), Job::new("cost", "1").unwrap());
    publish(bus.clone(), vec![store.token(&job, 0)]).await;
    // No reply comes through before all ten are done: a second round trip would wait for the first for ever.
    store.tcp.stall(true);
    let sent = tokio::spawn(publish(bus, (1..=10).map(|seq| store.token(&job, seq)).collect()));
    let (direct, log) = (store.environment.store(), Log::new("cost:job:1").unwrap());
    while direct.read(&log, None, 100).await.unwrap().len() < 11 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    store.tcp.stall(false);
    sent.await.unwrap();
}

/// One read, and one transaction for all.
#[tokio::test(flavor = "multi_thread")]
async fn ten_tokens_are_two_requests_on_dynamodb() {
    let store = Counted::start(Backend::DynamoDb).await;
    let job = Job::new("cost", "1").unwrap();
    publish(store.bus(), (1..=10).map(|seq| store.token(&job, seq)).collect()).await;
    let operations = store.http.unwrap().operations();
    let count = |name: &str| operations.iter().filter(|operation| *operation == name).count();
    assert_eq!((count("BatchGetItem"), count("TransactWriteItems"), operations.len()), (1, 1, 2));
}
