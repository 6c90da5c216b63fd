//! The Redis backends: one script, `commit.lua`, over two transports, Upstash's REST API and the Redis protocol.

mod encode;
#[cfg(feature = "redis")]
mod resp;
#[cfg(feature = "upstash")]
mod rest;
#[cfg(feature = "redis")]
mod wire;

use std::fmt::Debug;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::{
    Batch, BoxStream, Channel, Commit, Error, Expect, Key, Log, Mismatch, Position, Record, Store, Write,
};
use encode::{Command, Judged, MAX_COUNT, Outcome, Reply, Script, ServerError};

/// Upstash Redis over its REST API.
#[cfg(feature = "upstash")]
pub type Upstash = Scripted<rest::Rest>;

/// Redis 7 or newer (or Valkey) over the Redis protocol.
#[cfg(feature = "redis")]
pub type Redis = Scripted<resp::Resp>;

/// Maximum size of a request of `commit_each`: Upstash accepts 10 MB, and JSON escapes need some of it.
const MAX_REQUEST_BYTES: usize = 8_000_000;

/// How often one call sends a batch. A server can refuse a batch at most three times for reasons that another form of
/// the script avoids; the other sends are for a value that another program keeps changing while the client compares it.
const MAX_SENDS: usize = 10;

/// Sends commands to a Redis server.
#[async_trait]
pub trait Transport: Debug + Send + Sync + 'static {
    /// Whether a plain read returns the newest write. Upstash may answer it from a replica that is behind, so there
    /// every read goes through a script, like the writes.
    const READS_ARE_FRESH: bool;

    /// The first line of every script (a shebang with flags), or empty.
    const SCRIPT_HEAD: &'static str;

    /// Sends all commands in one round trip; returns a reply for each, in order.
    async fn send(&self, commands: &[Command<'_>], deadline: Instant) -> Result<Vec<Reply>, Failure>;

    /// Opens a connection for the next request, unless one is idle. No command is sent but those of a login.
    async fn connect(&self, deadline: Instant) -> Result<(), Error>;

    /// Returns once the subscription is acknowledged.
    async fn subscribe(
        &self,
        channel: &str,
        deadline: Instant,
    ) -> Result<BoxStream<'static, Result<(), Error>>, Error>;
}

/// A round trip that failed.
#[derive(Debug)]
pub enum Failure {
    /// The connection broke. A repeatable request may be sent once more, over a new connection. (While a Lambda is
    /// frozen, the peer closes its pooled connections.)
    Interrupted,
    /// Anything else.
    Final(Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::Interrupted => Error::unknown("the connection broke before the reply was whole"),
            Failure::Final(error) => error,
        }
    }
}

/// A round trip that brought replies.
struct Exchange {
    replies: Vec<Reply>,
    /// These are the replies to a second send. The first one may be applied, whatever these replies say.
    resent: bool,
}

/// A store that runs `commit.lua` on a Redis server.
#[derive(Debug)]
pub struct Scripted<T> {
    transport: T,
    limit: Duration,
    /// The script in its four forms: with or without the first line, with or without PUBLISH.
    scripts: [Loaded; 4],
    /// The server does not accept [`Transport::SCRIPT_HEAD`], or there is none.
    headless: AtomicBool,
    /// The server does not accept a PUBLISH inside a script: it is sent in a second request.
    publishes_separately: AtomicBool,
}

/// A script, built when it is first used.
#[derive(Debug, Default)]
struct Loaded {
    script: OnceLock<Script>,
    /// The server has the script, so that its hash is enough. Until then the text is sent, so that the first call is
    /// one round trip too.
    seen: AtomicBool,
}

/// How the script is sent.
#[derive(Clone, Copy)]
struct Form {
    head: bool,
    publishes: bool,
}

/// A batch that is being sent, and its latest answer.
struct Sending<'a> {
    batch: &'a Batch,
    /// The latest answer.
    answer: Result<Commit, Error>,
    /// The server did not run it, and may accept it in another form: send it again.
    again: bool,
    /// A reply was lost: the batch may be applied, even if a later send returns an error.
    lost: bool,
    /// The script failed with an unknown error, perhaps in its last step, the publish: the writes may be applied.
    doubtful: bool,
    /// It is applied; its publishes must still be sent.
    unpublished: bool,
    judged: Vec<Judged>,
}

