//! An HTTP server that answers as its script says.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::{fmt, io};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::BodyExt;
use hyper::body::Body as HttpBody;
use hyper::{Request, Response, StatusCode};
use tokio::sync::watch;

use crate::fault::{Body, Fault, response};
use crate::http::{Handler, HttpServer};

/// An HTTP/1.1 server with a script, on a free loopback port and a runtime of its own: it answers while its caller's runtime is
/// blocked or its clock is paused. Everything stops when this value is dropped.
#[derive(Debug)]
pub struct HttpStub(HttpServer<Script>);

struct Script {
    answer: Answer,
    received: Mutex<Vec<Request<Bytes>>>,
    count: watch::Sender<usize>,
}

enum Answer {
    /// A status and a body, or a fault.
    Canned(Box<Canned>),
    Served(Box<Served>),
}

type Canned = dyn Fn(&Request<Bytes>) -> Fault + Send + Sync;
type Served = dyn Fn(Request<Bytes>) -> BoxFuture<'static, Response<Body>> + Send + Sync;

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").field("count", &*self.count.borrow()).finish_non_exhaustive()
    }
}

impl Handler for Script {
    fn fault(&self, request: &Request<Bytes>) -> Option<Fault> {
        let Answer::Canned(answer) = &self.answer else { return None };
        let fault = answer(request);
        self.received.lock().unwrap().push(request.clone());
        self.count.send_modify(|count| *count += 1);
        Some(fault)
    }

    async fn answer(&self, request: Request<Bytes>) -> Response<Body> {
        match &self.answer {
            Answer::Served(serve) => serve(request).await,
            Answer::Canned(_) => response(StatusCode::OK, "application/json", ""),
        }
    }
}

impl HttpStub {
    /// Gives every request this answer.
    pub fn always(answer: Fault) -> HttpStub {
        HttpStub::answering(move |_| answer.clone())
    }

    /// Gives each request the answer that `script` has for it.
    pub fn answering(script: impl Fn(&Request<Bytes>) -> Fault + Send + Sync + 'static) -> HttpStub {
        HttpStub::start(Answer::Canned(Box::new(script)))
    }

    /// Serves a function's `handle`. Answers are streamed; a client that leaves drops its answer. Requests are counted, not kept.
    pub fn serving<A, B>(handle: impl Fn(Request<Bytes>) -> A + Send + Sync + 'static) -> HttpStub
    where
        A: Future<Output = Response<B>> + Send + 'static,
        B: HttpBody<Data = Bytes, Error: Error + Send + Sync + 'static> + Send + 'static,
    {
        HttpStub::start(Answer::Served(Box::new(move |request| {
            let answer = handle(request);
            Box::pin(async move { answer.await.map(|body| body.map_err(io::Error::other).boxed_unsync()) })
        })))
    }

    fn start(answer: Answer) -> HttpStub {
        HttpStub(HttpServer::start(Script {
            answer,
            received: Mutex::default(),
            count: watch::Sender::new(0),
        }))
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        self.0.url()
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.0.addr
    }

    /// How many requests it received so far.
    pub fn requests(&self) -> usize {
        self.0.requests()
    }

    /// The requests to which its script gave an answer, oldest first.
    pub fn received(&self) -> Vec<Request<Bytes>> {
        self.0.app().received.lock().unwrap().clone()
    }

    /// Returns once its script gave `n` answers.
    pub async fn until_received(&self, n: usize) {
        let mut count = self.0.app().count.subscribe();
        count.wait_for(|count| *count >= n).await.expect("the stub holds the sender");
    }

    /// How many connections it accepted so far.
    pub fn connections(&self) -> usize {
        self.0.connections.opened()
    }

    /// Returns once it has accepted `n` connections: a client may have its own before that.
    pub async fn accepted(&self, n: usize) {
        self.0.connections.until_opened(n).await;
    }
}
