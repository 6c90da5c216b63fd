//! The batches of a call, and what the store's answers to them mean. Nothing is sent here: callers may send these batches
//! together with others.
//!
//! ```text
//! Claim ── batch() ──▶ store ── outcome() ──▶ Mine(Run) ── commit_batch() or abandon_batch() ──▶ store ── committed()
//! ```

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::record::{self, Outcome, State, unreadable};
use super::runs::{Runs, Settled};
use super::{EffectKeys, Error, Policy};
use onetap_store::edit::{self, Edit, Values, Writer, Written};
use onetap_store::sender::Sender;
use onetap_store::{Batch, Commit, Expect, Found, Key, MAX_TTL, MIN_TTL, Refusal, Store};

/// A life that every backend can keep.
pub(super) fn life(asked: Duration) -> Duration {
    asked.clamp(MIN_TTL, MAX_TTL)
}

/// How long a lease that is asked for now may last; `None` if no time is left before the invocation ends.
pub(super) fn lease(policy: Policy, usual: Duration, end: Option<Instant>) -> Option<Duration> {
    let usual = life(usual);
    let Some(end) = end else { return Some(usual) };
    let left = end.saturating_duration_since(Instant::now());
    (left >= MIN_TTL).then(|| match policy {
        Policy::AtLeastOnce => usual.min(left),
        // It covers the run without a renewal. When its invocation has ended, the owner is gone.
        Policy::AtMostOnce => left.min(MAX_TTL),
    })
}

/// A request for the right to run a key, from [`Call::claim`](super::Call::claim). The caller sends it.
///
/// ```
/// # use std::sync::Arc;
/// # use onetap_idem::{ClaimOutcome, RecordOutcome, Idempotency};
/// # use onetap_store::{Batch, Memory, Round, Store};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store: Arc<dyn Store> = Arc::new(Memory::new());
/// # let idem = Idempotency::new(store.clone());
/// # let (lock, release, writes) = (Batch::new(), Batch::new(), Batch::new());
/// let mut round = Round::new();
/// let (claim, _lock) = (round.add(idem.call("event:42").claim()?), round.add(lock));
/// let mut answers = round.send(&*store).await;
/// if let ClaimOutcome::Mine(run) = answers.take(claim)? {
///     // … the work …
///     let mut round = Round::new();
///     let (recorded, _released) = (round.add(writes.and(run.commit_batch(&"done"))), round.add(release));
///     let mut answers = round.send(&*store).await;
///     assert!(matches!(run.committed(answers.take(recorded)?), RecordOutcome::Recorded));
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Claim {
    pub(super) record: Key,
    pub(super) owner: String,
    pub(super) fingerprint: Option<String>,
    /// The record's text, as the claim or its last renewal wrote it. It contains the owner's token, so that a refusal with
    /// this text shows the owner its own claim.
    pub(super) text: String,
    /// How long the claim lasts, from its first send.
    pub(super) lease: Duration,
    /// When the invocation ends. No lease is longer.
    pub(super) end: Option<Instant>,
    /// The lease of other callers' claims, if their record does not name an end.
    pub(super) usual_lease: Duration,
    pub(super) result_ttl: Duration,
    pub(super) policy: Policy,
    /// The largest record that the store takes.
    pub(super) max_record: usize,
}

/// What the store's answer to a [`Claim`] means.
#[derive(Debug)]
#[must_use]
#[non_exhaustive]
pub enum ClaimOutcome {
    /// Run the function, then commit or abandon.
    Mine(Run),
    /// It is mine, but the answer came after the lease had lapsed, so another caller may be running. Do not run: abandon.
    Late(Run),
    /// It was done before.
    Done(Done),
    /// Another caller is running it.
    InProgress {
        /// The claim ends after this time, unless it is renewed.
        left: Duration,
    },
    /// The key belongs to another payload.
    Mismatch,
    /// Its owner did not renew it in time, and nobody may run it before it is resolved.
    Unknown,
}

