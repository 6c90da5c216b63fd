//! Claims: which events are ours to handle. With them, in the same round trip, the locks are taken and what the answers need is read.

use std::collections::HashSet;

use metrics::counter;
use onetap_idem::{Claim, ClaimOutcome, Run};
use onetap_line::Messages;
use onetap_store::{Answers, Error, Key, Read, Round, Ticket, Values};
use serde::{Deserialize, Serialize};

use crate::locks::{LockOutcome, Locks};
use crate::session::Session;
use crate::{Bot, Incoming, Overlap};

/// The result that is recorded for a handled event.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Marker {
    /// It was answered, or needed no answer.
    Answered,
    /// Its writes are committed, and this reply is to be sent. Any later delivery may send it: LINE accepts one reply a
    /// token, so that the user gets it once.
    Answer(Messages),
    /// It wrote nothing, and LINE may not have taken this reply. A later delivery sends it.
    Unheard(Messages),
}

/// An event, and what the bot wants to do with it.
pub(crate) struct Planned<'e, A> {
    pub(crate) incoming: Incoming<'e>,
    pub(crate) plan: Plan<A>,
}

/// What a bot wants to do with an event.
pub(crate) enum Plan<A> {
    /// Nothing.
    Nothing,
    /// It has panicked when it was asked.
    Panicked,
    /// To answer it.
    Answer { ask: A, overlap: Overlap, reads: Vec<Key> },
}

impl<A> Plan<A> {
    fn overlap(&self) -> Option<Overlap> {
        match self {
            Plan::Answer { overlap, .. } => Some(*overlap),
            Plan::Nothing | Plan::Panicked => None,
        }
    }
}

/// An event with the outcomes of its claim and its lock.
pub(crate) struct Begun<'e, A> {
    pub(crate) incoming: Incoming<'e>,
    pub(crate) plan: Plan<A>,
    pub(crate) claim: EventClaim,
    pub(crate) lock: LockOutcome,
    /// What was read with the claim.
    pub(crate) known: Values,
}

/// The outcome of an event's claim.
pub(crate) enum EventClaim {
    /// We handle it. `Some`: we hold its claim. `None`: it is handled without dedupe.
    Ours(Option<Run>),
    /// It was handled before.
    Done(Option<Marker>),
    /// Another delivery is handling it.
    Elsewhere,
}

/// Claims the events, takes the locks and reads what the events need, in one round trip. Each is a request of its own, because a lock
/// that is held must not refuse a claim. Of one user's events that need the lock, the first that is ours to handle gets it.
///
/// An event that LINE marks as redelivered is probably a duplicate. It asks for its lock and reads in a second round
/// trip, after its claim was granted, so that a duplicate never keeps a new event of the user waiting. Of any other event claim
/// and lock are likely to be granted.
pub(crate) async fn begin<'e, B: Bot>(
    session: &Session<'_>,
    bot: &B,
    events: Vec<Planned<'e, B::Ask>>,
) -> Vec<Begun<'e, B::Ask>> {
    let readers = readers(&events);
    let mut locks = Locks::new(session, bot, events.iter().map(|planned| planned.incoming.event));
    let mut round = Round::new();
    let mut sent = Vec::new();
    for (planned, reader) in events.into_iter().zip(readers) {
        let is_redelivery = planned.incoming.event.is_redelivery;
        let claim = claim(session, &planned).map(|claim| match is_redelivery {
            true => round.add(claim),
            false => round.add_likely(claim),
        });
        let user = locked_user(session, &planned);
        let mut read = None;
        if !is_redelivery {
            locks.ask(user, planned.incoming.event, &mut round);
            read = Some(ask(&reader, &mut round));
        }
        sent.push((planned, claim, user, reader, read));
    }
    let mut answers = session.send(round).await;
    locks.take(&mut answers);

    let mut round = Round::new();
    let mut outcomes = Vec::new();
    for (planned, claim, user, reader, read) in sent {
        let claim = match claim {
            None => EventClaim::Ours(None),
            Some(ticket) => claim_outcome(session, answers.take(ticket)),
        };
        let is_ours = matches!(claim, EventClaim::Ours(_));
        let user = user.filter(|_| is_ours);
        locks.ask(user, planned.incoming.event, &mut round);
        let known = read.map(|read| take(read, &mut answers));
        let late = (is_ours && planned.incoming.event.is_redelivery).then(|| ask(&reader, &mut round));
        outcomes.push((planned, claim, user, known, late));
    }
    let mut answers = session.send(round).await;
    locks.take(&mut answers);

    let begun = outcomes.into_iter().map(|(Planned { incoming, plan }, claim, user, known, late)| {
        let lock = user.map_or(LockOutcome::Unlocked, |user| locks.give(user, incoming.event));
        let known = known.or_else(|| Some(take(late?, &mut answers))).unwrap_or_default();
        Begun { incoming, plan, claim, lock, known }
    });
    let begun = begun.collect();
    locks.release_unused().await;
    begun
}

