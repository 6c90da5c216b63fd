//! Lambda's runtime API, for programs that are Lambda functions.
//!
//! Any number of instances of a function poll one API; each event goes to one of them, as on Lambda. It does as little as
//! possible, on a thread for each connection, so that a benchmark measures the function: the thread that reads an answer writes
//! the next event, and waits for no other thread if one is queued.

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use bytes::{Bytes, BytesMut};
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use tokio::sync::{mpsc, oneshot, watch};

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
    /// When the instance was given the event.
    pub began: Instant,
    /// Chunks, and when they came. The last item is `None`; a body that ends without it was cut off.
    body: mpsc::UnboundedReceiver<(Instant, Option<Bytes>)>,
}

impl Answering {
    /// The next chunk of the body, as soon as it is here; `None` after the last one.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Unanswered> {
        Ok(self.timed_chunk().await?.1)
    }

    /// The same, and when it came.
    pub async fn timed_chunk(&mut self) -> Result<(Instant, Option<Bytes>), Unanswered> {
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

/// An event that is queued, or under way.
#[derive(Debug)]
pub struct Invocation(oneshot::Receiver<Answering>);

impl Invocation {
    /// Its answer, once the head is here.
    pub async fn answer(self) -> Result<Answering, Unanswered> {
        self.0.await.map_err(|_| Unanswered)
    }
}

#[derive(Debug)]
struct Event {
    id: String,
    /// The API's whole answer to a poll.
    message: Vec<u8>,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Event>,
    waiting: HashMap<String, oneshot::Sender<Answering>>,
    first_poll: Option<Instant>,
    connections: Vec<TcpStream>,
    is_over: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// A new event, or the end.
    changed: Condvar,
    polls: watch::Sender<u64>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under the lock")
    }
}

/// The API on a loopback port, until it is dropped.
#[derive(Debug)]
pub struct RuntimeApi {
    addr: SocketAddr,
    shared: Arc<Shared>,
    next_id: AtomicU64,
}

impl RuntimeApi {
    /// Starts the API; nothing polls it yet.
    pub fn start() -> RuntimeApi {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free loopback port");
        let addr = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::<Shared>::default();
        thread::spawn({
            let shared = shared.clone();
            move || accept(&listener, &shared)
        });
        RuntimeApi { addr, shared, next_id: AtomicU64::new(1) }
    }

    /// What Lambda sets for every function.
    pub fn variables(&self) -> [(&'static str, String); 6] {
        [
            ("AWS_LAMBDA_RUNTIME_API", self.addr.to_string()),
            ("AWS_LAMBDA_FUNCTION_NAME", "function".to_owned()),
            ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128".to_owned()),
            ("AWS_LAMBDA_FUNCTION_VERSION", "1".to_owned()),
            ("AWS_LAMBDA_LOG_GROUP_NAME", "/aws/lambda/function".to_owned()),
            ("AWS_LAMBDA_LOG_STREAM_NAME", "stream".to_owned()),
        ]
    }

    /// How often instances asked for an event.
    pub fn polls(&self) -> u64 {
        *self.shared.polls.borrow()
    }

    /// Returns once instances have asked `n` times.
    pub async fn polled(&self, n: u64) {
        let mut polls = self.shared.polls.subscribe();
        polls.wait_for(|polls| *polls >= n).await.expect("the API lives");
    }

    /// When an instance asked for the first time.
    pub fn first_poll(&self) -> Option<Instant> {
        self.shared.state().first_poll
    }

    /// Hands an event to whichever instance asks next, which has `limit` to answer.
    pub async fn invoke(&self, event: impl AsRef<[u8]>, limit: Duration) -> Result<Answer, Unanswered> {
        let answer = async { self.open(event, limit).await?.whole().await };
        tokio::time::timeout(limit, answer).await.unwrap_or(Err(Unanswered))
    }

    /// The same, for one who follows the answer: it is here once its head is.
    pub async fn open(&self, event: impl AsRef<[u8]>, limit: Duration) -> Result<Answering, Unanswered> {
        let invocation = self.queue([event], limit).remove(0);
        tokio::time::timeout(limit, invocation.answer()).await.unwrap_or(Err(Unanswered))
    }

    /// Hands out these events one after the other, each as soon as an instance asks.
    pub fn queue(
        &self,
        events: impl IntoIterator<Item = impl AsRef<[u8]>>,
        limit: Duration,
    ) -> Vec<Invocation> {
        let invocation = |event: &[u8]| {
            let id = format!("request-{}", self.next_id.fetch_add(1, Ordering::Relaxed));
            (Event { message: message(&id, event, limit), id }, oneshot::channel())
        };
        let made: Vec<_> = events.into_iter().map(|event| invocation(event.as_ref())).collect();
        let mut state = self.shared.state();
        // What nobody waits for any more.
        state.waiting.retain(|_, sender| !sender.is_closed());
        let queued = made.into_iter().map(|(event, (sender, answer))| {
            state.waiting.insert(event.id.clone(), sender);
            state.events.push_back(event);
            Invocation(answer)
        });
        let queued = queued.collect();
        self.shared.changed.notify_all();
        queued
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
        command.envs(self.variables()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child =
            spawn(command).unwrap_or_else(|error| panic!("{} does not start: {error}", path.display()));
        Program::new(child)
    }
}

impl Drop for RuntimeApi {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.is_over = true;
        for connection in state.connections.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
        state.waiting.clear();
        drop(state);
        self.shared.changed.notify_all();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.addr);
    }
}

