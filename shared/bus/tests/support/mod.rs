//! A bus on every backend, for the tests of this crate and of the functions above it.
#![allow(dead_code, unreachable_pub, unused_macros, reason = "every test file uses its part")]

#[path = "../../../store/tests/support/mod.rs"]
pub mod stores;

use std::any::Any;
use std::sync::Arc;

use onetap_bus::{Config, Event, Job};
use onetap_servers::dynamodb_local;
use onetap_store::lease::unique_token;
use onetap_store::{Log, Memory, Record, Store};

use stores::{Environment, PATIENT};

/// A store, and what tests must know of it.
pub struct World {
    pub store: Arc<dyn Store>,
    pub config: Config,
    /// A domain that no other test has: some servers are shared.
    pub domain: String,
    /// How another process opens the same store; empty in memory.
    pub environment: Environment,
    /// Where the Redis behind it is, if there is one.
    pub redis: Option<String>,
    _server: Box<dyn Any + Send>,
}

impl World {
    fn new(
        store: Arc<dyn Store>,
        environment: Environment,
        redis: Option<String>,
        server: impl Any + Send,
    ) -> World {
        let shard_streams = !environment.contains(&("STORE", "dynamodb".to_owned()));
        let config = Config { shard_streams, ..Config::default() };
        let domain = format!("t{}", &unique_token()[..16]);
        World { store, config, domain, environment, redis, _server: Box::new(server) }
    }

    /// A variable of the store's environment.
    pub fn variable(&self, name: &str) -> &str {
        &self.environment.iter().find(|(n, _)| *n == name).unwrap().1
    }

    pub async fn memory() -> World {
        World::new(Arc::new(Memory::new()), Vec::new(), None, ())
    }

    pub async fn redis() -> World {
        let (store, server) = stores::open_redis().await;
        World::new(store, stores::redis(server.url(), PATIENT), Some(server.url()), server)
    }

    pub async fn upstash() -> World {
        let (store, (gateway, server)) = stores::open_upstash().await;
        let environment = stores::upstash(gateway.url(), gateway.token(), PATIENT);
        World::new(store, environment, Some(server.url()), (gateway, server))
    }

    pub async fn dynamodb() -> World {
        let (store, server) = stores::open_dynoxide().await;
        World::new(store, stores::dynamodb(server.url(), PATIENT), None, server)
    }

    pub async fn dynamodb_local() -> World {
        let (store, server) = stores::open_dynamodb_local().await;
        World::new(store, stores::dynamodb(dynamodb_local(), PATIENT), None, server)
    }

    /// The same store for readers that stay: one that polls does so four times a second, and leaves the server some
    /// time for others.
    pub fn patient_store(&self) -> Arc<dyn Store> {
        if self.environment.is_empty() {
            return self.store.clone();
        }
        let polls = |name: &str| name == "SSE_POLL_MS";
        let rest = self.environment.iter().filter(|(name, _)| !polls(name)).cloned();
        stores::store(&rest.chain([("SSE_POLL_MS", "250".to_owned())]).collect())
    }

    /// A job of this world's domain. Markers hold no domain, so that the id is its own too.
    pub fn job(&self, name: &str) -> Job {
        Job::new(&self.domain, format!("{}-{name}", self.domain)).unwrap()
    }

    /// An event of such a job.
    pub fn event(&self, name: &str, stage: &str, seq: u64) -> Event {
        event(&self.job(name), stage, seq, "{}")
    }

    pub fn log(&self, name: &str) -> Log {
        Log::new(format!("{}:job:{}", self.domain, self.job(name).id())).unwrap()
    }

    /// The shard's stream that a job's events go to.
    pub fn stream(&self, name: &str) -> Log {
        Log::new(format!("{}:events:{}", self.domain, self.job(name).shard(4))).unwrap()
    }

    pub async fn read(&self, log: &Log) -> Vec<Record> {
        self.store.read(log, None, 10_000).await.unwrap()
    }
}

/// An event's JSON, with this for its data.
pub fn event_text(job: &Job, stage: &str, seq: u64, data: &str) -> String {
    format!(
        r#"{{"job_id":"{}","domain":"{}","stage":"{stage}","seq":{seq},"data":{data},"timestamp":"2025-11-03T08:15:30.5"}}"#,
        job.id(),
        job.domain()
    )
}

pub fn event(job: &Job, stage: &str, seq: u64, data: &str) -> Event {
    Event::parse(event_text(job, stage, seq, data)).unwrap()
}

/// Makes a test of every promise for every backend. A promise is an async function over [`World`].
macro_rules! on_every_backend {
    ($($promise:ident)*) => {$(
        mod $promise {
            use super::support::World;

            #[tokio::test(start_paused = true)]
            async fn holds_on_memory() {
                super::$promise(World::memory().await).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            #[ignore = "needs redis-server"]
            async fn holds_on_redis() {
                super::$promise(World::redis().await).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            #[ignore = "needs redis-server"]
            async fn holds_on_upstash() {
                super::$promise(World::upstash().await).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn holds_on_dynamodb() {
                super::$promise(World::dynamodb().await).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            #[ignore = "needs DynamoDB Local"]
            async fn holds_on_dynamodb_local() {
                super::$promise(World::dynamodb_local().await).await;
            }
        }
    )*};
}
#[allow(unused_imports, reason = "every test file uses its part")]
pub(crate) use on_every_backend;
