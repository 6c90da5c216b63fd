#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc = include_str!("../README.md")]

mod cache;
mod call;
mod claim;
mod config;
mod effect;
mod error;
#[cfg(feature = "lambda")]
mod lambda;
#[cfg(feature = "tower")]
mod layer;
mod record;
mod resolve;
mod returned;
mod runs;
mod saved;
#[cfg(feature = "sqs")]
pub mod sqs;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

pub use call::Call;
pub use claim::{Claim, ClaimOutcome, Done, RecordOutcome, Run};
pub use config::{Config, Policy};
pub use effect::{EffectKey, EffectKeys};
pub use error::Error;
#[cfg(feature = "lambda")]
pub use lambda::Invocation;
#[cfg(feature = "grpc")]
pub use layer::grpc;
#[cfg(feature = "tower")]
use layer::hang_up::HangUp;
#[cfg(feature = "tower")]
pub use layer::{Body, BodyError, Caller, Deadline, http};
pub use resolve::{Resolution, ResolveOutcome};
pub use returned::Returned;

use cache::Cache;
use onetap_store::{Batch, ConfigError, Edit, Store, Values, Variables, edit};

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
/// use onetap_idem::digest;
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

    /// An engine over the store that the environment names (`STORE`, …), with the settings that it has (`IDEM_…`).
    pub fn from_env() -> Result<Idempotency, ConfigError> {
        Idempotency::from_variables(&Variables::from_env())
    }

    /// The same from these variables.
    pub fn from_variables(variables: &Variables<'_>) -> Result<Idempotency, ConfigError> {
        let store = onetap_store::open(&onetap_store::Config::from_variables(variables)?)?;
        Ok(Idempotency::with_config(store, Config::from_variables(variables)?))
    }

    /// A call of `key`, for settings that the shorthands below do not have, and for callers that must tell a run from a
    /// [replay](Returned).
    pub fn call(&self, key: &str) -> Call {
        Call::new(self, key)
    }

    /// A call that goes on with a run which was claimed elsewhere: in another process, from where it was sent as JSON (a [`Run`]
    /// is serialisable), or in this one by a [`Claim`]. It renews the claim first. If the claim has lapsed or was taken over, the
    /// call begins as any other call of its key.
    ///
    /// ```
    /// # use std::{convert::Infallible, sync::Arc};
    /// # use onetap_idem::{ClaimOutcome, Idempotency, Run};
    /// # use onetap_store::{Memory, Round, Store};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store: Arc<dyn Store> = Arc::new(Memory::new());
    /// # let idem = Idempotency::new(store.clone());
    /// // Here: claim the event, and send it on with its run.
    /// let mut round = Round::new();
    /// let claim = round.add(idem.call("event:42").claim()?);
    /// let ClaimOutcome::Mine(run) = round.send(&*store).await.take(claim)? else { return Ok(()) };
    /// let message = serde_json::to_string(&run)?;
    ///
    /// // There: go on with it.
    /// let run: Run = serde_json::from_str(&message)?;
    /// let done = idem.resume(run).execute(|| async { Ok::<u32, Infallible>(7) }).await?;
    /// # assert!(!done.is_replayed());
    /// # Ok(()) }
    /// ```
    ///
    /// The run has to be of an engine with the same [prefix](Config::prefix).
    pub fn resume(&self, run: Run) -> Call {
        Call::of(self, run)
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
    /// # use onetap_idem::{Error, Idempotency};
    /// # use onetap_store::Memory;
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
    pub async fn consume<E, F, Fut>(
        &self,
        key: &str,
        ttl: Duration,
        f: F,
    ) -> Result<ConsumeOutcome, Error<(), E>>
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
    /// # use onetap_idem::Idempotency;
    /// # use onetap_store::{Batch, Edit, Key, Memory, Store, Values};
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
    ) -> Result<ResolveOutcome, Error> {
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
pub enum ConsumeOutcome {
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
/// # use onetap_idem::Failure;
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
