//! Starts the servers of a store backend for a test, and opens a store on them.

#[cfg(feature = "store")]
use std::{sync::Arc, time::Duration};

#[cfg(feature = "store")]
use onetap_store::{Config, Store};

use crate::{Dynamo, Redis, Upstash, create_table, dynamodb_local};

/// The backend of a test's store, by the server that it runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Backend {
    /// Memory, which has no server: every store is its own.
    Memory,
    /// redis-server, over the Redis protocol.
    Redis,
    /// The Upstash gateway in front of redis-server.
    Upstash,
    /// dynoxide, a DynamoDB emulator, in this process.
    DynamoDb,
    /// Amazon's DynamoDB Local, which `scripts/test` starts.
    DynamoDbLocal,
}

impl Backend {
    /// All of them, in the order of tables.
    pub const ALL: [Backend; 5] =
        [Backend::Memory, Backend::Redis, Backend::Upstash, Backend::DynamoDb, Backend::DynamoDbLocal];

    /// What tests and tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Memory => "memory",
            Backend::Redis => "redis",
            Backend::Upstash => "upstash",
            Backend::DynamoDb => "dynamodb",
            Backend::DynamoDbLocal => "dynamodb_local",
        }
    }

    /// The variable that says where its server is.
    pub fn address_variable(self) -> &'static str {
        match self {
            Backend::Memory => panic!("memory has no server"),
            Backend::Redis => "REDIS_URL",
            Backend::Upstash => "UPSTASH_REDIS_REST_URL",
            Backend::DynamoDb | Backend::DynamoDbLocal => "AWS_ENDPOINT_URL_DYNAMODB",
        }
    }
}

/// The name and value of an environment variable.
pub type Variable = (&'static str, String);

/// Time limit for one store call, long enough for a busy machine. Tests of the time limit set their own.
const STORE_TIMEOUT_MS: u64 = 10_000;

/// The running servers of a backend, and the environment variables for a store on them. The servers start without data,
/// and stop when this value is dropped.
#[derive(Debug)]
pub struct Environment {
    variables: Vec<Variable>,
    // Declared before `redis`, so that it is dropped first: it has connections to Redis.
    gateway: Option<Upstash>,
    redis: Option<Redis>,
    _dynamo: Option<Dynamo>,
}

impl Environment {
    /// Starts the servers of this backend. DynamoDB Local is shared by all tests, so each environment has its own
    /// table.
    pub async fn start(backend: Backend) -> Environment {
        match backend {
            Backend::Memory => Environment {
                variables: store_variables("memory", []),
                gateway: None,
                redis: None,
                _dynamo: None,
            },
            Backend::Redis => Environment::on_redis(Redis::start().await),
            Backend::Upstash => Environment::on_upstash(Redis::start().await).await,
            Backend::DynamoDb => {
                let dynamo = Dynamo::start().await;
                let variables = dynamodb(&dynamo.url(), "onetap".to_owned()).await;
                Environment { variables, gateway: None, redis: None, _dynamo: Some(dynamo) }
            }
            Backend::DynamoDbLocal => {
                let table = format!("onetap-{:016x}", getrandom::u64().expect("the system's randomness"));
                let variables = dynamodb(&dynamodb_local(), table).await;
                Environment { variables, gateway: None, redis: None, _dynamo: None }
            }
        }
    }

    /// A store on this Redis, over the Redis protocol.
    pub fn on_redis(redis: Redis) -> Environment {
        let variables = store_variables("redis", [("REDIS_URL", redis.url())]);
        Environment { variables, gateway: None, redis: Some(redis), _dynamo: None }
    }

    /// A store on this Redis, through the Upstash gateway.
    pub async fn on_upstash(redis: Redis) -> Environment {
        let gateway = Upstash::start(&redis.url()).await;
        let variables = store_variables(
            "upstash",
            [
                ("UPSTASH_REDIS_REST_URL", gateway.url()),
                ("UPSTASH_REDIS_REST_TOKEN", gateway.token().to_owned()),
            ],
        );
        Environment { variables, gateway: Some(gateway), redis: Some(redis), _dynamo: None }
    }

    /// The same servers, with this variable set or changed.
    pub fn with(self, name: &'static str, value: impl Into<String>) -> Environment {
        Environment { variables: self.variables_with(name, value), ..self }
    }

    /// The environment variables with which any process opens a store on these servers.
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// The variables, with this one set or changed.
    pub fn variables_with(&self, name: &'static str, value: impl Into<String>) -> Vec<Variable> {
        let others = self.variables.iter().filter(|(known, _)| *known != name).cloned();
        others.chain([(name, value.into())]).collect()
    }

    /// A store on these servers.
    #[cfg(feature = "store")]
    pub fn store(&self) -> Arc<dyn Store> {
        open(&self.variables)
    }

    /// A store on these servers, with this variable set or changed: another time limit, or the address of a proxy.
    #[cfg(feature = "store")]
    pub fn store_with(&self, name: &'static str, value: impl Into<String>) -> Arc<dyn Store> {
        open(&self.variables_with(name, value))
    }

    /// The value of one variable.
    pub fn lookup(&self, name: &str) -> Option<String> {
        self.variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
    }

    /// The Redis server, if the backend has one.
    pub fn redis(&mut self) -> Option<&mut Redis> {
        self.redis.as_mut()
    }

    /// The Upstash gateway, if the backend has one.
    pub fn gateway(&self) -> Option<&Upstash> {
        self.gateway.as_ref()
    }
}

#[cfg(feature = "store")]
fn open(variables: &[Variable]) -> Arc<dyn Store> {
    let lookup =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
    let mut config = Config::from_lookup(lookup).expect("variables that describe a store");
    if let Some(millis) = lookup("SSE_POLL_MS") {
        config = config.poll_interval(Duration::from_millis(millis.parse().expect("a number")));
    }
    onetap_store::open(&config).expect("a backend that this test is built with")
}

fn store_variables(store: &str, rest: impl IntoIterator<Item = Variable>) -> Vec<Variable> {
    let all = [("STORE", store.to_owned()), ("STORE_TIMEOUT_MS", STORE_TIMEOUT_MS.to_string())];
    all.into_iter().chain(rest).collect()
}

async fn dynamodb(url: &str, table: String) -> Vec<Variable> {
    create_table(url, &table).await;
    store_variables(
        "dynamodb",
        [
            ("DYNAMODB_TABLE", table),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ENDPOINT_URL_DYNAMODB", url.to_owned()),
            ("AWS_ACCESS_KEY_ID", "test".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
            // How often `watch` polls: DynamoDB has no pub/sub.
            ("SSE_POLL_MS", "20".to_owned()),
        ],
    )
}
