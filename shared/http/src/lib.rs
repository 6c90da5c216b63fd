#![doc = include_str!("../README.md")]

mod error;
mod idle;
pub mod tls;

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::time::Duration;

pub use bytes::Bytes;
pub use error::{Error, Source};
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, Uri, header};
pub use http_body_util::BodyExt;
use http_body_util::{Full, LengthLimitError, Limited};
pub use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use idle::{Connection, Idle, Origin};
use rustls::pki_types::TrustAnchor;
use tokio::time::{Instant, timeout, timeout_at};
use tower_service::Service;

/// The source of an error that no other error has caused.
const NO_SERVER: &str = "the address names no server";
const LATE: &str = "the time was up";

/// After a longer idle time the peer may have closed the connection, and tokio may not have read that event yet.
const MAX_IDLE_WITHOUT_CHECK: Duration = Duration::from_millis(10);
/// How long a request waits for a connection that is being opened ahead. Then it opens its own: the other may hang.
pub const MAX_WAIT_FOR_OPENING: Duration = Duration::from_millis(300);

/// A pool of connections; a clone shares it.
///
/// The pool is our own, with connecting and sending as two steps, because a caller must know which of the two timed
/// out: only then is it known whether the request was sent. hyper-util's pooled client does not report it.
#[derive(Clone)]
pub struct Client {
    connector: HttpsConnector<HttpConnector>,
    idle: Idle,
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
    /// An empty pool. Does not connect yet.
    pub fn new() -> Client {
        Client::with_roots(tls::bundled_roots())
    }

    /// The same, trusting `roots` instead of the bundled ones.
    pub fn with_roots(roots: Vec<TrustAnchor<'static>>) -> Client {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let tls = tls::client_config(roots);
        let https =
            hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
        Client { connector: https.wrap_connector(tcp), idle: Idle::default() }
    }

    /// Opens a connection to the server of `uri` (name look-up, TCP, TLS) and keeps it for the next request, unless one is
    /// idle already. Nothing is sent.
    pub async fn connect(&self, uri: &Uri, deadline: Instant) -> Result<(), Error> {
        let origin = Origin::of(uri).ok_or_else(|| Error::not_connected(NO_SERVER))?;
        let open = async {
            let _opening = self.idle.opening(&origin).lock_owned().await;
            if !self.idle.has(&origin) {
                let connection = self.new_connection(uri).await?;
                // After a freeze in the middle of a handshake, the server may have given up by now.
                if Instant::now() >= deadline {
                    return Err(Error::not_connected(LATE));
                }
                self.idle.keep(origin, connection);
            }
            Ok(())
        };
        timeout_at(deadline, open).await.unwrap_or_else(|_| Err(Error::not_connected(LATE)))
    }

