//! The servers of a run, and how each client finds its way to them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub use onetap_servers::Backend;
use onetap_servers::{Environment, Redis};
use onetap_store::Store;
use tokio::time::sleep;

use super::check::{Expiry, Rules};
use super::link::{Link, Mode};

/// What the histories of a backend are judged by.
pub(super) fn rules(backend: Backend) -> Rules {
    let millis = 1000;
    match backend {
        Backend::Memory => Rules { expiry: Expiry::Store, resends: false, slack: millis },
        Backend::Redis | Backend::Upstash => {
            Rules { expiry: Expiry::Store, resends: true, slack: 10 * millis }
        }
        Backend::DynamoDb | Backend::DynamoDbLocal => {
            Rules { expiry: Expiry::Callers, resends: true, slack: 10 * millis }
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
        let environment = match backend {
            Backend::Redis => Environment::on_redis(Redis::start_durable().await),
            Backend::Upstash => Environment::on_upstash(Redis::start_durable().await).await,
            _ => Environment::start(backend).await,
        };
        let scheme = if backend == Backend::Redis { "redis://" } else { "http://" };
        let place = (backend.address_variable(), scheme);
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
