//! The runs of a batch of calls: claimed together, renewed together and recorded together, in one round trip each.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::claim::{Claim, Claimed, Committed, Run};
use super::{EffectKeys, Error, Policy};
use crate::log::MIN_TTL;
use crate::sender::{Retry, Sender};
use crate::{Answers, Batch, Commit, Round, Store, Ticket};

/// The claims that were granted to a batch, by the numbers that their calls have there.
///
/// Their claims end when the invocation does. A claim that is at most once lasts until then from the start, so a renewal
/// never changes a claim's text.
pub(crate) struct Runs<'a> {
    sender: Sender<'a>,
    sent_at: Instant,
    /// A third of the shortest lease: the time between two renewals.
    renewal_interval: Duration,
    held: Mutex<BTreeMap<usize, Held>>,
}

struct Held {
    run: Run,
    stage: Stage,
}

/// How far a run is.
enum Stage {
    /// It is running or waits for its turn. Its claim is renewed.
    Open,
    /// The same, but its claim has lapsed. It is not revived: the commit shows whether there was another owner.
    Lapsed,
    /// The work is done, and is to be recorded.
    Succeeded,
    /// The claim is to be released.
    Unwanted,
    /// It succeeded, and nothing is left to send.
    Settled(Settled),
    /// Its claim is released.
    Released,
}

/// What is sent for a run.
enum Step {
    Renew { until: Instant },
    Record,
    Release,
}

/// What became of a run that succeeded.
#[derive(Debug)]
pub(crate) enum Settled {
    Recorded,
    /// Another owner has taken over, and the result was refused.
    LostLease,
    /// The store did not confirm it.
    Unrecorded(crate::Error),
}

/// What the store's answer to a claim means to its caller.
#[derive(Debug)]
pub(crate) enum Granted {
    /// Run the function, with these keys for its effects.
    Mine(EffectKeys),
    /// It was done before.
    Done,
}

impl<'a> Runs<'a> {
    /// Sends the claims in one round trip, and again under the same tokens those of which it is unknown whether they were
    /// applied.
    pub(crate) async fn claim(
        store: &'a dyn Store,
        deadline: Instant,
        claims: Vec<(usize, Claim)>,
    ) -> (Runs<'a>, Vec<(usize, Result<Granted, Error>)>) {
        let sender = Sender { store, deadline: Some(deadline) };
        let shortest = claims.iter().map(|(_, claim)| claim.lease).min().unwrap_or_default();
        let mut round = Round::new();
        let claims: Vec<_> =
            claims.into_iter().map(|(n, claim)| (n, round.add(claim.batch()), claim)).collect();
        let mut answers = sender.send(&round, Retry::LostReplies).await;
        let sent_at = answers.sent_at();
        let mut held = BTreeMap::new();
        let mut hold = |n, run, stage| drop(held.insert(n, Held { run, stage }));
        let granted = claims.into_iter().map(|(n, ticket, claim)| {
            let claimed = match answers.take(ticket) {
                Ok(answer) => claim.outcome(sent_at, answer),
                Err(error) => {
                    // A claim that does not lapse, and whose run never began, would leave its key unknown for good.
                    if claim.policy == Policy::AtMostOnce && error.maybe_applied() {
                        hold(n, Run::new(claim, sent_at), Stage::Unwanted);
                    }
                    Err(error)
                }
            };
            let granted = match claimed {
                Ok(Claimed::Mine(run)) => {
                    let effects = run.effect_keys();
                    hold(n, run, Stage::Open);
                    Ok(Granted::Mine(effects))
                }
                Ok(Claimed::Done(_)) => Ok(Granted::Done),
                Ok(Claimed::Late(run)) => {
                    hold(n, run, Stage::Unwanted);
                    Err(Error::InProgress { left: Duration::ZERO })
                }
                Ok(Claimed::InProgress { left }) => Err(Error::InProgress { left }),
                Ok(Claimed::Mismatch) => Err(Error::Mismatch),
                Ok(Claimed::Unknown) => Err(Error::Unknown),
                Err(error) => Err(Error::Store(error)),
            };
            (n, granted)
        });
        let granted = granted.collect();
        // Without a claim it would be zero, and the renewal would never wait.
        let renewal_interval = (shortest / 3).max(MIN_TTL);
        (Runs { sender, sent_at, renewal_interval, held: Mutex::new(held) }, granted)
    }

    /// Whether the work may begin: as far as is known, its claim has not lapsed while it waited for its turn.
    pub(crate) fn may_begin(&self, n: usize) -> bool {
        let held = self.held();
        held.get(&n).is_some_and(|held| matches!(held.stage, Stage::Open) && Instant::now() < held.run.until)
    }

    /// The work is done: record it.
    pub(crate) fn succeed(&self, n: usize) {
        self.set(n, Stage::Succeeded);
    }

    /// The work was not begun, or has failed: release the claim, so that the next caller runs.
    pub(crate) fn release(&self, n: usize) {
        self.set(n, Stage::Unwanted);
    }

