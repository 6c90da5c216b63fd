//! Lambda's runtime API, for programs that are Lambda functions.
//!
//! Any number of instances of a function poll one API; each event goes to one of them, as on Lambda.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::sync::{mpsc, oneshot, watch};

use crate::background::Background;
use crate::process::{bound_to_this_process, spawn};

/// What a function answered to an event.
#[derive(Debug)]
pub struct Answer {
    /// Whether it reported an error instead of a response.
    pub failed: bool,
    /// What came with it; a streamed answer names its content type here.
    pub headers: HeaderMap,
    /// The response, or the error's description.
    pub body: Bytes,
}

/// An answer while it comes.
#[derive(Debug)]
pub struct Answering {
    /// Whether it is an error's description.
    pub failed: bool,
    /// What came with it.
    pub headers: HeaderMap,
    /// Its last item is `None`; one that ends without it was cut off.
    body: mpsc::UnboundedReceiver<Option<Bytes>>,
}

impl Answering {
    /// The next chunk of the body, as soon as it is here; `None` after the last one.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Unanswered> {
        self.body.recv().await.ok_or(Unanswered)
    }

    async fn whole(mut self) -> Result<Answer, Unanswered> {
        let mut body = BytesMut::new();
        while let Some(chunk) = self.chunk().await? {
            body.extend_from_slice(&chunk);
        }
        Ok(Answer { failed: self.failed, headers: self.headers, body: body.freeze() })
    }
}

/// No whole answer came in time: the instance that had the event died, or took too long.
#[derive(Debug)]
pub struct Unanswered;

#[derive(Debug)]
struct Event {
    id: String,
    body: Bytes,
    deadline: SystemTime,
}

#[derive(Debug)]
struct State {
    events: tokio::sync::Mutex<mpsc::UnboundedReceiver<Event>>,
    waiting: Mutex<HashMap<String, oneshot::Sender<Answering>>>,
    polls: watch::Sender<u64>,
}

/// The API on a loopback port, until it is dropped.
#[derive(Debug)]
pub struct RuntimeApi {
    addr: SocketAddr,
    state: Arc<State>,
    events: mpsc::UnboundedSender<Event>,
    next_id: AtomicU64,
    _background: Background,
}

impl RuntimeApi {
    /// Starts the API; nothing polls it yet.
    pub fn start() -> RuntimeApi {
        let (events, receiver) = mpsc::unbounded_channel();
        let state = Arc::new(State {
            events: tokio::sync::Mutex::new(receiver),
            waiting: Mutex::default(),
            polls: watch::Sender::new(0),
        });
        let background = Background::new();
        let addr = background.listen({
            let state = state.clone();
            move |stream| {
                let state = state.clone();
                async move {
                    let service = service_fn(move |request| serve(state.clone(), request));
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                }
            }
        });
        RuntimeApi { addr, state, events, next_id: AtomicU64::new(1), _background: background }
    }

    /// What a function finds in `AWS_LAMBDA_RUNTIME_API`.
    pub fn address(&self) -> String {
        self.addr.to_string()
    }

    /// How often instances asked for an event.
    pub fn polls(&self) -> u64 {
        *self.state.polls.borrow()
    }

    /// Returns once instances have asked `n` times.
    pub async fn polled(&self, n: u64) {
        let mut polls = self.state.polls.subscribe();
        polls.wait_for(|polls| *polls >= n).await.expect("the API lives");
    }

    /// Hands an event to whichever instance asks next, which has `limit` to answer.
    pub async fn invoke(&self, event: impl Into<Bytes>, limit: Duration) -> Result<Answer, Unanswered> {
        let answer = async { self.open(event, limit).await?.whole().await };
        tokio::time::timeout(limit, answer).await.unwrap_or(Err(Unanswered))
    }

    /// The same, for one who follows the answer: it is here once its head is.
    pub async fn open(&self, event: impl Into<Bytes>, limit: Duration) -> Result<Answering, Unanswered> {
        let id = format!("request-{}", self.next_id.fetch_add(1, Ordering::Relaxed));
        let (sender, answer) = oneshot::channel();
        self.state.waiting.lock().expect("no panic under the lock").insert(id.clone(), sender);
        let deadline = SystemTime::now() + limit;
        self.events.send(Event { id: id.clone(), body: event.into(), deadline }).expect("the API lives");
        let answer = tokio::time::timeout(limit, answer).await;
        self.state.waiting.lock().expect("no panic under the lock").remove(&id);
        answer.ok().and_then(Result::ok).ok_or(Unanswered)
    }

