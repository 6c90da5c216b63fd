//! The owner of a run: it renews its claim while the work goes on, records how the work ended, and releases it.

use std::convert::Infallible;

use tokio::task::unconstrained;
use tokio::time::{Instant, sleep_until};

use super::claim::Run;
use super::record::Outcome;
use crate::sender::{Retry, Sender};
use crate::{Batch, Commit, Error, Refusal};

/// A run, and the store that it is recorded in.
pub(crate) struct Owner<'a> {
    pub(crate) sender: Sender<'a>,
    pub(crate) run: &'a mut Run,
}

impl Owner<'_> {
    /// Does `work` and renews the claim meanwhile. Both are one future: ending or dropping it ends both.
    ///
    /// Work that blocks its thread also delays its renewal. Work that is never idle does not: what it leaves of tokio's budget
    /// for the task, which may be nothing, does not limit the renewal.
    pub(crate) async fn renewing<O>(&mut self, work: impl Future<Output = O>) -> O {
        tokio::select! {
            biased;
            output = work => output,
            never = unconstrained(self.renew()) => match never {},
        }
    }

    async fn renew(&mut self) -> Infallible {
        let store = self.sender.store;
        let run = &mut *self.run;
        let mut term = run.claim.lease;
        let mut next = run.until - term + term / 3;
        while run.renewable().is_some() {
            sleep_until(next).await;
            let Some(left) = run.renewable() else { break };
            let sent = Instant::now();
            next = sent + left / 3;
            let renewed = run.renewed(left);
            match store.commit(&run.renew_batch(&renewed, left)).await {
                Ok(Commit::Applied(_)) => {
                    run.claim.text = renewed;
                    (term, run.until) = (left, sent + left);
                }
                // An earlier renewal was applied, and its reply was lost.
                Ok(Commit::Refused(refusal)) if run.adopt(&refusal) => next = sent,
                // The claim lapsed, or another caller took it over or resolved it. It is not revived: the next caller has
                // the right to it. The work is not stopped: only the commit can tell whether there was a next caller.
                Ok(Commit::Refused(_)) => {
                    tracing::warn!("an idempotent call outlasted its lease");
                    break;
                }
                // Two thirds of the lease are left for the store to come back.
                Err(error) => {
                    tracing::debug!(%error, "a claim was not renewed");
                    next = sent + term / 3;
                }
            }
        }
        std::future::pending().await
    }

    /// Commits `writes` and the record of `outcome` in one batch. If a reply was lost and the refusal does not name the
    /// record, the record is read, so that the answer says whether the batch was applied.
    pub(crate) async fn settle(
        &mut self,
        writes: Batch,
        outcome: &Outcome,
        retry: Retry,
    ) -> Result<Commit, Error> {
        let sent = Instant::now();
        let mut record = self.run.result(outcome);
        let batch = |run: &Run, record: &str| writes.clone().and(run.batch(record.to_owned()));
        let (mut answer, lost) = match self.send(retry, |run| batch(run, &record)).await {
            // Too large for the store. Record only that the call is done, without its result.
            Err(Error::TooLarge { .. }) => {
                record = self.run.result(&Outcome::NotKept);
                self.send(retry, |run| batch(run, &record)).await?
            }
            answer => answer?,
        };
        // Under contention a store may name only some of what refused a batch. After a lost reply that could hide that
        // the batch was applied, and the work would be done again.
        match &mut answer {
            Commit::Refused(refusal) if lost && !self.run.is_named(refusal) => {
                let key = &self.run.claim.record;
                let there = self.sender.get(key, retry).await.map_err(|_| {
                    Error::unknown("the answer to a commit was lost, and its record cannot be read")
                })?;
                let found = Refusal::new([(key.clone(), there.clone())]);
                if self.run.recorded(&Commit::Refused(found)).is_some() {
                    refusal.push(key.clone(), there);
                }
            }
            _ => {}
        }
        if matches!(answer, Commit::Applied(_)) {
            self.run.kept = Some(Box::new((record, sent + self.run.claim.result_ttl)));
        }
        Ok(answer)
    }

    /// Releases the claim. If this fails, the next caller waits for the lease to end.
    pub(crate) async fn abandon(&mut self) {
        if self.run.has_lapsed() {
            return;
        }
        if let Err(error) = self.send(Retry::AllFailures, Run::abandon_batch).await {
            tracing::warn!(%error, "a claim was not released");
        }
    }

    /// Commits a batch that expects the run's claim, again if the claim turns out to be renewed by us. Also tells whether
    /// a reply was lost on the way.
    async fn send(&mut self, retry: Retry, batch: impl Fn(&Run) -> Batch) -> Result<(Commit, bool), Error> {
        loop {
            let (answer, lost) = self.sender.commit(&batch(self.run), retry).await?;
            match &answer {
                Commit::Refused(refusal) if self.run.adopt(refusal) => {}
                _ => return Ok((answer, lost)),
            }
        }
    }
}
