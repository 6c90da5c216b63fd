//! The servers of a backend, and the variables by which any process opens a store on them.

use crate::{Dynamo, Redis, Upstash, create_table, dynamodb_local};

/// Where a test's store lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// redis-server, over its own protocol.
    Redis,
    /// The Upstash gateway in front of redis-server.
    Upstash,
    /// dynoxide, in this process.
    DynamoDb,
    /// Amazon's DynamoDB Local, which `scripts/test` starts.
    DynamoDbLocal,
}

/// A variable's name and value.
pub type Variable = (&'static str, String);

/// Long enough for a busy machine; the tests of the limit set their own.
const PATIENT_MS: u64 = 10_000;

/// A backend with its servers, empty at first and gone when dropped.
#[derive(Debug)]
pub struct Environment {
    variables: Vec<Variable>,
    // The gateway talks to Redis until it is dropped: it goes first.
    gateway: Option<Upstash>,
    redis: Option<Redis>,
    _dynamo: Option<Dynamo>,
}

impl Environment {
    /// Starts what this backend needs. DynamoDB Local is shared, so that there every environment has a table of its own.
    pub async fn start(backend: Backend) -> Environment {
        match backend {
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

    /// A store on this Redis, over its own protocol.
    pub fn on_redis(redis: Redis) -> Environment {
        let variables = with_patience("redis", [("REDIS_URL", redis.url())]);
        Environment { variables, gateway: None, redis: Some(redis), _dynamo: None }
    }

    /// A store on this Redis, behind the Upstash gateway.
    pub async fn on_upstash(redis: Redis) -> Environment {
        let gateway = Upstash::start(&redis.url()).await;
        let variables = with_patience(
            "upstash",
            [
                ("UPSTASH_REDIS_REST_URL", gateway.url()),
                ("UPSTASH_REDIS_REST_TOKEN", gateway.token().to_owned()),
            ],
        );
        Environment { variables, gateway: Some(gateway), redis: Some(redis), _dynamo: None }
    }

    /// The same servers, with this variable set or changed.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Environment {
        self.variables.retain(|(known, _)| *known != name);
        self.variables.push((name, value.into()));
        self
    }

    /// What another process must find in its environment.
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// One variable: what a store's `Config::from_lookup` asks for.
    pub fn lookup(&self, name: &str) -> Option<String> {
        self.variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
    }

    /// The Redis behind it, if there is one.
    pub fn redis(&mut self) -> Option<&mut Redis> {
        self.redis.as_mut()
    }

    /// The gateway in front of it, if there is one.
    pub fn gateway(&self) -> Option<&Upstash> {
        self.gateway.as_ref()
    }
}

fn with_patience(store: &str, rest: impl IntoIterator<Item = Variable>) -> Vec<Variable> {
    let all = [("STORE", store.to_owned()), ("STORE_TIMEOUT_MS", PATIENT_MS.to_string())];
    all.into_iter().chain(rest).collect()
}

async fn dynamodb(url: &str, table: String) -> Vec<Variable> {
    create_table(url, &table).await;
    with_patience(
        "dynamodb",
        [
            ("DYNAMODB_TABLE", table),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ENDPOINT_URL_DYNAMODB", url.to_owned()),
            ("AWS_ACCESS_KEY_ID", "test".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
            ("SSE_POLL_MS", "20".to_owned()),
        ],
    )
}
