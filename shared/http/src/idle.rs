//! Connections that wait for their next request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http::uri::{Authority, Scheme};
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

/// Shorter than servers keep idle connections open: a thawed Lambda must not send into a closed one.
const IDLE_LIMIT: Duration = Duration::from_secs(20);

/// A connection that requests are sent on, one at a time.
pub(crate) type Connection = SendRequest<Full<Bytes>>;

/// The server that a connection leads to.
#[derive(Clone, PartialEq, Eq, Hash)]
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
pub(crate) struct Idle(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// The connections of each server, each with the time since when it is idle, the oldest first.
    connections: Mutex<HashMap<Origin, Vec<(Connection, Instant)>>>,
    added: Notify,
}

impl Idle {
    /// The connection that was used last: the server is the least likely to have closed it.
    pub(crate) fn take(&self, origin: &Origin) -> Option<Connection> {
        let mut all = self.connections();
        let connections = all.get_mut(origin)?;
        connections.retain(|(connection, since)| connection.is_ready() && since.elapsed() < IDLE_LIMIT);
        connections.pop().map(|(connection, _)| connection)
    }

    /// Keeps a connection for the next request, once it has finished its last one. A closed connection is dropped.
    pub(crate) fn keep(&self, origin: Origin, mut connection: Connection) {
        if connection.is_ready() {
            self.add(origin, connection);
        } else {
            let idle = self.clone();
            tokio::spawn(async move {
                if connection.ready().await.is_ok() {
                    idle.add(origin, connection);
                }
            });
        }
    }

    /// Ends when a connection becomes idle after this call.
    pub(crate) fn added(&self) -> Notified<'_> {
        self.0.added.notified()
    }

    fn add(&self, origin: Origin, connection: Connection) {
        self.connections().entry(origin).or_default().push((connection, Instant::now()));
        self.0.added.notify_waiters();
    }

    fn connections(&self) -> MutexGuard<'_, HashMap<Origin, Vec<(Connection, Instant)>>> {
        self.0.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
