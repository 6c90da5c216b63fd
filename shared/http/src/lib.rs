#![doc = include_str!("../README.md")]

use std::fmt;
use std::time::Duration;

pub use bytes::Bytes;
use http::{Request, Response};
pub use http_body_util::BodyExt;
use http_body_util::{Full, LengthLimitError, Limited};
pub use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::Instant;

/// An exchange that gave no whole answer. It names no address and no body: both can hold secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No connection was had, so nothing was sent.
    NotConnected,
    /// The connection broke before the answer was whole; the request may have been carried out.
    Interrupted,
    /// The time was up before the answer was whole; the request may have been carried out.
    TimedOut,
    /// The answer is larger than the caller takes.
    TooLarge,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::NotConnected => "no connection",
            Error::Interrupted => "the connection broke before the answer was whole",
            Error::TimedOut => "no answer in time",
            Error::TooLarge => "the answer is too large",
        })
    }
}

impl std::error::Error for Error {}

/// A pool of connections; a clone shares it.
#[derive(Clone)]
pub struct Client {
    pool: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

impl Default for Client {
    fn default() -> Client {
        Client::new()
    }
}

impl Client {
    /// Connects to nothing yet.
    pub fn new() -> Client {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let tls =
            rustls::ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
                .with_safe_default_protocol_versions()
                // Only a provider without the protocol versions of its own build fails here, and ring has both.
                .unwrap_or_else(|_| rustls::ClientConfig::builder())
                .with_root_certificates(roots())
                .with_no_client_auth();
        let https =
            hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
        let pool = legacy::Client::builder(TokioExecutor::new())
            // Below what servers keep idle connections for: a thawed Lambda must not send into a closed one.
            .pool_idle_timeout(Duration::from_secs(20))
            .pool_timer(TokioTimer::new())
            .build(https.wrap_connector(tcp));
        Client { pool }
    }

    /// Sends a request and reads the whole answer, both before `deadline`, taking at most `max_body` bytes.
    pub async fn send(
        &self,
        request: Request<Bytes>,
        deadline: Instant,
        max_body: usize,
    ) -> Result<Response<Bytes>, Error> {
        let exchange = async {
            let (parts, body) = self.exchange(request).await?.into_parts();
            match Limited::new(body, max_body).collect().await {
                Ok(body) => Ok(Response::from_parts(parts, body.to_bytes())),
                Err(error) if error.is::<LengthLimitError>() => Err(Error::TooLarge),
                Err(_) => Err(Error::Interrupted),
            }
        };
        tokio::time::timeout_at(deadline, exchange).await.unwrap_or(Err(Error::TimedOut))
    }

    /// Sends a request and returns once the answer's head is there, before `deadline`; its body may go on for ever.
    pub async fn open(
        &self,
        request: Request<Bytes>,
        deadline: Instant,
    ) -> Result<Response<Incoming>, Error> {
        tokio::time::timeout_at(deadline, self.exchange(request)).await.unwrap_or(Err(Error::TimedOut))
    }

    async fn exchange(&self, request: Request<Bytes>) -> Result<Response<Incoming>, Error> {
        self.pool
            .request(request.map(Full::new))
            .await
            .map_err(|error| if error.is_connect() { Error::NotConnected } else { Error::Interrupted })
    }
}

/// Mozilla's roots, compiled in: reading the system's costs several starts of a function.
fn roots() -> rustls::RootCertStore {
    rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }
}
