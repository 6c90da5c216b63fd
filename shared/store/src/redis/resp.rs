//! The Redis protocol over a [pool] of shared connections.
//!
//! The `redis` crate's multiplexed connection is not used: it does not say whether a request was written before it broke,
//! does not look for the end of an idle connection before it writes, keeps one that answers `READONLY`, and accepts
//! a reply of any length.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::select_ok;
use futures_util::{FutureExt, StreamExt};
use onetap_http::tls;
use redis::{Client, ConnectionAddr};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::connection::Unanswered;
use super::encode::{Command, Reply};
use super::pool::Pool;
use super::wire::{Wire, packed};
use super::{Scripted, Transport, subscription};
use crate::{BoxStream, Error, Store, forward};
use onetap_config::{MAX_DURATION, Secret};

/// Redis 7 or newer (or Valkey) over the Redis protocol.
///
/// ```
/// # fn main() -> Result<(), onetap_store::Error> {
/// let store = onetap_store::Redis::new("rediss://user:password@redis.example.com:6379/0")?;
/// # let _ = store; Ok(()) }
/// ```
#[derive(Debug)]
pub struct Redis(Scripted<Resp>);

/// A Redis server, and the connections to it.
pub(super) struct Resp {
    server: Arc<Server>,
    pool: Pool,
}

/// Where the server is, and how to log in.
struct Server {
    client: Client,
    /// Built for the first TLS connection, so that it does not delay the start of a function.
    tls: OnceLock<TlsConnector>,
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
    forward!(0: get_all, commit, commit_each, read, watch, connect, capabilities, max_value);
}

impl Resp {
    fn new(url: &Secret) -> Result<Resp, Error> {
        let client =
            Client::open(url.reveal()).map_err(|_| Error::rejected("not a redis:// or rediss:// URL"))?;
        if matches!(client.get_connection_info().addr(), ConnectionAddr::TcpTls { insecure: true, .. }) {
            return Err(Error::rejected("a rediss:// URL with #insecure, which would trust anybody"));
        }
        Ok(Resp { server: Arc::new(Server { client, tls: OnceLock::new() }), pool: Pool::default() })
    }

    /// Opens a connection to the server.
    fn open(&self) -> impl Future<Output = Result<Wire, Error>> + use<> {
        let server = Arc::clone(&self.server);
        async move { server.connect().await }
    }
}

impl Server {
    async fn connect(&self) -> Result<Wire, Error> {
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
        let mut wire = if tls {
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
        let replies = wire.request(&commands).await.map_err(no_connection)?;
        for (reply, refusal) in replies.into_iter().zip(refusals) {
            if let Reply::Error(error) = reply {
                // A server that is loading or full refuses the login too, but only for now.
                let error = Error::from(error);
                return Err(if error.is_retryable() { error } else { Error::rejected(refusal) });
            }
        }
        Ok(wire)
    }

    fn tls(&self) -> &TlsConnector {
        self.tls.get_or_init(|| Arc::new(tls::client_config(tls::bundled_roots())).into())
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

    async fn send(&self, commands: &[Command<'_>], deadline: Instant) -> Result<Vec<Reply>, Error> {
        loop {
            let request = packed(commands);
            let chosen = self.pool.choose(request.len(), || self.open(), deadline).await;
            let chosen = chosen?;
            let answer = chosen.connection.request(request, commands.len(), deadline).await;
            return Err(match answer {
                Ok(replies) => return Ok(replies),
                Err(Unanswered::NotSent(source)) if chosen.is_new => {
                    Error::not_sent("no connection").with_source(source)
                }
                // Any request may be sent again, over the next connection.
                Err(Unanswered::NotSent(_)) => continue,
                Err(Unanswered::Broke(source)) => Error::interrupted(source),
                Err(Unanswered::TooLong(reason)) => Error::unknown(reason),
                Err(Unanswered::OutOfTime { sent: true }) => Error::unknown("no answer in time"),
                Err(Unanswered::OutOfTime { sent: false }) => Error::not_sent("no connection in time"),
            });
        }
    }

    async fn connect(&self, deadline: Instant) -> Result<(), Error> {
        self.pool.connect(|| self.open(), deadline).await
    }

    async fn subscribe(
        &self,
        channel: &str,
        deadline: Instant,
    ) -> Result<BoxStream<'static, Result<(), Error>>, Error> {
        let subscribed = async {
            let wire = self.server.connect().await?;
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
        assert!(friend.server.tls.set(Arc::new(tls::client_config(roots.roots)).into()).is_ok());
        let friend = Redis(Scripted::over(friend)).timeout(patient);
        assert!(matches!(friend.commit(&put).await.unwrap(), Commit::Applied(_)));
        let mut rings = friend.watch(&Channel::new("c").unwrap()).await.unwrap();
        let ring = Batch::new().publish(&Channel::new("c").unwrap(), "text");
        assert!(matches!(friend.commit(&ring).await.unwrap(), Commit::Applied(_)));
        assert!(matches!(rings.next().await, Some(Ok(()))));
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