impl Claim {
    /// The text of this claim, for a lease that begins now.
    pub(super) fn text_for(
        owner: &str,
        fingerprint: Option<&str>,
        policy: Policy,
        lease: Duration,
    ) -> String {
        let until = match policy {
            Policy::AtLeastOnce => None,
            Policy::AtMostOnce => {
                Some(now_ms().saturating_add(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX)))
            }
        };
        record::claim(owner, fingerprint, until)
    }

    /// How long the store keeps a claim with this lease.
    fn ttl(&self, lease: Duration) -> Duration {
        match self.policy {
            Policy::AtLeastOnce => lease,
            // A claim that lapsed would be run again, so this one outlives its lease. After the lease it is unknown.
            Policy::AtMostOnce => self.result_ttl.max(lease),
        }
    }

    /// The batch that claims. It may be sent again: it claims once, and the refusal shows that the claim is its own.
    pub fn batch(&self) -> Batch {
        Batch::new().put(&self.record, Expect::Absent, self.text.as_str(), self.ttl(self.lease))
    }

    /// The keys for the effects of the run, if the claim is granted.
    pub fn effect_keys(&self) -> EffectKeys {
        EffectKeys::new(self.record.as_str())
    }

    /// What the store's answer means, for a batch first sent at `sent`. An unreadable record is an error: it may say that the
    /// work is done.
    pub fn outcome(self, sent: Instant, answer: Commit) -> Result<ClaimOutcome, onetap_store::Error> {
        match answer {
            Commit::Applied(_) => Ok(self.granted(sent)),
            Commit::Refused(refusal) => match refusal.get(&self.record).and_then(Found::text) {
                Some(text) if text == self.text => Ok(self.granted(sent)),
                Some(text) => self.judge(text),
                // The claim that refused us is gone already: ask again.
                None => Ok(ClaimOutcome::InProgress { left: Duration::ZERO }),
            },
        }
    }

    fn granted(self, sent: Instant) -> ClaimOutcome {
        let until = sent + self.lease;
        let run = Run::new(self, until);
        if Instant::now() < until { ClaimOutcome::Mine(run) } else { ClaimOutcome::Late(run) }
    }

    /// What another caller's record means.
    pub(super) fn judge(&self, text: &str) -> Result<ClaimOutcome, onetap_store::Error> {
        let found = record::parse(text)?;
        // A caller without a fingerprint has nothing to compare.
        if let (Some(mine), Some(theirs)) = (&self.fingerprint, &found.fingerprint) {
            if mine != theirs {
                return Ok(ClaimOutcome::Mismatch);
            }
        }
        Ok(match found.state {
            State::Done(outcome) => ClaimOutcome::Done(Done(outcome)),
            State::Claimed { until: None } => ClaimOutcome::InProgress { left: self.usual_lease },
            State::Claimed { until: Some(until) } => match until.saturating_sub(now_ms()) {
                0 => ClaimOutcome::Unknown,
                left => ClaimOutcome::InProgress { left: Duration::from_millis(left) },
            },
        })
    }
}

/// The right to run the function. Dropping it releases nothing: the claim lapses by itself.
#[derive(Clone)]
pub struct Run {
    pub(super) claim: Claim,
    pub(super) until: Instant,
}

/// What the store's answer to a [`Run`]'s commit means.
#[derive(Debug)]
#[must_use]
#[non_exhaustive]
pub enum RecordOutcome {
    /// The result is recorded, with all of the batch, by this send or by an earlier one whose reply was lost.
    Recorded,
    /// Nothing was written: the record would have been, but these expectations of the batch's other writes failed.
    Refused(Refusal),
    /// Nothing was written: another owner's record is there.
    Lost,
}

impl Run {
    pub(super) fn new(claim: Claim, until: Instant) -> Run {
        Run { claim, until }
    }

    /// The same run, whose process is stopped at `end`.
    pub(super) fn until_end(mut self, end: Option<Instant>) -> Run {
        self.claim.end = end;
        self
    }

    /// The batch that records `value` as the result. What is to be written with it, or not at all, goes into the
    /// same batch: `writes.and(run.commit_batch(&value))`.
    ///
    /// A value over [1 MiB](super::MAX_RESULT), or over what the store takes, is not kept; that it is done still is.
    pub fn commit_batch(&self, value: &impl Serialize) -> Batch {
        self.batch(self.result(&Outcome::ok(value)))
    }

    /// The batch that records `error` as the failure that every repeat will get.
    pub fn fail_batch(&self, error: &impl Serialize) -> Batch {
        self.batch(self.result(&Outcome::err(error)))
    }

    /// The batch that replaces this run's own result `before` by `after`: for a result that names what is left to do, once
    /// that is done.
    pub fn amend_batch(&self, before: &impl Serialize, after: &impl Serialize) -> Batch {
        let Claim { record, result_ttl, .. } = &self.claim;
        let expect = Expect::Is(self.result(&Outcome::ok(before)));
        Batch::new().put(record, expect, self.result(&Outcome::ok(after)), *result_ttl)
    }

