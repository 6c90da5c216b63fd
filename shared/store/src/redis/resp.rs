//! The Redis protocol: one connection, made when it is first needed and again when it broke. URLs and subscriptions, which
//! need a connection each, are the `redis` crate's; commands go over a [`Wire`], because the crate's own connection lives in
//! a task in the background, which costs a caller on Lambda more than the round trip leaves room for.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::select_ok;
use futures_util::{FutureExt, StreamExt, TryFutureExt};
use redis::{Client, ConnectionAddr, ErrorKind, RedisError};
use rustls::pki_types::{ServerName, TrustAnchor};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::encode::{Command, Reply};
use super::wire::{Broken, Wire};
use super::{Failure, Scripted, Transport};
use crate::config::Secret;
use crate::{BoxStream, Error};

/// A Redis server.
pub struct Resp {
    client: Client,
    /// Built for the first connection that needs it: a function that starts must not wait for it.
    tls: OnceLock<TlsConnector>,
    connection: Mutex<Option<Arc<Wire>>>,
}

impl fmt::Debug for Resp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resp")
    }
}

impl Scripted<Resp> {
    /// The server at `url`, each call within `limit`. Connects to nothing yet.
    pub fn new(url: &Secret, limit: Duration) -> Result<Scripted<Resp>, Error> {
        // The crate's TLS asks for the process's provider. Somebody else having set one is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Ok(Scripted::over(Resp::new(url)?, limit))
    }
}

impl Resp {
    fn new(url: &Secret) -> Result<Resp, Error> {
        let client =
            Client::open(url.reveal()).map_err(|_| Error::rejected("not a redis:// or rediss:// URL"))?;
        if matches!(client.get_connection_info().addr(), ConnectionAddr::TcpTls { insecure: true, .. }) {
            return Err(Error::rejected("a rediss:// URL with #insecure, which would trust anybody"));
        }
        Ok(Resp { client, tls: OnceLock::new(), connection: Mutex::default() })
    }

    /// The connection that is open, or a new one.
    async fn connection(&self) -> Result<Arc<Wire>, Error> {
        let mut slot = self.connection.lock().await;
        if let Some(wire) = slot.as_ref().filter(|wire| wire.is_open()) {
            return Ok(Arc::clone(wire));
        }
        let wire = Arc::new(self.connect().await?);
        *slot = Some(Arc::clone(&wire));
        Ok(wire)
    }

    async fn connect(&self) -> Result<Wire, Error> {
        let server = self.client.get_connection_info();
        let (host, port, tls) = match server.addr() {
            ConnectionAddr::Tcp(host, port) => (host, *port, false),
            ConnectionAddr::TcpTls { host, port, .. } => (host, *port, true),
            _ => return Err(Error::rejected("not a redis:// or rediss:// URL")),
        };
        let no_connection = |_| Error::not_sent("no connection");
        let stream = connected(host, port).await.map_err(no_connection)?;
        // Small commands one after the other: none is to wait for the reply to the one before.
        stream.set_nodelay(true).map_err(no_connection)?;
        let wire = if tls {
            let name =
                ServerName::try_from(host.clone()).map_err(|_| Error::rejected("not a server's name"))?;
            let secure = self.tls()?.connect(name, stream).await;
            Wire::new(Box::new(secure.map_err(|_| Error::not_sent("no TLS connection"))?))
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
        for (command, refusal) in [
            (login, "the server refuses the user or password of the URL"),
            (select, "the server refuses the database of the URL"),
        ] {
            let Some(command) = command else { continue };
            match wire.request(&[command]).await.map(|mut replies| replies.pop()) {
                Ok(Some(Reply::Error(error))) => {
                    // A server that is loading or full says so now, and takes the password later.
                    let error = Error::from(error);
                    return Err(if error.is_retryable() { error } else { Error::rejected(refusal) });
                }
                Ok(_) => {}
                Err(_) => return Err(Error::not_sent("no connection")),
            }
        }
        Ok(wire)
    }

    fn tls(&self) -> Result<&TlsConnector, Error> {
        match self.tls.get() {
            Some(tls) => Ok(tls),
            None => trusting(webpki_roots::TLS_SERVER_ROOTS.to_vec()).map(|tls| self.tls.get_or_init(|| tls)),
        }
    }

    /// Whoever holds the slot for longer is replacing the connection already, and may take more time than is left.
    async fn drop_connection(&self, wire: &Arc<Wire>) {
        if let Ok(mut slot) = timeout(Duration::from_millis(20), self.connection.lock()).await
            && slot.as_ref().is_some_and(|current| Arc::ptr_eq(current, wire))
        {
            *slot = None;
        }
    }
}

/// All addresses at once, and the first that answers: one that is down must not use up the time of the others.
async fn connected(host: &str, port: u16) -> std::io::Result<TcpStream> {
    let tries: Vec<_> = lookup_host((host, port)).await?.map(|at| TcpStream::connect(at).boxed()).collect();
    match tries.is_empty() {
        true => Err(std::io::ErrorKind::NotFound.into()),
        false => select_ok(tries).await.map(|(stream, _)| stream),
    }
}

/// TLS as the HTTP client has it: ring, and no roots but those compiled in.
fn trusting(roots: Vec<TrustAnchor<'static>>) -> Result<TlsConnector, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|_| Error::rejected("no version of TLS"))?;
    let roots = rustls::RootCertStore { roots };
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()).into())
}

