//! The engine: the runs that a caller owns, claimed together, renewed together and recorded together, in one round trip each. A
//! call has one run, a batch of messages many.
//!
//! ```text
//! Claim ──▶ Open ──▶ Recording ──▶ Settled      the work succeeded, or failed for good
//!            │ └───▶ Releasing ──▶ Released     the work was not begun, or failed
//!            └─────▶ Lapsed                     a renewal was refused: the commit shows whether there was another owner
//! ```

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use onetap_store::sender::{Retry, Sender, Sent};
use onetap_store::{Batch, Commit, ErrorKind, MIN_TTL, Refusal};
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep_until};

use super::cache::Cache;
use super::claim::{Claim, ClaimOutcome, Done, RecordOutcome, Run};
use super::record::Outcome;
use super::{Error, Policy};

/// Runs, by the numbers that their callers give them.
pub(crate) struct Runs<'a> {
    sender: Sender<'a>,
    /// Which failed commits of results and releases are sent again.
    retry: Retry,
    /// Where the results are kept that these runs record.
    cache: Option<&'a Cache>,
    held: Mutex<BTreeMap<usize, Held>>,
}

struct Held {
    run: Run,
    stage: Stage,
    /// When the claim is renewed next.
    next: Instant,
}

/// How far a run is.
enum Stage {
    /// It is running or waits for its turn. Its claim is renewed.
    Open,
    /// The same, but its claim has lapsed. It is not revived: the next caller has the right to it.
    Lapsed,
    /// The work is done: these writes are to be committed with this record, in one batch.
    Recording {
        writes: Batch,
        record: String,
    },
    /// The claim is to be released.
    Releasing,
    /// Nothing is left to send.
    Settled(Settled),
    Released,
}

/// What is sent for a run.
enum Step {
    Renew { text: String, lease: Duration },
    Record,
    Release,
}

/// What became of a result.
#[derive(Debug)]
pub(crate) enum Settled {
    /// It is recorded. `Some`: by an earlier send, whose reply was lost, with this result.
    Recorded(Option<Done>),
    /// Nothing was written, because of what these keys hold.
    Refused(Refusal),
    /// Nothing was written: another owner has taken over.
    LostLease,
    /// The store did not confirm it.
    Unrecorded(onetap_store::Error),
}

/// What a granted claim means to its caller.
#[derive(Debug)]
pub(crate) enum Granted {
    /// Run the function.
    Mine,
    /// It was done before.
    Done(Done),
}

impl<'a> Runs<'a> {
    pub(crate) fn new(sender: Sender<'a>) -> Runs<'a> {
        Runs { sender, retry: Retry::AllFailures, cache: None, held: Mutex::default() }
    }

    /// Keeps the results that are recorded in `cache`.
    pub(crate) fn cached(self, cache: &'a Cache) -> Runs<'a> {
        Runs { cache: Some(cache), ..self }
    }

    /// Sends results and releases again only while their replies are lost.
    pub(crate) fn impatient(self) -> Runs<'a> {
        Runs { retry: Retry::LostReplies, ..self }
    }

    /// Sends the claims, and again under the same tokens those of which it is unknown whether they were applied. The runs of
    /// granted claims are held; a claim that may have been applied without a right to run is released with the next
    /// [`settle`](Runs::settle).
    pub(crate) async fn claim(&self, claims: Vec<(usize, Claim)>) -> Vec<(usize, Result<Granted, Error>)> {
        let batches: Vec<Batch> = claims.iter().map(|(_, claim)| claim.batch()).collect();
        let sent_at = Instant::now();
        let sent = self.sender.send(&batches, Retry::LostReplies).await;
        let granted = claims.into_iter().zip(sent).map(|((n, claim), sent)| {
            let claimed = match sent.answer {
                Ok(answer) => claim.outcome(sent_at, answer),
                Err(error) => {
                    // A claim that does not lapse, and whose run never began, would leave its key unknown for good.
                    if claim.policy == Policy::AtMostOnce && error.maybe_applied() {
                        self.hold(n, Run::new(claim, sent_at), Stage::Releasing);
                    }
                    Err(error)
                }
            };
            let granted = match claimed {
                Ok(ClaimOutcome::Mine(run)) => {
                    self.hold(n, run, Stage::Open);
                    Ok(Granted::Mine)
                }
                Ok(ClaimOutcome::Late(run)) => {
                    self.hold(n, run, Stage::Releasing);
                    Err(Error::InProgress { left: Duration::ZERO })
                }
                Ok(ClaimOutcome::Done(done)) => Ok(Granted::Done(done)),
                Ok(ClaimOutcome::InProgress { left }) => Err(Error::InProgress { left }),
                Ok(ClaimOutcome::Mismatch) => Err(Error::Mismatch),
                Ok(ClaimOutcome::Unknown) => Err(Error::Unknown),
                Err(error) => Err(Error::Store(error)),
            };
            (n, granted)
        });
        granted.collect()
    }

    /// Goes on with run 0, which another process has begun: renews its claim. `false` if the claim is no longer there.
    pub(crate) async fn resume(&self, mut run: Run) -> Result<bool, Error> {
        // However long the claim may last: only the answer to a renewal shows whether it is still there.
        run.until = Instant::now();
        self.hold(0, run, Stage::Open);
        if let Some((_, error)) = self.send(Some(Retry::LostReplies), |_| true).await.pop() {
            return Err(Error::Store(error));
        }
        Ok(self.lock().get(&0).is_some_and(|held| matches!(held.stage, Stage::Open)))
    }

    fn hold(&self, n: usize, run: Run, stage: Stage) {
        let term = run.claim.lease;
        let next = run.until.checked_sub(term).unwrap_or(run.until) + (term / 3).max(MIN_TTL);
        self.lock().insert(n, Held { run, stage, next });
    }

    /// Holds a run that was claimed elsewhere.
    pub(crate) fn with(self, n: usize, run: Run) -> Runs<'a> {
        self.hold(n, run, Stage::Open);
        self
    }

