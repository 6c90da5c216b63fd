//! One call: what is asked, and the ways to ask it.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::claim::{Claim, Committed, Run};
use super::engine::{Answer, Begun, Form, LATE_CALL_TIMEOUT, noted};
use super::record::{self, Outcome};
use super::{Consumed, Error, Failure, Idempotency, MAX_KEY, Policy};
use crate::lease::unique_token;
use crate::{Batch, Key, MAX_TTL, Mismatch};

/// A `transact` whose writes are refused so often in a row has met no rival but a condition that never holds.
const MAX_ROUNDS: usize = 32;

/// Stores count in milliseconds.
const SHORTEST: Duration = Duration::from_millis(1);

/// One call of a key, from [`Idempotency::call`]: set what differs from the engine's configuration, then run it.
#[derive(Clone)]
#[must_use = "a call does nothing until it is executed"]
pub struct Call {
    pub(super) idem: Idempotency,
    key: String,
    fingerprint: Option<String>,
    pub(super) deadline: Option<Instant>,
    result_ttl: Duration,
    policy: Policy,
    pub(super) waits: bool,
}

impl Call {
    pub(super) fn new(idem: &Idempotency, key: &str) -> Call {
        let config = idem.config();
        Call {
            idem: idem.clone(),
            key: key.to_owned(),
            fingerprint: None,
            deadline: None,
            result_ttl: config.result_ttl,
            policy: config.policy,
            waits: true,
        }
    }

    /// Ties the key to these bytes: with others it is refused as a [mismatch](Error::Mismatch). Only their hash is
    /// kept. They are read now, so what the function does to them later changes nothing.
    pub fn fingerprint(mut self, payload: impl AsRef<[u8]>) -> Call {
        let hash = Sha256::digest(payload.as_ref());
        // Half of it is plenty: it has to tell two payloads of one key apart.
        let half = hash.iter().take(16).fold(0u128, |number, byte| number << 8 | u128::from(*byte));
        self.fingerprint = Some(format!("{half:032x}"));
        self
    }

    /// Ties the key to this value as JSON, whatever the order of its maps.
    pub fn payload(self, payload: &impl Serialize) -> Result<Call, Error> {
        let mut json = serde_json::to_value(payload)
            .map_err(|_| crate::Error::rejected("the payload cannot be written as JSON"))?;
        // A `HashMap` has another order in every process.
        json.sort_all_objects();
        Ok(self.fingerprint(json.to_string()))
    }

    /// When the caller will be gone: no lease lasts longer, no waiting, and no call to the store but the last. A commit
    /// that it cuts off is [unrecorded](Error::Unrecorded) or an error of the [store](Error::Store), and may have landed.
    ///
    /// It does not end the function, and what the function did has at least 200 ms to be recorded or released, also
    /// after the deadline. With [`Policy::AtMostOnce`] the lease lasts as much longer; then its outcome is unknown to
    /// others.
    pub fn deadline(mut self, deadline: Instant) -> Call {
        self.deadline = Some(deadline);
        self
    }

    /// The same by the time of day, as Lambda's context has it.
    pub fn deadline_at(mut self, deadline: SystemTime) -> Call {
        let left = deadline.duration_since(SystemTime::now()).unwrap_or_default();
        self.deadline = Instant::now().checked_add(left);
        self
    }

    /// How long the result is kept.
    pub fn ttl(mut self, ttl: Duration) -> Call {
        self.result_ttl = ttl;
        self
    }

    /// What follows a crash. All callers of a key should agree on it.
    pub fn policy(mut self, policy: Policy) -> Call {
        self.policy = policy;
        self
    }

    /// Ends with [`Error::InProgress`] at once if it is running elsewhere.
    pub fn without_waiting(mut self) -> Call {
        self.waits = false;
        self
    }

