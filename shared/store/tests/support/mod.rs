//! Stores on real servers, for the tests of this crate.
#![allow(dead_code, unreachable_pub, reason = "every test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot open its store has failed")]

use std::sync::Arc;
use std::time::Duration;

use onetap_servers::{Dynamo, Redis, Upstash, create_table, dynamodb_local};
use onetap_store::{Config, Store, open};

/// Long enough for a busy machine; the tests of the limit set their own.
pub const PATIENT: u64 = 10_000;

pub type Environment = Vec<(&'static str, String)>;

/// The store that these variables name.
pub fn store(environment: &Environment) -> Arc<dyn Store> {
    let lookup = |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, value)| value.clone());
    open(&Config::from_lookup(lookup).unwrap().poll_interval(Duration::from_millis(20))).unwrap()
}

pub fn redis(url: String, timeout_ms: u64) -> Environment {
    vec![("STORE", "redis".into()), ("REDIS_URL", url), ("STORE_TIMEOUT_MS", timeout_ms.to_string())]
}

pub fn upstash(url: String, token: &str, timeout_ms: u64) -> Environment {
    vec![
        ("STORE", "upstash".into()),
        ("UPSTASH_REDIS_REST_URL", url),
        ("UPSTASH_REDIS_REST_TOKEN", token.into()),
        ("STORE_TIMEOUT_MS", timeout_ms.to_string()),
    ]
}

pub fn dynamodb(url: String, timeout_ms: u64) -> Environment {
    vec![
        ("STORE", "dynamodb".into()),
        ("DYNAMODB_TABLE", "onetap".into()),
        ("AWS_REGION", "us-east-1".into()),
        ("AWS_ENDPOINT_URL_DYNAMODB", url),
        ("AWS_ACCESS_KEY_ID", "test".into()),
        ("AWS_SECRET_ACCESS_KEY", "test".into()),
        ("STORE_TIMEOUT_MS", timeout_ms.to_string()),
    ]
}

pub async fn open_redis() -> (Arc<dyn Store>, Redis) {
    let server = Redis::start().await;
    (store(&redis(server.url(), PATIENT)), server)
}

pub async fn open_upstash() -> (Arc<dyn Store>, (Upstash, Redis)) {
    let server = Redis::start().await;
    let gateway = Upstash::start(&server.url()).await;
    (store(&upstash(gateway.url(), gateway.token(), PATIENT)), (gateway, server))
}

pub async fn open_dynoxide() -> (Arc<dyn Store>, Dynamo) {
    let server = Dynamo::start().await;
    create_table(&server.url(), "onetap").await;
    (store(&dynamodb(server.url(), PATIENT)), server)
}

pub async fn open_dynamodb_local() -> (Arc<dyn Store>, ()) {
    let url = dynamodb_local();
    create_table(&url, "onetap").await;
    (store(&dynamodb(url, PATIENT)), ())
}

/// Runs `call` and says how long it took, by tokio's clock.
pub async fn timed<T>(call: impl Future<Output = T>) -> (T, Duration) {
    let start = tokio::time::Instant::now();
    let answer = call.await;
    (answer, start.elapsed())
}