    /// It is unknown how far the work came: leave the claim to its lease and its policy, as after a crash.
    pub(crate) fn leave(&self, n: usize) {
        self.held().remove(&n);
    }

    /// The work panicked, which is a failure. With at-most-once the claim stays, because nobody knows how far the work got.
    pub(crate) fn panicked(&self, n: usize) {
        let at_most_once = |held: &Held| held.run.claim.policy == Policy::AtMostOnce;
        let mut all = self.held();
        if all.get(&n).is_some_and(at_most_once) {
            all.remove(&n);
        } else if let Some(held) = all.get_mut(&n) {
            held.stage = Stage::Unwanted;
        }
    }

    fn set(&self, n: usize, stage: Stage) {
        if let Some(held) = self.held().get_mut(&n) {
            held.stage = stage;
        }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<usize, Held>> {
        // No panic can come between two changes that belong together.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews the claims of what is running, and records what has ended meanwhile, in one round trip every third of the lease.
    /// It can be dropped at any time: whatever was sent then, [`settle`](Runs::settle) can repeat.
    pub(crate) async fn renew(&self) -> Infallible {
        let mut next = self.sent_at + self.renewal_interval;
        loop {
            sleep_until(next).await;
            next = Instant::now() + self.renewal_interval;
            let (round, steps) = self.round();
            let answers = self.sender.send_once(&round).await;
            self.apply(steps, answers);
        }
    }

    /// Records what has succeeded and releases what is not wanted, in one round trip; tells what became of every run that
    /// succeeded. The store has at least 200 ms for it, even after the deadline.
    pub(crate) async fn settle(self) -> Vec<(usize, Settled)> {
        self.held().retain(|_, held| !matches!(held.stage, Stage::Open | Stage::Lapsed));
        let (round, steps) = self.round();
        let answers = self.sender.send(&round, Retry::AllFailures).await;
        for (n, error) in self.apply(steps, answers) {
            match self.held().get_mut(&n) {
                Some(Held { stage: stage @ Stage::Succeeded, .. }) => {
                    *stage = Stage::Settled(Settled::Unrecorded(error));
                }
                _ => tracing::warn!(%error, "a claim was not released"),
            }
        }
        let held = std::mem::take(&mut *self.held());
        let settled = held.into_iter().filter_map(|(n, held)| match held.stage {
            Stage::Settled(settled) => Some((n, settled)),
            _ => None,
        });
        settled.collect()
    }

    /// What is to be sent now.
    fn round(&self) -> (Round, Vec<(usize, Step, Ticket)>) {
        let mut round = Round::new();
        let held = self.held();
        let steps = held.iter().filter_map(|(n, held)| {
            let (step, batch) = held.step()?;
            Some((*n, step, round.add(batch)))
        });
        let steps = steps.collect();
        (round, steps)
    }

    /// Takes note of the answers to `steps`; returns the errors among them.
    fn apply(&self, steps: Vec<(usize, Step, Ticket)>, mut answers: Answers) -> Vec<(usize, crate::Error)> {
        let mut held = self.held();
        let mut errors = Vec::new();
        for (n, step, ticket) in steps {
            match (answers.take(ticket), held.get_mut(&n)) {
                (Ok(answer), Some(held)) => held.answered(step, answer),
                // It was left meanwhile.
                (Ok(_), None) => {}
                (Err(error), _) => errors.push((n, error)),
            }
        }
        errors
    }
}

impl Held {
    fn step(&self) -> Option<(Step, Batch)> {
        let run = &self.run;
        match self.stage {
            Stage::Open => {
                let lease = run.renewable()?;
                let batch = run.renew_batch(&run.claim.text, lease);
                Some((Step::Renew { until: Instant::now() + lease }, batch))
            }
            Stage::Succeeded => Some((Step::Record, run.commit_batch(&()))),
            Stage::Unwanted if run.has_lapsed() => None,
            Stage::Unwanted => Some((Step::Release, run.abandon_batch())),
            Stage::Lapsed | Stage::Settled(_) | Stage::Released => None,
        }
    }

    fn answered(&mut self, step: Step, answer: Commit) {
        match (step, answer) {
            (Step::Renew { until }, Commit::Applied(_)) => self.run.until = until,
            (Step::Renew { .. }, Commit::Refused(_)) => {
                // If it has ended meanwhile, the commit decides.
                if let Stage::Open = self.stage {
                    tracing::warn!("an idempotent call outlasted its lease");
                    self.stage = Stage::Lapsed;
                }
            }
            (Step::Record, answer) => {
                self.stage = Stage::Settled(match self.run.committed(answer) {
                    Committed::Recorded => Settled::Recorded,
                    Committed::Refused(_) | Committed::Lost => Settled::LostLease,
                });
            }
            // Refused, the claim is gone or another's: nothing is left to do.
            (Step::Release, _) => self.stage = Stage::Released,
        }
    }
}
