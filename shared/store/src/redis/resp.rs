//! The Redis protocol: a small pool of connections, each used by one caller at a time. Connections are opened on
//! demand, and there is no background task: the `redis` crate's own connection runs in a task, and on Lambda the switch
//! between tasks costs too much of a round trip's time.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::select_ok;
use futures_util::{FutureExt, StreamExt};
use onetap_http::{MAX_WAIT_FOR_OPENING, tls};
use redis::{Client, ConnectionAddr};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::encode::{Command, Reply};
use super::replies::too_long_reason;
use super::wire::Wire;
use super::{Failure, Scripted, Transport, subscription};
use crate::{BoxStream, Error, Source, Store, forward};
use onetap_config::{MAX_DURATION, Secret};

/// Maximum number of concurrent requests, each on its own connection. A Lambda function needs one or a few. Further
/// callers wait, within their time limit.
const MAX_CONNECTIONS: usize = 32;

/// A connection that was idle for longer is closed. NAT gateways and load balancers of AWS drop an idle connection
/// after 350 s, without notice to either side.
const MAX_IDLE: Duration = Duration::from_secs(300);

/// Redis 7 or newer (or Valkey) over the Redis protocol.
///
/// ```
/// # fn main() -> Result<(), onetap_store::Error> {
/// let store = onetap_store::Redis::new("rediss://user:password@redis.example.com:6379/0")?;
/// # let _ = store; Ok(()) }
/// ```
#[derive(Debug)]
pub struct Redis(Scripted<Resp>);

/// A Redis server.
pub(super) struct Resp {
    client: Client,
    /// Built for the first TLS connection, so that it does not delay the start of a function.
    tls: OnceLock<TlsConnector>,
    slots: Semaphore,
    /// A stack: the connection that was used last is used next.
    idle: Mutex<Vec<Wire>>,
    /// Held while a connection is being opened ahead of the requests, which wait for it.
    opening: tokio::sync::Mutex<()>,
}

impl fmt::Debug for Resp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resp")
    }
}

impl Redis {
    /// A store on the server at `url` (`redis://` or `rediss://`). Does not connect yet.
    pub fn new(url: impl Into<Secret>) -> Result<Redis, Error> {
        Ok(Redis(Scripted::over(Resp::new(&url.into())?)))
    }

    /// Sets the time limit of each call, connecting included ([`DEFAULT_TIMEOUT`](crate::DEFAULT_TIMEOUT)).
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Redis {
        self.0.timeout = timeout.min(MAX_DURATION);
        self
    }
}

impl Store for Redis {
    forward!(0: get_all, commit, commit_each, read, watch, connect, max_value);
}