    /// The batch that releases the claim, so that the next caller runs the function.
    ///
    /// Its answer can be ignored: if the claim is gone, or another caller's record is there, nothing is left to do.
    pub fn abandon_batch(&self) -> Batch {
        Batch::new().delete(&self.claim.record, self.claim.text.as_str()).gone_is_success()
    }

    /// What the store's answer to a batch with [`commit_batch`](Run::commit_batch) or
    /// [`fail_batch`](Run::fail_batch) in it means.
    pub fn committed(&self, answer: Commit) -> RecordOutcome {
        if self.recorded(&answer).is_some() {
            return RecordOutcome::Recorded;
        }
        match answer {
            Commit::Applied(_) => RecordOutcome::Recorded,
            Commit::Refused(refusal) if self.is_named(&refusal) => RecordOutcome::Lost,
            Commit::Refused(refusal) => RecordOutcome::Refused(refusal),
        }
    }

    /// Makes `edit` in `store` and records the answer of its step as the result of this run: both, or neither. What comes back is
    /// the answer as the record has it.
    ///
    /// If the edit fails, the claim stays as it is: the caller abandons the run or lets it lapse.
    pub async fn edit<T, E>(
        &mut self,
        store: &dyn Store,
        edit: &Edit<'_>,
        mut step: impl FnMut(&Values) -> Result<(Batch, T), E>,
    ) -> Result<T, edit::Error<E>>
    where
        T: Serialize + DeserializeOwned,
    {
        let runs =
            Runs::new(Sender { store, deadline: edit.get_deadline() }).impatient().with(0, self.clone());
        let made = edit.write_by(RunWriter(&runs), |there| std::future::ready(step(&there))).await;
        if let Some(run) = runs.take(0) {
            *self = run;
        }
        made.map_err(edit::Error::from)
    }

    /// The keys for the effects of this run, to be sent to receivers that dedupe.
    pub fn effect_keys(&self) -> EffectKeys {
        self.claim.effect_keys()
    }

    /// The latest moment at which the claim may still be mine, by this process's clock.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// The result of this run, if a refusal shows it: an earlier send was applied.
    pub(crate) fn recorded(&self, answer: &Commit) -> Option<Done> {
        let Commit::Refused(refusal) = answer else { return None };
        let there = refusal.get(&self.claim.record)?.text()?;
        match record::parse(there).ok()? {
            record::Record { owner, state: State::Done(outcome), .. } if owner == self.claim.owner => {
                Some(Done(outcome))
            }
            _ => None,
        }
    }

    /// Whether a refusal names the record.
    pub(super) fn is_named(&self, refusal: &Refusal) -> bool {
        refusal.get(&self.claim.record).is_some()
    }

    /// The record of `outcome`; if that is too large, the record that it is done.
    pub(super) fn result(&self, outcome: &Outcome) -> String {
        let Claim { owner, fingerprint, max_record, .. } = &self.claim;
        let write = |outcome| record::result(owner, fingerprint.as_deref(), outcome);
        Some(write(outcome))
            .filter(|text| text.len() <= *max_record)
            .unwrap_or_else(|| write(&Outcome::NotKept))
    }

    /// The batch that puts a result in the claim's place.
    pub(super) fn batch(&self, result: String) -> Batch {
        let Claim { record, text, policy, result_ttl, .. } = &self.claim;
        let expect = match policy {
            // The claim may have lapsed: if nobody else has run, the result is still recorded.
            Policy::AtLeastOnce => Expect::AbsentOr(text.clone()),
            // This claim does not lapse. If it is gone, somebody has resolved it with `Forget`.
            Policy::AtMostOnce => Expect::Is(text.clone()),
        };
        Batch::new().put(record, expect, result, *result_ttl)
    }

    /// How long the claim may last if it is renewed now; `None` if it lasts until the invocation ends, or that has ended.
    pub(super) fn renewable(&self) -> Option<Duration> {
        let Claim { policy, usual_lease, end, .. } = &self.claim;
        if end.is_some_and(|end| end <= self.until) { None } else { lease(*policy, *usual_lease, *end) }
    }

    /// Whether the invocation has ended, and with it the lease: there is nothing left to release.
    pub(super) fn has_lapsed(&self) -> bool {
        self.claim.policy == Policy::AtLeastOnce && self.claim.end.is_some_and(|end| end <= Instant::now())
    }