impl<T: Transport> Scripted<T> {
    fn over(transport: T, limit: Duration) -> Scripted<T> {
        Scripted {
            transport,
            limit,
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
        Instant::now() + self.limit
    }

    /// One round trip, and a second one if the connection broke and the commands are `repeatable`.
    async fn exchange(
        &self,
        commands: &[Command<'_>],
        repeatable: bool,
        deadline: Instant,
    ) -> Result<Exchange, Error> {
        let mut sent = self.transport.send(commands, deadline).await;
        let resent = repeatable && matches!(sent, Err(Failure::Interrupted));
        if resent {
            sent = self.transport.send(commands, deadline).await;
        }
        match sent {
            Ok(replies) if replies.len() == commands.len() => Ok(Exchange { replies, resent }),
            Ok(_) => Err(Error::unknown("not one reply for each command")),
            Err(failure) if resent => Err(Error::from(failure).after_a_lost_reply()),
            Err(failure) => Err(failure.into()),
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

    /// Sends batches in one request, in order. A batch that the server did not run is sent again in another form: with
    /// the script's text if the server no longer has it, without the parts that the server does not accept, or with a
    /// comparison that only the client can make. (Such a batch may then run after batches that follow it in this
    /// request: those that another client's load of the script let through, or that need no comparison.)
    async fn run(&self, batches: &[&Batch], deadline: Instant) -> Vec<Result<Commit, Error>> {
        let mut all: Vec<Sending<'_>> = batches.iter().map(|batch| Sending::new(batch)).collect();
        let mut form = self.form();
        for _ in 0..MAX_SENDS {
            let mut waiting: Vec<&mut Sending<'_>> = all.iter_mut().filter(|sending| sending.again).collect();
            if waiting.is_empty() {
                break;
            }
            form = self.attempt(&mut waiting, form, deadline).await;
        }
        let unpublished = all.iter().filter(|sending| sending.unpublished).map(|sending| sending.batch);
        self.publish(unpublished.collect(), deadline).await;
        all.into_iter().map(|sending| sending.answer).collect()
    }

    async fn run_one(&self, batch: &Batch, deadline: Instant) -> Result<Commit, Error> {
        self.run(&[batch], deadline).await.pop().unwrap_or_else(|| Err(Error::unknown("no reply")))
    }

    /// Sends the waiting batches in this form. Returns the form for those that must be sent again.
    async fn attempt(&self, waiting: &mut [&mut Sending<'_>], form: Form, deadline: Instant) -> Form {
        let loaded = &self.scripts[usize::from(form.head) * 2 + usize::from(form.publishes)];
        let script = loaded.script.get_or_init(|| Script::new(self.head(form), form.publishes));
        let seen = loaded.seen.load(Ordering::Relaxed);
        let calls = waiting.iter().enumerate();
        let commands: Vec<_> = calls
            .map(|(n, sending)| script.call(sending.batch, &sending.judged, !seen && n == 0, form.publishes))
            .collect();
        let repeatable = waiting.iter().all(|sending| sending.batch.is_repeatable());
        let exchange = self.exchange(&commands, repeatable, deadline).await;
        drop(commands);
        let Exchange { replies, resent } = match exchange {
            Ok(exchange) => exchange,
            Err(error) => {
                for sending in waiting {
                    sending.lost |= sending.doubtful;
                    sending.failed(error.clone());
                }
                return form;
            }
        };
        loaded.seen.store(true, Ordering::Relaxed);
        let mut next = form;
        for (sending, reply) in waiting.iter_mut().zip(replies) {
            sending.lost |= resent;
            let error = match reply.outcome(sending.batch, &sending.judged) {
                Ok(Outcome::Done(commit)) => {
                    if !form.publishes && sending.batch.publishes() {
                        self.remember_to_publish_apart();
                        sending.unpublished = matches!(commit, Commit::Applied(_));
                    }
                    sending.done(commit);
                    continue;
                }
                Ok(Outcome::Unpublished(commit)) => {
                    self.remember_to_publish_apart();
                    next.publishes = false;
                    sending.unpublished = true;
                    sending.done(commit);
                    continue;
                }
                Ok(Outcome::Unjudged(judged)) => {
                    sending.lost |= sending.doubtful;
                    sending.failed(Error::not_sent("another program kept changing a value that is judged"));
                    sending.judged.retain(|earlier| judged.iter().all(|later| later.key != earlier.key));
                    sending.judged.extend(judged);
                    sending.again = true;
                    continue;
                }
                Err(error) => error,
            };
            // If the same error comes without a publish, the publish was not its cause: it came before the first write.
            sending.lost |= sending.doubtful && !error.is_unknown();
            let publishes = form.publishes && sending.batch.publishes();
            if error.is_script_unknown() {
                loaded.seen.store(false, Ordering::Relaxed);
            } else if error.is_head_refused() && form.head {
                self.remember_headless();
                next.head = false;
                sending.doubtful = publishes;
            } else if error.is_unknown() && publishes {
                // Perhaps the server does not accept a PUBLISH in a script. Try without; if that works, remember it.
                next.publishes = false;
                sending.doubtful = true;
            } else {
                sending.failed(error.into());
                continue;
            }
            // A batch that may be applied already is sent again only if it is repeatable.
            sending.again = !sending.doubtful || sending.batch.is_repeatable();
            if sending.again {
                sending.failed_for_now(error.into());
            } else {
                sending.failed(Error::unknown("the script failed, perhaps after its writes"));
            }
        }
        next
    }

    /// Sends the publishes that the script could not send. The batches stay applied, even if this fails.
    async fn publish(&self, batches: Vec<&Batch>, deadline: Instant) {
        let writes = batches.into_iter().flat_map(Batch::writes);
        let commands: Vec<Command<'_>> = writes
            .filter_map(|write| match write {
                Write::Publish { channel, text } => {
                    Some(Command::of(["PUBLISH", channel.as_str(), text.as_str()]))
                }
                _ => None,
            })
            .collect();
        if commands.is_empty() {
            return;
        }
        let sent = self.exchange(&commands, true, deadline).await;
        let refusal = |reply| match reply {
            Reply::Error(error) => Some(Error::from(error)),
            _ => None,
        };
        if let Some(error) = sent.map_or_else(Some, |sent| sent.replies.into_iter().find_map(refusal)) {
            tracing::warn!(%error, "committed, and the publish after it failed");
        }
    }
}

impl<'a> Sending<'a> {
    fn new(batch: &'a Batch) -> Sending<'a> {
        Sending {
            batch,
            answer: Err(Error::not_sent("not sent yet")),
            again: true,
            lost: false,
            doubtful: false,
            unpublished: false,
            judged: Vec::new(),
        }
    }

    fn done(&mut self, commit: Commit) {
        self.answer = Ok(commit);
        self.again = false;
    }

    fn failed(&mut self, error: Error) {
        self.failed_for_now(error);
        self.again = false;
    }

    /// The answer, unless the batch is sent again.
    fn failed_for_now(&mut self, error: Error) {
        self.answer = Err(if self.lost { error.after_a_lost_reply() } else { error });
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
    256 + write.texts().chain(write.name()).map(escaped).sum::<usize>()
}

#[async_trait]
impl<T: Transport> Store for Scripted<T> {
    async fn get_all(&self, keys: &[Key]) -> Result<Vec<Option<String>>, Error> {
        let deadline = self.deadline();
        if T::READS_ARE_FRESH {
            let commands: Vec<_> = keys.iter().map(|key| Command::of(["GET", key.as_str()])).collect();
            let replies = self.exchange(&commands, true, deadline).await?.replies;
            // A log, or what a cleared log leaves for a second: the script tells them apart.
            let wrong_type = |reply: &Reply| matches!(reply, Reply::Error(error) if error.is_wrong_type());
            if !replies.iter().any(wrong_type) {
                return replies.into_iter().map(Reply::text_or_nil).collect();
            }
        }
        // A check for an absent key is refused if there is a value, and the refusal contains it.
        let absent = |batch: Batch, key| batch.check(key, Expect::Absent);
        let refusal = match self.run_one(&keys.iter().fold(Batch::new(), absent), deadline).await? {
            Commit::Applied(_) => Vec::new(),
            Commit::Refused(refusal) => refusal,
        };
        let value = |key| Mismatch::find(&refusal, key).and_then(|mismatch| mismatch.there.clone());
        Ok(keys.iter().map(value).collect())
    }

    async fn commit(&self, batch: &Batch) -> Result<Commit, Error> {
        batch.validate(self.max_value())?;
        let deadline = self.deadline();
        if T::READS_ARE_FRESH
            && let Some(command) = Command::set_if_absent(batch)
        {
            // A single put-if-absent (a claim or a lock) needs no script. If it is refused, the GET option of SET
            // returns the stored value.
            let repeatable = batch.is_repeatable();
            let Exchange { mut replies, resent } = self.exchange(&[command], repeatable, deadline).await?;
            let reply = match replies.pop() {
                Some(reply) => reply.set_if_absent(batch),
                None => return Err(Error::unknown("no reply")),
            };
            match reply {
                // A log, or what a cleared log leaves for a second: the script tells them apart.
                Err(error) if error.is_wrong_type() => {
                    let answer = self.run_one(batch, deadline).await;
                    return answer.map_err(|error| if resent { error.after_a_lost_reply() } else { error });
                }
                reply => return reply.map_err(|error| error.after_a_lost_reply_if(resent).into()),
            }
        }
        self.run_one(batch, deadline).await
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

    fn max_value(&self) -> usize {
        MAX_REQUEST_BYTES
    }
}