#[async_trait]
impl Transport for Resp {
    const READS_ARE_FRESH: bool = true;
    const SCRIPT_HEAD: &'static str = "";

    async fn send(&self, commands: &[Command<'_>], deadline: Instant) -> Result<Vec<Reply>, Failure> {
        let mut used = None;
        let exchange = async {
            let wire = used.insert(self.connection().await.map_err(Failure::Final)?);
            let sent = match wire.request(commands).await {
                // Nothing of it left, so that anything may be sent once more, over the next connection.
                Err(Broken::Unsent) => {
                    let wire = used.insert(self.connection().await.map_err(Failure::Final)?);
                    wire.request(commands).await
                }
                sent => sent,
            };
            sent.map_err(|broken| match broken {
                Broken::Unsent => Failure::Final(Error::not_sent("no connection")),
                Broken::Sent => Failure::Interrupted,
            })
        };
        match (timeout_at(deadline, exchange).await, used) {
            (Ok(sent), _) => sent,
            (Err(_), None) => Err(Failure::Final(Error::not_sent("no connection in time"))),
            // A connection that is late may be one that will never answer again: the next call makes a new one.
            (Err(_), Some(wire)) => {
                self.drop_connection(&wire).await;
                Err(Failure::Final(Error::unknown("no answer in time")))
            }
        }
    }

    async fn subscribe(
        &self,
        channel: &str,
        deadline: Instant,
    ) -> Result<BoxStream<'static, Result<(), Error>>, Error> {
        let subscribed = async {
            let mut connection = self.client.get_async_pubsub().map_err(not_connected).await?;
            connection.subscribe(channel).map_err(not_connected).await?;
            Ok(connection.into_on_message().map(|_| Ok(())).boxed())
        };
        timeout_at(deadline, subscribed)
            .await
            .unwrap_or_else(|_| Err(Error::not_sent("no connection in time")))
    }
}

fn not_connected(error: RedisError) -> Error {
    match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) | (_, Some("WRONGPASS" | "NOAUTH" | "NOPERM")) => {
            Error::rejected("the server refuses the user or password of the URL")
        }
        _ => Error::not_sent("no connection"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests {
    use super::*;
    use crate::{Batch, Commit, Expect, Key, Store};
    use onetap_servers::Redis;
    use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
    use tokio::io::copy_bidirectional;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    /// TLS in front of a Redis: where it listens, and what to trust.
    async fn secured(redis: &Redis) -> (String, CertificateDer<'static>) {
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
    async fn commands_go_through_tls_to_a_server_that_is_trusted_and_to_no_other() {
        let redis = Redis::start().await;
        let (url, certificate) = secured(&redis).await;
        let (url, limit) = (Secret::new(url), Duration::from_secs(5));
        let put = Batch::new().put(&Key::new("k").unwrap(), Expect::Absent, "v", Duration::from_secs(60));

        let stranger = Scripted::over(Resp::new(&url).unwrap(), limit);
        let refused = stranger.commit(&put).await.unwrap_err();
        assert!(!refused.maybe_applied() && refused.to_string().contains("TLS"), "{refused}");

        let friend = Resp::new(&url).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate).unwrap();
        assert!(friend.tls.set(trusting(roots.roots).unwrap()).is_ok());
        let friend = Scripted::over(friend, limit);
        assert!(matches!(friend.commit(&put).await.unwrap(), Commit::Applied(_)));
        // More than a record of TLS holds, there and back.
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
