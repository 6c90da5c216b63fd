//! A local Messaging API, on a loopback port: as strict as LINE's where onetap calls it.
//!
//! It enforces the bearer token, the shape and limits of text messages with quick replies (no other message is sent
//! here, so no other is accepted, nor any field it does not know) and that a reply token works once. It keeps the replies
//! that it accepted. Faults can be injected, for the next request or for all.

mod rules;

use std::collections::{HashSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use std::{fmt, io, thread};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use onetap_config::Secret;
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// The newest replies, and the newest tokens, that are kept: a runner may run for weeks. LINE's own tokens expire sooner.
const MAX_KEPT: usize = 10_000;

/// A running Messaging API; it stops when dropped.
pub struct MessagingApi {
    addr: SocketAddr,
    state: Arc<State>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// A reply that was accepted.
#[derive(Clone, PartialEq)]
pub struct AcceptedReply {
    /// Which event it answers.
    pub reply_token: String,
    /// Its messages, as they were sent.
    pub messages: Vec<Value>,
}

impl AcceptedReply {
    /// The text of its first message.
    pub fn text(&self) -> &str {
        self.messages.first().and_then(|message| message["text"].as_str()).unwrap_or_default()
    }
}

/// What happens to a request instead of, or before, its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This status and body; the reply is not accepted.
    Status(u16, String),
    /// The reply is accepted, but only after this time.
    Delay(Duration),
    /// The connection closes; the reply is not accepted.
    Close,
    /// The reply is accepted, then the connection closes without a response.
    DropAnswer,
    /// The reply is accepted, then the response is this status and body.
    AcceptThen(u16, String),
}

struct State {
    token: Secret,
    observer: OnceLock<Box<Observer>>,
    inner: Mutex<Inner>,
}

type Observer = dyn Fn(&AcceptedReply) + Send + Sync;

/// The newest texts, without duplicates.
#[derive(Default)]
struct Recent {
    order: VecDeque<String>,
    texts: HashSet<String>,
}

impl Recent {
    /// Whether it is new.
    fn insert(&mut self, text: String) -> bool {
        let new = self.texts.insert(text.clone());
        if new {
            self.order.push_back(text);
        }
        if self.order.len() > MAX_KEPT {
            self.order.pop_front().map(|oldest| self.texts.remove(&oldest));
        }
        new
    }
}

#[derive(Default)]
struct Inner {
    issued: Option<Recent>,
    used: Recent,
    accepted: VecDeque<AcceptedReply>,
    requests: usize,
    queued: VecDeque<Fault>,
    standing: Option<Fault>,
}

impl MessagingApi {
    /// Starts one that accepts requests with this channel access token, on a free loopback port and a thread of its own,
    /// so that it answers while its caller's runtime is blocked.
    pub fn start(token: Secret) -> io::Result<MessagingApi> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let state = Arc::new(State { token, observer: OnceLock::new(), inner: Mutex::default() });
        let (stop, stopped) = oneshot::channel();
        let serving = serve(listener, Arc::clone(&state));
        let thread = thread::Builder::new().name("messaging-api".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! { () = serving => {}, _ = stopped => {} }
            });
        })?;
        Ok(MessagingApi { addr, state, stop: Some(stop), thread: Some(thread) })
    }

    /// For `LINE_API_BASE_URL`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Issues a reply token. From the first one on, tokens that were not issued are refused; before, any token is good
    /// once.
    pub fn issue(&self, reply_token: impl Into<String>) {
        self.inner().issued.get_or_insert_default().insert(reply_token.into());
    }

    /// Calls `observer` for every reply that is accepted, before the sender gets its response. A second observer is ignored.
    pub fn observe(&self, observer: impl Fn(&AcceptedReply) + Send + Sync + 'static) {
        let _ = self.state.observer.set(Box::new(observer));
    }

    /// Status and JSON for a request that did not come through the port of this server.
    pub fn answer(&self, request: &Request<Bytes>) -> (StatusCode, String) {
        self.state.response_to(request)
    }

    /// The replies that were accepted so far, oldest first.
    pub fn replies(&self) -> Vec<AcceptedReply> {
        self.inner().accepted.iter().cloned().collect()
    }

    /// The same replies; they are no longer kept.
    pub fn take_replies(&self) -> Vec<AcceptedReply> {
        self.inner().accepted.drain(..).collect()
    }

    /// How many requests arrived so far, whatever became of them.
    pub fn requests(&self) -> usize {
        self.inner().requests
    }

    /// Injects `fault` into the next request that has none yet.
    pub fn fail_next(&self, fault: Fault) {
        self.inner().queued.push_back(fault);
    }

    /// Injects `fault` into every request from now on; `None` ends it.
    pub fn fail_always(&self, fault: Option<Fault>) {
        self.inner().standing = fault;
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.state.inner()
    }
}

