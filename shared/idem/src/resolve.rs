//! Settling a key whose outcome is unknown, after somebody has checked what happened.

use std::fmt;

use serde::Serialize;
use tokio::time::Instant;

use super::claim::{Claim, ClaimOutcome, RecordOutcome, Run};
use super::{Call, Error, Policy, record};
use onetap_store::sender::Retry;
use onetap_store::{Commit, Found};

/// What became of a run whose owner vanished.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Resolution<T> {
    /// It took effect; repeats get this value.
    Done(T),
    /// It did not; the next call runs the function.
    Forget,
}

impl<T> fmt::Debug for Resolution<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Resolution::Done(_) => "Done(…)",
            Resolution::Forget => "Forget",
        })
    }
}

/// The answer to [`Idempotency::resolve`](super::Idempotency::resolve).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ResolveOutcome {
    /// The key is settled as asked. With [`Forget`](Resolution::Forget), another caller may have forgotten it at the same time.
    Settled,
    /// The outcome was not unknown: it is done, running, never begun, or somebody else has just settled it.
    NotUnknown,
}

impl Call {
    /// Replaces a claim whose owner is gone by `resolution`.
    pub(super) async fn resolve<T: Serialize>(
        &self,
        resolution: Resolution<T>,
    ) -> Result<ResolveOutcome, Error> {
        let claim = self.claim()?;
        let sender = self.sender();
        let found = sender.get(&claim.record, Retry::LostReplies).await?;
        let Some(text) = found else { return Ok(ResolveOutcome::NotUnknown) };
        if !matches!(claim.judge(&text)?, ClaimOutcome::Unknown) {
            return Ok(ResolveOutcome::NotUnknown);
        }
        // The record is replaced as its owner would do it, but under our token: if the owner wakes up, it is refused.
        let fingerprint = record::parse(&text)?.fingerprint;
        let claim = Claim { fingerprint, text, policy: Policy::AtMostOnce, ..claim };
        let run = Run::new(claim, Instant::now());
        let settled = match resolution {
            Resolution::Done(value) => {
                let answer = sender.commit(&run.commit_batch(&value), Retry::AllFailures).await.answer?;
                matches!(run.committed(answer), RecordOutcome::Recorded)
            }
            Resolution::Forget => match sender.commit(&run.abandon_batch(), Retry::AllFailures).await.answer?
            {
                Commit::Applied(_) => true,
                // It was there, and it is gone: by a send whose reply was lost, or by another caller's `Forget`.
                Commit::Refused(refusal) => refusal.iter().all(|(_, there)| there == Found::Nothing),
            },
        };
        Ok(if settled { ResolveOutcome::Settled } else { ResolveOutcome::NotUnknown })
    }
}
