//! Redis, over two transports: Upstash's REST API and the Redis protocol. Both run `commit.lua`.

mod encode;
#[cfg(feature = "redis")]
mod protocol;
#[cfg(feature = "redis")]
mod resp;
#[cfg(feature = "upstash")]
mod rest;
#[cfg(feature = "redis")]
mod wire;

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::{Batch, BoxStream, Channel, Commit, Error, Expect, Key, Log, Position, Record, Store, Write};
use encode::{Command, Reply, Script, ServerError};

/// Upstash Redis over its REST API.
#[cfg(feature = "upstash")]
pub type Upstash = Scripted<rest::Rest>;

/// Redis 7 or newer (or Valkey) over the Redis protocol.
#[cfg(feature = "redis")]
pub type Redis = Scripted<resp::Resp>;

/// What one request of `commit_each` may hold: Upstash takes 10 MB, and JSON needs room to escape.
const MAX_REQUEST: usize = 8_000_000;

/// How commands travel.
#[async_trait]
pub trait Transport: Debug + Send + Sync + 'static {
    /// Whether a plain read sees the newest write. Over Upstash it may be answered by a replica that is behind, so
    /// that every read goes through a script, as the writes do.
    const READS_ARE_FRESH: bool;

    /// A first line that the server wants to see above every script.
    const SCRIPT_HEAD: &'static str;

    /// One round trip: all commands in order, a reply for each.
    async fn send(&self, commands: &[Command<'_>], deadline: Instant) -> Result<Vec<Reply>, Failure>;

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
    /// The connection broke; what is repeatable may be sent once more over a new one. A thawed Lambda finds its
    /// pooled connections closed by the other side.
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
    /// The first send brought none, and may have landed: an error among these replies is not the whole truth.
    resent: bool,
}

/// A store that runs `commit.lua` on a Redis server.
#[derive(Debug)]
pub struct Scripted<T> {
    transport: T,
    limit: Duration,
    script: Script,
    /// The server has seen the script: its hash will do. Until then the text goes along, so that the first call
    /// costs one round trip too.
    loaded: AtomicBool,
    /// The server forbids PUBLISH inside a script: it follows in a request of its own.
    publishes_apart: AtomicBool,
}

impl<T: Transport> Scripted<T> {
    fn over(transport: T, limit: Duration) -> Scripted<T> {
        Scripted {
            transport,
            limit,
            script: Script::new(T::SCRIPT_HEAD, include_str!("commit.lua")),
            loaded: AtomicBool::new(false),
            publishes_apart: AtomicBool::new(false),
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.limit
    }

    /// One round trip, and one more where the connection broke and `repeatable` says that it may be.
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
    async fn ask(&self, command: Command<'_>) -> Result<Reply, Error> {
        match self.exchange(&[command], true, self.deadline()).await?.replies.pop() {
            Some(Reply::Error(error)) => Err(error.into()),
            Some(reply) => Ok(reply),
            None => Err(Error::unknown("no reply")),
        }
    }

    /// Batches in one request, in order.
    async fn run(&self, batches: &[&Batch], deadline: Instant) -> Vec<Result<Commit, Error>> {
        let mut answers = self.attempt(batches, deadline).await;
        // What the server turned down for a reason of ours it did not begin, and is sent again: once for a script
        // that it has forgotten, once for a publish that it forbids. (Only a batch that another client's load of
        // the script overtook in between could run behind its follower here.)
        for _ in 0..2 {
            let again: Vec<usize> = (0..answers.len()).filter(|n| self.adapt(&answers[*n])).collect();
            if again.is_empty() {
                break;
            }
            let rest: Vec<&Batch> = again.iter().map(|n| batches[*n]).collect();
            for (n, answer) in again.into_iter().zip(self.attempt(&rest, deadline).await) {
                let lost = matches!(&answers[n], Err(error) if error.maybe_applied());
                answers[n] = answer.map_err(|error| error.after_a_lost_reply_if(lost));
            }
        }
        answers.into_iter().map(|answer| answer.map_err(Error::from)).collect()
    }

    async fn attempt(&self, batches: &[&Batch], deadline: Instant) -> Vec<Result<Commit, ServerError>> {
        let apart = self.publishes_apart.load(Ordering::Relaxed);
        let loaded = self.loaded.load(Ordering::Relaxed);
        let calls = batches.iter().enumerate();
        let commands: Vec<_> =
            calls.map(|(n, batch)| self.script.call(batch, !loaded && n == 0, !apart)).collect();
        let repeatable = batches.iter().all(|batch| batch.is_repeatable());
        let Exchange { replies, resent } = match self.exchange(&commands, repeatable, deadline).await {
            Ok(exchange) => exchange,
            Err(error) => return batches.iter().map(|_| Err(error.clone().into())).collect(),
        };
        self.loaded.store(true, Ordering::Relaxed);
        let answer = |(batch, reply): (&&Batch, Reply)| {
            reply.commit(batch).map_err(|error| error.after_a_lost_reply_if(resent))
        };
        let answers: Vec<_> = batches.iter().zip(replies).map(answer).collect();
        if apart {
            self.publish(batches, &answers, deadline).await;
        }
        answers
    }

    /// Whether the server said something that sending otherwise mends; if so, the next send is otherwise.
    fn adapt(&self, answer: &Result<Commit, ServerError>) -> bool {
        match answer {
            Err(error) if error.is_script_unknown() => {
                self.loaded.store(false, Ordering::Relaxed);
                true
            }
            Err(error) if error.is_publish_forbidden() => {
                self.publishes_apart.store(true, Ordering::Relaxed);
                true
            }
            _ => false,
        }
    }

    /// Rings what was applied, where the script could not. The batch stands whatever comes of it.
    async fn publish(&self, batches: &[&Batch], answers: &[Result<Commit, ServerError>], deadline: Instant) {
        let applied =
            batches.iter().zip(answers).filter(|(_, answer)| matches!(answer, Ok(Commit::Applied(_))));
        let commands: Vec<Command<'_>> = applied
            .flat_map(|(batch, _)| batch.writes())
            .filter_map(|write| match write {
                Write::Publish { channel, text } => {
                    Some(Command::of(["PUBLISH", channel.as_str(), text.as_str()]))
                }
                _ => None,
            })
            .collect();
        if !commands.is_empty()
            && let Err(error) = self.exchange(&commands, true, deadline).await
        {
            tracing::warn!(%error, "committed, and the publish after it failed");
        }
    }
}

#[async_trait]
impl<T: Transport> Store for Scripted<T> {
    async fn get(&self, key: &Key) -> Result<Option<String>, Error> {
        if T::READS_ARE_FRESH {
            return self.ask(Command::of(["GET", key.as_str()])).await?.text_or_nil();
        }
        // "Refuse unless nothing is there" brings back what is there.
        match self.commit(&Batch::new().check(key, Expect::Absent)).await? {
            Commit::Applied(_) => Ok(None),
            Commit::Refused(refusal) => Ok(refusal.into_iter().next().and_then(|mismatch| mismatch.there)),
        }
    }

    async fn commit(&self, batch: &Batch) -> Result<Commit, Error> {
        batch.validate(self.max_value())?;
        if T::READS_ARE_FRESH
            && let Some(command) = Command::set_if_absent(batch)
        {
            // The one batch that a plain command can say: a claim or a lock. On refusal GET brings what is there.
            let Exchange { mut replies, resent } = self.exchange(&[command], true, self.deadline()).await?;
            let reply = match replies.pop() {
                Some(reply) => reply.set_if_absent(batch),
                None => return Err(Error::unknown("no reply")),
            };
            return reply.map_err(|error| error.after_a_lost_reply_if(resent).into());
        }
        self.run(&[batch], self.deadline()).await.pop().unwrap_or_else(|| Err(Error::unknown("no reply")))
    }

    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        let deadline = self.deadline();
        let mut answers: Vec<Result<Commit, Error>> = Vec::with_capacity(batches.len());
        let mut waiting: Vec<&Batch> = Vec::new();
        let mut size = 0;
        for batch in batches {
            let invalid = batch.validate(self.max_value()).err();
            let more: usize = batch.writes().iter().flat_map(Write::texts).map(|text| text.len() + 256).sum();
            if !waiting.is_empty() && (invalid.is_some() || size + more > MAX_REQUEST) {
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
        let from = after.map_or("-".to_owned(), |position| position.successor().to_string());
        let limit = limit.to_string();
        let reply = if T::READS_ARE_FRESH {
            self.ask(Command::of(["XRANGE", log.as_str(), &from, "+", "COUNT", &limit])).await?
        } else {
            const READ: &str = "return redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2])";
            let script = [T::SCRIPT_HEAD, READ].concat();
            self.ask(Command::of(["EVAL", &script, "1", log.as_str(), &from, &limit])).await?
        };
        reply.records()
    }

    async fn watch(&self, channel: &Channel) -> Result<BoxStream<'static, Result<(), Error>>, Error> {
        self.transport.subscribe(channel.as_str(), self.deadline()).await
    }

    fn max_value(&self) -> usize {
        MAX_REQUEST
    }
}
