//! A local Messaging API, on a loopback port: as strict as LINE's where onetap calls it.
//!
//! It enforces the bearer token, the shape and limits of messages (no message and no field is accepted that it does not know),
//! that a reply token works once, that a retry key is accepted once, and the quota. It keeps the replies and pushes that it
//! accepted. Profiles, contents and the sizes of groups are those that it was given. Faults can be injected, for the next request
//! or for all. No `Debug` here shows an id, a token or a word.

mod calls;
mod imagemap;
mod messages;
mod rules;
mod texts;

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use std::{fmt, io, thread};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use onetap_config::Secret;
use serde_json::Value;
use tokio::sync::oneshot;

/// The newest replies, pushes, tokens and keys that are kept: a runner may run for weeks. LINE's own tokens expire sooner.
const MAX_KEPT: usize = 10_000;
/// The newest requests that are kept.
const MAX_REQUESTS: usize = 100;

/// A running Messaging API; it stops when dropped.
pub struct MessagingApi {
    addr: SocketAddr,
    state: Arc<State>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// A reply that was accepted.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
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

/// A push that was accepted.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct AcceptedPush {
    /// The user, group or room.
    pub to: String,
    /// Its messages, as they were sent.
    pub messages: Vec<Value>,
    /// Its retry key, if it has one.
    pub retry_key: Option<String>,
}

impl AcceptedPush {
    /// The text of its first message.
    pub fn text(&self) -> &str {
        self.messages.first().and_then(|message| message["text"].as_str()).unwrap_or_default()
    }
}

/// A loading animation that was shown.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShownLoading {
    /// To whom.
    pub user_id: String,
    /// For how many seconds.
    pub seconds: u64,
}

/// A request that arrived.
#[derive(Clone)]
#[non_exhaustive]
pub struct ReceivedRequest {
    /// `GET` or `POST`.
    pub method: Method,
    /// Its path, and its query if it has one.
    pub uri: Uri,
    /// Its headers. Their `Debug` hides the access token.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// What happens to a request instead of, or before, its answer.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
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
    observer: OnceLock<Box<Observer<AcceptedReply>>>,
    push_observer: OnceLock<Box<Observer<AcceptedPush>>>,
    inner: Mutex<Inner>,
}

type Observer<T> = dyn Fn(&T) + Send + Sync;

/// The newest keys, each with its value.
struct Recent<V> {
    order: VecDeque<String>,
    values: HashMap<String, V>,
}

impl<V> Recent<V> {
    /// Whether the key is new. If not, it keeps its value.
    fn insert(&mut self, key: String, value: V) -> bool {
        if self.values.contains_key(&key) {
            return false;
        }
        self.order.push_back(key.clone());
        self.values.insert(key, value);
        if self.order.len() > MAX_KEPT {
            self.order.pop_front().map(|oldest| self.values.remove(&oldest));
        }
        true
    }
}

impl<V> Default for Recent<V> {
    fn default() -> Recent<V> {
        Recent { order: VecDeque::new(), values: HashMap::new() }
    }
}