    /// Sends a request and reads the response, with a body of up to `max_body` bytes. Fails if that is not complete at
    /// `deadline`.
    pub async fn send(
        &self,
        request: Request<Bytes>,
        deadline: Instant,
        max_body: usize,
    ) -> Result<Response<Bytes>, Error> {
        let Exchange { response, connection, origin } = self.exchange(request, deadline).await?;
        let (parts, body) = response.into_parts();
        match timeout_at(deadline, Limited::new(body, max_body).collect()).await {
            Ok(Ok(body)) => {
                self.idle.keep(origin, connection);
                Ok(Response::from_parts(parts, body.to_bytes()))
            }
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Error::TooLarge),
            Ok(Err(error)) => Err(Error::interrupted(error)),
            Err(_) => Err(Error::TimedOut),
        }
    }

    /// Sends a request and returns the response when its headers have arrived. `deadline` does not limit the body,
    /// which may be an endless stream.
    pub async fn open(
        &self,
        request: Request<Bytes>,
        deadline: Instant,
    ) -> Result<Response<Incoming>, Error> {
        let Exchange { response, connection, origin } = self.exchange(request, deadline).await?;
        // No other request gets the connection before this body was read: `keep` waits until it is ready again.
        self.idle.keep(origin, connection);
        Ok(response)
    }

    async fn exchange(&self, request: Request<Bytes>, deadline: Instant) -> Result<Exchange, Error> {
        let uri = request.uri().clone();
        let origin = Origin::of(&uri).ok_or_else(|| Error::not_connected(NO_SERVER))?;
        let mut request = to_origin_form(request.map(Full::new));
        loop {
            // A failure before `try_send_request` means that nothing was sent.
            let ready = timeout_at(deadline, self.connection(&origin, &uri)).await;
            let Ready { mut connection, was_idle } =
                ready.unwrap_or_else(|_| Err(Error::not_connected(LATE)))?;
            let sent = timeout_at(deadline, connection.try_send_request(request)).await;
            match sent.map_err(|_| Error::TimedOut)? {
                Ok(response) => return Ok(Exchange { response, connection, origin }),
                // hyper hands the request back if it has written nothing of it, because the connection was closed.
                Err(mut error) => match error.take_message() {
                    Some(unsent) if was_idle => request = unsent,
                    Some(_) => return Err(Error::not_connected(error.into_error())),
                    None => return Err(Error::interrupted(error.into_error())),
                },
            }
        }
    }

    /// An idle connection, or a new one. If another becomes idle while the new one is being established, that is taken.
    /// While [`Client::connect`] opens a connection, no other is begun.
    async fn connection(&self, origin: &Origin, uri: &Uri) -> Result<Ready, Error> {
        let mut new = pin!(async {
            drop(timeout(MAX_WAIT_FOR_OPENING, self.idle.opening(origin).lock_owned()).await);
            self.new_connection(uri).await
        });
        loop {
            let idle_notification = match self.idle.take(origin) {
                Ok((connection, since)) => {
                    if since.elapsed() > MAX_IDLE_WITHOUT_CHECK {
                        // After a Lambda was frozen or a thread was blocked, tokio must poll its sockets first.
                        tokio::task::yield_now().await;
                        if connection.is_closed() {
                            continue;
                        }
                    }
                    return Ok(Ready { connection, was_idle: true });
                }
                Err(notification) => notification,
            };
            tokio::select! {
                // The notification first: when a connection was opened, both are ready.
                biased;
                () = idle_notification => {}
                connection = &mut new => return Ok(Ready { connection: connection?, was_idle: false }),
            }
        }
    }

    /// A connection of its own. Boxed, because two callers would otherwise have a copy of the whole handshake each.
    fn new_connection(&self, uri: &Uri) -> Pin<Box<dyn Future<Output = Result<Connection, Error>> + Send>> {
        let (mut connector, uri) = (self.connector.clone(), uri.clone());
        Box::pin(async move {
            poll_fn(|cx| connector.poll_ready(cx)).await.map_err(Error::not_connected)?;
            let stream = connector.call(uri).await.map_err(Error::not_connected)?;
            let (mut connection, io) = http1::handshake(stream).await.map_err(Error::not_connected)?;
            // The task ends with its connection; a pending request then returns the connection's error.
            tokio::spawn(io);
            connection.ready().await.map_err(Error::not_connected)?;
            Ok(connection)
        })
    }
}

/// A connection that a request can be sent on.
struct Ready {
    connection: Connection,
    was_idle: bool,
}

/// A response whose body may not have arrived yet.
struct Exchange {
    response: Response<Incoming>,
    connection: Connection,
    origin: Origin,
}

/// Changes the URI to the origin form of HTTP/1.1 (path and query only), and sets the header `Host`.
fn to_origin_form<B>(mut request: Request<B>) -> Request<B> {
    let uri = std::mem::take(request.uri_mut());
    let default_port = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    let host = match uri.authority() {
        // Host and port, without a user name and password.
        Some(authority) if uri.port_u16().is_some_and(|port| port != default_port) => {
            authority.as_str().rsplit('@').next()
        }
        _ => uri.host(),
    };
    if let Ok(host) = HeaderValue::from_str(host.unwrap_or_default()) {
        request.headers_mut().entry(header::HOST).or_insert(host);
    }
    let path = uri.into_parts().path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    request
}
