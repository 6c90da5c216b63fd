//! One connection that many speak over: requests go out in the order in which they come, and so do the replies come back.
//!
//! No task works in the background, where Lambda would freeze it. Whoever waits for a reply writes and reads for all, and
//! wakes another who still waits when leaving. A lone caller thus costs a write, a wait and a read, and nothing else. (Who
//! holds the thread without awaiting holds up those who wait with it, as it holds up the renewal of its own lease.)

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::encode::{Command, Reply};
use super::protocol::{encode, first_reply};

/// What a connection reads at a time, and keeps when it is idle.
const BUFFER: usize = 16 * 1024;

/// Plain, or within TLS.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The connection broke.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// Before a byte of the request was written: it can be sent elsewhere, whatever it is.
    Unsent,
    /// After that: what was on its way may or may not have arrived.
    Sent,
}

/// One connection.
pub(super) struct Wire(Mutex<State>);

struct State {
    stream: Box<dyn Stream>,
    /// What is still to be written; empty buffers are used again.
    out: Vec<u8>,
    written: usize,
    spare: Vec<u8>,
    /// How many bytes were ever put into `out`, and how many of them were written.
    queued: u64,
    sent: u64,
    /// What was read and is no whole reply yet.
    input: Vec<u8>,
    filled: usize,
    /// Everybody who waits, in the order of the replies. The first `answered` have theirs already; the first `begun` are
    /// in `out` or beyond.
    waiting: VecDeque<Waiting>,
    answered: usize,
    begun: usize,
    next: u64,
    broken: bool,
}

struct Waiting {
    number: u64,
    /// The commands, until they go into `out`; then where they begin and end in all that was ever put there.
    bytes: Vec<u8>,
    span: (u64, u64),
    wanted: usize,
    replies: Vec<Reply>,
    waker: Option<Waker>,
    /// Nobody will fetch it any more.
    gone: bool,
}

impl Wire {
    pub(super) fn new(stream: Box<dyn Stream>) -> Wire {
        Wire(Mutex::new(State {
            stream,
            out: Vec::new(),
            written: 0,
            spare: Vec::new(),
            queued: 0,
            sent: 0,
            input: vec![0; BUFFER],
            filled: 0,
            waiting: VecDeque::new(),
            answered: 0,
            begun: 0,
            next: 0,
            broken: false,
        }))
    }

    /// Whether it is worth sending something. Where nobody reads any more, what came meanwhile is read now: the end, if the
    /// other side closed the connection, and the replies to those who left.
    pub(super) fn is_open(&self) -> bool {
        let mut state = self.state();
        if !state.broken && state.waiting.iter().all(|waiting| waiting.gone) {
            let mut context = Context::from_waker(Waker::noop());
            if state.read(&mut context, usize::MAX).is_err() {
                state.give_up();
            }
            state.let_go();
        }
        !state.broken
    }

