//! A store on any backend that can be stopped and started again with its data.

use std::sync::Arc;

use onetap_local::OutageStore;
use onetap_servers::environment::Variable;
use onetap_servers::{Backend, Environment, Redis, TcpProxy};
use onetap_store::{Memory, Store};

/// How often a follower polls where there is no pub/sub: hundreds of them share a local server.
const POLL_MS: &str = "500";

pub struct RestartingStore {
    pub name: &'static str,
    servers: Servers,
}

enum Servers {
    Memory(Arc<OutageStore>),
    /// A Redis that writes down what it acknowledges: it is killed, and reads that again. Over its own protocol or
    /// through the Upstash gateway.
    Redis(Environment),
    /// DynamoDB behind a proxy, which is what stops.
    Proxied(Environment, TcpProxy),
}

/// Time limit for one store call: longer than any call takes. Hundreds of clients whose calls run out of time on a slow
/// machine would ask again, and make it slower. (The calls of one consumer of `storm` all run out of time.)
const STORE_TIMEOUT: (&str, &str) = ("STORE_TIMEOUT_MS", "60000");

const ENDPOINT: &str = "AWS_ENDPOINT_URL_DYNAMODB";

impl RestartingStore {
    pub async fn memory() -> RestartingStore {
        let servers = Servers::Memory(Arc::new(OutageStore::new(Arc::new(Memory::new()))));
        RestartingStore { name: "memory", servers }
    }

    pub async fn redis() -> RestartingStore {
        RestartingStore::durable("redis", Environment::on_redis(Redis::start_durable().await))
    }

    pub async fn upstash() -> RestartingStore {
        RestartingStore::durable("upstash", Environment::on_upstash(Redis::start_durable().await).await)
    }

    fn durable(name: &'static str, environment: Environment) -> RestartingStore {
        RestartingStore { name, servers: Servers::Redis(environment.with(STORE_TIMEOUT.0, STORE_TIMEOUT.1)) }
    }

    pub async fn dynamodb() -> RestartingStore {
        RestartingStore::proxied("dynamodb", Backend::DynamoDb).await
    }

    pub async fn dynamodb_local() -> RestartingStore {
        RestartingStore::proxied("dynamodb-local", Backend::DynamoDbLocal).await
    }

    async fn proxied(name: &'static str, backend: Backend) -> RestartingStore {
        let environment = Environment::start(backend).await;
        let endpoint = environment.lookup(ENDPOINT).unwrap();
        let proxy = TcpProxy::start(endpoint.trim_start_matches("http://")).await;
        let environment = environment
            .with(ENDPOINT, proxy.url().replace("redis:", "http:"))
            .with("SSE_POLL_MS", POLL_MS)
            .with(STORE_TIMEOUT.0, STORE_TIMEOUT.1);
        RestartingStore { name, servers: Servers::Proxied(environment, proxy) }
    }

    /// The variables with which another process opens the store; none in memory.
    pub fn variables(&self) -> Option<&[Variable]> {
        match &self.servers {
            Servers::Memory(_) => None,
            Servers::Redis(environment) | Servers::Proxied(environment, _) => Some(environment.variables()),
        }
    }

    /// A client of the store, as each instance of a function has one.
    pub fn open(&self) -> Arc<dyn Store> {
        match &self.servers {
            Servers::Memory(store) => store.clone(),
            Servers::Redis(environment) | Servers::Proxied(environment, _) => environment.store(),
        }
    }

    pub async fn stop(&mut self) {
        match &mut self.servers {
            Servers::Memory(store) => store.set_down(true),
            Servers::Redis(environment) => environment.redis().unwrap().stop().await,
            Servers::Proxied(_, proxy) => {
                proxy.refuse(true);
                proxy.cut();
            }
        }
    }

    pub async fn start(&mut self) {
        match &mut self.servers {
            Servers::Memory(store) => store.set_down(false),
            Servers::Redis(environment) => environment.redis().unwrap().restart().await,
            Servers::Proxied(_, proxy) => proxy.refuse(false),
        }
    }
}