    /// Runs `f` unless the key has a result; returns the result, this run's or the one before. Both have gone
    /// through JSON, so that they are equal: what JSON does not carry (`Some(None)` is `null`, as `None` is) is
    /// missing from the first result too.
    ///
    /// `f`'s error is not kept: the next call runs again.
    pub async fn execute<T, E, F, Fut>(self, f: F) -> Result<T, Error<T, E>>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        self.work(|| async { f().await.map_err(Failure::Passing) }, Form::passing()).await
    }

    /// [`execute`](Call::execute) for a layer, whose value has checked its size itself, and is not what its replay is.
    #[cfg(feature = "tower")]
    pub(super) async fn execute_as_it_is<T, E, F, Fut>(self, f: F) -> Result<T, Error<T, E>>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let value = |value| {
            let outcome = Outcome::of_any_size(&value);
            (value, outcome)
        };
        self.work(|| async { f().await.map_err(Failure::Passing) }, Form { value, ..Form::passing() }).await
    }

    /// [`execute`](Call::execute) for an `f` that can tell which of its errors will never go away: those are kept
    /// and replayed like values.
    pub async fn execute_keeping_failures<T, E, F, Fut>(self, f: F) -> Result<T, Error<T, E>>
    where
        T: Serialize + DeserializeOwned,
        E: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let form = Form {
            failure: |error| record::carried(error, Outcome::Err),
            read_failure: |json| serde_json::from_str(json).ok(),
            ..Form::passing()
        };
        self.work(f, form).await
    }

    async fn work<T, E, F, Fut>(self, f: F, form: Form<T, E>) -> Result<T, Error<T, E>>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let answer = match self.begin().await {
            Ok(Begun::Mine(mut run)) => {
                let ended = self.renewing(&mut run, f()).await;
                self.conclude(&mut run, ended, form).await.map(Answer::Executed)
            }
            Ok(Begun::Done(done)) => done.read(form.read_failure).map(Answer::Replayed),
            Err(error) => Err(error.widen()),
        };
        noted(answer).map(Answer::into_value)
    }

    /// Runs `f` unless it was done before or is being done now; does not wait, and reads no result.
    pub async fn consume<E, F, Fut>(self, f: F) -> Result<Consumed, Error<(), E>>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<(), E>>,
    {
        let call = self.without_waiting();
        let answer = match call.begin().await {
            Ok(Begun::Mine(mut run)) => {
                let ended = call.renewing(&mut run, f()).await.map_err(Failure::Passing);
                call.conclude(&mut run, ended, Form::passing()).await.map(Answer::Executed)
            }
            Ok(Begun::Done(_)) => Ok(Answer::Replayed(())),
            Err(error) => Err(error.widen()),
        };
        match noted(answer) {
            Ok(Answer::Executed(())) => Ok(Consumed::Executed),
            Ok(Answer::Replayed(())) => Ok(Consumed::AlreadyDone),
            Err(Error::InProgress { .. }) => Ok(Consumed::InProgress),
            Err(error) => Err(error),
        }
    }

    /// Runs `f`, and commits the writes that it answers with together with its value: both, or neither. Through any
    /// crash the effect is there once, with its result; the policy has nothing to decide.
    ///
    /// `f` is first given an empty refusal. Where the store refuses its writes it is called again with what was
    /// found in their place, to make them anew from that, or to give up with an error of its own. It may use all of
    /// a batch's writes but one, and not the record's own key.
    pub async fn transact<T, E, F, Fut>(self, f: F) -> Result<T, Error<T, E>>
    where
        T: Serialize + DeserializeOwned,
        F: FnMut(Vec<Mismatch>) -> Fut,
        Fut: Future<Output = Result<(Batch, T), E>>,
    {
        let call = self.policy(Policy::AtLeastOnce);
        let answer = match call.begin().await {
            Ok(Begun::Mine(run)) => call.rounds(run, f).await.map(Answer::Executed),
            Ok(Begun::Done(done)) => done.read(|_| None).map(Answer::Replayed),
            Err(error) => Err(error.widen()),
        };
        noted(answer).map(Answer::into_value)
    }

    async fn rounds<T, E, F, Fut>(&self, mut run: Run, mut f: F) -> Result<T, Error<T, E>>
    where
        T: Serialize + DeserializeOwned,
        F: FnMut(Vec<Mismatch>) -> Fut,
        Fut: Future<Output = Result<(Batch, T), E>>,
    {
        let mut refusal = Vec::new();
        for _ in 0..MAX_ROUNDS {
            let (writes, value) = match self.renewing(&mut run, f(refusal)).await {
                Ok(made) => made,
                Err(error) => {
                    self.abandon(&mut run).await;
                    return Err(Error::Function(error));
                }
            };
            let (value, outcome) = record::carried(value, Outcome::Ok);
            let answer = match self.settle(&mut run, writes, &outcome).await {
                Ok(answer) => answer,
                Err(error) => {
                    // A store that is down would not hear us let go either.
                    if !error.is_retryable() {
                        self.abandon(&mut run).await;
                    }
                    return Err(Error::Store(error));
                }
            };
            // An earlier round's batch, whose reply was lost, may have landed after all: then its value is the one.
            let landed = run.recorded(&answer).and_then(|done| done.value().ok());
            refusal = match run.committed(answer) {
                Committed::Recorded => return Ok(landed.unwrap_or(value)),
                Committed::Lost => return Err(Error::LostLease { value }),
                Committed::Refused(refusal) => refusal,
            };
        }
        self.abandon(&mut run).await;
        Err(Error::Store(crate::Error::Unavailable {
            maybe_applied: false,
            reason: "the writes were refused again and again".into(),
        }))
    }

    /// The first step by itself, for callers that send it together with others: see [`Claim`]. Nobody renews this
    /// claim, so that its lease, or with [`Policy::AtMostOnce`] its deadline, has to cover the work.
    pub fn claim(&self) -> Result<Claim, Error> {
        let record = self.record()?;
        let lease = self.lease().ok_or(Error::DeadlinePassed)?;
        let owner = unique_token();
        Ok(Claim {
            text: Claim::text_for(&owner, self.fingerprint.as_deref(), self.policy, lease),
            record,
            owner,
            fingerprint: self.fingerprint.clone(),
            lease,
            usual_lease: self.idem.config().lease_ttl,
            result_ttl: life(self.result_ttl),
            policy: self.policy,
            max_record: self.idem.store().max_value(),
        })
    }

    /// The key under which the record stands.
    pub(super) fn record(&self) -> Result<Key, Error> {
        match self.key.len() {
            1..=MAX_KEY => {
                Key::new(format!("{}{}", self.idem.config().prefix, self.key)).map_err(|_| Error::InvalidKey)
            }
            _ => Err(Error::InvalidKey),
        }
    }

    /// How long a lease that is asked for now may last; `None` if there is no time left.
    pub(super) fn lease(&self) -> Option<Duration> {
        let usual = life(self.idem.config().lease_ttl);
        let Some(deadline) = self.deadline else { return Some(usual) };
        let left = deadline.saturating_duration_since(Instant::now());
        (left >= SHORTEST).then(|| match self.policy {
            Policy::AtLeastOnce => usual.min(left),
            // It covers the run without being renewed. After its deadline, and a late commit, the owner is gone.
            Policy::AtMostOnce => left.saturating_add(LATE_CALL_TIMEOUT).min(MAX_TTL),
        })
    }
}

/// A life that every backend can keep.
fn life(asked: Duration) -> Duration {
    asked.clamp(SHORTEST, MAX_TTL)
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut call = f.debug_struct("Call");
        call.field("deadline", &self.deadline).field("ttl", &self.result_ttl).field("policy", &self.policy);
        call.finish_non_exhaustive()
    }
}
