//! Random batches, reads and pauses: every backend answers as memory does, and ends in the same state. No test waits: memory has
//! a clock of its own, DynamoDB's callers have one too, and on Redis every key is aged.

use crate::support;

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use onetap_servers::{Dynamo, Redis, create_table, dynamodb_local};
use onetap_store::testing::TestStore;
use onetap_store::testing::random::difference_over_time;
use onetap_store::{Credentials, DynamoDb, Memory, Store};
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tokio::runtime::{Builder, Handle, Runtime};

/// Memory under the paused clock of another runtime, beside which real servers answer in real time.
fn clocked(clock: Handle) -> Arc<dyn Store> {
    TestStore::scripted(Arc::new(Memory::new()), move |call| {
        let _clock = clock.enter();
        // Memory never waits.
        ready(call.send().now_or_never().unwrap())
    })
}

/// A clock that stands still until it is moved.
struct Clock(Runtime);

impl Clock {
    fn new() -> Clock {
        Clock(Builder::new_current_thread().enable_time().start_paused(true).build().unwrap())
    }

    fn pass(&self, time: Duration) {
        // A runtime is not entered from within another one.
        let advance = || self.0.block_on(tokio::time::advance(time));
        std::thread::scope(|scope| scope.spawn(advance).join().unwrap());
    }
}

/// A backend under test, and how its time passes.
struct Aged<S> {
    store: Arc<dyn Store>,
    time: Time,
    _servers: S,
}

enum Time {
    /// The clock of the store's callers.
    Callers(Arc<AtomicI64>),
    /// The lives of all keys of a server.
    Lives(redis::aio::MultiplexedConnection),
}

impl Time {
    /// A case does not age what another one has left.
    async fn begin(&mut self) {
        if let Time::Lives(connection) = self {
            redis::cmd("FLUSHDB").exec_async(connection).await.unwrap();
        }
    }

    async fn pass(&mut self, time: Duration) {
        let millis = i64::try_from(time.as_millis()).unwrap();
        match self {
            Time::Callers(ahead) => drop(ahead.fetch_add(millis, Ordering::Relaxed)),
            Time::Lives(connection) => {
                const AGE: &str = "for _, key in ipairs(redis.call('KEYS', '*')) do
                    local left = redis.call('PTTL', key)
                    if left > tonumber(ARGV[1]) then
                        redis.call('PEXPIRE', key, string.format('%.0f', left - ARGV[1]))
                    elseif left >= 0 then
                        redis.call('DEL', key)
                    end
                end";
                let mut age = redis::cmd("EVAL");
                age.arg(AGE).arg(0).arg(millis).exec_async(connection).await.unwrap();
                // The server's clock gives the positions: it has gone on too, if only by a millisecond.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    }
}

async fn aged<S>(redis: &str, store: Arc<dyn Store>, servers: S) -> Aged<S> {
    let connection = redis::Client::open(redis).unwrap().get_multiplexed_async_connection().await.unwrap();
    Aged { store, time: Time::Lives(connection), _servers: servers }
}

async fn on_redis() -> Aged<Redis> {
    let (store, server) = support::open_redis().await;
    aged(&server.url(), store, server).await
}

async fn on_upstash() -> Aged<impl Sized> {
    let (store, (gateway, server)) = support::open_upstash().await;
    aged(&server.url(), store, (gateway, server)).await
}

async fn on_dynamodb<S>(url: String, server: S) -> Aged<S> {
    create_table(&url, "onetap").await;
    let (store, ahead) =
        (DynamoDb::new("onetap", "us-east-1", Credentials::new("test", "test")), Arc::new(AtomicI64::new(0)));
    let store = store.endpoint(url).timeout(Duration::from_secs(10)).with_clock(Arc::clone(&ahead));
    Aged { store: Arc::new(store), time: Time::Callers(ahead), _servers: server }
}

/// Compares a store with a fresh memory under random batches; proptest shortens what fails. `PROPTEST_CASES` sets another
/// number of cases.
fn agrees_with_memory<S>(cases: u32, open: impl Future<Output = Aged<S>>) {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let aged = runtime.block_on(open);
    let (store, time) = (aged.store, tokio::sync::Mutex::new(aged.time));
    let cases = std::env::var("PROPTEST_CASES").map_or(cases, |cases| cases.parse().unwrap());
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&(proptest::num::u64::ANY, 1..40usize), |(seed, batches)| {
        let clock = Clock::new();
        let oracle: Arc<dyn Store> = clocked(clock.0.handle().clone());
        let pass = async |pause: Duration| {
            clock.pass(pause);
            time.lock().await.pass(pause).await;
        };
        runtime.block_on(async { time.lock().await.begin().await });
        match runtime.block_on(difference_over_time(&oracle, &store, seed, batches, Some(pass))) {
            Ok(None) => Ok(()),
            Ok(Some(difference)) => Err(TestCaseError::fail(difference)),
            Err(error) => Err(TestCaseError::fail(error.to_string())),
        }
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
#[ignore = "needs redis-server"]
fn random_batches_on_redis_answer_as_in_memory() {
    agrees_with_memory(150, on_redis());
}

#[test]
#[ignore = "needs redis-server"]
fn random_batches_on_upstash_answer_as_in_memory() {
    agrees_with_memory(100, on_upstash());
}

#[test]
fn random_batches_on_dynamodb_answer_as_in_memory() {
    agrees_with_memory(60, async {
        let server = Dynamo::start().await;
        on_dynamodb(server.url(), server).await
    });
}

#[test]
#[ignore = "needs DynamoDB Local"]
fn random_batches_on_dynamodb_local_answer_as_in_memory() {
    agrees_with_memory(60, async { on_dynamodb(dynamodb_local(), ()).await });
}
