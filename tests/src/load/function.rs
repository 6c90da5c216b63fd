//! Instances of one function, as Lambda runs them, with a store that can be made to hang.

use std::net::SocketAddr;
use std::time::Duration;

use onetap_config::Secret;
use onetap_line::testing::MessagingApi;
use onetap_servers::runtime::Answer;
use onetap_servers::{HeavyTest, Program, Redis, RuntimeApi, TcpProxy, heavy_test};
use serde_json::Value;

use crate::functions::{ACCESS_TOKEN, Function};

/// Number of instances. Each handles one event at a time; further events wait.
const INSTANCES: usize = 4;
/// Time limit for one answer, long enough for a busy machine; Lambda itself waits 29 s for the HTTP functions.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Some instances of a function on one runtime API, one Redis and one LINE.
#[derive(Debug)]
pub struct Fleet {
    api: RuntimeApi,
    instances: Vec<Program>,
    store: TcpProxy,
    redis: Redis,
    line: MessagingApi,
    _heavy: HeavyTest,
}

impl Fleet {
    /// Starts the instances, and returns when each has asked for its first event.
    pub async fn start(function: Function) -> Fleet {
        let heavy = heavy_test();
        let redis = Redis::start().await;
        let upstream: SocketAddr = redis.url().trim_start_matches("redis://").parse().unwrap();
        let store = TcpProxy::start(upstream).await;
        let line = MessagingApi::start(Secret::new(ACCESS_TOKEN)).unwrap();
        let mut variables = function.variables(&line.url());
        variables.extend([
            ("STORE", "redis".to_owned()),
            ("REDIS_URL", store.url()),
            ("STORE_TIMEOUT_MS", "1000".to_owned()),
            ("RUST_LOG", "error".to_owned()),
            // The streams of a finished job are to end when it was told: their number is what is measured.
            ("SSE_GRACE_SECONDS", "0".to_owned()),
        ]);
        let (api, program) = (RuntimeApi::start(), function.program());
        let start = || api.run(&program, variables.iter().map(|(name, value)| (*name, value)));
        let instances = (0..INSTANCES).map(|_| start()).collect();
        api.polled(INSTANCES as u64).await;
        Fleet { api, instances, store, redis, line, _heavy: heavy }
    }

    /// The answer to an event: never none, and never an error of the runtime's.
    pub async fn invoke(&self, event: &Value) -> Result<Answer, String> {
        let answer = self.api.invoke(event.to_string(), ANSWER_TIMEOUT).await.map_err(|_| "no answer")?;
        if answer.failed {
            return Err(format!("failed: {:?}", answer.body));
        }
        Ok(answer)
    }

    /// Whether the store's answers are withheld.
    pub fn stall_store(&self, on: bool) {
        self.store.stall(on);
    }

    /// The Redis behind it.
    pub fn redis(&self) -> &Redis {
        &self.redis
    }

    /// LINE.
    pub fn line(&self) -> &MessagingApi {
        &self.line
    }

    /// The process ids of the instances.
    pub fn processes(&self) -> Vec<u32> {
        self.instances.iter().map(Program::id).collect()
    }
}
