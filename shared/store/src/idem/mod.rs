//! Idempotency: the same call twice, at once, or halfway, and one effect.
//!
//! A key names one piece of work. Under it stands one record: first the *claim* of whoever runs the work, then its
//! *result*. Both carry their owner, and only the owner of what stands there may change it.
//!
//! ```
//! use std::sync::Arc;
//! use onetap_store::{Memory, idem::Idempotency};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let idem = Idempotency::new(Arc::new(Memory::new()));
//! for _ in 0..2 {
//!     let receipt = idem.execute("order:42", || async { charge(120).await }).await?;
//!     assert_eq!(receipt, "charged 120"); // the second time from the record
//! }
//! # Ok(()) }
//! # async fn charge(amount: u32) -> Result<String, std::io::Error> { Ok(format!("charged {amount}")) }
//! ```
//!
//! - [`execute`](Idempotency::execute): run it, or return what the run before returned; wait for one that is
//!   going on.
//! - [`consume`](Idempotency::consume): run it, or report that it was done or is being done; for queues, which deliver
//!   again by themselves.
//! - [`edit`](Idempotency::edit) and [`transact`](Idempotency::transact): the effect is a batch of store writes, and is
//!   committed *together with* the result. For these, exactly once holds through any crash. An edit reads keys and
//!   decides; a transaction is any function that answers with writes.
//! - [`call`](Idempotency::call): the same with a payload's fingerprint, a deadline, a life of its own. These also tell a run
//!   from a replay ([`Returned`]).
//! - [`EffectKeys`]: keys for effects outside the store, the same in every retry, for receivers that dedupe.
//! - [`Claim`] and [`Run`]: the steps by themselves, to be sent together with other batches.
//!
//! # The time line
//!
//! ```text
//! claim ├───── lease ─────┤
//!       │     renew ├───── lease ─────┤           every third of it, while the function runs
//!       │           │     renew ├───── lease ──┤  never beyond the invocation's end
//!       │           │           │              ┊
//!       ├── the function ───────────┤ commit    ┊
//!       │                           ├───────────┊──────── result TTL ────────┤ forgotten: the next call is new
//!       │                               waiting duplicates are answered at the deadline, 300 ms before
//!       ├── the invocation ─────────────────────┤
//!
//! claim ├── the function ──╳ its owner dies
//!       ├───── lease ─────┤ takeover ├── the function ──┤ commit          at least once
//!       ├───── lease ─────┤ unknown …………………………… resolve                   at most once
//! ```
//!
//! # How a call ends
//!
//! | the record | and then | `execute`, `transact`, `edit` | `consume` |
//! |---|---|---|---|
//! | nothing, or a lapsed claim | the function succeeds | its value, recorded | `Executed` |
//! | | it fails | [`Function`](Error::Function), nothing kept, the next call runs | the same |
//! | | it fails [for good](Failure::Permanent) | [`Function`](Error::Function), kept | – |
//! | | it outlasts its lease, and another owner's record is there | [`LostLease`](Error::LostLease) with the value | the same |
//! | | the store does not confirm | [`Unrecorded`](Error::Unrecorded) with the value; `transact`, `edit`: [`Store`](Error::Store) | `Unrecorded` |
//! | | it panics | the panic, after the claim is released; at most once the claim is left, and unknown after it | the same |
//! | | the call is dropped | the claim lapses, the policy decides | the same |
//! | a result | | that value, or that failure | `AlreadyDone` |
//! | a result that was not kept | | [`NotKept`](Error::NotKept) | `AlreadyDone` |
//! | somebody's claim | it ends within the wait | its result, or a run of one's own if it failed | `InProgress`, at once |
//! | | it does not | [`InProgress`](Error::InProgress) | `InProgress`, at once |
//! | an at-most-once claim, overdue | | [`Unknown`](Error::Unknown) | the same |
//! | another payload's | | [`Mismatch`](Error::Mismatch) | the same |
//! | something unreadable | | [`Store`](Error::Store), and it is left as it is | the same |
//! | no answer from the store | | [`Store`](Error::Store), nothing was run | the same |
//!
//! A panic that unwinds is a failure: at least once, the next call runs at once. It does not show whether the effect took place,
//! so at most once the claim is not released. With `panic = "abort"` a panic is a crash.
//!
//! # What it does not promise
//!
//! - *Exactly once* for effects outside the store. Between such an effect and the commit of its result a process
//!   can die; then it happens again ([`Policy::AtLeastOnce`]) or stays unknown ([`Policy::AtMostOnce`]). A receiver that dedupes by
//!   an [effect key](EffectKeys) makes it once.
//! - That a stale owner's function stops. Its commit is refused, and it gets an error; its effects outside the store remain.
//! - Anything about a key after its result's TTL: what comes then is new.
//! - Equal clocks. On Redis and in memory the store judges when a lease is over. On DynamoDB each caller's clock
//!   does: with clocks apart by more than what is left of a lease two may run at once, and still only one of them
//!   commits. At most once, the caller's clock judges on every backend when a run that goes on is unknown.
//! - Renewal for a function that blocks its thread, or an end of a function that calls its own key: it waits for itself.