/// For each event the keys that its bot reads, unless an earlier event of the user in this delivery may change them.
fn readers<A>(events: &[Planned<'_, A>]) -> Vec<Vec<Key>> {
    let mut users = HashSet::new();
    let mut readers = Vec::new();
    for Planned { incoming, plan } in events {
        readers.push(match plan {
            Plan::Answer { reads, .. } if incoming.user_id().is_none_or(|user| users.insert(user)) => {
                reads.clone()
            }
            _ => Vec::new(),
        });
    }
    readers
}

fn ask(keys: &[Key], round: &mut Round) -> Vec<(Key, Ticket<Read>)> {
    keys.iter().map(|key| (key.clone(), round.add(Read::new(key.clone())))).collect()
}

/// What was read. Nothing if not all of it was: then whoever needs it reads again.
fn take(asked: Vec<(Key, Ticket<Read>)>, answers: &mut Answers) -> Values {
    let read = asked.into_iter().map(|(key, ticket)| Ok((key, answers.take(ticket)?)));
    read.collect::<Result<Values, Error>>().unwrap_or_default()
}

/// The claim on an event, if the bot answers it and it has an id to be known by.
fn claim<A>(session: &Session<'_>, planned: &Planned<'_, A>) -> Option<Claim> {
    planned.plan.overlap()?;
    let call = session.call(planned.incoming.event)?;
    let refused = |error: &onetap_idem::Error| {
        count_dedupe(error.outcome());
        tracing::warn!(%error, "an event is handled without dedupe");
    };
    call.claim().inspect_err(refused).ok()
}

/// The user whose lock an event takes.
fn locked_user<'e, A>(session: &Session<'_>, planned: &Planned<'e, A>) -> Option<&'e str> {
    session.engine.config.lock.as_ref()?;
    match planned.plan.overlap()? {
        Overlap::Concurrent => return None,
        Overlap::Busy => {}
    }
    let user = planned.incoming.user_id();
    if user.is_none() {
        tracing::warn!("an event names no user, and is handled unlocked");
    }
    user
}

/// The outcome of a claim. Events that are not ours are counted here; ours are counted when they have ended.
fn claim_outcome(session: &Session<'_>, claimed: Result<ClaimOutcome, Error>) -> EventClaim {
    let (outcome, label) = match claimed.inspect_err(|error| session.note_failure(error)) {
        Ok(ClaimOutcome::Mine(run)) => return EventClaim::Ours(Some(run)),
        Ok(ClaimOutcome::Done(done)) => (EventClaim::Done(done.value().ok()), "replayed"),
        Ok(ClaimOutcome::Unknown) => (EventClaim::Elsewhere, "unknown"),
        Ok(ClaimOutcome::Mismatch) => (EventClaim::Elsewhere, "mismatch"),
        // `Late` and `InProgress`: another caller may be running it.
        Ok(_) => (EventClaim::Elsewhere, "in_progress"),
        // Fail open: the event is handled without dedupe.
        Err(_) => (EventClaim::Ours(None), "store_error"),
    };
    count_dedupe(label);
    outcome
}

/// Counts the outcome of an event's claim in the metric of idempotent calls.
pub(crate) fn count_dedupe(outcome: &'static str) {
    counter!("idem_total", "outcome" => outcome).increment(1);
}