    /// Sends commands, at least one; the answer is a reply for each.
    pub(super) fn request(&self, commands: &[Command<'_>]) -> Request<'_> {
        let mut state = self.state();
        let mut bytes = std::mem::take(&mut state.spare);
        for command in commands {
            encode(command, &mut bytes);
        }
        let alone = state.waiting.len() == state.answered;
        let number = state.next;
        state.next += 1;
        let replies = Vec::with_capacity(commands.len());
        let (wanted, span) = (commands.len(), (0, 0));
        state.waiting.push_back(Waiting { number, bytes, span, wanted, replies, waker: None, gone: false });
        Request { wire: self, number, waits_for_others: !alone }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request on its way.
#[must_use]
pub(super) struct Request<'a> {
    wire: &'a Wire,
    number: u64,
    waits_for_others: bool,
}

impl Future for Request<'_> {
    type Output = Result<Vec<Reply>, Broken>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Where several send at once, one turn's wait puts what all of them say into one write.
        if std::mem::take(&mut self.waits_for_others) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut state = self.wire.state();
        let Some(place) = state.place(self.number) else { return Poll::Ready(Err(Broken::Sent)) };
        if place >= state.answered && !state.broken {
            state.work(context, place);
        }
        if place < state.answered {
            return Poll::Ready(Ok(std::mem::take(&mut state.waiting[place].replies)));
        }
        if state.broken {
            return Poll::Ready(Err(if state.is_sent(place) { Broken::Sent } else { Broken::Unsent }));
        }
        match &mut state.waiting[place].waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

/// Whoever leaves, with a reply or without, hands on the reading.
impl Drop for Request<'_> {
    fn drop(&mut self) {
        let mut state = self.wire.state();
        if let Some(place) = state.place(self.number) {
            state.leave(place);
        }
        state.let_go();
        let answered = state.answered;
        let others = state.waiting.iter_mut().skip(answered).filter(|other| !other.gone);
        if let Some(waker) = others.filter_map(|other| other.waker.take()).next() {
            waker.wake();
        }
    }
}

impl State {
    fn place(&self, number: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&number, |waiting| waiting.number).ok()
    }

    /// Whether the first byte of it was written.
    fn is_sent(&self, place: usize) -> bool {
        place < self.begun && self.sent > self.waiting[place].span.0
    }

    /// What was given up before it was sent must not be sent later, when nobody expects it any more.
    fn leave(&mut self, place: usize) {
        if place >= self.begun {
            self.waiting.remove(place);
            return;
        }
        self.waiting[place].gone = true;
        if self.sent < self.waiting[place].span.1 {
            self.give_up();
        }
    }

    fn let_go(&mut self) {
        while self.answered > 0 && self.waiting.front().is_some_and(|first| first.gone) {
            self.waiting.pop_front();
            self.answered -= 1;
            self.begun -= 1;
        }
    }

    /// Writes and reads as far as it goes, or until the reply for `place` is there.
    fn work(&mut self, context: &mut Context<'_>, place: usize) {
        if self.write(context).and_then(|()| self.read(context, place)).is_err() {
            self.give_up();
        }
    }

    fn give_up(&mut self) {
        self.broken = true;
        self.waiting.iter_mut().filter_map(|waiting| waiting.waker.take()).for_each(Waker::wake);
    }

    /// Puts what waits to be sent into `out`.
    fn begin(&mut self) {
        for waiting in self.waiting.iter_mut().skip(self.begun) {
            let start = self.queued;
            self.queued += waiting.bytes.len() as u64;
            waiting.span = (start, self.queued);
            if self.out.is_empty() {
                std::mem::swap(&mut self.out, &mut waiting.bytes);
            } else {
                self.out.append(&mut waiting.bytes);
            }
        }
        self.begun = self.waiting.len();
    }

    fn write(&mut self, context: &mut Context<'_>) -> Result<(), Ended> {
        self.begin();
        if self.out.is_empty() {
            return Ok(());
        }
        while self.written < self.out.len() {
            match Pin::new(&mut self.stream).poll_write(context, &self.out[self.written..]) {
                Poll::Ready(Ok(n @ 1..)) => {
                    self.written += n;
                    self.sent += n as u64;
                }
                Poll::Ready(_) => return Err(Ended),
                Poll::Pending => return Ok(()),
            }
        }
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Ready(Ok(())) => {
                self.out.clear();
                self.out.shrink_to(BUFFER);
                self.spare = std::mem::take(&mut self.out);
                self.written = 0;
                Ok(())
            }
            Poll::Ready(Err(_)) => Err(Ended),
            Poll::Pending => Ok(()),
        }
    }

    fn read(&mut self, context: &mut Context<'_>, place: usize) -> Result<(), Ended> {
        while place >= self.answered {
            if self.filled == self.input.len() {
                self.input.resize(self.filled * 2, 0);
            }
            let mut buffer = ReadBuf::new(&mut self.input[self.filled..]);
            match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => self.filled += buffer.filled().len(),
                Poll::Ready(_) => return Err(Ended),
                Poll::Pending => return Ok(()),
            }
            self.hand_out(place)?;
        }
        Ok(())
    }

    /// Gives every whole reply to the one whose turn it is; who stands at `place` is awake.
    fn hand_out(&mut self, place: usize) -> Result<(), Ended> {
        let mut from = 0;
        while let Some((reply, end)) = first_reply(&self.input[from..self.filled]).map_err(|_| Ended)? {
            from += end;
            // A reply that nobody asked for.
            let turn = self.answered;
            let waiting = self.waiting.get_mut(turn).filter(|_| turn < self.begun).ok_or(Ended)?;
            waiting.replies.push(reply);
            if waiting.replies.len() == waiting.wanted {
                self.answered += 1;
                if let Some(waker) = waiting.waker.take().filter(|_| turn != place) {
                    waker.wake();
                }
            }
        }
        self.input.copy_within(from..self.filled, 0);
        self.filled -= from;
        if self.filled == 0 && self.input.len() > 4 * BUFFER {
            self.input = vec![0; BUFFER];
        }
        Ok(())
    }
}

