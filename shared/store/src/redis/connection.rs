//! One connection to a Redis server, shared by many callers.
//!
//! A task, the driver, writes the requests and reads the replies, which arrive in the same order. So a caller whose
//! future is not polled delays nobody else. A caller that gives up only leaves: its request is not sent any more, or its
//! reply is read and dropped.
//!
//! Nothing has to run while nobody calls: a frozen Lambda does not run the driver, and a connection that was closed in
//! the meantime is found before the next request is written. When the driver ends, with the connection or with its
//! runtime, every caller learns whether its request was written.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::{Stream, stream};
use tokio::io::{AsyncWrite, ReadHalf, WriteHalf, split};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::encode::Reply;
use super::replies::{Replies, protocol_error, too_long_reason};
use super::wire::{ByteStream, Wire};

/// A connection that was idle for longer is closed. NAT gateways and load balancers of AWS drop an idle connection
/// after 350 s, without notice to either side.
pub(super) const MAX_IDLE: Duration = Duration::from_secs(300);

/// A connection that owes a reply and was silent for longer takes no further requests: the server hangs, or the network
/// forgot the connection, or a long reply is in the way.
const MAX_SILENCE: Duration = Duration::from_secs(1);

/// Maximum size of the requests that wait on a connection, until their callers have the replies. Further callers wait,
/// within their time limit.
const MAX_WAITING_BYTES: usize = 16 << 20;

/// Minimum size counted for a request, to cover its reply and its bookkeeping.
const MIN_COUNTED_BYTES: usize = 4 * 1024;

/// The maximum size of a TLS record, and of one write. The server cannot decrypt an incomplete record, so if a write
/// fails, the server has received none of its bytes.
const MAX_WRITE_BYTES: usize = 16 * 1024;

/// After a longer quiet time the peer may have closed the connection, and tokio may not have read that event yet.
pub(super) const POLL_SOCKET_AFTER: Duration = Duration::from_millis(10);

/// A connection and its driver. The driver ends when this is dropped.
pub(super) struct Connection {
    requests: mpsc::UnboundedSender<Request>,
    room: Arc<Semaphore>,
    state: Arc<State>,
}

/// Why a request has no replies.
pub(super) enum Unanswered {
    /// The connection broke before any of it was written.
    NotSent(io::Error),
    /// The connection broke after that.
    Broke(io::Error),
    /// The reply is longer than this client takes.
    TooLong(String),
    /// The deadline has passed.
    OutOfTime { sent: bool },
}

/// What the driver and the callers both see.
#[derive(Default)]
struct State {
    /// It takes no further requests.
    retired: AtomicBool,
    /// The server has answered `READONLY`: it was the primary and is a replica now.
    read_only: AtomicBool,
    /// Part of a reply has arrived.
    within_reply: AtomicBool,
    /// Whether the server owes a reply.
    owes: AtomicBool,
    /// Since when it owes one, or sent the last one, in milliseconds since `start`.
    quiet_since: AtomicU64,
    start: OnceLock<Instant>,
    broke: OnceLock<(io::ErrorKind, String)>,
}

