//! One call of a key: what is asked, how it begins, and the ways to run it.

use std::fmt;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use futures_util::FutureExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep_until};
use tracing::Instrument;

#[cfg(feature = "tower")]
use super::HangUp;
use super::claim::{Claim, ClaimOutcome, Done, Run, RunWriter, lease, life};
use super::record::{self, Outcome};
use super::runs::{Granted, Runs, Settled};
use super::{ConsumeOutcome, EffectKeys, Error, Failure, Idempotency, MAX_KEY, Policy, Returned};
use onetap_store::edit::{self, Edit, Ended, Values};
use onetap_store::lease::unique_token;
use onetap_store::sender::Sender;
use onetap_store::{Batch, Key, MIN_TTL};

/// The longest pause between two looks at another caller's run.
const MAX_WAIT_INTERVAL: Duration = Duration::from_millis(500);

/// One call of a key, from [`Idempotency::call`]: set what differs from the engine's configuration, then run it.
#[derive(Clone)]
#[must_use = "a call does nothing until it is executed"]
pub struct Call {
    pub(super) idem: Idempotency,
    key: String,
    fingerprint: Fingerprint,
    /// When the waiting ends.
    deadline: Option<Instant>,
    /// When the process is stopped.
    end: Option<Instant>,
    result_ttl: Duration,
    policy: Policy,
    waits: bool,
    /// A run of the key that another process has begun.
    begun: Option<Run>,
    #[cfg(feature = "tower")]
    hang_up: Option<HangUp>,
}

impl Call {
    pub(super) fn new(idem: &Idempotency, key: &str) -> Call {
        let config = idem.config();
        Call {
            idem: idem.clone(),
            key: key.to_owned(),
            fingerprint: Fingerprint::None,
            deadline: None,
            end: None,
            result_ttl: config.result_ttl,
            policy: config.policy,
            waits: true,
            begun: None,
            #[cfg(feature = "tower")]
            hang_up: None,
        }
    }

    /// A call that goes on with `run`, as [`Idempotency::resume`] says.
    pub(super) fn of(idem: &Idempotency, run: Run) -> Call {
        let Claim { record, fingerprint, result_ttl, policy, .. } = &run.claim;
        // A record of another prefix is no key of this engine: the call says that its key is invalid.
        let key = record.as_str().strip_prefix(idem.config().prefix.as_str()).unwrap_or_default();
        let call = Call {
            fingerprint: fingerprint.clone().map_or(Fingerprint::None, Fingerprint::Of),
            result_ttl: *result_ttl,
            policy: *policy,
            ..Call::new(idem, key)
        };
        Call { begun: Some(run), ..call }
    }

    /// Ties the key to these bytes: with others it is refused as a [mismatch](Error::Mismatch). Only their hash is
    /// kept. They are read now, so what the function does to them later changes nothing.
    pub fn fingerprint(mut self, payload: impl AsRef<[u8]>) -> Call {
        let hash = Sha256::digest(payload.as_ref());
        // Half of it is plenty: it has to tell two payloads of one key apart.
        let half = hash.iter().take(16).fold(0u128, |number, byte| number << 8 | u128::from(*byte));
        self.fingerprint = Fingerprint::Of(format!("{half:032x}"));
        self
    }

    /// Ties the key to this value as JSON, whatever the order of its maps. A call whose payload cannot be written as JSON
    /// ends with [`Error::InvalidPayload`].
    ///
    /// The order of a list counts. JSON writes a `HashSet` as a list, in an order that differs from one set to the next also if
    /// they are equal: a retry would be refused as a [mismatch](Error::Mismatch). Use a `BTreeSet` in the payload, or sort a
    /// list of its members:
    ///
    /// ```
    /// # use std::{collections::{BTreeSet, HashSet}, sync::Arc};
    /// # use onetap_idem::Idempotency;
    /// # use onetap_store::Memory;
    /// # let idem = Idempotency::new(Arc::new(Memory::new()));
    /// let tags = HashSet::from(["new", "paid"]);
    /// let call = idem.call("order:42").payload(&tags.iter().collect::<BTreeSet<_>>());
    /// ```
    pub fn payload<P: Serialize + ?Sized>(mut self, payload: &P) -> Call {
        match serde_json::to_value(payload) {
            Ok(mut json) => {
                // A `HashMap` has another order in every process.
                json.sort_all_objects();
                self.fingerprint(json.to_string())
            }
            Err(_) => {
                self.fingerprint = Fingerprint::NotJson;
                self
            }
        }
    }