mod cache;
mod call;
mod claim;
mod config;
mod effect;
mod error;
#[cfg(feature = "lambda")]
pub(crate) mod lambda;
#[cfg(feature = "tower")]
mod layer;
mod owner;
mod record;
mod resolve;
mod returned;
#[cfg(feature = "sqs")]
mod runs;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

pub use call::Call;
pub use claim::{Claim, Claimed, Committed, Done, Run};
pub use config::{Config, Policy};
pub use effect::{EffectKey, EffectKeys};
pub use error::Error;
#[cfg(feature = "grpc")]
pub use layer::grpc;
#[cfg(feature = "tower")]
use layer::hang_up::HangUp;
#[cfg(feature = "tower")]
pub use layer::{Body, BodyError, Caller, Deadline, http};
pub(crate) use owner::Owner;
pub(crate) use record::{Outcome, carried};
pub use resolve::{Resolution, Resolved};
pub use returned::Returned;
#[cfg(feature = "sqs")]
pub(crate) use runs::{Granted, Runs, Settled};

use crate::{Batch, Edit, Store, Values, edit};
use cache::Cache;

/// The longest key, in bytes.
pub const MAX_KEY: usize = 256;

/// The largest value that is kept, in bytes of JSON. An escape sequence counts as one byte, so that a text of 900 KB is kept
/// whatever its characters are. (In JSON a `Vec<u8>` is a list of numbers, two to four bytes each; base64 is shorter.) The
/// layers count the bytes of an answer's body.
///
/// A store may take less ([`Store::max_value`]): a record on DynamoDB has 396 KiB, as JSON writes it. That
/// is a text of nearly so much, half of it if all of it is quotes, and 297 KiB of a binary answer, which the layers keep as
/// base64. What is larger is returned once and not kept: a repeat gets [`Error::NotKept`], and no second run.
pub const MAX_RESULT: usize = 1 << 20;

/// A SHA-256 hash, in hex, over several parts with their lengths, so that no two lists of parts have the same input. It is for
/// the scope of a key (method, path, caller) and for the fingerprint of a payload with several parts.
///
/// ```
/// use onetap_store::idem::digest;
///
/// assert_eq!(digest(&[b"PUT", b"/users/7"]).len(), 64);
/// assert_ne!(digest(&[b"PUT", b"/users/7"]), digest(&[b"PUT/", b"users/7"]));
/// ```
pub fn digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The engine: a store, and how to use it. Cheap to clone; build it once and lend it to every invocation.
#[derive(Clone)]
pub struct Idempotency(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    config: Config,
    cache: Cache,
}

impl Idempotency {
    /// An engine over `store`, with the [default](Config::default) settings.
    pub fn new(store: Arc<dyn Store>) -> Idempotency {
        Idempotency::with_config(store, Config::default())
    }

    /// An engine over `store`.
    pub fn with_config(store: Arc<dyn Store>, config: Config) -> Idempotency {
        let cache = Cache::new(config.cache_size);
        Idempotency(Arc::new(Inner { store, config, cache }))
    }

    /// A call of `key`, for settings that the shorthands below do not have, and for callers that must tell a run from a
    /// [replay](Returned).
    pub fn call(&self, key: &str) -> Call {
        Call::new(self, key)
    }

