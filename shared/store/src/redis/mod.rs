//! The Redis backends: one script, `commit.lua`, over two transports, Upstash's REST API and the Redis protocol.

#[cfg(feature = "redis")]
mod connection;
mod encode;
#[cfg(feature = "redis")]
mod pool;
#[cfg(feature = "redis")]
mod replies;
#[cfg(feature = "redis")]
mod resp;
#[cfg(feature = "upstash")]
mod rest;
mod send;
#[cfg(feature = "redis")]
mod subscription;
#[cfg(feature = "redis")]
mod wire;

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::{
    Batch, BoxStream, Capabilities, Channel, Commit, DEFAULT_TIMEOUT, Error, Expect, Found, Key, Log,
    Position, Record, Store, Write,
};
use encode::{Command, MAX_COUNT, Reply, ServerError};
use send::{Form, Loaded};

#[cfg(feature = "redis")]
pub use resp::Redis;
#[cfg(feature = "upstash")]
pub use rest::Upstash;

/// Maximum size of a request of `commit_each`: Upstash accepts 10 MB, and JSON escapes need some of it.
const MAX_REQUEST_BYTES: usize = 8_000_000;

/// Sends commands to a Redis server.
#[async_trait]
trait Transport: Debug + Send + Sync + 'static {
    /// Whether a plain read returns the newest write. Upstash may answer it from a replica that is behind, so there
    /// every read of a log goes through a script, like the writes.
    const READS_ARE_FRESH: bool;

    /// The command that reads the newest value of a key, and up to how many of them cost less than the script.
    const READ: (&'static str, usize);

    /// Whether a refused `SET … NX GET` returns the stored value. Upstash answers null.
    const SET_NX_RETURNS_VALUE: bool;

    /// How many batches one call of the script applies, at most. Upstash bills a call like any command. A long call
    /// delays other clients.
    const BATCHES_PER_CALL: usize;

    /// The first line of every script (a shebang with flags), or empty.
    const SCRIPT_HEAD: &'static str;

    /// Sends all commands in one round trip; returns a reply for each, in order.
    async fn send(&self, commands: &[Command<'_>], deadline: Instant) -> Result<Vec<Reply>, Error>;

    /// Opens a connection for the next request, unless one is idle. No command is sent but those of a login.
    async fn connect(&self, deadline: Instant) -> Result<(), Error>;

    /// Returns once the subscription is acknowledged.
    async fn subscribe(
        &self,
        channel: &str,
        deadline: Instant,
    ) -> Result<BoxStream<'static, Result<(), Error>>, Error>;
}

/// A round trip that brought replies.
struct Exchange {
    replies: Vec<Reply>,
    /// These are the replies to a second send. The first one may be applied, whatever these replies say.
    resent: bool,
}

/// A store that runs `commit.lua` on a Redis server.
#[derive(Debug)]
struct Scripted<T> {
    transport: T,
    timeout: Duration,
    /// The script without the first line, and with it.
    scripts: [Loaded; 2],
    /// The server does not accept [`Transport::SCRIPT_HEAD`], or there is none.
    headless: AtomicBool,
    /// The server does not accept a PUBLISH inside a script: it is sent in a second request.
    publishes_separately: AtomicBool,
}

impl<T: Transport> Scripted<T> {
    fn over(transport: T) -> Scripted<T> {
        Scripted {
            transport,
            timeout: DEFAULT_TIMEOUT,
            scripts: Default::default(),
            headless: AtomicBool::new(T::SCRIPT_HEAD.is_empty()),
            publishes_separately: AtomicBool::new(false),
        }
    }

    fn form(&self) -> Form {
        Form {
            head: !self.headless.load(Ordering::Relaxed),
            publishes: !self.publishes_separately.load(Ordering::Relaxed),
        }
    }

    fn head(&self, form: Form) -> &'static str {
        if form.head { T::SCRIPT_HEAD } else { "" }
    }

    fn remember_headless(&self) {
        if !self.headless.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the server does not take the script's first line: scripts now lock the whole database"
            );
        }
    }

    fn remember_to_publish_apart(&self) {
        if !self.publishes_separately.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the server does not let a script publish: publishes now follow in a request of their own"
            );
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// One round trip, and a second one if the connection broke and the commands are `repeatable`.
    async fn exchange(
        &self,
        commands: &[Command<'_>],
        repeatable: bool,
        deadline: Instant,
    ) -> Result<Exchange, Error> {
        let mut sent = self.transport.send(commands, deadline).await;
        let resent = repeatable && sent.as_ref().is_err_and(Error::is_interrupted);
        if resent {
            sent = self.transport.send(commands, deadline).await;
        }
        match sent {
            Ok(replies) if replies.len() == commands.len() => Ok(Exchange { replies, resent }),
            Ok(_) => Err(Error::unknown("not one reply for each command")),
            Err(error) if resent => Err(error.after_a_lost_reply()),
            Err(error) => Err(error),
        }
    }

    /// One command that only reads.
    async fn ask(&self, command: Command<'_>, deadline: Instant) -> Result<Reply, ServerError> {
        match self.exchange(&[command], true, deadline).await?.replies.pop() {
            Some(Reply::Error(error)) => Err(error),
            Some(reply) => Ok(reply),
            None => Err(Error::unknown("no reply").into()),
        }
    }
}