    /// Sets the deadline: nothing is begun after it, and the waiting and the calls to the store end there, with one
    /// exception: recording a result, or releasing the claim, has at least 200 ms, even after the deadline.
    ///
    /// The deadline does not stop the function, and while it runs its claim is renewed. A commit that the deadline cuts off is
    /// [unrecorded](Error::Unrecorded) or an error of the [store](Error::Store), and may have been applied.
    ///
    /// In a Lambda function it is `invocation` (feature `lambda`) that sets it.
    pub fn deadline(mut self, deadline: Instant) -> Call {
        self.deadline = Some(deadline);
        self
    }

    /// Sets when the process is stopped, as Lambda does with an invocation that has run out of time: no lease is longer. A
    /// duplicate can then begin as soon as the run has certainly ended. With [`Policy::AtMostOnce`] other callers get
    /// [`Error::Unknown`] from then on.
    ///
    /// In a Lambda function it is `invocation` (feature `lambda`) that sets it. On a server a claim is renewed for as long as
    /// its run takes.
    pub fn invocation_end(mut self, end: Instant) -> Call {
        self.end = Some(end);
        self
    }

    /// How long the result is kept.
    pub fn ttl(mut self, ttl: Duration) -> Call {
        self.result_ttl = ttl;
        self
    }

    /// Sets whether the function runs again after a crash. All callers of a key should agree on it.
    pub fn policy(mut self, policy: Policy) -> Call {
        self.policy = policy;
        self
    }

    /// Ends with [`Error::InProgress`] at once if it is running elsewhere.
    pub fn without_waiting(mut self) -> Call {
        self.waits = false;
        self
    }

    /// Ends the waiting for another caller's run with [`Error::InProgress`] if its client hangs up.
    #[cfg(feature = "tower")]
    pub(super) fn while_connected(mut self, hang_up: HangUp) -> Call {
        self.hang_up = Some(hang_up);
        self
    }

    /// The keys for the effects of this call's function, to be sent to receivers that dedupe. Take them before the call is
    /// run, and move them into the function.
    pub fn effect_keys(&self) -> EffectKeys {
        EffectKeys::new(self.record_name())
    }