    /// Starts an instance of the function at `path`, with these variables and no others.
    pub fn run<'a>(
        &self,
        path: &Path,
        variables: impl IntoIterator<Item = (&'a str, impl AsRef<str>)>,
    ) -> Program {
        let mut command = bound_to_this_process(path);
        command.env_clear();
        for (name, value) in variables {
            command.env(name, value.as_ref());
        }
        command
            .env("AWS_LAMBDA_RUNTIME_API", self.address())
            .env("AWS_LAMBDA_FUNCTION_NAME", "function")
            .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128")
            .env("AWS_LAMBDA_FUNCTION_VERSION", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child =
            spawn(command).unwrap_or_else(|error| panic!("{} does not start: {error}", path.display()));
        Program::new(child)
    }
}

async fn serve(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::default());
    let path: Vec<&str> =
        request.uri().path().trim_start_matches("/2018-06-01/runtime/").split('/').collect();
    match (request.method(), path.as_slice()) {
        (&Method::GET, ["invocation", "next"]) => {
            state.polls.send_modify(|polls| *polls += 1);
            // Cancel safe: nothing is awaited once an event is taken.
            let event = state.events.lock().await.recv().await;
            let Some(event) = event else {
                *response.status_mut() = StatusCode::GONE;
                return Ok(response);
            };
            let deadline =
                event.deadline.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
            let headers = response.headers_mut();
            for (name, value) in [
                ("lambda-runtime-invocation-id", format!("invocation-of-{}", event.id)),
                ("lambda-runtime-aws-request-id", event.id),
                ("lambda-runtime-deadline-ms", deadline.to_string()),
                (
                    "lambda-runtime-invoked-function-arn",
                    "arn:aws:lambda:us-east-1:123456789012:function:function".to_owned(),
                ),
            ] {
                headers.insert(name, value.parse().expect("a header's value"));
            }
            *response.body_mut() = Full::new(event.body);
        }
        (&Method::POST, ["invocation", id, end @ ("response" | "error")]) => {
            let (id, failed) = ((*id).to_owned(), *end == "error");
            let (head, mut body) = request.into_parts();
            let (chunks, receiver) = mpsc::unbounded_channel();
            let waiting = state.waiting.lock().expect("no panic under the lock").remove(&id);
            if let Some(waiting) = waiting {
                let _ = waiting.send(Answering { failed, headers: head.headers, body: receiver });
            }
            loop {
                let chunk = match body.frame().await {
                    Some(Ok(frame)) => Some(frame.into_data().unwrap_or_default()),
                    Some(Err(_)) => break,
                    None => None,
                };
                let last = chunk.is_none();
                let _ = chunks.send(chunk);
                if last {
                    break;
                }
            }
            *response.status_mut() = StatusCode::ACCEPTED;
        }
        (&Method::POST, ["init", "error"]) => *response.status_mut() = StatusCode::ACCEPTED,
        _ => *response.status_mut() = StatusCode::NOT_FOUND,
    }
    Ok(response)
}

/// A running instance, killed when dropped.
#[derive(Debug)]
pub struct Program {
    child: Child,
    output: Vec<JoinHandle<String>>,
}

impl Program {
    fn new(mut child: Child) -> Program {
        let stdout = child.stdout.take().map(|pipe| thread::spawn(|| read(pipe)));
        let stderr = child.stderr.take().map(|pipe| thread::spawn(|| read(pipe)));
        Program { child, output: stdout.into_iter().chain(stderr).collect() }
    }

    /// Its process id, for a look into `/proc` or a signal.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it ends by itself: how it ended, and what it wrote.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().expect("our own child");
        (status, self.written())
    }

    /// Kills it: what it wrote so far, first to stdout, then to stderr.
    pub fn kill(mut self) -> String {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.written()
    }

    fn written(&mut self) -> String {
        self.output.drain(..).map(|reader| reader.join().expect("a reader does not panic")).collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(mut pipe: impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = pipe.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}
