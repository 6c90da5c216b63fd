//! A Messaging API of our own, on a loopback port: as strict as LINE's where onetap talks to it.
//!
//! It enforces the bearer token, the shape and limits of text messages with quick replies (no other message is sent
//! here, so no other is taken, nor any field it does not know) and that a reply token works once. It keeps the replies
//! it took. Faults can be put before it, one a request or for good.

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

/// How many replies, and how many tokens, are kept: a runner may run for weeks. LINE's own tokens die sooner.
const KEPT: usize = 10_000;

/// A running Messaging API; it stops when dropped.
pub struct MessagingApi {
    addr: SocketAddr,
    state: Arc<State>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// A reply that was taken.
#[derive(Clone, PartialEq)]
pub struct Taken {
    /// Which event it answers.
    pub reply_token: String,
    /// Its messages, as they were sent.
    pub messages: Vec<Value>,
}

impl Taken {
    /// The text of its first message.
    pub fn text(&self) -> &str {
        self.messages.first().and_then(|message| message["text"].as_str()).unwrap_or_default()
    }
}

/// What happens to a request instead of, or before, its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This status and body; the reply is not taken.
    Status(u16, String),
    /// The reply is taken, but only after this time.
    Delay(Duration),
    /// The connection closes; the reply is not taken.
    Close,
    /// The reply is taken, then the connection closes without an answer.
    DropAnswer,
}

struct State {
    token: Secret,
    observer: OnceLock<Box<Observer>>,
    inner: Mutex<Inner>,
}

type Observer = dyn Fn(&Taken) + Send + Sync;

/// The newest texts, each once.
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
        if self.order.len() > KEPT {
            self.order.pop_front().map(|oldest| self.texts.remove(&oldest));
        }
        new
    }
}

#[derive(Default)]
struct Inner {
    issued: Option<Recent>,
    used: Recent,
    taken: VecDeque<Taken>,
    requests: usize,
    queued: VecDeque<Fault>,
    standing: Option<Fault>,
}

impl MessagingApi {
    /// Starts one that takes requests with this channel access token, on a free loopback port and a thread of its own,
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

    /// Has `observer` told of every reply as it is taken, before its sender is. The first one stays.
    pub fn observe(&self, observer: impl Fn(&Taken) + Send + Sync + 'static) {
        let _ = self.state.observer.set(Box::new(observer));
    }

    /// Answers a request that came another way than through the own port: status and JSON.
    pub fn answer(&self, request: &Request<Bytes>) -> (StatusCode, String) {
        self.state.judge(request)
    }

    /// The replies that were taken so far, oldest first.
    pub fn replies(&self) -> Vec<Taken> {
        self.inner().taken.iter().cloned().collect()
    }

    /// Those, and forgets them.
    pub fn take_replies(&self) -> Vec<Taken> {
        self.inner().taken.drain(..).collect()
    }

    /// How many requests arrived so far, of whatever end.
    pub fn requests(&self) -> usize {
        self.inner().requests
    }

    /// Puts `fault` before the next request that has none yet.
    pub fn fail_next(&self, fault: Fault) {
        self.inner().queued.push_back(fault);
    }

    /// Puts `fault` before every request from now on, or takes it away.
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
        None => state.judge(&request),
        Some(Fault::Status(status, body)) => {
            (StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), body)
        }
        Some(Fault::Delay(time)) => {
            // In a task of its own: what has arrived is taken, also when the caller no longer waits for it.
            let late = async move {
                tokio::time::sleep(time).await;
                state.judge(&request)
            };
            tokio::spawn(late).await.map_err(|_| Closed)?
        }
        Some(Fault::Close) => return Err(Closed),
        Some(Fault::DropAnswer) => {
            state.judge(&request);
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

    /// In LINE's order: where, who, what, and only then the token, which a bad request does not use up.
    fn judge(&self, request: &Request<Bytes>) -> (StatusCode, String) {
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
        let taken = self.inner().take(&body);
        match taken {
            Some(taken) => {
                if let Some(observer) = self.observer.get() {
                    observer(&taken);
                }
                let ids: Vec<Value> =
                    (0..taken.messages.len()).map(|n| json!({ "id": n.to_string() })).collect();
                (StatusCode::OK, json!({ "sentMessages": ids }).to_string())
            }
            None => refuse(StatusCode::BAD_REQUEST, "Invalid reply token"),
        }
    }
}

impl Inner {
    /// The fault before the next request, and that request's number.
    fn next(&mut self) -> (Option<Fault>, usize) {
        self.requests += 1;
        (self.queued.pop_front().or_else(|| self.standing.clone()), self.requests)
    }

    /// Takes a reply that obeys the rules, if its token is good.
    fn take(&mut self, body: &Value) -> Option<Taken> {
        let reply_token = body["replyToken"].as_str()?.to_owned();
        let issued = self.issued.as_ref().is_none_or(|issued| issued.texts.contains(&reply_token));
        if !issued || !self.used.insert(reply_token.clone()) {
            return None;
        }
        let messages = body["messages"].as_array()?.clone();
        let taken = Taken { reply_token, messages };
        self.taken.push_back(taken.clone());
        if self.taken.len() > KEPT {
            self.taken.pop_front();
        }
        Some(taken)
    }
}

impl fmt::Debug for MessagingApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessagingApi").field("addr", &self.addr).finish_non_exhaustive()
    }
}

impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Taken({} messages)", self.messages.len())
    }
}