impl Connection {
    /// Starts the driver, in the current runtime.
    pub(super) fn start(wire: Wire) -> Connection {
        let (reading, writer) = split(wire.into_stream());
        let (requests, received) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(MAX_WAITING_BYTES / MIN_COUNTED_BYTES));
        let state = Arc::new(State::default());
        state.touch();
        let driver = Driver {
            writer,
            requests: received,
            queued: VecDeque::new(),
            waiting: VecDeque::new(),
            piece: Vec::new(),
            claimed: 0,
            unflushed: false,
            gave_way: false,
            looked: Instant::now(),
            room: Arc::clone(&room),
            state: Arc::clone(&state),
        };
        tokio::spawn(driver.run(reading));
        Connection { requests, room, state }
    }

    /// Whether it is expected to answer a further request.
    pub(super) fn is_usable(&self) -> bool {
        let quiet_for = self.state.quiet_for();
        let owes = self.state.owes.load(Ordering::Relaxed);
        let is_in_time = quiet_for < if owes { MAX_SILENCE } else { MAX_IDLE };
        is_in_time && !self.state.retired.load(Ordering::Relaxed) && !self.requests.is_closed()
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.state.read_only.load(Ordering::Relaxed)
    }

    pub(super) fn quiet_for(&self) -> Duration {
        self.state.quiet_for()
    }

    /// Sends a request of so many commands and waits for their replies.
    pub(super) async fn request(
        &self,
        bytes: Vec<u8>,
        commands: usize,
        deadline: Instant,
    ) -> Result<Vec<Reply>, Unanswered> {
        let counted = bytes.len().clamp(MIN_COUNTED_BYTES, MAX_WAITING_BYTES) / MIN_COUNTED_BYTES;
        let counted = u32::try_from(counted).unwrap_or(u32::MAX);
        let room = match Arc::clone(&self.room).try_acquire_many_owned(counted) {
            Ok(room) => room,
            Err(TryAcquireError::NoPermits) => self.wait_for_room(counted, deadline).await?,
            Err(TryAcquireError::Closed) => return Err(Unanswered::NotSent(self.state.source())),
        };
        let (answer, answered) = oneshot::channel();
        let progress = Progress::default();
        let request = Request { bytes, commands, progress: progress.clone(), answer, room };
        if self.requests.send(request).is_err() {
            return Err(Unanswered::NotSent(self.state.source()));
        }
        match timeout_at(deadline, answered).await {
            Ok(Ok(answer)) => answer.map(|(replies, _room)| replies).map_err(Unanswered::TooLong),
            Ok(Err(_)) if progress.give_up() => Err(Unanswered::Broke(self.state.source())),
            Ok(Err(_)) => Err(Unanswered::NotSent(self.state.source())),
            Err(_) => Err(self.out_of_time(progress.give_up())),
        }
    }

    async fn wait_for_room(
        &self,
        counted: u32,
        deadline: Instant,
    ) -> Result<OwnedSemaphorePermit, Unanswered> {
        match timeout_at(deadline, Arc::clone(&self.room).acquire_many_owned(counted)).await {
            Ok(room) => room.map_err(|_| Unanswered::NotSent(self.state.source())),
            Err(_) => Err(self.out_of_time(false)),
        }
    }

    /// The server may hang: later callers must not wait for it too.
    fn out_of_time(&self, sent: bool) -> Unanswered {
        self.state.retired.store(true, Ordering::Relaxed);
        Unanswered::OutOfTime { sent }
    }
}

