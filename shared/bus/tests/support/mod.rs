//! A bus on every backend, for the tests of this crate and of the functions above it.
#![allow(dead_code, unreachable_pub, unused_macros, reason = "every test file uses its part")]

use std::sync::Arc;

use onetap_bus::{Config, Event, Job, Stages};
use onetap_servers::environment::Variable;
use onetap_servers::{Backend, Environment};
use onetap_store::lease::unique_token;
use onetap_store::{Log, Memory, Record, Store};

/// A table of stages with tokens, which leave the state alone.
pub const TOKENS: &str = r#"[{"stage":"plan","first":0,"last":9},
    {"stage":"token","first":1000,"last":999999,"state":false},{"stage":"done","first":10,"last":19,"ends":12}]"#;

/// A store, and what tests must know of it.
pub struct World {
    pub store: Arc<dyn Store>,
    pub config: Config,
    /// A domain that no other test has: some servers are shared.
    pub domain: String,
    /// How another process opens the same store; empty in memory.
    pub environment: Vec<Variable>,
    /// Where the Redis behind it is, if there is one.
    pub redis: Option<String>,
    servers: Option<Environment>,
}

impl World {
    fn new(store: Arc<dyn Store>, mut servers: Option<Environment>) -> World {
        let environment = servers.as_ref().map(|servers| servers.variables().to_vec()).unwrap_or_default();
        let config = Config::default();
        let domain = format!("t{}", &unique_token()[..16]);
        let redis = servers.as_mut().and_then(Environment::redis).map(|redis| redis.url());
        World { store, config, domain, environment, redis, servers }
    }

    async fn on(backend: Backend) -> World {
        let servers = Environment::start(backend).await;
        World::new(servers.store(), Some(servers))
    }

    pub async fn memory() -> World {
        World::new(Arc::new(Memory::new()), None)
    }

    pub async fn redis() -> World {
        World::on(Backend::Redis).await
    }

    pub async fn upstash() -> World {
        World::on(Backend::Upstash).await
    }

    pub async fn dynamodb() -> World {
        World::on(Backend::DynamoDb).await
    }

    pub async fn dynamodb_local() -> World {
        World::on(Backend::DynamoDbLocal).await
    }

    /// Whether events go to the streams of shards too.
    pub fn has_shard_streams(&self) -> bool {
        self.store.capabilities().shared_logs
    }

    /// The servers; memory has none.
    pub fn servers(&self) -> &Environment {
        self.servers.as_ref().unwrap()
    }

    /// A variable of the store's environment.
    pub fn variable(&self, name: &str) -> String {
        self.servers().lookup(name).unwrap()
    }

    /// The same store for readers that stay: one that polls does so four times a second, and leaves the server some
    /// time for others.
    pub fn patient_store(&self) -> Arc<dyn Store> {
        match &self.servers {
            Some(servers) => servers.store_with("SSE_POLL_MS", "250"),
            None => self.store.clone(),
        }
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
    Event::parse(event_text(job, stage, seq, data), &Stages::default()).unwrap()
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