    /// Gives a run back.
    pub(crate) fn take(&self, n: usize) -> Option<Run> {
        self.lock().remove(&n).map(|held| held.run)
    }

    pub(crate) fn sender(&self) -> Sender<'a> {
        self.sender
    }

    /// Whether the work may begin: as far as is known, its claim has not lapsed while it waited for its turn.
    #[cfg(feature = "sqs")]
    pub(crate) fn may_begin(&self, n: usize) -> bool {
        let held = self.lock();
        held.get(&n).is_some_and(|held| matches!(held.stage, Stage::Open) && Instant::now() < held.run.until)
    }

    /// The work has ended: `outcome` is to be recorded, and `writes` are to be committed with it.
    pub(crate) fn record(&self, n: usize, writes: Batch, outcome: &Outcome) {
        if let Some(held) = self.lock().get_mut(&n) {
            held.stage = Stage::Recording { writes, record: held.run.result(outcome) };
        }
    }

    /// The work was not begun, or has failed: the claim is to be released, so that the next caller runs.
    pub(crate) fn release(&self, n: usize) {
        if let Some(held) = self.lock().get_mut(&n) {
            held.stage = Stage::Releasing;
        }
    }

    /// It is unknown how far the work came: leave the claim to its lease and its policy, as after a crash.
    pub(crate) fn leave(&self, n: usize) {
        self.lock().remove(&n);
    }

    /// The work panicked, which is a failure. At most once the claim is left: it is unknown how far the work came.
    pub(crate) fn panicked(&self, n: usize) {
        let at_most_once = |held: &Held| held.run.claim.policy == Policy::AtMostOnce;
        if self.lock().get(&n).is_some_and(at_most_once) { self.leave(n) } else { self.release(n) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Held>> {
        // No panic can come between two changes that belong together.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `work` and renews the claims meanwhile. Both are one future: ending or dropping it ends both.
    ///
    /// Work that blocks its thread also delays the renewals. Work that is never idle does not: what it leaves of tokio's budget
    /// for the task, which may be nothing, does not limit them.
    pub(crate) async fn renewing<O>(&self, work: impl Future<Output = O>) -> O {
        tokio::select! {
            biased;
            output = work => output,
            never = unconstrained(self.renew()) => match never {},
        }
    }

    /// Runs `f`, the work of run `n`, and renews its claim meanwhile. After a panic the claim is released, as the policy allows,
    /// before the panic goes on.
    pub(crate) async fn unwinding<F: Future>(&self, n: usize, f: impl FnOnce() -> F) -> F::Output {
        match AssertUnwindSafe(self.renewing(async { f().await })).catch_unwind().await {
            Ok(ended) => ended,
            Err(panic) => {
                self.panicked(n);
                self.settle().await;
                resume_unwind(panic)
            }
        }
    }

    /// Renews the claims of what is running, every third of the lease, and sends along what has ended meanwhile. It can be
    /// dropped at any time: whatever was sent then, [`settle`](Runs::settle) can repeat.
    async fn renew(&self) -> Infallible {
        let open = |held: &Held| matches!(held.stage, Stage::Open).then_some(held.next);
        loop {
            let next = self.lock().values().filter_map(open).min();
            let Some(next) = next else { std::future::pending().await };
            sleep_until(next).await;
            // What is not renewable, or is not answered, is looked at again after a third of its lease.
            for held in self.lock().values_mut() {
                held.next = Instant::now() + (held.run.claim.lease / 3).max(MIN_TTL);
            }
            for (_, error) in self.send(None, |_| true).await {
                // Two thirds of the lease are left for the store to be back.
                tracing::debug!(%error, "a claim was not renewed");
            }
        }
    }

    /// Sends what is to be recorded and released, in one round trip, and returns what became of every result. The store has at
    /// least 200 ms for it, even after the deadline.
    pub(crate) async fn settle(&self) -> Vec<(usize, Settled)> {
        let is_ending = |stage: &Stage| matches!(stage, Stage::Recording { .. } | Stage::Releasing);
        for (n, error) in self.send(Some(self.retry), is_ending).await {
            match self.lock().get_mut(&n) {
                Some(held) if matches!(held.stage, Stage::Recording { .. }) => {
                    held.stage = Stage::Settled(Settled::Unrecorded(error));
                }
                // The next caller waits for the lease to end.
                _ => tracing::warn!(%error, "a claim was not released"),
            }
        }
        let mut held = self.lock();
        let settled = held.iter_mut().filter_map(|(n, held)| {
            let is_settled = matches!(held.stage, Stage::Settled(_));
            match is_settled.then(|| std::mem::replace(&mut held.stage, Stage::Open)) {
                Some(Stage::Settled(settled)) => Some((*n, settled)),
                _ => None,
            }
        });
        settled.collect()
    }

    /// Sends what is due for the runs in these stages, and takes note of the answers; returns the errors among them. With a
    /// `retry`, what turns out to expect an outdated claim or to be too large is sent again in another form.
    async fn send(
        &self,
        retry: Option<Retry>,
        stages: fn(&Stage) -> bool,
    ) -> Vec<(usize, onetap_store::Error)> {
        let mut due: Vec<usize> = {
            let held = self.lock();
            held.iter().filter(|(_, held)| stages(&held.stage)).map(|(n, _)| *n).collect()
        };
        let mut errors = Vec::new();
        while !due.is_empty() {
            let (numbers, steps, batches) = self.steps(due);
            let sent_at = Instant::now();
            let answers = match retry {
                Some(retry) => self.sender.send(&batches, retry).await,
                // A run that outlasts its deadline keeps its claim.
                None => Sender { deadline: None, ..self.sender }.send_once(&batches).await,
            };
            due = Vec::new();
            for ((n, step), sent) in numbers.into_iter().zip(steps).zip(answers) {
                let hidden = self.recorded_behind(n, &step, &sent).await;
                match hidden.and_then(|done| self.answered(n, step, sent_at, sent, done)) {
                    Ok(Next::Done) => {}
                    Ok(Next::Again) if retry.is_some() => due.push(n),
                    Ok(Next::Again) => {}
                    Err(error) => errors.push((n, error)),
                }
            }
        }
        errors
    }

    fn steps(&self, due: Vec<usize>) -> (Vec<usize>, Vec<Step>, Vec<Batch>) {
        let held = self.lock();
        let (mut numbers, mut steps, mut batches) = (Vec::new(), Vec::new(), Vec::new());
        for n in due {
            if let Some((step, batch)) = held.get(&n).and_then(Held::step) {
                numbers.push(n);
                steps.push(step);
                batches.push(batch);
            }
        }
        (numbers, steps, batches)
    }

    /// The result of this run behind a refusal that does not show it. Under contention a store may name only some of what has
    /// refused a batch: after a lost reply that could hide that the batch was applied, and the work would be done again.
    async fn recorded_behind(
        &self,
        n: usize,
        step: &Step,
        sent: &Sent,
    ) -> Result<Option<Done>, onetap_store::Error> {
        let (Step::Record, Ok(Commit::Refused(refusal)), true) = (step, &sent.answer, sent.lost) else {
            return Ok(None);
        };
        let key = match self.lock().get(&n) {
            Some(held) if !held.run.is_named(refusal) => held.run.claim.record.clone(),
            _ => return Ok(None),
        };
        let there = self.sender.get(&key, self.retry).await.map_err(|_| {
            onetap_store::Error::unknown("the answer to a commit was lost, and its record cannot be read")
        })?;
        let found = Commit::Refused(Refusal::new([(key, there)]));
        Ok(self.lock().get(&n).and_then(|held| held.run.recorded(&found)))
    }

    fn answered(
        &self,
        n: usize,
        step: Step,
        sent_at: Instant,
        sent: Sent,
        hidden: Option<Done>,
    ) -> Result<Next, onetap_store::Error> {
        let mut all = self.lock();
        // It was left meanwhile.
        let Some(held) = all.get_mut(&n) else { return Ok(Next::Done) };
        let answer = match (sent.answer, &step) {
            (Err(error), Step::Record) if error.kind() == ErrorKind::TooLarge && held.forget_value() => {
                return Ok(Next::Again);
            }
            (answer, _) => answer?,
        };
        if held.run.adopt(&answer) {
            held.next = Instant::now();
            return Ok(Next::Again);
        }
        match step {
            Step::Renew { text, lease } => held.renewed(text, sent_at, lease, &answer),
            Step::Record => {
                if let (Commit::Applied(_), Stage::Recording { record, .. }, Some(cache)) =
                    (&answer, &held.stage, self.cache)
                {
                    let Claim { record: key, result_ttl, .. } = &held.run.claim;
                    cache.insert(key, record, sent_at + *result_ttl);
                }
                let recorded = hidden.or_else(|| held.run.recorded(&answer));
                held.stage = Stage::Settled(match (recorded, held.run.committed(answer)) {
                    (Some(done), _) => Settled::Recorded(Some(done)),
                    (None, RecordOutcome::Recorded) => Settled::Recorded(None),
                    (None, RecordOutcome::Refused(refusal)) => Settled::Refused(refusal),
                    (None, RecordOutcome::Lost) => Settled::LostLease,
                });
            }
            // Refused, the claim is gone or another's: nothing is left to do.
            Step::Release => held.stage = Stage::Released,
        }
        Ok(Next::Done)
    }
}

/// What is to be done after an answer.
enum Next {
    Done,
    /// Send it again, in its new form.
    Again,
}

impl Held {
    fn step(&self) -> Option<(Step, Batch)> {
        let run = &self.run;
        match &self.stage {
            Stage::Open => {
                let lease = run.renewable()?;
                let text = run.renewed(lease);
                let batch = run.renew_batch(&text, lease);
                Some((Step::Renew { text, lease }, batch))
            }
            Stage::Recording { writes, record } => {
                Some((Step::Record, writes.clone().and(run.batch(record.clone()))))
            }
            Stage::Releasing if run.has_lapsed() => None,
            Stage::Releasing => Some((Step::Release, run.abandon_batch())),
            Stage::Lapsed | Stage::Settled(_) | Stage::Released => None,
        }
    }

    fn renewed(&mut self, text: String, sent_at: Instant, lease: Duration, answer: &Commit) {
        match answer {
            Commit::Applied(_) => {
                self.run.claim.text = text;
                self.run.claim.lease = lease;
                self.run.until = sent_at + lease;
                self.next = sent_at + (lease / 3).max(MIN_TTL);
            }
            // The claim lapsed, or another caller took it over or resolved it. The work is not stopped: only the commit can
            // tell whether there was a next caller.
            Commit::Refused(_) if matches!(self.stage, Stage::Open) => {
                tracing::warn!("an idempotent call outlasted its lease");
                self.stage = Stage::Lapsed;
            }
            Commit::Refused(_) => {}
        }
    }

    /// Makes the record say only that the call is done, because the store does not take the value. `false` if it does so
    /// already.
    fn forget_value(&mut self) -> bool {
        let short = self.run.result(&Outcome::NotKept);
        match &mut self.stage {
            Stage::Recording { record, .. } if *record != short => {
                *record = short;
                true
            }
            _ => false,
        }
    }
}