#[derive(Default)]
struct Inner {
    issued: Option<Recent<()>>,
    used: Recent<()>,
    accepted: VecDeque<AcceptedReply>,
    pushes: VecDeque<AcceptedPush>,
    /// What a repeated push is answered, by its retry key: the id of the accepted request, and the ids of its messages.
    retry_keys: Recent<(String, Value)>,
    /// Whether a repeat is refused for want of quota, in place of being recognised by its retry key.
    quota_comes_first: bool,
    loadings: Vec<ShownLoading>,
    /// What users sent, by message, with its type; `None` while it is prepared.
    contents: HashMap<String, Option<(String, Bytes)>>,
    profiles: HashMap<String, Value>,
    /// How many messages may be pushed, and how many were.
    quota: Option<u64>,
    used_quota: u64,
    /// How many users a group or room has; one where it is not said.
    recipients: HashMap<String, u64>,
    received: VecDeque<ReceivedRequest>,
    requests: usize,
    direct_requests: usize,
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
        let state = Arc::new(State {
            token,
            observer: OnceLock::new(),
            push_observer: OnceLock::new(),
            inner: Mutex::default(),
        });
        let (stop, stopped) = oneshot::channel();
        let serving = serve(listener, Arc::clone(&state));
        let thread = thread::Builder::new().name("messaging-api".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! { () = serving => {}, _ = stopped => {} }
            });
        })?;
        Ok(MessagingApi { addr, state, stop: Some(stop), thread: Some(thread) })
    }

    /// For `LINE_API_BASE_URL`. Downloads are served there too.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Issues a reply token. From the first one on, tokens that were not issued are refused; before, any token is good
    /// once.
    pub fn issue(&self, reply_token: impl Into<String>) {
        self.inner().issued.get_or_insert_default().insert(reply_token.into(), ());
    }

    /// Calls `observer` for every reply that is accepted, before the sender gets its response. A second observer is ignored.
    pub fn observe(&self, observer: impl Fn(&AcceptedReply) + Send + Sync + 'static) {
        let _ = self.state.observer.set(Box::new(observer));
    }

    /// The same for every push that is accepted.
    pub fn observe_pushes(&self, observer: impl Fn(&AcceptedPush) + Send + Sync + 'static) {
        let _ = self.state.push_observer.set(Box::new(observer));
    }

    /// Status and JSON for a request that did not come through the port of this server.
    pub fn answer(&self, request: &Request<Bytes>) -> (StatusCode, String) {
        let response = self.respond(request);
        (response.status(), String::from_utf8_lossy(response.body()).into_owned())
    }

    /// The response to such a request, with its headers.
    pub fn respond(&self, request: &Request<Bytes>) -> Response<Bytes> {
        let number = self.inner().next_direct();
        self.state.response_to(request, &format!("00000000-0000-4000-9000-{number:012x}"))
    }

    /// The replies that were accepted so far, oldest first.
    pub fn replies(&self) -> Vec<AcceptedReply> {
        self.inner().accepted.iter().cloned().collect()
    }

    /// The same replies; they are no longer kept.
    pub fn take_replies(&self) -> Vec<AcceptedReply> {
        self.inner().accepted.drain(..).collect()
    }

    /// The pushes that were accepted so far, oldest first.
    pub fn pushes(&self) -> Vec<AcceptedPush> {
        self.inner().pushes.iter().cloned().collect()
    }

    /// The same pushes; they are no longer kept.
    pub fn take_pushes(&self) -> Vec<AcceptedPush> {
        self.inner().pushes.drain(..).collect()
    }

    /// Forgets all retry keys, as LINE does after 24 hours.
    pub fn forget_retry_keys(&self) {
        self.inner().retry_keys = Recent::default();
    }

    /// Decides whether a repeated push is refused because the quota is used up (`true`), or recognised by its retry key (`false`,
    /// as at the start). LINE does not say which it looks at first: a sender must bear both.
    pub fn check_quota_first(&self, first: bool) {
        self.inner().quota_comes_first = first;
    }

    /// Makes a push to this group or room count as this many messages. Every other recipient counts as one.
    pub fn set_recipients(&self, to: impl Into<String>, count: u64) {
        self.inner().recipients.insert(to.into(), count);
    }

    /// Allows this many pushed messages, those of before included; `None`, as at the start, allows any number.
    pub fn set_quota(&self, limit: Option<u64>) {
        self.inner().quota = limit;
    }

    /// The loading animations that were shown so far, oldest first.
    pub fn loadings(&self) -> Vec<ShownLoading> {
        self.inner().loadings.clone()
    }

    /// Serves what a user sent with the message `message_id`.
    pub fn put_content(&self, message_id: impl Into<String>, content_type: &str, content: impl Into<Bytes>) {
        let content = Some((content_type.to_owned(), content.into()));
        self.inner().contents.insert(message_id.into(), content);
    }

    /// Answers that the content of the message `message_id` is still being prepared.
    pub fn put_unfinished_content(&self, message_id: impl Into<String>) {
        self.inner().contents.insert(message_id.into(), None);
    }

    /// Serves a user's profile, an object as LINE has it; `userId` is added. Every other user is unknown.
    pub fn put_profile(&self, user_id: impl Into<String>, mut profile: Value) {
        let user_id = user_id.into();
        profile["userId"] = user_id.as_str().into();
        self.inner().profiles.insert(user_id, profile);
    }

    /// The newest requests that arrived at its port, oldest first, including refused ones.
    pub fn received(&self) -> Vec<ReceivedRequest> {
        self.inner().received.iter().cloned().collect()
    }

    /// How many requests arrived so far, including refused ones.
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
    let mut request = Request::from_parts(head, body);
    if let Some(token) = request.headers_mut().get_mut(header::AUTHORIZATION) {
        token.set_sensitive(true);
    }
    state.inner().keep_request(&request);
    let id = format!("00000000-0000-4000-8000-{number:012x}");
    let mut response = match fault {
        None => state.response_to(&request, &id),
        Some(Fault::Status(status, body)) => calls::response(status, body),
        Some(Fault::AcceptThen(status, body)) => {
            state.response_to(&request, &id);
            calls::response(status, body)
        }
        Some(Fault::Delay(time)) => {
            // In a task of its own: a request that has arrived is handled also when the caller no longer waits for it.
            let late_id = id.clone();
            let late = async move {
                tokio::time::sleep(time).await;
                state.response_to(&request, &late_id)
            };
            tokio::spawn(late).await.map_err(|_| Closed)?
        }
        Some(Fault::Close) => return Err(Closed),
        Some(Fault::DropAnswer) => {
            state.response_to(&request, &id);
            return Err(Closed);
        }
    };
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("x-line-request-id", id);
    }
    Ok(response.map(Full::new))
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

impl fmt::Debug for AcceptedPush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AcceptedPush({} messages)", self.messages.len())
    }
}

impl fmt::Debug for ShownLoading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShownLoading({} seconds)", self.seconds)
    }
}

impl fmt::Debug for ReceivedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReceivedRequest({}, {} bytes)", self.method, self.body.len())
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Status(status, _) => write!(f, "Status({status})"),
            Fault::Delay(time) => write!(f, "Delay({time:?})"),
            Fault::Close => f.write_str("Close"),
            Fault::DropAnswer => f.write_str("DropAnswer"),
            Fault::AcceptThen(status, _) => write!(f, "AcceptThen({status})"),
        }
    }
}
