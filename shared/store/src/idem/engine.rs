//! What every call is made of: ask until there is an answer, keep the claim alive, settle, let go.

use std::convert::Infallible;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::claim::{Claim, Claimed, Committed, Done, Run};
use super::record::{self, Outcome};
use super::{Call, Error, Failure, Policy, Resolution, Resolved};
use crate::{Batch, Commit, Mismatch};

/// The pauses between the sends of a batch whose replies get lost: with a store's time limit of half a second for
/// each, about three seconds of trying.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(20),
    Duration::from_millis(80),
    Duration::from_millis(200),
    Duration::from_millis(400),
];

/// What the commit of a function has at least, also if the function ends just before the deadline or outlasts it. Shorter
/// than what Lambda's layers leave between the deadline and the end of the invocation.
pub(super) const LATE_CALL_TIMEOUT: Duration = Duration::from_millis(200);

/// The longest pause between two looks at somebody else's run.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// How a call begins.
pub(super) enum Begun {
    /// With the right to run.
    Mine(Run),
    /// With a result that was there.
    Done(Done),
}

/// A value, and where it is from.
pub(super) enum Answer<T> {
    /// This call's run.
    Executed(T),
    /// A run before it.
    Replayed(T),
}

impl<T> Answer<T> {
    pub(super) fn into_value(self) -> T {
        match self {
            Answer::Executed(value) | Answer::Replayed(value) => value,
        }
    }
}

/// How the ends of a function become records: each comes back as its record has it.
pub(super) struct Form<T, E> {
    pub(super) value: fn(T) -> (T, Outcome),
    /// For a failure that is kept.
    pub(super) failure: fn(E) -> (E, Outcome),
    /// A kept failure, from its record.
    pub(super) read_failure: fn(&str) -> Option<E>,
}

impl<T: Serialize + DeserializeOwned, E> Form<T, E> {
    /// For a function none of whose failures is kept.
    pub(super) fn passing() -> Form<T, E> {
        Form {
            value: |value| record::carried(value, Outcome::Ok),
            failure: |error| (error, Outcome::NotKept),
            read_failure: |_| None,
        }
    }
}

/// Says how a call ended, and nothing about whose it was.
pub(super) fn noted<T, E>(answer: Result<Answer<T>, Error<T, E>>) -> Result<Answer<T>, Error<T, E>> {
    let outcome = match &answer {
        Ok(Answer::Executed(_)) => "executed",
        Ok(Answer::Replayed(_)) => "replayed",
        Err(error) => error.outcome(),
    };
    metrics::counter!("idem_total", "outcome" => outcome).increment(1);
    tracing::debug!(outcome, "idempotent call");
    answer
}

/// Which failures of a send are worth another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Insist {
    /// Those after which the batch may have landed. If it has not left, nothing has happened and the caller may as
    /// well hear it now.
    OnKnowing,
    /// All that may pass: something has happened, and should be told.
    OnLanding,
}

impl Call {
    /// Asks for the right to run, until it is granted, needless, or hopeless.
    pub(super) async fn begin(&self) -> Result<Begun, Error> {
        let config = self.idem.config();
        let patience = Some(config.wait_timeout).filter(|limit| !limit.is_zero());
        let patience = patience.and_then(|limit| Instant::now().checked_add(limit));
        let give_up = [patience, self.deadline].into_iter().flatten().min();
        let mut pause = config.wait_interval.max(Duration::from_millis(1));
        let longest = pause.max(LONGEST_WAIT);

        let mut claim = self.claim()?;
        if let Some(text) = self.idem.cache().get(&claim.record) {
            match claim.judge(&text)? {
                Claimed::Done(done) => return Ok(Begun::Done(done)),
                Claimed::Mismatch => return Err(Error::Mismatch),
                // No cached record is a claim.
                _ => {}
            }
        }
        let mut seen = None;
        loop {
            let answer = match self.ask(claim).await {
                // The deadline has cut off the last look. What was seen before it still holds for the caller.
                Err(Error::Store(error)) if error.is_retryable() && self.is_over() => {
                    return Err(seen.map_or(Error::Store(error), |left| Error::InProgress { left }));
                }
                answer => answer?,
            };
            let left = match answer {
                Claimed::Mine(run) => return Ok(Begun::Mine(run)),
                Claimed::Done(done) => return Ok(Begun::Done(done)),
                Claimed::Mismatch => return Err(Error::Mismatch),
                Claimed::Unknown => return Err(Error::Unknown),
                Claimed::InProgress { left } => left,
                Claimed::Late(mut run) => {
                    self.abandon(&mut run).await;
                    Duration::ZERO
                }
            };
            seen = Some(left);
            let now = Instant::now();
            if !self.waits || give_up.is_some_and(|end| end <= now) {
                return Err(Error::InProgress { left });
            }
            let next = now + pause;
            sleep_until(give_up.map_or(next, |end| next.min(end))).await;
            pause = (pause * 2).min(longest);
            // Every look is a claim of its own, one round trip: granted if the other is gone, refused with its
            // result if it is done. Its lease is cut to the time that is left by now.
            claim = match self.claim() {
                Err(Error::DeadlinePassed) => return Err(Error::InProgress { left }),
                claim => claim?,
            };
        }
    }

