//! The servers of a run, and how each client finds its way to them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use onetap_servers::{Environment, Redis};
use onetap_store::Store;
use tokio::time::sleep;

use super::check::{Expiry, Rules};
use super::link::{Link, Mode};

/// What a run is run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Backend {
    /// Memory, on a paused clock.
    Memory,
    /// redis-server, over its own protocol.
    Redis,
    /// The Upstash gateway in front of redis-server.
    Upstash,
    /// dynoxide.
    DynamoDb,
    /// Amazon's DynamoDB Local.
    DynamoDbLocal,
}

impl Backend {
    /// All of them, in the order of the table.
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

    /// What its histories are judged by.
    pub fn rules(self) -> Rules {
        let millis = 1000;
        match self {
            Backend::Memory => Rules { expiry: Expiry::Store, resends: false, slack: millis },
            Backend::Redis | Backend::Upstash => {
                Rules { expiry: Expiry::Store, resends: true, slack: 10 * millis }
            }
            Backend::DynamoDb | Backend::DynamoDbLocal => {
                Rules { expiry: Expiry::Callers, resends: true, slack: 10 * millis }
            }
        }
    }
}

/// Running servers.
#[derive(Debug)]
pub struct Arena {
    environment: Environment,
    /// The variable that says where the server is, and how its value begins.
    place: (&'static str, &'static str),
    server: SocketAddr,
}

impl Arena {
    /// Starts what `backend` needs. Redis keeps what it has acknowledged through a restart: a server that forgets
    /// breaks every promise, and none is made for it.
    pub async fn start(backend: Backend) -> Arena {
        let (environment, place) = match backend {
            Backend::Memory => panic!("memory has no servers"),
            Backend::Redis => {
                (Environment::on_redis(Redis::start_durable().await), ("REDIS_URL", "redis://"))
            }
            Backend::Upstash => {
                let environment = Environment::on_upstash(Redis::start_durable().await).await;
                (environment, ("UPSTASH_REDIS_REST_URL", "http://"))
            }
            Backend::DynamoDb => (
                Environment::start(onetap_servers::Backend::DynamoDb).await,
                ("AWS_ENDPOINT_URL_DYNAMODB", "http://"),
            ),
            Backend::DynamoDbLocal => (
                Environment::start(onetap_servers::Backend::DynamoDbLocal).await,
                ("AWS_ENDPOINT_URL_DYNAMODB", "http://"),
            ),
        };
        let url = environment.lookup(place.0).expect("an environment says where its server is");
        let server = url.strip_prefix(place.1).map(|address| address.trim_end_matches('/'));
        let server =
            server.and_then(|address| address.parse().ok()).expect("a loopback address with its port");
        Arena { environment, place, server }
    }

    /// Where links lead to.
    pub fn server(&self) -> SocketAddr {
        self.server
    }

    /// What a process must find in its environment to reach the store over `link`, each call within `limit`.
    pub fn variables(&self, link: &Link, limit: Duration) -> Vec<(&'static str, String)> {
        let changed = |(name, value): &(&'static str, String)| match *name {
            "STORE_TIMEOUT_MS" => (*name, limit.as_millis().to_string()),
            name if name == self.place.0 => (name, format!("{}{}", self.place.1, link.address())),
            name => (name, value.clone()),
        };
        self.environment.variables().iter().map(changed).collect()
    }

    /// The store by the shortest way, for a last look.
    pub fn store(&self) -> Arc<dyn Store> {
        self.environment.store()
    }

    /// Kills the server and starts it again; where that would lose everything, nobody reaches it for `outage`.
    pub async fn restart(&mut self, links: &[Arc<Link>], outage: Duration) {
        if let Some(redis) = self.environment.redis() {
            return redis.restart().await;
        }
        for link in links {
            link.set(Mode::Closed);
            link.reset();
        }
        sleep(outage).await;
        for link in links {
            link.set(Mode::Open);
        }
    }
}
