//! Idle connections, kept for the next request to their server.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http::uri::{Authority, Scheme};
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::time::Instant;

/// Shorter than servers keep idle connections open: a thawed Lambda must not send into a closed one.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// A connection that requests are sent on, one at a time.
pub(crate) type Connection = SendRequest<Full<Bytes>>;

/// The server that a connection leads to.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    scheme: Scheme,
    authority: Authority,
}

impl Origin {
    /// `None` if `uri` names no server.
    pub(crate) fn of(uri: &Uri) -> Option<Origin> {
        Some(Origin { scheme: uri.scheme()?.clone(), authority: uri.authority()?.clone() })
    }
}

/// The idle connections; a clone shares them.
#[derive(Clone, Default)]
pub(crate) struct Idle(Arc<Mutex<Servers>>);

/// A list, because a process asks few servers.
#[derive(Default)]
struct Servers(Vec<Server>);

struct Server {
    origin: Origin,
    /// Each connection with the time since when it is idle, the oldest first.
    connections: Vec<(Connection, Instant)>,
    /// Wakes one of the requests that wait for a connection.
    added: Arc<Notify>,
    /// Held while a connection is being opened ahead of the requests.
    opening: Arc<tokio::sync::Mutex<()>>,
}

impl Servers {
    /// The server of this origin, which may be new.
    fn of(&mut self, origin: &Origin) -> &mut Server {
        let known = self.0.iter().position(|server| server.origin == *origin);
        let at = known.unwrap_or(self.0.len());
        if known.is_none() {
            self.0.push(Server::new(origin.clone()));
        }
        &mut self.0[at]
    }
}

impl Server {
    fn new(origin: Origin) -> Server {
        Server { origin, connections: Vec::new(), added: Arc::default(), opening: Arc::default() }
    }

    /// Drops the connections that are closed or were idle for too long.
    fn prune(&mut self) {
        self.connections
            .retain(|(connection, since)| connection.is_ready() && since.elapsed() < IDLE_TIMEOUT);
    }
}

impl Idle {
    /// Takes the connection that was used last, which the server is least likely to have closed, and returns since when it is idle.
    /// If there is none: a future that ends when one has become idle; another request may take it first.
    pub(crate) fn take(&self, origin: &Origin) -> Result<(Connection, Instant), OwnedNotified> {
        let mut servers = self.servers();
        let server = servers.of(origin);
        server.prune();
        server.connections.pop().ok_or_else(|| Arc::clone(&server.added).notified_owned())
    }

    /// Whether there is a connection to take.
    pub(crate) fn has(&self, origin: &Origin) -> bool {
        let mut servers = self.servers();
        let server = servers.of(origin);
        server.prune();
        !server.connections.is_empty()
    }

    /// The lock to hold while a connection is being opened ahead of the requests.
    pub(crate) fn opening(&self, origin: &Origin) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.servers().of(origin).opening)
    }

    /// Keeps a connection for the next request, once it has finished its last one. A closed connection is dropped.
    pub(crate) fn keep(&self, origin: Origin, mut connection: Connection) {
        if connection.is_ready() {
            self.add(&origin, connection);
        } else {
            let idle = self.clone();
            tokio::spawn(async move {
                if connection.ready().await.is_ok() {
                    idle.add(&origin, connection);
                }
            });
        }
    }

    fn add(&self, origin: &Origin, connection: Connection) {
        let mut servers = self.servers();
        // All of them: a server that is never asked again would keep its connections open.
        servers.0.iter_mut().for_each(Server::prune);
        let server = servers.of(origin);
        server.connections.push((connection, Instant::now()));
        server.added.notify_one();
    }

    fn servers(&self) -> MutexGuard<'_, Servers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