impl Resp {
    fn new(url: &Secret) -> Result<Resp, Error> {
        let client =
            Client::open(url.reveal()).map_err(|_| Error::rejected("not a redis:// or rediss:// URL"))?;
        if matches!(client.get_connection_info().addr(), ConnectionAddr::TcpTls { insecure: true, .. }) {
            return Err(Error::rejected("a rediss:// URL with #insecure, which would trust anybody"));
        }
        let (slots, idle, opening) = (Semaphore::new(MAX_CONNECTIONS), Mutex::default(), Default::default());
        Ok(Resp { client, tls: OnceLock::new(), slots, idle, opening })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Wire>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An idle connection that is still open, if there is one.
    async fn take_idle(&self) -> Option<Wire> {
        loop {
            let last = self.idle().pop();
            let mut wire = last?;
            let idle_for = wire.idle_for();
            if idle_for < MAX_IDLE && wire.is_open(idle_for).await {
                return Some(wire);
            }
        }
    }

    /// Returns to the pool what [`Wire::request`] has returned: the connection, or `None` after `READONLY`.
    fn put_back(&self, wire: Option<Wire>) {
        let mut idle = self.idle();
        match wire {
            Some(wire) => {
                // Close connections that were opened for a burst of callers.
                idle.retain(|other| other.idle_for() < MAX_IDLE);
                idle.push(wire);
            }
            // The server is a replica now, and the other connections lead to the same server.
            None => idle.clear(),
        }
    }

    /// One round trip over an idle connection or a new one. `sent` becomes true when the first write succeeds.
    async fn exchange(&self, commands: &[Command<'_>], sent: &mut bool) -> Result<Vec<Reply>, Failure> {
        let no_connection =
            |error: Source| Failure::Final(Error::not_sent("no connection").with_source(error));
        let _slot = self.slots.acquire().await.map_err(|error| no_connection(error.into()))?;
        loop {
            let idle = match self.take_idle().await {
                None if self.opening.try_lock().is_err() => {
                    // One is being opened ahead. Then it is idle, or has failed; or it hangs.
                    drop(timeout(MAX_WAIT_FOR_OPENING, self.opening.lock()).await);
                    self.take_idle().await
                }
                idle => idle,
            };
            let (wire, is_new) = match idle {
                Some(wire) => (wire, false),
                None => (self.new_connection().await.map_err(Failure::Final)?, true),
            };
            match wire.request(commands, sent).await {
                Ok((replies, wire)) => {
                    self.put_back(wire);
                    return Ok(replies);
                }
                Err(error) if *sent => return Err(interrupted(error)),
                Err(error) if is_new => return Err(no_connection(error.into())),
                // Nothing was sent, so any request may be sent again, over the next connection.
                Err(_) => {}
            }
        }
    }

    async fn new_connection(&self) -> Result<Wire, Error> {
        let server = self.client.get_connection_info();
        let (host, port, tls) = match server.addr() {
            ConnectionAddr::Tcp(host, port) => (host, *port, false),
            ConnectionAddr::TcpTls { host, port, .. } => (host, *port, true),
            _ => return Err(Error::rejected("not a redis:// or rediss:// URL")),
        };
        let no_connection = |error: std::io::Error| Error::not_sent("no connection").with_source(error);
        let stream = connected(host, port).await.map_err(no_connection)?;
        // Without it, Nagle's algorithm would delay small commands until the reply to the one before.
        stream.set_nodelay(true).map_err(no_connection)?;
        let wire = if tls {
            let name =
                ServerName::try_from(host.clone()).map_err(|_| Error::rejected("not a server's name"))?;
            let secure = self.tls().connect(name, stream).await;
            Wire::new(Box::new(
                secure.map_err(|error| Error::not_sent("no TLS connection").with_source(error))?,
            ))
        } else {
            Wire::new(Box::new(stream))
        };

        let (settings, db) = (server.redis_settings(), server.redis_settings().db().to_string());
        let login = match (settings.username(), settings.password()) {
            (Some(user), Some(password)) => Some(Command::of(["AUTH", user, password])),
            (None, Some(password)) => Some(Command::of(["AUTH", password])),
            (_, None) => None,
        };
        let select = (db != "0").then(|| Command::of(["SELECT", &db]));
        let (commands, refusals): (Vec<_>, Vec<_>) = [
            (login, "the server refuses the user or password of the URL"),
            (select, "the server refuses the database of the URL"),
        ]
        .into_iter()
        .filter_map(|(command, refusal)| Some((command?, refusal)))
        .unzip();
        let (replies, wire) = wire.request(&commands, &mut false).await.map_err(no_connection)?;
        for (reply, refusal) in replies.into_iter().zip(refusals) {
            if let Reply::Error(error) = reply {
                // A server that is loading or full refuses the login too, but only for now.
                let error = Error::from(error);
                return Err(if error.is_retryable() { error } else { Error::rejected(refusal) });
            }
        }
        wire.ok_or_else(|| Error::not_sent("no connection"))
    }

    fn tls(&self) -> &TlsConnector {
        self.tls.get_or_init(|| Arc::new(tls::client_config(tls::bundled_roots())).into())
    }
}

/// The failure of a request that may have arrived.
fn interrupted(error: std::io::Error) -> Failure {
    match too_long_reason(&error) {
        Some(reason) => Failure::Final(Error::unknown(reason).with_source(error)),
        None => Failure::Interrupted(error.into()),
    }
}

/// Connects to all addresses of the host at once, and returns the first connection: an address that is down must not
/// use up the time limit.
async fn connected(host: &str, port: u16) -> std::io::Result<TcpStream> {
    let tries: Vec<_> = lookup_host((host, port)).await?.map(|at| TcpStream::connect(at).boxed()).collect();
    match tries.is_empty() {
        true => Err(std::io::ErrorKind::NotFound.into()),
        false => select_ok(tries).await.map(|(stream, _)| stream),
    }
}

#[async_trait]
impl Transport for Resp {
    const READS_ARE_FRESH: bool = true;
    const READ: (&'static str, usize) = ("GET", usize::MAX);
    const SET_NX_RETURNS_VALUE: bool = true;
    const BATCHES_PER_CALL: usize = 1;
    const SCRIPT_HEAD: &'static str = "";

    async fn send(&self, commands: &[Command<'_>], deadline: Instant) -> Result<Vec<Reply>, Failure> {
        let mut sent = false;
        match timeout_at(deadline, self.exchange(commands, &mut sent)).await {
            Ok(answer) => answer,
            Err(_) if sent => Err(Failure::Final(Error::unknown("no answer in time"))),
            Err(_) => Err(Failure::Final(Error::not_sent("no connection in time"))),
        }
    }

    async fn connect(&self, deadline: Instant) -> Result<(), Error> {
        let open = async {
            let _opening = self.opening.lock().await;
            let wire = match self.take_idle().await {
                Some(wire) => wire,
                None => self.new_connection().await?,
            };
            self.put_back(Some(wire));
            Ok(())
        };
        timeout_at(deadline, open).await.unwrap_or_else(|_| Err(Error::not_sent("no connection in time")))
    }

    async fn subscribe(
        &self,
        channel: &str,
        deadline: Instant,
    ) -> Result<BoxStream<'static, Result<(), Error>>, Error> {
        let subscribed = async {
            let wire = self.new_connection().await?;
            let messages = subscription::subscribe(wire, channel).await;
            let messages =
                messages.map_err(|error| Error::not_sent("no connection").with_source(error))??;
            Ok(messages.boxed())
        };
        timeout_at(deadline, subscribed)
            .await
            .unwrap_or_else(|_| Err(Error::not_sent("no connection in time")))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests {
    use super::*;
    use crate::{Batch, Channel, Commit, Expect, Key};
    use tokio::io::copy_bidirectional;
    use tokio::net::TcpListener;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
    use tokio_rustls::{TlsAcceptor, rustls};

    /// A TLS proxy in front of a Redis: its URL and its certificate.
    async fn secured(redis: &onetap_servers::Redis) -> (String, CertificateDer<'static>) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let certificate = made.cert.der().clone();
        let key = PrivatePkcs8KeyDer::from(made.key_pair.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key.into())
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("rediss://localhost:{}", listener.local_addr().unwrap().port());
        let (acceptor, behind) = (TlsAcceptor::from(Arc::new(config)), redis.addr());
        tokio::spawn(async move {
            while let Ok((plain, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(mut secure) = acceptor.accept(plain).await else { return };
                    let mut server = TcpStream::connect(behind).await.unwrap();
                    let _ = copy_bidirectional(&mut secure, &mut server).await;
                });
            }
        });
        (url, certificate)
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_were_idle_for_long_are_dropped() {
        let redis = Resp::new(&Secret::new("redis://host")).unwrap();
        let ends: Vec<_> = (0..3)
            .map(|_| {
                let (ours, theirs) = tokio::io::duplex(64);
                redis.put_back(Some(Wire::new(Box::new(ours))));
                theirs
            })
            .collect();
        tokio::time::advance(MAX_IDLE / 2).await;
        // The connection that is in use stays; the idle ones are closed.
        assert!(redis.take_idle().await.is_some());
        tokio::time::advance(MAX_IDLE / 2).await;
        let (ours, _theirs) = tokio::io::duplex(64);
        redis.put_back(Some(Wire::new(Box::new(ours))));
        assert_eq!(redis.idle().len(), 1);
        tokio::time::advance(MAX_IDLE).await;
        assert!(redis.take_idle().await.is_none());
        drop(ends);
    }

    #[tokio::test]
    #[ignore = "needs redis-server"]
    async fn commands_go_through_tls_to_a_server_that_is_trusted_and_to_no_other() {
        let redis = onetap_servers::Redis::start().await;
        let (url, certificate) = secured(&redis).await;
        let (url, patient) = (Secret::new(url), Duration::from_secs(5));
        let put = Batch::new().put(&Key::new("k").unwrap(), Expect::Absent, "v", Duration::from_secs(60));

        let stranger = Redis::new(&url).unwrap().timeout(patient);
        let refused = stranger.commit(&put).await.unwrap_err();
        assert!(!refused.maybe_applied() && refused.to_string().contains("TLS"), "{refused}");

        let friend = Resp::new(&url).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate).unwrap();
        assert!(friend.tls.set(Arc::new(tls::client_config(roots.roots)).into()).is_ok());
        let friend = Redis(Scripted::over(friend)).timeout(patient);
        assert!(matches!(friend.commit(&put).await.unwrap(), Commit::Applied(_)));
        let mut rings = friend.watch(&Channel::new("c").unwrap()).await.unwrap();
        let ring = Batch::new().publish(&Channel::new("c").unwrap(), "text");
        assert!(matches!(friend.commit(&ring).await.unwrap(), Commit::Applied(_)));
        assert_eq!(rings.next().await, Some(Ok(())));
        // A value that is larger than a TLS record, in both directions.
        let (key, long) = (Key::new("long").unwrap(), "x".repeat(300_000));
        let put = Batch::new().put(&key, Expect::Absent, long.as_str(), Duration::from_secs(60));
        assert!(matches!(friend.commit(&put).await.unwrap(), Commit::Applied(_)));
        assert_eq!(friend.get(&key).await.unwrap(), Some(long));
    }

    #[test]
    fn a_url_that_would_trust_anybody_is_refused() {
        let refused = Resp::new(&Secret::new("rediss://host:6379/#insecure")).unwrap_err();
        assert!(refused.to_string().contains("insecure"), "{refused}");
    }
}