    /// Sends the claim, and again under the same token while it is unknown whether it landed.
    async fn ask(&self, claim: Claim) -> Result<Claimed, Error> {
        let sent = Instant::now();
        match self.send(&claim.batch(), Insist::OnKnowing).await {
            Ok((answer, _)) => Ok(claim.outcome(sent, answer)?),
            Err(error) => {
                // A claim that does not lapse, and whose run never began, would leave its key unknown for good.
                if claim.policy == Policy::AtMostOnce && error.maybe_applied() {
                    self.abandon(&mut Run { claim, until: sent }).await;
                }
                Err(error.into())
            }
        }
    }

    /// Runs `work`, and renews the claim while it runs: one future, so that ending or dropping it ends both.
    ///
    /// Work that holds the thread without awaiting holds up its renewal too.
    pub(super) async fn renewing<O>(&self, run: &mut Run, work: impl Future<Output = O>) -> O {
        tokio::select! {
            biased;
            output = work => output,
            never = self.renew(run) => match never {},
        }
    }

    async fn renew(&self, run: &mut Run) -> Infallible {
        let mut lease = run.claim.lease;
        let mut next = run.until - lease + lease / 3;
        // What reaches the deadline needs no renewal.
        while self.deadline.is_none_or(|deadline| run.until < deadline) {
            sleep_until(next).await;
            let Some(left) = self.lease() else { break };
            let sent = Instant::now();
            next = sent + left / 3;
            let renewed = run.renewed(left);
            match self.idem.store().commit(&run.renew_batch(&renewed, left)).await {
                Ok(Commit::Applied(_)) => {
                    run.claim.text = renewed;
                    (lease, run.until) = (left, sent + left);
                }
                Ok(Commit::Refused(refusal)) if run.adopt(&refusal) => next = sent,
                // Lapsed, taken over or resolved. It is not revived, whoever came next has the right to it; and the
                // run is not stopped, because only the commit can tell whether anybody came.
                Ok(Commit::Refused(_)) => {
                    tracing::warn!("an idempotent call outlasted its lease");
                    break;
                }
                // Two thirds of the lease are left for the store to come back.
                Err(error) => {
                    tracing::debug!(%error, "a claim was not renewed");
                    next = sent + lease / 3;
                }
            }
        }
        std::future::pending().await
    }

    /// Records how the function ended; its own error stays the answer whatever comes of that.
    pub(super) async fn conclude<T, E>(
        &self,
        run: &mut Run,
        ended: Result<T, Failure<E>>,
        form: Form<T, E>,
    ) -> Result<T, Error<T, E>> {
        match ended {
            Ok(value) => {
                let (value, outcome) = (form.value)(value);
                match self.settle(run, Batch::new(), &outcome).await.map(|answer| run.committed(answer)) {
                    Ok(Committed::Recorded) => Ok(value),
                    Ok(Committed::Refused(_) | Committed::Lost) => Err(Error::LostLease { value }),
                    Err(error) => Err(Error::Unrecorded { value, error }),
                }
            }
            Err(Failure::Passing(error)) => {
                self.abandon(run).await;
                Err(Error::Function(error))
            }
            Err(Failure::Permanent(error)) => {
                let (error, outcome) = (form.failure)(error);
                match self.settle(run, Batch::new(), &outcome).await.map(|answer| run.committed(answer)) {
                    Ok(Committed::Recorded) => {}
                    Ok(_) => tracing::warn!("a permanent failure came after its lease, and was refused"),
                    Err(error) => tracing::warn!(%error, "a permanent failure was not recorded"),
                }
                Err(Error::Function(error))
            }
        }
    }

    /// Commits `writes` and the record in one batch; the answer speaks of the record whenever it should.
    pub(super) async fn settle(
        &self,
        run: &mut Run,
        writes: Batch,
        outcome: &Outcome,
    ) -> Result<Commit, crate::Error> {
        let sent = Instant::now();
        let mut record = run.result(outcome);
        let batch = |run: &Run, record: &str| writes.clone().and(run.batch(record.to_owned()));
        let (mut answer, lost) = match self.send_as_owner(run, |run| batch(run, &record)).await {
            // Stores have limits beyond that of a value. That it is done still has room.
            Err(crate::Error::TooLarge { .. }) => {
                record = run.result(&Outcome::NotKept);
                self.send_as_owner(run, |run| batch(run, &record)).await?
            }
            answer => answer?,
        };
        // A store under contention may name only some of what refused a batch. After a lost reply that could hide
        // that the batch had landed, and the function would be asked to do again what is done.
        if let Commit::Refused(refusal) = &mut answer
            && lost
            && !run.is_named(refusal)
        {
            let look = self.idem.store().get(&run.claim.record);
            let there = self.in_time(Insist::OnLanding, look).await.map_err(|_| {
                crate::Error::unknown("the answer to a commit was lost, and its record cannot be read")
            })?;
            let landed = Mismatch { key: run.claim.record.clone(), there };
            if run.recorded(&Commit::Refused(vec![landed.clone()])).is_some() {
                refusal.push(landed);
            }
        }
        if matches!(answer, Commit::Applied(_)) {
            self.idem.cache().insert(&run.claim.record, &record, sent + run.claim.result_ttl);
        }
        Ok(answer)
    }