    /// Runs `f` unless the key has a result; [returns](Returned) the result, this run's or the one before. Both have gone
    /// through JSON, so that they are equal: what JSON does not carry (`Some(None)` is `null`, as `None` is) is
    /// missing from the first result too.
    ///
    /// `f`'s error is not kept: the next call runs again.
    pub async fn execute<T, E, F, Fut>(self, f: F) -> Result<Returned<T>, Error<T, E>>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        self.work(|| async { f().await.map_err(Failure::Transient) }, Form::new()).await
    }

    /// [`execute`](Call::execute) for an `f` that works on `payload`, to which the key is tied: with another payload it is
    /// refused as a [mismatch](Error::Mismatch). See [`payload`](Call::payload).
    pub async fn execute_with<'p, P, T, E, F, Fut>(
        self,
        payload: &'p P,
        f: F,
    ) -> Result<Returned<T>, Error<T, E>>
    where
        P: Serialize + ?Sized,
        T: Serialize + DeserializeOwned,
        F: FnOnce(&'p P) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        self.payload(payload).execute(|| f(payload)).await
    }

    /// [`execute`](Call::execute) for a layer: the layer checks the size of the value itself, and returns the first value as
    /// it is, not as its record has it.
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
        let form = Form { value, ..Form::new() };
        let worked = self.work(|| async { f().await.map_err(Failure::Transient) }, form).await;
        worked.map(Returned::into_value)
    }

    /// [`execute`](Call::execute) for an `f` that can tell which of its errors will never go away: those are kept
    /// and replayed like values.
    pub async fn execute_keeping_failures<T, E, F, Fut>(self, f: F) -> Result<Returned<T>, Error<T, E>>
    where
        T: Serialize + DeserializeOwned,
        E: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let form = Form {
            failure: |error| record::carried(error, Outcome::Err),
            read_failure: |json| serde_json::from_str(json).ok(),
            ..Form::new()
        };
        self.work(f, form).await
    }

    async fn work<T, E, F, Fut>(self, f: F, form: Form<T, E>) -> Result<Returned<T>, Error<T, E>>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let observation = Observation::of("execute");
        let answer = async {
            match self.begin().await {
                Ok(Begun::Mine(runs)) => {
                    let ended = runs.unwinding(0, f).await;
                    conclude(&runs, ended, form).await.map(Returned::Executed)
                }
                Ok(Begun::Done(done)) => done.read(form.read_failure).map(Returned::Replayed),
                Err(error) => Err(error.widen()),
            }
        };
        observation.end(answer.instrument(observation.span()).await)
    }

    /// Runs `f` unless it was done before or is being done now; does not wait, and reads no result.
    pub async fn consume<E, F, Fut>(self, f: F) -> Result<ConsumeOutcome, Error<(), E>>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<(), E>>,
    {
        let call = self.without_waiting();
        let observation = Observation::of("consume");
        let answer = async {
            match call.begin().await {
                Ok(Begun::Mine(runs)) => {
                    let ended = runs.unwinding(0, f).await.map_err(Failure::Transient);
                    conclude(&runs, ended, Form::new()).await.map(Returned::Executed)
                }
                Ok(Begun::Done(_)) => Ok(Returned::Replayed(())),
                Err(error) => Err(error.widen()),
            }
        };
        match observation.end(answer.instrument(observation.span()).await) {
            Ok(Returned::Executed(())) => Ok(ConsumeOutcome::Executed),
            Ok(Returned::Replayed(())) => Ok(ConsumeOutcome::AlreadyDone),
            Err(Error::InProgress { .. }) => Ok(ConsumeOutcome::InProgress),
            Err(error) => Err(error),
        }
    }

    /// Runs `f`, and commits the writes that it answers with together with its value: both, or neither. Through any
    /// crash the effect is there once, with its result; the policy has nothing to decide.
    ///
    /// `f` is first given no values. Where the store refuses its writes, it is called again with the values that are there,
    /// to make the writes anew from them, or to give up with an error of its own. After 100 refusals the call ends with
    /// [`Error::Store`]. The batch has at most 49 writes, because the record takes one of [`MAX_WRITES`](onetap_store::MAX_WRITES), and
    /// does not name the record's own key. If `f` only reads some keys and decides, [`edit`](Call::edit) is shorter.
    pub async fn transact<T, E, F, Fut>(self, f: F) -> Result<Returned<T>, Error<T, E>>
    where
        T: Serialize + DeserializeOwned,
        F: FnMut(Values) -> Fut,
        Fut: Future<Output = Result<(Batch, T), E>>,
    {
        self.make(Edit::default(), f, |ended| match ended {
            Ended::Step(error) => Error::Function(error),
            Ended::Unread(error) | Ended::Unwritten(error) => Error::Store(error),
            // An edit without a lease loses none.
            Ended::TooManyConflicts | Ended::LeaseLost => Error::Store(too_many_conflicts()),
            Ended::TakenOver(value) => Error::LostLease { value },
        })
        .await
    }

    /// Makes `edit` and commits it together with the answer of its step: both, or neither, and once for the key.
    ///
    /// The step's own error is `Error::Function(edit::Error::Step(error))`. Too many conflicts, and writes that the store does
    /// not confirm, are [`Error::Store`].
    pub async fn edit<T, E>(
        self,
        edit: Edit<'_>,
        mut step: impl FnMut(&Values) -> Result<(Batch, T), E>,
    ) -> Result<Returned<T>, Error<T, edit::Error<E>>>
    where
        T: Serialize + DeserializeOwned,
    {
        let step = |there: Values| std::future::ready(step(&there));
        self.make(edit, step, |ended| match ended {
            Ended::Unwritten(error) => Error::Store(error),
            Ended::TooManyConflicts => Error::Store(too_many_conflicts()),
            Ended::TakenOver(value) => Error::LostLease { value },
            ended => Error::Function(ended.into()),
        })
        .await
    }

    async fn make<T, S, E, F, Fut>(
        self,
        edit: Edit<'_>,
        step: F,
        failure: fn(Ended<T, S>) -> Error<T, E>,
    ) -> Result<Returned<T>, Error<T, E>>
    where
        T: Serialize + DeserializeOwned,
        F: FnMut(Values) -> Fut,
        Fut: Future<Output = Result<(Batch, T), S>>,
    {
        let mut call = self.policy(Policy::AtLeastOnce);
        call.deadline = [call.deadline, edit.get_deadline()].into_iter().flatten().min();
        let observation = Observation::of("edit");
        let answer = async {
            match call.begin().await {
                Ok(Begun::Mine(runs)) => {
                    let made = AssertUnwindSafe(edit.write_by(RunWriter(&runs), step)).catch_unwind().await;
                    match &made {
                        // The store is down: a release would fail too.
                        Ok(Err(Ended::Unwritten(error))) if error.is_retryable() => {}
                        Ok(Ok(_) | Err(Ended::TakenOver(_))) => {}
                        Ok(Err(_)) | Err(_) => {
                            runs.release(0);
                            runs.settle().await;
                        }
                    }
                    match made {
                        Ok(made) => made.map(Returned::Executed).map_err(failure),
                        Err(panic) => resume_unwind(panic),
                    }
                }
                Ok(Begun::Done(done)) => done.read(|_| None).map(Returned::Replayed),
                Err(error) => Err(error.widen()),
            }
        };
        observation.end(answer.instrument(observation.span()).await)
    }

    /// The first step by itself, for callers that send it together with others: see [`Claim`]. Nobody renews this
    /// claim, so that its lease, or with [`Policy::AtMostOnce`] the [invocation](Call::invocation_end), has to cover the work.
    pub fn claim(&self) -> Result<Claim, Error> {
        let config = self.idem.config();
        let record = match self.key.len() {
            1..=MAX_KEY => Key::new(self.record_name()).map_err(|_| Error::InvalidKey)?,
            _ => return Err(Error::InvalidKey),
        };
        let fingerprint = match &self.fingerprint {
            Fingerprint::None => None,
            Fingerprint::Of(payload) => Some(payload.clone()),
            Fingerprint::NotJson => return Err(Error::InvalidPayload),
        };
        if self.deadline.is_some_and(|deadline| deadline < Instant::now() + MIN_TTL) {
            return Err(Error::DeadlinePassed);
        }
        let lease = lease(self.policy, config.lease_ttl, self.end).ok_or(Error::DeadlinePassed)?;
        let owner = unique_token();
        Ok(Claim {
            text: Claim::text_for(&owner, fingerprint.as_deref(), self.policy, lease),
            record,
            owner,
            fingerprint,
            lease,
            end: self.end,
            usual_lease: life(config.lease_ttl),
            result_ttl: life(self.result_ttl),
            policy: self.policy,
            max_record: self.idem.store().max_value(),
        })
    }

    fn record_name(&self) -> String {
        format!("{}{}", self.idem.config().prefix, self.key)
    }

    /// Claims the key, and waits while another caller holds it; ends with the right to run, or with a result.
    async fn begin(&self) -> Result<Begun<'_>, Error> {
        let config = self.idem.config();
        let patience = Some(config.wait_timeout).filter(|limit| !limit.is_zero());
        let patience = patience.and_then(|limit| Instant::now().checked_add(limit));
        let give_up = [patience, self.deadline].into_iter().flatten().min();
        let mut pause = life(config.wait_interval);
        let longest = pause.max(MAX_WAIT_INTERVAL);

        let mut claim = self.claim()?;
        if let Some(text) = self.idem.cache().get(&claim.record) {
            match claim.judge(&text)? {
                ClaimOutcome::Done(done) => return Ok(Begun::Done(done)),
                ClaimOutcome::Mismatch => return Err(Error::Mismatch),
                // No cached record is a claim.
                _ => {}
            }
        }
        if let Some(run) = &self.begun {
            let runs = Runs::new(self.sender()).cached(self.idem.cache());
            if runs.resume(run.clone().until_end(self.end)).await? {
                return Ok(Begun::Mine(runs));
            }
        }
        let mut seen = None;
        loop {
            let runs = Runs::new(self.sender()).cached(self.idem.cache());
            let granted = runs.claim(vec![(0, claim)]).await.pop();
            let left = match granted {
                Some((_, Ok(Granted::Mine))) => return Ok(Begun::Mine(runs)),
                Some((_, Ok(Granted::Done(done)))) => return Ok(Begun::Done(done)),
                Some((_, Err(error))) => {
                    // Releases a claim that was granted or may have been, and gives no right to run.
                    runs.settle().await;
                    match error {
                        Error::InProgress { left } => left,
                        // The deadline cut off the last look. What was seen before it still holds.
                        Error::Store(error) if error.is_retryable() && self.sender().is_over() => {
                            return Err(seen.map_or(Error::Store(error), |left| Error::InProgress { left }));
                        }
                        error => return Err(error),
                    }
                }
                None => Duration::ZERO,
            };
            seen = Some(left);
            let now = Instant::now();
            if !self.waits || give_up.is_some_and(|end| end <= now) {
                return Err(Error::InProgress { left });
            }
            let next = now + pause;
            tokio::select! {
                biased;
                () = self.hung_up() => return Err(Error::InProgress { left }),
                () = sleep_until(give_up.map_or(next, |end| next.min(end))) => {}
            }
            pause = (pause * 2).min(longest);
            // Every look is a claim of its own, in one round trip: granted if the other caller is gone, refused with its
            // result if it is done. Its lease is cut to what is left of the invocation.
            claim = match self.claim() {
                Err(Error::DeadlinePassed) => return Err(Error::InProgress { left }),
                claim => claim?,
            };
        }
    }

    /// Returns once the client has hung up.
    async fn hung_up(&self) {
        #[cfg(feature = "tower")]
        if let Some(hang_up) = &self.hang_up {
            return hang_up.happens().await;
        }
        std::future::pending().await
    }

    pub(super) fn sender(&self) -> Sender<'_> {
        Sender { store: &**self.idem.store(), deadline: self.deadline }
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut call = f.debug_struct("Call");
        call.field("deadline", &self.deadline).field("ttl", &self.result_ttl).field("policy", &self.policy);
        call.finish_non_exhaustive()
    }
}

