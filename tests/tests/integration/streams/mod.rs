//! Streams under load: hundreds of clients follow dozens of jobs, while the store restarts, consumers die and clients
//! lose their connections. Each client sees each event of its job once, in commit order.
//!
//! `scripts/load` runs the same for longer and prints a row for each backend.
#![allow(unreachable_pub, reason = "modules of tests")]

mod audience;
mod jobs;
mod store;
mod storm;
#[path = "../../../../functions/queue-consumer/tests/harness/worker.rs"]
mod worker;

use std::time::Duration;

use onetap_servers::heavy_test;
use onetap_tests::load::{Cost, Usage};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use store::RestartingStore;
use storm::{Outcome, Size, storm};
use tokio::time::Instant;

/// What may be left of a storm: what allocators keep, and connections of the store that was asked last.
const MAY_GROW: Usage = Usage { memory_kib: 128 << 10, descriptors: 20 };

/// The deadline of a batch: none that matters here.
fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Decides all that happens, but not how long it takes. A failure shows it.
fn seed() -> u64 {
    let given = std::env::var("ONETAP_STREAMS_SEED").ok().map(|seed| seed.parse().unwrap());
    let seed = given.unwrap_or_else(|| getrandom::u64().unwrap());
    eprintln!("ONETAP_STREAMS_SEED={seed}");
    seed
}

/// Clients, gateways and the Upstash gateway are in this process: more descriptors than some systems allow at first.
fn allow_descriptors() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

/// At `size`. With `ONETAP_LOAD_SECONDS` at `load`, for so long, and prints its row.
async fn each_client_sees_each_event_once(mut store: RestartingStore, size: Size, load: Size) {
    allow_descriptors();
    let Some(seconds) = std::env::var("ONETAP_LOAD_SECONDS").ok() else {
        storm(&mut store, &size, seed()).await.assert_good(&size);
        return;
    };
    let seconds: u64 = seconds.parse().unwrap();
    let time = Duration::from_secs(seconds);
    let reconnects = load.reconnects * (seconds as usize).div_ceil(STAGES.time.as_secs() as usize);
    let size = Size { time, restarts: 2 + seconds as usize / 5, reconnects, ..load };
    let before = Usage::of(std::process::id());
    let outcome = storm(&mut store, &size, seed()).await;
    let cost = Cost::since(before, &[std::process::id()], MAY_GROW).await;
    eprintln!("{}", row(store.name, &size, &outcome, &cost));
    outcome.assert_good(&size);
    cost.assert_within(MAY_GROW, store.name);
}

fn row(name: &str, size: &Size, outcome: &Outcome, Cost { before, after }: &Cost) -> String {
    format!(
        "streams| {name:<16} {:>7} {:>5} {:>7} {:>10} {:>8} {:>6} {:>5} {:>8} {:>9} {:>9} {:>6} {:>6}",
        size.clients,
        size.jobs,
        size.jobs * size.events,
        outcome.reconnects,
        outcome.restarts,
        outcome.interrupted,
        outcome.lost,
        outcome.repeated,
        before.memory_kib,
        after.memory_kib,
        before.descriptors,
        after.descriptors,
    )
}

/// Few events of every stage.
const STAGES: Size = Size {
    clients: 500,
    jobs: 50,
    events: 21,
    time: Duration::from_secs(4),
    restarts: 3,
    reconnects: 250,
    stages: None,
};
const STAGES_LOAD: Size = Size { events: 51, ..STAGES };
/// Hundreds of events, most of which leave the state alone.
const TOKENS: Size =
    Size { clients: 100, jobs: 10, events: 300, reconnects: 50, stages: Some(TOKEN_STAGES), ..STAGES };
const TOKENS_LOAD: Size = Size { events: 1000, ..TOKENS };
const TOKEN_STAGES: &str = r#"[{"stage":"plan","first":0,"last":9},
    {"stage":"token","first":1000,"last":999999,"state":false},{"stage":"done","first":10,"last":19,"ends":11}]"#;

/// Smaller, for a local DynamoDB: every client polls a server that shares two cores with all of them.
fn small(size: Size) -> Size {
    Size { clients: size.clients / 5, jobs: size.jobs / 5, reconnects: size.reconnects / 5, ..size }
}

async fn stages(store: RestartingStore, size: Size) {
    let _heavy = heavy_test();
    each_client_sees_each_event_once(store, size, STAGES_LOAD).await;
}

async fn tokens(store: RestartingStore, size: Size) {
    let _heavy = heavy_test();
    each_client_sees_each_event_once(store, size, TOKENS_LOAD).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_client_sees_each_event_once_while_the_store_restarts_and_consumers_die_on_memory() {
    stages(RestartingStore::memory().await, STAGES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_client_sees_each_of_hundreds_of_tokens_once_whatever_dies_on_memory() {
    tokens(RestartingStore::memory().await, TOKENS).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn each_client_sees_each_event_once_while_the_store_restarts_and_consumers_die_on_redis() {
    stages(RestartingStore::redis().await, STAGES).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn each_client_sees_each_of_hundreds_of_tokens_once_whatever_dies_on_redis() {
    tokens(RestartingStore::redis().await, TOKENS).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn each_client_sees_each_event_once_while_the_store_restarts_and_consumers_die_on_upstash() {
    stages(RestartingStore::upstash().await, STAGES).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn each_client_sees_each_of_hundreds_of_tokens_once_whatever_dies_on_upstash() {
    tokens(RestartingStore::upstash().await, TOKENS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_client_sees_each_event_once_while_the_store_restarts_and_consumers_die_on_dynamodb() {
    stages(RestartingStore::dynamodb().await, small(STAGES)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_client_sees_each_of_hundreds_of_tokens_once_whatever_dies_on_dynamodb() {
    tokens(RestartingStore::dynamodb().await, small(TOKENS)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs DynamoDB Local"]
async fn each_client_sees_each_event_once_while_the_store_restarts_and_consumers_die_on_dynamodb_local() {
    stages(RestartingStore::dynamodb_local().await, small(STAGES)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs DynamoDB Local"]
async fn each_client_sees_each_of_hundreds_of_tokens_once_whatever_dies_on_dynamodb_local() {
    tokens(RestartingStore::dynamodb_local().await, small(TOKENS)).await;
}
