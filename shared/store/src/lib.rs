#![doc = include_str!("../README.md")]

mod batch;
pub mod config;
pub mod edit;
mod error;
mod forward;
pub mod idem;
mod jitter;
pub mod lease;
mod log;
mod name;
mod observed;
mod redacted;
mod round;
mod sender;

#[cfg(feature = "dynamodb")]
mod dynamodb;
#[cfg(feature = "memory")]
mod memory;
#[cfg(any(feature = "upstash", feature = "redis"))]
mod redis;
#[cfg(feature = "testing")]
pub mod testing;

use std::fmt::Debug;

use async_trait::async_trait;
pub use futures_util::future::BoxFuture;
pub use futures_util::stream::BoxStream;

pub use batch::{Batch, Commit, Expect, MAX_WRITES, Mismatch, Value, Write, seq_of};
pub use config::{Config, open};
#[cfg(feature = "dynamodb")]
pub use dynamodb::DynamoDb;
pub use edit::{Edit, Values};
pub use error::Error;
pub use lease::Lease;
pub use log::{Keep, MAX_TTL, Position, Record, Ttl};
#[cfg(feature = "memory")]
pub use memory::Memory;
pub use name::{Channel, Key, Log, MAX_NAME};
pub use observed::Observed;
#[cfg(feature = "redis")]
pub use redis::Redis;
#[cfg(feature = "upstash")]
pub use redis::Upstash;
pub use round::{Answers, Round, Ticket};

/// A store: values under keys, logs, channels, and one write that is atomic over all of them.
///
/// What an implementor owes is written down as tests in `testing::conformance` (feature
/// `testing`): every promise there must hold. In short:
///
/// - what has expired is absent, to every call, at once;
/// - a name holds a value or a log: asking for the other is [`Error::Decode`], before anything is written;
/// - every call returns within the store's time limit;
/// - a refusal is never an error and an error is never a refusal: what cannot be told is
///   [`Error::Unavailable`].
#[async_trait]
pub trait Store: Debug + Send + Sync {
    /// The value of `key`, as of the latest commit.
    async fn get(&self, key: &Key) -> Result<Option<String>, Error>;

    /// Applies all of `batch`, or none of it.
    async fn commit(&self, batch: &Batch) -> Result<Commit, Error>;

    /// Commits each batch by itself: one answer each, in their order; one's refusal or failure does not touch the
    /// others. Batches that share a key or a log are applied in order. One round trip where the backend can. (The README
    /// names two rare cases in which Redis applies a batch behind its followers.)
    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>>;

    /// Up to `limit` records of `log` after a position, or from the oldest, in commit order.
    async fn read(&self, log: &Log, after: Option<Position>, limit: usize) -> Result<Vec<Record>, Error>;

    /// Rings after every publish to `channel`, from the moment this call has returned.
    ///
    /// A ring says no more than "read again": rings may come together, or without cause. An error or the stream's
    /// end means that rings may have been missed: watch anew, then read.
    async fn watch(&self, channel: &Channel) -> Result<BoxStream<'static, Result<(), Error>>, Error>;

    /// The largest value, in bytes, that this store takes.
    fn max_value(&self) -> usize;
}