fn too_many_conflicts() -> onetap_store::Error {
    onetap_store::Error::not_sent("the writes were refused again and again")
}

/// What a key is tied to.
#[derive(Clone)]
enum Fingerprint {
    None,
    /// The hash of a payload.
    Of(String),
    /// A payload that cannot be hashed. The call says so when it begins.
    NotJson,
}

/// How a call begins.
enum Begun<'a> {
    /// With the right to run.
    Mine(Runs<'a>),
    /// With a result that was there.
    Done(Done),
}

/// Converts a result or an error of the function to its record. The value comes back as it reads from the record.
struct Form<T, E> {
    value: fn(T) -> (T, Outcome),
    /// For a failure that is kept.
    failure: fn(E) -> (E, Outcome),
    /// A kept failure, from its record.
    read_failure: fn(&str) -> Option<E>,
}

impl<T: Serialize + DeserializeOwned, E> Form<T, E> {
    /// For a function whose failures are not recorded.
    fn new() -> Form<T, E> {
        Form {
            value: |value| record::carried(value, Outcome::Ok),
            failure: |error| (error, Outcome::NotKept),
            read_failure: |_| None,
        }
    }
}

/// Records how the function ended; its own error stays the answer, whatever comes of that.
async fn conclude<T, E>(
    runs: &Runs<'_>,
    ended: Result<T, Failure<E>>,
    form: Form<T, E>,
) -> Result<T, Error<T, E>> {
    let (ended, outcome) = match ended {
        Ok(value) => {
            let (value, outcome) = (form.value)(value);
            (Ok(value), outcome)
        }
        Err(Failure::Permanent(error)) => {
            let (error, outcome) = (form.failure)(error);
            (Err(error), outcome)
        }
        Err(Failure::Transient(error)) => {
            runs.release(0);
            runs.settle().await;
            return Err(Error::Function(error));
        }
    };
    runs.record(0, Batch::new(), &outcome);
    let settled = runs.settle().await.pop().map_or(Settled::LostLease, |(_, settled)| settled);
    match (ended, settled) {
        (Ok(value), Settled::Recorded(_)) => Ok(value),
        (Ok(value), Settled::LostLease | Settled::Refused(_)) => Err(Error::LostLease { value }),
        (Ok(value), Settled::Unrecorded(error)) => Err(Error::Unrecorded { value, error }),
        (Err(failure), settled) => {
            match settled {
                Settled::Recorded(_) => {}
                Settled::Unrecorded(error) => tracing::warn!(%error, "a permanent failure was not recorded"),
                _ => tracing::warn!("a permanent failure came after its lease, and was refused"),
            }
            Err(Error::Function(failure))
        }
    }
}

/// What is logged and counted of a call: never its key.
struct Observation {
    kind: &'static str,
    started: Instant,
}

impl Observation {
    fn of(kind: &'static str) -> Observation {
        Observation { kind, started: Instant::now() }
    }

    fn span(&self) -> tracing::Span {
        tracing::debug_span!("idempotent_call", kind = self.kind)
    }

    fn end<T, E>(&self, answer: Result<Returned<T>, Error<T, E>>) -> Result<Returned<T>, Error<T, E>> {
        let outcome = match &answer {
            Ok(Returned::Executed(_)) => "executed",
            Ok(Returned::Replayed(_)) => "replayed",
            Err(error) => error.outcome(),
        };
        metrics::counter!("idem_total", "outcome" => outcome).increment(1);
        let latency_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::debug!(kind = self.kind, outcome, latency_ms, "idempotent call");
        answer
    }
}