impl State {
    fn touch(&self) {
        let start = self.start.get_or_init(Instant::now);
        self.quiet_since.store(start.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    fn quiet_for(&self) -> Duration {
        let since = Duration::from_millis(self.quiet_since.load(Ordering::Relaxed));
        self.start.get().map_or(Duration::ZERO, |start| start.elapsed().saturating_sub(since))
    }

    /// Why the connection broke.
    fn source(&self) -> io::Error {
        match self.broke.get() {
            Some((kind, text)) => io::Error::new(*kind, text.clone()),
            None => io::Error::new(io::ErrorKind::NotConnected, "the connection has ended"),
        }
    }
}

/// A request, in the driver's hands.
struct Request {
    bytes: Vec<u8>,
    commands: usize,
    progress: Progress,
    answer: oneshot::Sender<Answer>,
    room: OwnedSemaphorePermit,
}

/// The replies, with the room that they take until the caller has them; or why the reply is too long.
type Answer = Result<(Vec<Reply>, OwnedSemaphorePermit), String>;

/// How far a request came: the driver and the caller must agree on whether it was sent.
#[derive(Clone, Default)]
struct Progress(Arc<AtomicU8>);

impl Progress {
    const QUEUED: u8 = 0;
    const WRITTEN: u8 = 1;
    const GIVEN_UP: u8 = 2;

    /// Before it is written. False if the caller gave up.
    fn claim(&self) -> bool {
        let claimed =
            self.0.compare_exchange(Self::QUEUED, Self::WRITTEN, Ordering::SeqCst, Ordering::SeqCst);
        claimed.is_ok()
    }

    /// After none of it could be written.
    fn unclaim(&self) {
        let _ = self.0.compare_exchange(Self::WRITTEN, Self::QUEUED, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// The caller waits no longer: it is not written from now on. Whether it was before.
    fn give_up(&self) -> bool {
        self.0.swap(Self::GIVEN_UP, Ordering::SeqCst) == Self::WRITTEN
    }
}

/// A request with at least one byte on the wire.
struct Waiting {
    request: Request,
    written: usize,
    replies: Vec<Reply>,
}

impl Waiting {
    fn unwritten(&self) -> &[u8] {
        &self.request.bytes[self.written..]
    }
}

/// The task that owns the connection.
struct Driver {
    writer: WriteHalf<Box<dyn ByteStream>>,
    requests: mpsc::UnboundedReceiver<Request>,
    /// Requests that are not written yet.
    queued: VecDeque<Request>,
    /// Only the last one may be written in part.
    waiting: VecDeque<Waiting>,
    /// The bytes of the next write.
    piece: Vec<u8>,
    /// How many requests of `queued` have bytes in `piece`.
    claimed: usize,
    unflushed: bool,
    /// It has let other tasks run since it had requests to write.
    gave_way: bool,
    /// When the socket was last polled although nothing had arrived.
    looked: Instant,
    room: Arc<Semaphore>,
    state: Arc<State>,
}

enum Step {
    /// Requests are to be written after a quiet time: let tokio poll the socket first.
    Look,
    /// No caller waits for a reply, and none can send a request.
    Done,
}

impl Driver {
    async fn run(mut self, reading: ReadHalf<Box<dyn ByteStream>>) {
        let state = Arc::clone(&self.state);
        let incoming = stream::unfold(Replies::of(reading), |mut replies| {
            let state = Arc::clone(&state);
            async move {
                let next = async {
                    replies.begins().await?;
                    state.within_reply.store(true, Ordering::Relaxed);
                    let reply = replies.next().await?;
                    state.within_reply.store(false, Ordering::Relaxed);
                    Ok((reply, replies.read_only()))
                };
                Some((next.await, replies))
            }
        });
        let mut incoming = pin!(incoming);
        loop {
            match poll_fn(|context| self.poll(context, incoming.as_mut())).await {
                Ok(Step::Look) => {
                    tokio::task::yield_now().await;
                    self.looked = Instant::now();
                }
                Ok(Step::Done) => return,
                Err(error) => {
                    let _ = self.state.broke.set((error.kind(), error.to_string()));
                    let first = self.waiting.pop_front();
                    if let Some((reason, first)) = too_long_reason(&error).zip(first) {
                        let _ = first.request.answer.send(Err(reason));
                    }
                    return;
                }
            }
        }
    }

    fn poll(
        &mut self,
        context: &mut Context<'_>,
        mut incoming: Pin<&mut impl Stream<Item = io::Result<(Reply, bool)>>>,
    ) -> Poll<io::Result<Step>> {
        while let Poll::Ready(reply) = incoming.as_mut().poll_next(context) {
            let (reply, read_only) = reply.unwrap_or_else(|| Err(protocol_error()))?;
            if read_only {
                // Other requests go to another connection; those that were written get their replies.
                self.state.retired.store(true, Ordering::Relaxed);
                self.state.read_only.store(true, Ordering::Relaxed);
                self.requests.close();
                self.room.close();
            }
            self.answer(reply)?;
        }
        if self.waiting.is_empty() && self.state.within_reply.load(Ordering::Relaxed) {
            return Poll::Ready(Err(protocol_error()));
        }
        let is_closed = loop {
            match self.requests.poll_recv(context) {
                Poll::Ready(Some(request)) => self.queued.push_back(request),
                Poll::Ready(None) => break true,
                Poll::Pending => break false,
            }
        };
        if is_closed {
            self.queued.clear();
            while let Some(last) = self.waiting.back_mut() {
                if last.request.answer.poll_closed(context).is_pending() {
                    break;
                }
                self.waiting.pop_back();
            }
            if self.waiting.is_empty() {
                return Poll::Ready(Ok(Step::Done));
            }
        }
        let quiet_for = self.state.quiet_for().min(self.looked.elapsed());
        if !self.queued.is_empty() && quiet_for > POLL_SOCKET_AFTER {
            return Poll::Ready(Ok(Step::Look));
        }
        if !self.queued.is_empty() && !self.waiting.is_empty() && !self.gave_way {
            // Callers that have their replies may be about to send the next requests: one write for all of them.
            self.gave_way = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.gave_way = false;
        ready!(self.poll_write(context))?;
        Poll::Pending
    }

    /// Gives a reply to the request that has waited longest.
    fn answer(&mut self, reply: Reply) -> io::Result<()> {
        self.state.touch();
        let first = self.waiting.front_mut().ok_or_else(protocol_error)?;
        first.replies.push(reply);
        if first.replies.len() == first.request.commands {
            let is_written = first.unwritten().is_empty();
            let first = self.waiting.pop_front().filter(|_| is_written).ok_or_else(protocol_error)?;
            self.state.owes.store(!self.waiting.is_empty(), Ordering::Relaxed);
            let Request { answer, room, .. } = first.request;
            // The caller may be gone.
            let _ = answer.send(Ok((first.replies, room)));
        }
        Ok(())
    }

    /// Writes what there is to write. Ready when all of it is written and flushed.
    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            self.fill_piece();
            if self.piece.is_empty() {
                break;
            }
            let written = Pin::new(&mut self.writer).poll_write(context, &self.piece);
            match &written {
                Poll::Ready(Ok(written)) => self.wrote(*written),
                Poll::Ready(Err(_)) | Poll::Pending => self.wrote(0),
            }
            if ready!(written)? == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.writer).poll_flush(context))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// The rest of the last request, and as many further ones as fit.
    fn fill_piece(&mut self) {
        self.piece.clear();
        self.claimed = 0;
        let mut add = |bytes: &[u8]| {
            let room = MAX_WRITE_BYTES - self.piece.len();
            self.piece.extend_from_slice(&bytes[..bytes.len().min(room)]);
            self.piece.len() < MAX_WRITE_BYTES
        };
        let mut has_room = self.waiting.back().is_none_or(|last| add(last.unwritten()));
        while has_room {
            let Some(next) = self.queued.get(self.claimed) else { break };
            if !next.answer.is_closed() && next.progress.claim() {
                has_room = add(&next.bytes);
                self.claimed += 1;
            } else {
                self.queued.remove(self.claimed);
            }
        }
    }

    /// So many bytes of the piece were written.
    fn wrote(&mut self, mut bytes: usize) {
        self.unflushed |= bytes > 0;
        if bytes > 0 && self.waiting.is_empty() {
            self.state.touch();
            self.state.owes.store(true, Ordering::Relaxed);
        }
        if let Some(last) = self.waiting.back_mut() {
            let more = last.unwritten().len().min(bytes);
            last.written += more;
            bytes -= more;
        }
        while self.claimed > 0 && bytes > 0 {
            let Some(request) = self.queued.pop_front() else { break };
            let written = request.bytes.len().min(bytes);
            let replies = Vec::with_capacity(request.commands);
            self.waiting.push_back(Waiting { request, written, replies });
            self.claimed -= 1;
            bytes -= written;
        }
        self.queued.iter().take(self.claimed).for_each(|request| request.progress.unclaim());
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.state.retired.store(true, Ordering::Relaxed);
        self.room.close();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests;
