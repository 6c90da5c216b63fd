//! What publishing costs, as the README's table says it: counted by the servers.

use crate::support;

use std::collections::BTreeMap;
use std::sync::Arc;

use onetap_bus::{Bus, Config, Event, Job, Stages};
use onetap_servers::{Backend, Environment, Proxy, TcpProxy};
use onetap_store::Store;
use support::TOKENS;

/// What is published, in this order, so that each row finds the job as it is in the middle of its life.
const ROWS: [&str; 5] = [
    "a new event",
    "a new event that leaves the state alone",
    "ten new events in one call",
    "a duplicate",
    "ten duplicates in one call",
];

fn bus(store: Arc<dyn Store>) -> Bus {
    let stages = Stages::from_json(TOKENS).unwrap();
    Bus::new(store, Config { stages, ..Config::default() })
}

fn events(bus: &Bus, stage: &str, seqs: std::ops::Range<u64>) -> Vec<Event> {
    let job = Job::new("chat", "job-1").unwrap();
    seqs.map(|seq| Event::new(bus.stages(), &job, stage, seq, &"a word").unwrap()).collect()
}

/// What `count` counts for each row.
async fn counted<T>(bus: &Bus, mut count: impl AsyncFnMut() -> T) -> Vec<T> {
    let calls = [
        events(bus, "plan", 1..2),
        events(bus, "token", 1000..1001),
        events(bus, "plan", 2..10).into_iter().chain(events(bus, "done", 10..12)).collect(),
        events(bus, "plan", 1..2),
        events(bus, "plan", 1..10).into_iter().chain(events(bus, "done", 10..11)).collect(),
    ];
    // The first event of a connection: the server gets to know the script.
    assert!(bus.publish_each(&events(bus, "plan", 0..1)).await[0].is_ok());
    let mut rows = Vec::new();
    for call in calls {
        count().await;
        assert!(bus.publish_each(&call).await.iter().all(Result::is_ok));
        rows.push(count().await);
    }
    rows
}

/// The README's rows: round trips on Redis and Upstash, Upstash's commands, DynamoDB's requests.
fn told() -> BTreeMap<&'static str, Vec<u64>> {
    let rows = include_str!("../../README.md").lines().filter_map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let numbers = cells[1..].iter().map(|cell| cell.parse()).collect::<Result<_, _>>().ok()?;
        ROWS.contains(&cells[0]).then_some((cells[0], numbers))
    });
    rows.collect()
}

#[track_caller]
fn assert_told(column: usize, counted: &[u64]) {
    let told = told();
    let told: Vec<u64> = ROWS.iter().map(|row| told[row][column]).collect();
    assert_eq!(told, counted, "the README's column {column}: {ROWS:?}");
}

/// The difference to the last count.
fn since(last: &mut u64, now: u64) -> u64 {
    now - std::mem::replace(last, now)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn the_readme_counts_round_trips_and_commands_on_upstash() {
    let mut servers = Environment::start(Backend::Upstash).await;
    let bus = bus(servers.store());
    let mut last = (0, 0);
    let rows = counted(&bus, async || {
        let commands = servers.redis().unwrap().commands().await;
        let requests = servers.gateway().unwrap().requests() as u64;
        (since(&mut last.0, requests), since(&mut last.1, commands))
    })
    .await;
    assert_told(0, &rows.iter().map(|row| row.0).collect::<Vec<_>>());
    assert_told(1, &rows.iter().map(|row| row.1).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn the_readme_counts_round_trips_on_redis() {
    let mut servers = Environment::start(Backend::Redis).await;
    let proxy = TcpProxy::start(servers.redis().unwrap().addr()).await;
    let bus = bus(servers.store_with("REDIS_URL", proxy.url()));
    let mut last = 0;
    let rows = counted(&bus, async || since(&mut last, proxy.round_trips())).await;
    assert_told(0, &rows);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_readme_counts_requests_on_dynamodb() {
    let servers = Environment::start(Backend::DynamoDb).await;
    let proxy = Proxy::start(&servers.lookup("AWS_ENDPOINT_URL_DYNAMODB").unwrap()).await;
    let bus = bus(servers.store_with("AWS_ENDPOINT_URL_DYNAMODB", proxy.url()));
    let mut last = 0;
    let rows = counted(&bus, async || since(&mut last, proxy.requests() as u64)).await;
    assert_told(2, &rows);
}