/// Upper bound of the size of a write in a JSON request, in bytes: an escaped character needs up to six.
fn max_encoded_size(write: &Write) -> usize {
    let escaped = |text: &str| {
        let byte = |byte: u8| match byte {
            b'"' | b'\\' => 2,
            0..=0x1f => 6,
            _ => 1,
        };
        text.bytes().map(byte).sum::<usize>()
    };
    // A log is sent with its mark, which is a little longer.
    let mark = write.name().filter(|_| matches!(write, Write::Append { .. } | Write::Clear { .. }));
    256 + write.texts().chain(write.name()).chain(mark).map(escaped).sum::<usize>()
}

#[async_trait]
impl<T: Transport> Store for Scripted<T> {
    async fn get_all(&self, keys: &[Key]) -> Result<Vec<Option<String>>, Error> {
        let deadline = self.deadline();
        let (command, at_most) = T::READ;
        if (1..=at_most).contains(&keys.len()) {
            let commands: Vec<_> = keys.iter().map(|key| Command::of([command, key.as_str()])).collect();
            let replies = self.exchange(&commands, true, deadline).await?.replies;
            // A log or an empty stream, between which the script distinguishes, or a server that does not have the command.
            let needs_script = |reply: &Reply| matches!(reply, Reply::Error(error) if error.is_wrong_type() || error.is_unknown());
            if !replies.iter().any(needs_script) {
                return replies.into_iter().map(Reply::text_or_nil).collect();
            }
        }
        // A check for an absent key is refused if there is a value, and the refusal contains it.
        let absent = |batch: Batch, key| batch.check(key, Expect::Absent);
        match self.run_one(&keys.iter().fold(Batch::new(), absent), deadline).await? {
            Commit::Applied(_) => Ok(vec![None; keys.len()]),
            Commit::Refused(refusal) => {
                let value = |key| refusal.get(key).and_then(Found::text).map(str::to_owned);
                Ok(keys.iter().map(value).collect())
            }
        }
    }

    async fn commit(&self, batch: &Batch) -> Result<Commit, Error> {
        batch.validate(self.max_value())?;
        self.run_one(batch, self.deadline()).await
    }

    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        let deadline = self.deadline();
        let mut answers: Vec<Result<Commit, Error>> = Vec::with_capacity(batches.len());
        let mut waiting: Vec<&Batch> = Vec::new();
        let mut size = 0;
        for batch in batches {
            let invalid = batch.validate(self.max_value()).err();
            let more: usize = batch.writes().iter().map(max_encoded_size).sum();
            if !waiting.is_empty() && (invalid.is_some() || size + more > MAX_REQUEST_BYTES) {
                answers.extend(self.run(&waiting, deadline).await);
                waiting.clear();
                size = 0;
            }
            match invalid {
                Some(error) => answers.push(Err(error)),
                None => {
                    waiting.push(batch);
                    size += more;
                }
            }
        }
        if !waiting.is_empty() {
            answers.extend(self.run(&waiting, deadline).await);
        }
        answers
    }

    async fn read(&self, log: &Log, after: Option<Position>, limit: usize) -> Result<Vec<Record>, Error> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let from = match after.map(|after| (after, after.successor())) {
            None => "-".to_owned(),
            Some((after, next)) if after < next => next.to_string(),
            // Nothing comes after the last position.
            Some(_) => return Ok(Vec::new()),
        };
        let (limit, deadline) = (limit.min(MAX_COUNT), self.deadline());
        let count = limit.to_string();
        if T::READS_ARE_FRESH {
            let range = Command::of(["XRANGE", log.as_str(), &from, "+", "COUNT", &count]);
            return self.ask(range, deadline).await?.records(after, limit);
        }
        const READ: &str = "return redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2])";
        let form = self.form();
        let read = |head: &str| [head, READ].concat();
        let script = read(self.head(form));
        match self.ask(Command::of(["EVAL", &script, "1", log.as_str(), &from, &count]), deadline).await {
            Err(error) if error.is_head_refused() && form.head => {
                self.remember_headless();
                let script = read("");
                self.ask(Command::of(["EVAL", &script, "1", log.as_str(), &from, &count]), deadline).await
            }
            asked => asked,
        }?
        .records(after, limit)
    }

    async fn watch(&self, channel: &Channel) -> Result<BoxStream<'static, Result<(), Error>>, Error> {
        self.transport.subscribe(channel.as_str(), self.deadline()).await
    }

    async fn connect(&self) -> Result<(), Error> {
        self.transport.connect(self.deadline()).await
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn max_value(&self) -> usize {
        MAX_REQUEST_BYTES
    }
}