    /// [`Call::execute`] as configured.
    pub async fn execute<T, E, F, Fut>(&self, key: &str, f: F) -> Result<T, Error<T, E>>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        self.call(key).execute(f).await.map(Returned::into_value)
    }

    /// [`Call::execute_with`] as configured.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use onetap_store::{Memory, idem::{Error, Idempotency}};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let idem = Idempotency::new(Arc::new(Memory::new()));
    /// # async fn charge(amount: u32) -> Result<String, std::io::Error> { Ok(format!("charged {amount}")) }
    /// let pay = |amount: u32| {
    ///     let idem = &idem;
    ///     async move { idem.execute_with("order:42", &amount, |amount| charge(*amount)).await }
    /// };
    /// assert_eq!(pay(120).await?, "charged 120");
    /// assert!(matches!(pay(999).await, Err(Error::Mismatch)), "the key belongs to the first payload");
    /// # Ok(()) }
    /// ```
    pub async fn execute_with<'p, P, T, E, F, Fut>(
        &self,
        key: &str,
        payload: &'p P,
        f: F,
    ) -> Result<T, Error<T, E>>
    where
        P: Serialize + ?Sized,
        T: Serialize + DeserializeOwned,
        F: FnOnce(&'p P) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        self.call(key).execute_with(payload, f).await.map(Returned::into_value)
    }

    /// [`Call::consume`], remembered for `ttl`.
    pub async fn consume<E, F, Fut>(&self, key: &str, ttl: Duration, f: F) -> Result<Consumed, Error<(), E>>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<(), E>>,
    {
        self.call(key).ttl(ttl).consume(f).await
    }

    /// [`Call::transact`] as configured.
    pub async fn transact<T, E, F, Fut>(&self, key: &str, f: F) -> Result<T, Error<T, E>>
    where
        T: Serialize + DeserializeOwned,
        F: FnMut(Values) -> Fut,
        Fut: Future<Output = Result<(Batch, T), E>>,
    {
        self.call(key).transact(f).await.map(Returned::into_value)
    }

    /// [`Call::edit`] as configured.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use onetap_store::{Batch, Edit, Key, Memory, Store, Values, idem::Idempotency};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store: Arc<dyn Store> = Arc::new(Memory::new());
    /// # let idem = Idempotency::new(store.clone());
    /// let balance = Key::new("balance")?;
    /// let deposit = |there: &Values| {
    ///     let sum = there.get(&balance).unwrap_or("0").parse::<u32>()? + 120;
    ///     let writes = Batch::new().put(&balance, there.expect(&balance), sum.to_string(), Duration::from_secs(60));
    ///     Ok::<_, std::num::ParseIntError>((writes, sum))
    /// };
    /// for _ in 0..2 {
    ///     assert_eq!(idem.edit("deposit:42", Edit::of(&balance), deposit).await?, 120);
    /// }
    /// assert_eq!(store.get(&balance).await?.as_deref(), Some("120"));
    /// # Ok(()) }
    /// ```
    pub async fn edit<T, E>(
        &self,
        key: &str,
        edit: Edit<'_>,
        step: impl FnMut(&Values) -> Result<(Batch, T), E>,
    ) -> Result<T, Error<T, edit::Error<E>>>
    where
        T: Serialize + DeserializeOwned,
    {
        self.call(key).edit(edit, step).await.map(Returned::into_value)
    }

    /// Settles a key of [`Policy::AtMostOnce`] whose outcome is [unknown](Error::Unknown), after somebody has checked what
    /// happened.
    ///
    /// Unknown means that its owner has not renewed its claim for a lease. It may still be running, cut off from the store;
    /// then its result is refused, but its effects happen. Before [`Forget`](Resolution::Forget) lets a second run begin, make
    /// sure that the first has ended.
    pub async fn resolve<T: Serialize>(
        &self,
        key: &str,
        resolution: Resolution<T>,
    ) -> Result<Resolved, Error> {
        self.call(key).resolve(resolution).await
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    fn config(&self) -> &Config {
        &self.0.config
    }

    fn cache(&self) -> &Cache {
        &self.0.cache
    }
}

impl fmt::Debug for Idempotency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotency").field("store", &self.0.store).field("config", &self.0.config).finish()
    }
}

/// How [`consume`](Idempotency::consume) ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what is in progress elsewhere must come again"]
pub enum Consumed {
    /// By this call.
    Executed,
    /// By a call before.
    AlreadyDone,
    /// Not yet: another caller is running it, and may fail. Have the message delivered again.
    InProgress,
}

/// An error of a function that knows whether trying again could help: for
/// [`execute_keeping_failures`](Call::execute_keeping_failures), and for the handlers of `sqs` (which keep no failure: there a
/// permanent one only lets the rest of its FIFO group go on).
///
/// `?` makes an `E` a transient `Failure<E>`. It converts once, and not from another error through `E`: so write the work
/// with an error of your own, and judge it in one place.
///
/// ```
/// # use onetap_store::idem::Failure;
/// # struct Order { item: String }
/// # async fn post(_: &Order) -> Result<(), std::io::Error> { Ok(()) }
/// enum ShipError {
///     NoItem,
///     Carrier(std::io::Error),
/// }
///
/// impl From<std::io::Error> for ShipError {
///     fn from(error: std::io::Error) -> ShipError {
///         ShipError::Carrier(error)
///     }
/// }
///
/// async fn work(order: &Order) -> Result<(), ShipError> {
///     if order.item.is_empty() {
///         return Err(ShipError::NoItem);
///     }
///     Ok(post(order).await?)
/// }
///
/// async fn ship(order: Order) -> Result<(), Failure<ShipError>> {
///     work(&order).await.map_err(|error| match error {
///         ShipError::NoItem => Failure::Permanent(error),
///         ShipError::Carrier(_) => Failure::Transient(error),
///     })
/// }
/// # let _ = ship;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure<E> {
    /// It could: nothing is kept, and the next call runs.
    Transient(E),
    /// It could not: the error is kept, and every repeat gets it. (In `sqs` nothing is kept, and SQS delivers it again.)
    Permanent(E),
}

impl<E> From<E> for Failure<E> {
    /// What is not said to be permanent is transient, so that `?` keeps nothing by accident.
    fn from(error: E) -> Failure<E> {
        Failure::Transient(error)
    }
}
