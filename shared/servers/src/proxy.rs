//! An HTTP reverse proxy that counts requests and injects faults.

use std::fmt;
use std::sync::Mutex;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONNECTION, HeaderMap, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use serde_json::Value;

use crate::fault::{Body, Fault, response};
use crate::http::{Handler, HttpServer, client};

/// An HTTP/1.1 reverse proxy that counts requests and injects faults.
///
/// It opens a connection to its upstream for every request, so only its own connections can go stale.
#[derive(Debug)]
pub struct Proxy(HttpServer<Forward>);

#[derive(Debug)]
struct Forward {
    upstream: String,
    client: Client<HttpConnector, Full<Bytes>>,
    operations: Mutex<Vec<String>>,
    calls: Mutex<Vec<(String, Value)>>,
    intercept: Mutex<Option<Intercept>>,
}

/// Answers a request in the upstream's place, or not.
struct Intercept(Box<Answer>);

type Answer = dyn Fn(&Request<Bytes>) -> Option<Response<Bytes>> + Send + Sync;

impl fmt::Debug for Intercept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Intercept")
    }
}

fn operation(head: &HeaderMap) -> Option<&str> {
    let target = head.get("x-amz-target").and_then(|target| target.to_str().ok());
    Some(target?.split_once('.')?.1)
}

impl Handler for Forward {
    fn received(&self, head: &Parts) {
        if let Some(operation) = operation(&head.headers) {
            self.operations.lock().unwrap().push(operation.to_owned());
        }
    }

    async fn answer(&self, mut request: Request<Bytes>) -> Response<Body> {
        let intercepted = self.intercept.lock().unwrap().as_ref().and_then(|intercept| intercept.0(&request));
        if let Some(answer) = intercepted {
            return answer.map(|body| Full::new(body).map_err(|never| match never {}).boxed_unsync());
        }
        if let Some(operation) = operation(request.headers()) {
            let input = serde_json::from_slice(request.body()).unwrap_or_default();
            self.calls.lock().unwrap().push((operation.to_owned(), input));
        }
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = format!("{}{path}", self.upstream).parse().expect("an upstream URL");
        // These two speak of the connection to the client; the body was read to its end already.
        request.headers_mut().remove(CONNECTION);
        request.headers_mut().remove(TRANSFER_ENCODING);
        match self.client.request(request.map(Full::new)).await {
            Ok(mut answer) => {
                answer.headers_mut().remove(CONNECTION);
                answer.map(|body| body.map_err(std::io::Error::other).boxed_unsync())
            }
            Err(error) => {
                response(StatusCode::BAD_GATEWAY, "text/plain", format!("upstream failed: {error}"))
            }
        }
    }
}

impl Proxy {
    /// Listens on a free loopback port in front of `upstream_url` (`http://host:port`).
    pub async fn start(upstream_url: &str) -> Proxy {
        let upstream = upstream_url.trim_end_matches('/').to_owned();
        let (operations, calls, intercept) = Default::default();
        Proxy(HttpServer::start(Forward { upstream, client: client(), operations, calls, intercept }))
    }

    /// Answers requests for which `answer` has one in the upstream's place from now on; the others are passed on.
    pub fn intercept(
        &self,
        answer: impl Fn(&Request<Bytes>) -> Option<Response<Bytes>> + Send + Sync + 'static,
    ) {
        *self.0.app().intercept.lock().unwrap() = Some(Intercept(Box::new(answer)));
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        self.0.url()
    }

    /// How many requests it received so far.
    pub fn requests(&self) -> usize {
        self.0.requests()
    }

    /// The DynamoDB operations seen so far, in order: the suffixes of `X-Amz-Target`.
    pub fn operations(&self) -> Vec<String> {
        self.0.app().operations.lock().unwrap().clone()
    }

    /// The DynamoDB operations that were passed on so far, each with its input.
    pub fn calls(&self) -> Vec<(String, Value)> {
        self.0.app().calls.lock().unwrap().clone()
    }

    /// Injects `fault` into every request from now on, or none.
    pub fn inject(&self, fault: Option<Fault>) {
        self.0.faults().always(fault);
    }

    /// Injects one fault into each of the next requests, before what [`Proxy::inject`] set.
    pub fn inject_next(&self, faults: Vec<Fault>) {
        self.0.faults().queue(faults);
    }

    /// Closes the idle connections of its clients; returns when they are closed.
    pub fn close_idle_connections(&self) {
        self.0.connections.close();
    }
}