/// The answer to a poll that has this event.
fn message(id: &str, event: &[u8], limit: Duration) -> Vec<u8> {
    let deadline = SystemTime::now() + limit;
    let deadline = deadline.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Lambda-Runtime-Aws-Request-Id: {id}\r\nLambda-Runtime-Invocation-Id: invocation-of-{id}\r\n\
         Lambda-Runtime-Deadline-Ms: {deadline}\r\nLambda-Runtime-Trace-Id: Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700\r\n\
         Lambda-Runtime-Invoked-Function-Arn: arn:aws:lambda:us-east-1:123456789012:function:function\r\n\r\n",
        event.len()
    );
    [head.as_bytes(), event].concat()
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for connection in listener.incoming().flatten() {
        let mut state = shared.state();
        if state.is_over {
            return;
        }
        state.connections.extend(connection.try_clone());
        drop(state);
        let shared = shared.clone();
        // A function that goes away takes its connections along.
        thread::spawn(move || {
            let _ = serve(&connection, &shared);
            // The list of connections holds it too.
            let _ = connection.shutdown(Shutdown::Both);
        });
    }
}

fn serve(mut connection: &TcpStream, shared: &Shared) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(64 * 1024, connection);
    let (mut head, mut began) = (String::new(), Instant::now());
    loop {
        head.clear();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let mut words = head.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let path: Vec<&str> = path.trim_start_matches("/2018-06-01/runtime/").split('/').collect();
        match (method, path.as_slice()) {
            ("GET", ["invocation", "next"]) => {
                let Some(event) = next_event(connection, shared)? else { return Ok(()) };
                began = Instant::now();
                connection.write_all(&event.message)?;
            }
            ("POST", ["invocation" | "init", .., end]) => {
                let (chunks, body) = mpsc::unbounded_channel();
                let answering = Answering { failed: *end == "error", headers: headers(&head), began, body };
                // The error of a start is nobody's answer.
                let waiting = shared.state().waiting.remove(path[1]);
                if let Some(waiting) = waiting {
                    let _ = waiting.send(answering);
                }
                read_body(&mut reader, &head, &chunks)?;
                connection.write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")?;
            }
            _ => connection.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")?,
        }
    }
}

/// Waits for an event; `None` when the API ends, or the instance is gone.
fn next_event(connection: &TcpStream, shared: &Shared) -> io::Result<Option<Event>> {
    let mut state = shared.state();
    state.first_poll.get_or_insert_with(Instant::now);
    shared.polls.send_modify(|polls| *polls += 1);
    loop {
        if state.is_over {
            return Ok(None);
        }
        if !state.events.is_empty() {
            // An instance that was killed takes no event along.
            connection.set_nonblocking(true)?;
            let is_there =
                matches!(connection.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock);
            connection.set_nonblocking(false)?;
            return Ok(if is_there { state.events.pop_front() } else { None });
        }
        state = shared.changed.wait(state).expect("no panic under the lock");
    }
}

fn headers(head: &str) -> HeaderMap {
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value.trim()).ok()?))
    };
    head.lines().skip(1).filter_map(header).collect()
}

/// Reads the body that follows `head`, chunk by chunk.
fn read_body(
    reader: &mut impl BufRead,
    head: &str,
    chunks: &mpsc::UnboundedSender<(Instant, Option<Bytes>)>,
) -> io::Result<()> {
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok()).flatten()
    });
    let mut line = String::new();
    loop {
        let size = match length {
            Some(length) => length,
            None => {
                line.clear();
                reader.read_line(&mut line)?;
                usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?
            }
        };
        let mut chunk = vec![0; size];
        reader.read_exact(&mut chunk)?;
        let now = Instant::now();
        if size > 0 {
            let _ = chunks.send((now, Some(chunk.into())));
        }
        // After a chunk its line ends; after the last one there may be trailers, and then an empty line.
        while length.is_none() {
            line.clear();
            if reader.read_line(&mut line)? <= 2 {
                break;
            }
        }
        if length.is_some() || size == 0 {
            let _ = chunks.send((now, None));
            return Ok(());
        }
    }
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