impl Drop for MessagingApi {
    fn drop(&mut self) {
        drop(self.stop.take());
        // The thread ends at once: nothing in it blocks. A panic in it was a connection's own.
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

async fn serve(listener: TcpListener, state: Arc<State>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    loop {
        // An error here is that of one connection, reset before it was accepted.
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let _ = stream.set_nodelay(true);
        let state = Arc::clone(&state);
        let service = service_fn(move |request| answer(Arc::clone(&state), request));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

/// Makes hyper close the connection without an answer.
#[derive(Debug)]
struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("closed by an injected fault")
    }
}

impl std::error::Error for Closed {}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Closed> {
    let (fault, number) = state.inner().next();
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Closed)?.to_bytes();
    let request = Request::from_parts(head, body);
    let (status, body) = match fault {
        None => state.response_to(&request),
        Some(Fault::Status(status, body)) => {
            (StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), body)
        }
        Some(Fault::AcceptThen(status, body)) => {
            state.response_to(&request);
            (StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), body)
        }
        Some(Fault::Delay(time)) => {
            // In a task of its own: a request that has arrived is handled also when the caller no longer waits for it.
            let late = async move {
                tokio::time::sleep(time).await;
                state.response_to(&request)
            };
            tokio::spawn(late).await.map_err(|_| Closed)?
        }
        Some(Fault::Close) => return Err(Closed),
        Some(Fault::DropAnswer) => {
            state.response_to(&request);
            return Err(Closed);
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    if let Ok(id) = format!("00000000-0000-4000-8000-{number:012x}").parse() {
        headers.insert("x-line-request-id", id);
    }
    Ok(response)
}

impl State {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The response. Checks are in LINE's order: path, access token, body, and last the reply token, which a bad request
    /// does not use up.
    fn response_to(&self, request: &Request<Bytes>) -> (StatusCode, String) {
        let refuse = |status, message: &str| (status, json!({ "message": message }).to_string());
        let sent = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        if request.uri().path() != "/v2/bot/message/reply" {
            return refuse(StatusCode::NOT_FOUND, "Not found");
        }
        if request.method() != Method::POST {
            return refuse(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
        }
        if sent(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "))
            != Some(self.token.reveal())
        {
            return refuse(
                StatusCode::UNAUTHORIZED,
                "Authentication failed. Confirm that the access token is valid.",
            );
        }
        let media = sent(header::CONTENT_TYPE).and_then(|value| value.split(';').next());
        if media.map(str::trim) != Some("application/json") {
            return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "The content type is not application/json");
        }
        let Ok(body) = serde_json::from_slice::<Value>(request.body()) else {
            return refuse(StatusCode::BAD_REQUEST, "The request body could not be parsed as JSON");
        };
        let errors = rules::errors(&body);
        if !errors.is_empty() {
            let message = format!("The request body has {} error(s)", errors.len());
            let details: Vec<Value> = errors
                .into_iter()
                .map(|(property, message)| json!({ "property": property, "message": message }))
                .collect();
            return (StatusCode::BAD_REQUEST, json!({ "message": message, "details": details }).to_string());
        }
        let accepted = self.inner().accept(&body);
        match accepted {
            Some(accepted) => {
                if let Some(observer) = self.observer.get() {
                    observer(&accepted);
                }
                let ids: Vec<Value> =
                    (0..accepted.messages.len()).map(|n| json!({ "id": n.to_string() })).collect();
                (StatusCode::OK, json!({ "sentMessages": ids }).to_string())
            }
            None => refuse(StatusCode::BAD_REQUEST, "Invalid reply token"),
        }
    }
}

impl Inner {
    /// The fault for the next request, and that request's number.
    fn next(&mut self) -> (Option<Fault>, usize) {
        self.requests += 1;
        (self.queued.pop_front().or_else(|| self.standing.clone()), self.requests)
    }

    /// Accepts a reply that obeys the rules, if its token is good.
    fn accept(&mut self, body: &Value) -> Option<AcceptedReply> {
        let reply_token = body["replyToken"].as_str()?.to_owned();
        let issued = self.issued.as_ref().is_none_or(|issued| issued.texts.contains(&reply_token));
        if !issued || !self.used.insert(reply_token.clone()) {
            return None;
        }
        let messages = body["messages"].as_array()?.clone();
        let accepted = AcceptedReply { reply_token, messages };
        self.accepted.push_back(accepted.clone());
        if self.accepted.len() > MAX_KEPT {
            self.accepted.pop_front();
        }
        Some(accepted)
    }
}

impl fmt::Debug for MessagingApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessagingApi").field("addr", &self.addr).finish_non_exhaustive()
    }
}

impl fmt::Debug for AcceptedReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AcceptedReply({} messages)", self.messages.len())
    }
}