    /// Puts `resolution` in the place of a claim whose owner is gone.
    pub(super) async fn resolve<T: Serialize>(&self, resolution: Resolution<T>) -> Result<Resolved, Error> {
        let claim = self.claim()?;
        let found = self.in_time(Insist::OnKnowing, self.idem.store().get(&claim.record)).await?;
        let Some(text) = found else { return Ok(Resolved::NotUnknown) };
        if !matches!(claim.judge(&text)?, Claimed::Unknown) {
            return Ok(Resolved::NotUnknown);
        }
        // Its record makes way as its own commit would have made it, but signed by us: if it wakes up, it is refused.
        let fingerprint = record::parse(&text)?.fingerprint;
        let claim = Claim { fingerprint, text, policy: Policy::AtMostOnce, ..claim };
        let run = Run { claim, until: Instant::now() };
        let settled = match resolution {
            Resolution::Done(value) => {
                let (answer, _) = self.send(&run.commit_batch(&value), Insist::OnLanding).await?;
                matches!(run.committed(answer), Committed::Recorded)
            }
            Resolution::Forget => match self.send(&run.abandon_batch(), Insist::OnLanding).await? {
                (Commit::Applied(_), _) => true,
                (Commit::Refused(refusal), lost) => lost && refusal.iter().all(|found| found.there.is_none()),
            },
        };
        Ok(if settled { Resolved::Settled } else { Resolved::NotUnknown })
    }

    /// Lets go of the claim. What fails here costs the next caller a wait for the lease, nothing more.
    pub(super) async fn abandon(&self, run: &mut Run) {
        // Its lease was no longer than the deadline, so that there is nothing left to release.
        if run.claim.policy == Policy::AtLeastOnce && self.is_over() {
            return;
        }
        if let Err(error) = self.send_as_owner(run, Run::abandon_batch).await {
            tracing::warn!(%error, "a claim was not released");
        }
    }

    /// [Sends](Call::send) a batch that expects the run's claim, and again where the claim turns out to be renewed.
    async fn send_as_owner(
        &self,
        run: &mut Run,
        batch: impl Fn(&Run) -> Batch,
    ) -> Result<(Commit, bool), crate::Error> {
        loop {
            let (answer, lost) = self.send(&batch(run), Insist::OnLanding).await?;
            match &answer {
                Commit::Refused(refusal) if run.adopt(refusal) => {}
                _ => return Ok((answer, lost)),
            }
        }
    }

    /// Commits `batch`, sending it again as [`Insist`] says; also says whether a reply was lost on the way.
    ///
    /// The error that comes out admits that the batch may have landed if any of the sends did.
    async fn send(&self, batch: &Batch, insist: Insist) -> Result<(Commit, bool), crate::Error> {
        let mut unknown = None;
        let mut pauses = PAUSES.into_iter();
        loop {
            let error = match self.in_time(insist, self.idem.store().commit(batch)).await {
                Ok(answer) => return Ok((answer, unknown.is_some())),
                Err(error) => error,
            };
            if error.maybe_applied() && unknown.is_none() {
                unknown = Some(error.clone());
            }
            let worthwhile = error.is_retryable() && (insist == Insist::OnLanding || unknown.is_some());
            match pauses.next().filter(|pause| worthwhile && self.has_time_for(*pause)) {
                Some(pause) => sleep(pause).await,
                None => return Err(unknown.unwrap_or(error)),
            }
        }
    }

    /// Ends a call to the store at the deadline, whatever limit the store has. Its request may have arrived.
    async fn in_time<O>(
        &self,
        insist: Insist,
        call: impl Future<Output = Result<O, crate::Error>>,
    ) -> Result<O, crate::Error> {
        let Some(deadline) = self.deadline else { return call.await };
        let end = match insist {
            Insist::OnKnowing => deadline,
            Insist::OnLanding => deadline.max(Instant::now() + LATE_CALL_TIMEOUT),
        };
        timeout_at(end, call)
            .await
            .unwrap_or_else(|_| Err(crate::Error::unknown("the deadline came before the store's answer")))
    }

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    fn has_time_for(&self, pause: Duration) -> bool {
        self.deadline.is_none_or(|deadline| Instant::now() + pause < deadline)
    }
}
