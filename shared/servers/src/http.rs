use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::{BodyExt, Full};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, body::Incoming};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::background::Background;
use crate::connections::Connections;
use crate::fault::{Body, Closed, Fault, Faults, answer_through};

/// Answers the requests that have no fault.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Called for every request that arrives, before any fault.
    fn received(&self, _: &Parts) {}

    /// The fault of a request into which none was injected.
    fn fault(&self, _: &Request<Bytes>) -> Option<Fault> {
        None
    }

    fn answer(&self, request: Request<Bytes>) -> impl Future<Output = Response<Body>> + Send;
}

/// The HTTP/1.1 server under the gateway, the proxy and the stub.
#[derive(Debug)]
pub(crate) struct HttpServer<A> {
    pub(crate) addr: SocketAddr,
    pub(crate) connections: Connections,
    state: Arc<State<A>>,
    _background: Background,
}

#[derive(Debug)]
struct State<A> {
    app: A,
    faults: Faults,
    requests: AtomicUsize,
}

impl<A: Handler> HttpServer<A> {
    pub(crate) fn start(app: A) -> HttpServer<A> {
        let state = Arc::new(State { app, faults: Faults::default(), requests: AtomicUsize::new(0) });
        let connections = Connections::default();
        let background = Background::new();
        let addr = background.listen({
            let (state, connections) = (state.clone(), connections.clone());
            move |stream| serve_connection(state.clone(), connections.clone(), stream)
        });
        HttpServer { addr, connections, state, _background: background }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub(crate) fn app(&self) -> &A {
        &self.state.app
    }

    pub(crate) fn faults(&self) -> &Faults {
        &self.state.faults
    }

    pub(crate) fn requests(&self) -> usize {
        self.state.requests.load(Ordering::SeqCst)
    }
}

async fn serve_connection<A: Handler>(state: Arc<State<A>>, connections: Connections, stream: TcpStream) {
    let mut connection = connections.open();
    let service = service_fn(move |request| {
        let state = state.clone();
        async move { serve(state, request).await }
    });
    let mut serving = Box::pin(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    loop {
        tokio::select! {
            _ = &mut serving => return,
            request = connection.close_requested() => {
                // An idle connection closes at the next poll, which is this one; a busy one after its answer.
                serving.as_mut().graceful_shutdown();
                if serving.as_mut().now_or_never().is_some() {
                    drop(serving);
                    drop(request);
                    return;
                }
            }
        }
    }
}

async fn serve<A: Handler>(
    state: Arc<State<A>>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Closed> {
    let (head, body) = request.into_parts();
    state.requests.fetch_add(1, Ordering::SeqCst);
    state.app.received(&head);
    let fault = state.faults.next();
    // Read to its end even if it will not be executed, or the client could fail while sending it.
    let body = body.collect().await.map_err(|_| Closed)?.to_bytes();
    let request = Request::from_parts(head, body);
    let fault = fault.or_else(|| state.app.fault(&request));
    // In a task of its own: what has arrived is executed, also when the client no longer waits for it.
    let work = async move { answer_through(fault, state.app.answer(request)).await };
    tokio::spawn(work).await.unwrap_or(Err(Closed))
}

/// A client that opens a connection for every request: a pooled one could have been closed meanwhile.
pub(crate) fn client() -> Client<HttpConnector, Full<Bytes>> {
    Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http()
}
