#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc = include_str!("../README.md")]

mod batch;
mod commit;
pub mod config;
pub mod edit;
mod error;
mod forward;
mod jitter;
pub mod lease;
mod log;
mod name;
mod observed;
mod read_to_end;
mod redacted;
mod resend;
mod round;
pub mod sender;
mod seq;
mod warm_up;

#[cfg(feature = "dynamodb")]
mod dynamodb;
#[cfg(feature = "memory")]
mod memory;
#[cfg(any(feature = "upstash", feature = "redis"))]
mod redis;
#[cfg(feature = "testing")]
pub mod testing;

use std::fmt::Debug;

pub use async_trait::async_trait;
pub use futures_util::future::BoxFuture;
pub use futures_util::stream::BoxStream;

pub use batch::{Batch, Expect, MAX_WRITES, Value, Write};
pub use commit::{Commit, Found, Refusal};
pub use config::{
    Backend, Config, Credentials, DEFAULT_POLL_INTERVAL, DEFAULT_TIMEOUT, open, open_with_kinds,
};
#[cfg(feature = "dynamodb")]
pub use dynamodb::DynamoDb;
pub use edit::{Edit, Values};
pub use error::{Error, ErrorKind};
pub use lease::Lease;
pub use log::{Keep, MAX_TTL, MIN_TTL, Position, Record, Ttl};
#[cfg(feature = "memory")]
pub use memory::Memory;
pub use name::{Channel, Key, Log, MAX_NAME};
pub use observed::{KeyKind, Observed};
pub use onetap_config::{ConfigError, Secret, Variables};
#[cfg(feature = "upstash")]
pub use onetap_http::Client as HttpClient;
pub use read_to_end::read_to_end;
#[cfg(feature = "redis")]
pub use redis::Redis;
#[cfg(feature = "upstash")]
pub use redis::Upstash;
pub use round::{Answers, Read, Request, Round, Ticket};
pub use seq::seq_of;
pub use warm_up::{WARM_UP_TIMEOUT, warm_up};

/// A store: values under keys, logs, channels, and one conditional write that is atomic over all of them.
///
/// An implementation must pass all tests of `testing::conformance` (feature `testing`). In short:
///
/// - an expired value or log is absent for every call, from the moment of its expiry;
/// - a name is that of a value or of a log: a call for the other kind fails with [`ErrorKind::Decode`] and writes nothing;
/// - every call returns within the store's time limit;
/// - a refusal is never an error and an error is never a refusal: an unknown outcome is [`ErrorKind::Unavailable`].
///
/// The `impl` carries the attribute `#[onetap_store::async_trait]`. A store in front of another one [forwards](crate::forward) what it does
/// not change.
#[async_trait]
pub trait Store: Debug + Send + Sync {
    /// The value of each of `keys`, in their order: each as of the latest commit, not all as of the same one. This is one
    /// round trip. A key is named once, and there are at most [`MAX_WRITES`] of them.
    async fn get_all(&self, keys: &[Key]) -> Result<Vec<Option<String>>, Error>;

    /// The value of `key`, as of the latest commit.
    async fn get(&self, key: &Key) -> Result<Option<String>, Error> {
        Ok(self.get_all(std::slice::from_ref(key)).await?.pop().flatten())
    }

    /// Applies all writes of `batch`, or none.
    async fn commit(&self, batch: &Batch) -> Result<Commit, Error>;

    /// Commits each batch by itself; returns an answer for each, in order. If one is refused or fails, the others are
    /// not affected. Batches that share a key or a log are applied in order. This is one round trip if the backend
    /// supports it. (The README names two rare cases in which Redis applies a batch after batches that follow it.)
    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>>;

    /// Up to `limit` records of `log` after a position, or from the oldest, in commit order. A limit of 0 gives none, whatever has
    /// that name.
    async fn read(&self, log: &Log, after: Option<Position>, limit: usize) -> Result<Vec<Record>, Error>;

    /// A stream of notifications: an item after every publish on `channel`, from the moment this call has returned.
    ///
    /// A notification only means "read again": several publishes may give one, and there may be one without a publish.
    /// After an error or the end of the stream, notifications may have been missed: watch again, then read.
    async fn watch(&self, channel: &Channel) -> Result<BoxStream<'static, Result<(), Error>>, Error>;

    /// Opens a connection and keeps it for the next call, unless one is open already. Nothing is read, written or billed. A
    /// caller that does without it loses nothing: every call connects by itself.
    async fn connect(&self) -> Result<(), Error> {
        Ok(())
    }

    /// What the store can do beyond these promises. A store that does not say so has none of it.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Maximum size of a value, in bytes.
    fn max_value(&self) -> usize;
}

/// What some stores can do and others cannot ([`Store::capabilities`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Many writers may append to one log at the same time. Without it such appends contend: a log then belongs to one
    /// subject, such as a job, and not to all of them.
    pub shared_logs: bool,
    /// A publish notifies the watchers at once. Without it they are notified at an interval.
    pub pub_sub: bool,
}

impl Capabilities {
    /// A store that can do everything.
    pub const ALL: Capabilities = Capabilities { shared_logs: true, pub_sub: true };
}