/// It closed, or says what no Redis says.
#[derive(Debug)]
struct Ended;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::task::JoinHandle;
    use tokio::time::{sleep, timeout};

    fn wire(size: usize) -> (Arc<Wire>, DuplexStream) {
        let (ours, theirs) = duplex(size);
        (Arc::new(Wire::new(Box::new(ours))), theirs)
    }

    async fn get(wire: &Wire, key: &str) -> Result<Option<String>, Broken> {
        let replies = wire.request(&[Command::of(["GET", key])]).await?;
        Ok(replies.into_iter().next().unwrap().text_or_nil().unwrap())
    }

    /// The same in a task of its own.
    fn getting(wire: &Arc<Wire>, key: &'static str) -> JoinHandle<Result<Option<String>, Broken>> {
        let wire = Arc::clone(wire);
        tokio::spawn(async move { get(&wire, key).await })
    }

    /// Answers every GET with its key, byte by byte.
    async fn echo(mut server: DuplexStream) {
        let mut read = Vec::new();
        loop {
            while let Some((request, end)) = first_reply(&read).unwrap() {
                let Reply::List(parts) = request else { panic!() };
                let Some(Reply::Text(key)) = parts.into_iter().nth(1) else { panic!() };
                read.drain(..end);
                for byte in format!("${}\r\n{key}\r\n", key.len()).bytes() {
                    server.write_all(&[byte]).await.unwrap();
                }
            }
            if server.read_buf(&mut read).await.unwrap_or_default() == 0 {
                return;
            }
        }
    }

    #[tokio::test]
    async fn each_of_many_gets_its_own_reply() {
        let (wire, server) = wire(64);
        tokio::spawn(echo(server));
        let callers: Vec<_> = (0..200)
            .map(|n| {
                let wire = Arc::clone(&wire);
                tokio::spawn(async move {
                    for m in 0..20 {
                        let key = format!("key-{n}-{m}");
                        assert_eq!(get(&wire, &key).await.unwrap().as_deref(), Some(key.as_str()));
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.await.unwrap();
        }
        assert!(wire.state().waiting.is_empty() && wire.state().filled == 0);
    }

    #[tokio::test]
    async fn who_leaves_before_the_reply_leaves_the_others_theirs() {
        let (wire, mut server) = wire(4096);
        // The first reads for all, and is the one who leaves.
        let other = getting(&wire, "other");
        tokio::task::yield_now().await;
        assert!(timeout(Duration::from_millis(20), get(&wire, "leaver")).await.is_err());
        assert!(!other.is_finished());
        server.write_all(b"$1\r\nA\r\n$1\r\nB\r\n").await.unwrap();
        assert_eq!(other.await.unwrap().unwrap().as_deref(), Some("A"));
        // Nor does the leaver's reply, which is still to be read, go to the next.
        let next = getting(&wire, "next");
        sleep(Duration::from_millis(5)).await;
        server.write_all(b"$1\r\nC\r\n").await.unwrap();
        assert_eq!(next.await.unwrap().unwrap().as_deref(), Some("C"));
    }

    #[tokio::test]
    async fn what_is_given_up_before_it_was_sent_is_never_sent() {
        let (wire, mut server) = wire(16);
        // The pipe holds less than the command: half of it stays here.
        assert!(timeout(Duration::from_millis(20), get(&wire, "a-key-that-does-not-fit")).await.is_err());
        assert!(!wire.is_open());
        assert_eq!(get(&wire, "another").await, Err(Broken::Unsent));
        drop(wire);
        let mut all = Vec::new();
        server.read_to_end(&mut all).await.unwrap();
        assert_eq!(all.len(), 16);
    }

    #[tokio::test]
    async fn who_leaves_before_a_byte_was_sent_disturbs_nobody() {
        let (wire, mut server) = wire(4096);
        let first = getting(&wire, "first");
        tokio::task::yield_now().await;
        drop(wire.request(&[Command::of(["GET", "never-polled"])]));
        let mut last = Box::pin(timeout(Duration::from_secs(5), get(&wire, "last")));
        let mut left = Box::pin(get(&wire, "left"));
        // Each polled once, which is before anything of it is sent; then one goes from between the others.
        assert!((&mut left).now_or_never().is_none());
        assert!((&mut last).now_or_never().is_none());
        drop(left);
        let answers = async {
            let mut read = Vec::new();
            while !read.ends_with(b"last\r\n") {
                server.read_buf(&mut read).await.unwrap();
            }
            server.write_all(b"$1\r\nA\r\n$1\r\nC\r\n").await.unwrap();
            String::from_utf8(read).unwrap()
        };
        let (last, said) = tokio::join!(last, answers);
        assert_eq!(
            (first.await.unwrap().unwrap().as_deref(), last.unwrap().unwrap().as_deref()),
            (Some("A"), Some("C"))
        );
        assert!(!said.contains("left") && !said.contains("never-polled"), "{said}");
        assert!(wire.is_open() && wire.state().waiting.is_empty());
    }

    #[tokio::test]
    async fn a_connection_that_closed_after_everybody_left_is_seen_to_be_closed() {
        let (wire, mut server) = wire(4096);
        assert!(timeout(Duration::from_millis(5), get(&wire, "left")).await.is_err());
        assert!(wire.is_open());
        server.write_all(b"$1\r\nA\r\n").await.unwrap();
        assert!(wire.is_open() && wire.state().waiting.is_empty());
        drop(server);
        assert!(!wire.is_open());
    }

    #[tokio::test]
    async fn a_connection_that_ends_breaks_everybody_and_is_no_longer_open() {
        let (wire, server) = wire(4096);
        assert!(wire.is_open());
        let callers = [(); 3].map(|()| getting(&wire, "key"));
        sleep(Duration::from_millis(5)).await;
        drop(server);
        for caller in callers {
            assert_eq!(caller.await.unwrap(), Err(Broken::Sent));
        }
        assert!(!wire.is_open());
    }

    #[tokio::test]
    async fn an_idle_connection_that_was_closed_is_seen_before_anything_is_sent() {
        let (wire, server) = wire(4096);
        drop(server);
        assert!(!wire.is_open());
    }
}