    /// The text of the claim once it is renewed for `lease` from now.
    pub(super) fn renewed(&self, lease: Duration) -> String {
        let Claim { owner, fingerprint, policy, .. } = &self.claim;
        Claim::text_for(owner, fingerprint.as_deref(), *policy, lease)
    }

    /// The batch that puts `renewed` in the claim's place, if it is still there.
    pub(super) fn renew_batch(&self, renewed: &str, lease: Duration) -> Batch {
        let Claim { record, text, .. } = &self.claim;
        Batch::new().put(record, Expect::Is(text.clone()), renewed, self.claim.ttl(lease))
    }

    /// Whether the answer is a refusal that shows this run's own claim, as a renewal wrote it whose reply was lost. That text is then the claim.
    /// Of several such renewals only one can be applied: all expected the same text.
    pub(super) fn adopt(&mut self, answer: &Commit) -> bool {
        let Commit::Refused(refusal) = answer else { return false };
        let there = refusal.get(&self.claim.record).and_then(Found::text);
        match there.map(|text| (text, record::parse(text))) {
            Some((text, Ok(record::Record { owner, state: State::Claimed { .. }, .. })))
                if owner == self.claim.owner && text != self.claim.text =>
            {
                self.claim.text = text.to_owned();
                true
            }
            _ => false,
        }
    }
}

/// Commits the writes of an edit together with the result of run 0.
pub(super) struct RunWriter<'a>(pub(super) &'a Runs<'a>);

impl<T: Serialize + DeserializeOwned> Writer<T> for RunWriter<'_> {
    fn sender(&self) -> Sender<'_> {
        self.0.sender()
    }

    async fn during<O>(&self, work: impl Future<Output = O>) -> O {
        self.0.renewing(work).await
    }

    async fn write(&mut self, writes: Batch, value: T) -> Result<Written<T>, onetap_store::Error> {
        let (value, outcome) = record::carried(value, Outcome::Ok);
        self.0.record(0, writes, &outcome);
        match self.0.settle().await.pop() {
            Some((_, Settled::Recorded(earlier))) => {
                Ok(Written::Applied(earlier.and_then(|done| done.value().ok()).unwrap_or(value)))
            }
            Some((_, Settled::Refused(refusal))) => Ok(Written::Refused(refusal)),
            Some((_, Settled::Unrecorded(error))) => Err(error),
            Some((_, Settled::LostLease)) | None => Ok(Written::TakenOver(value)),
        }
    }
}

/// A result that was recorded before.
#[derive(Clone)]
pub struct Done(Outcome);

impl Done {
    /// The value: [`Error::NotKept`] if it was too large, and an error of the store if it is not a `T` (a failure
    /// that was kept is none).
    pub fn value<T: DeserializeOwned>(&self) -> Result<T, Error> {
        match &self.0 {
            Outcome::Ok(json) => serde_json::from_str(json.get())
                .map_err(|_| unreadable("a value of the type that is asked for").into()),
            Outcome::Err(_) => Err(unreadable("a value, or a failure of the type that is asked for").into()),
            Outcome::NotKept => Err(Error::NotKept),
        }
    }

    /// The value, or the failure as `failure` reads it.
    pub(super) fn read<T, E>(&self, failure: fn(&str) -> Option<E>) -> Result<T, Error<T, E>>
    where
        T: DeserializeOwned,
    {
        let kept = match &self.0 {
            Outcome::Err(json) => failure(json.get()),
            Outcome::Ok(_) | Outcome::NotKept => None,
        };
        match kept {
            Some(error) => Err(Error::Function(error)),
            None => self.value().map_err(Error::widen),
        }
    }
}

/// The time of day in milliseconds. No write depends on it.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl onetap_store::Request for Claim {
    type Outcome = ClaimOutcome;

    fn batch(&self) -> Batch {
        Claim::batch(self)
    }

    fn outcome(self, sent_at: Instant, answer: Commit) -> Result<ClaimOutcome, onetap_store::Error> {
        Claim::outcome(self, sent_at, answer)
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("lease", &self.lease)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("until", &self.until).finish_non_exhaustive()
    }
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Outcome::Ok(_) => "Done(Ok)",
            Outcome::Err(_) => "Done(Err)",
            Outcome::NotKept => "Done(NotKept)",
        })
    }
}
