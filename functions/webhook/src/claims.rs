//! Claims and locks: which events are ours to handle, and which of them have to wait for another.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use metrics::counter;
use onetap_idem::{Claim, ClaimOutcome, Run};
use onetap_line::webhook::Event;
use onetap_line::{Message, Messages};
use onetap_store::lease::{Acquire, AcquireOutcome};
use onetap_store::{Answers, Error, Key, Lease, Read, Round, Ticket, Values};
use serde::{Deserialize, Serialize};

use crate::bookkeeping;
use crate::look_up::book;
use crate::plan::Plan;
use crate::session::Session;
use crate::user_edit::profile_key;

/// How many event ids a lock's value names, and how long one may be: the value stays small for any delivery.
const MAX_LABEL_IDS: usize = 20;
const MAX_LABEL_ID_BYTES: usize = 64;

/// The result that is recorded for a handled event.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Marker {
    /// It was answered, or needed no answer.
    Answered,
    /// Its writes are committed, and this reply is to be sent. Any later delivery may send it: LINE accepts one reply a
    /// token, so that the user gets it once.
    Answer(Messages),
}

/// An event and what it asks for.
pub(crate) struct Planned<'e> {
    pub(crate) event: &'e Event,
    pub(crate) plan: Plan,
}

/// An event with the outcomes of its claim and its lock.
pub(crate) struct Begun<'e> {
    pub(crate) event: &'e Event,
    pub(crate) plan: Plan,
    pub(crate) claim: EventClaim,
    pub(crate) lock: LockOutcome,
    /// What was read of the user's keys with the claim.
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

/// The outcome of an event's lock.
pub(crate) enum LockOutcome {
    /// None is needed, or the store is down: the work goes on unlocked.
    Unlocked,
    /// It is ours until we release it.
    Held(Lease),
    /// Another event of the user has it, or had it a moment ago. The reply to this one.
    Busy(Message),
    /// A crashed run of the same event holds it. (A live run would hold the claim too, and we hold the claim.)
    LeftBehind,
}

/// Claims the events, takes the locks and reads what the events need, in one round trip. Each is a request of its own, because a lock
/// that is held must not refuse a claim. Of one user's events that need the lock, the first that is ours to handle gets it.
///
/// An event that LINE marks as redelivered is probably a duplicate. It asks for its lock and reads in a second round
/// trip, after its claim was granted, so that a duplicate never keeps a new event of the user waiting. Of any other event claim
/// and lock are likely to be granted.
pub(crate) async fn begin<'e>(session: &Session<'_>, events: Vec<Planned<'e>>) -> Vec<Begun<'e>> {
    let readers = readers(session, &events);
    let mut locks = Locks { session, labels: labels(&events), locks: HashMap::new() };
    let mut round = Round::new();
    let mut asked = Vec::new();
    for (planned, reader) in events.into_iter().zip(readers) {
        let is_redelivery = planned.event.is_redelivery;
        let claim = claim(session, &planned).map(|claim| match is_redelivery {
            true => round.add(claim),
            false => round.add_likely(claim),
        });
        let user = locked_user(session, &planned);
        let mut read = None;
        if !is_redelivery {
            locks.ask(user, planned.event, &mut round);
            read = Some(ask(&reader, &mut round));
        }
        asked.push((planned, claim, user, reader, read));
    }
    let mut answers = session.send(round).await;
    locks.take(&mut answers);

    let mut round = Round::new();
    let mut outcomes = Vec::new();
    for (planned, claim, user, reader, read) in asked {
        let claim = match claim {
            None => EventClaim::Ours(None),
            Some(ticket) => claim_outcome(session, answers.take(ticket)),
        };
        let is_ours = matches!(claim, EventClaim::Ours(_));
        let user = user.filter(|_| is_ours);
        locks.ask(user, planned.event, &mut round);
        let known = read.map(|asked| take(asked, &mut answers));
        let late = (is_ours && planned.event.is_redelivery).then(|| ask(&reader, &mut round));
        outcomes.push((planned, claim, user, known, late));
    }
    let mut answers = session.send(round).await;
    locks.take(&mut answers);

    let begun = outcomes.into_iter().map(|(Planned { event, plan }, claim, user, known, late)| {
        let lock = user.map_or(LockOutcome::Unlocked, |user| locks.give(user, event));
        let known = known.or_else(|| Some(take(late?, &mut answers))).unwrap_or_default();
        Begun { event, plan, claim, lock, known }
    });
    let begun = begun.collect();
    locks.release_unused().await;
    begun
}

/// For each event the keys of its user that it reads, if it needs them as they were before the delivery: an earlier event of the
/// user may change them.
fn readers(session: &Session<'_>, events: &[Planned<'_>]) -> Vec<Vec<Key>> {
    let mut users = HashSet::new();
    let mut reader = |planned: &Planned<'_>| {
        let user = planned.event.source.user_id.as_deref()?;
        let is_first = users.insert(user.to_owned());
        let profile = profile_key(user).ok().filter(|_| is_first)?;
        match &planned.plan {
            Plan::Saved(_) | Plan::Recent => Some(vec![profile]),
            Plan::Ledger(words, _) => {
                Some(bookkeeping::keys(&book(session, user).ok()?, &profile, words, session.now))
            }
            _ => None,
        }
    };
    events.iter().map(|planned| reader(planned).unwrap_or_default()).collect()
}

fn ask(keys: &[Key], round: &mut Round) -> Vec<(Key, Ticket<Read>)> {
    keys.iter().map(|key| (key.clone(), round.add(Read::new(key.clone())))).collect()
}

/// What was read. Nothing if not all of it was: then whoever needs it reads again.
fn take(asked: Vec<(Key, Ticket<Read>)>, answers: &mut Answers) -> Values {
    let read = asked.into_iter().map(|(key, ticket)| Ok((key, answers.take(ticket)?)));
    read.collect::<Result<Values, Error>>().unwrap_or_default()
}

/// The claim on an event, if it does anything and has an id to be known by.
fn claim(session: &Session<'_>, planned: &Planned<'_>) -> Option<Claim> {
    let id = planned.event.webhook_event_id.as_deref();
    let id = id.filter(|_| !matches!(planned.plan, Plan::Ignore))?;
    let call = session.webhook.idem.call(&format!("line:{id}"));
    let refused = |error: &onetap_idem::Error| {
        count_dedupe(error.outcome());
        tracing::warn!(%error, "an event is handled without dedupe");
    };
    call.claim().inspect_err(refused).ok()
}

/// The user whose lock an event takes.
fn locked_user<'e>(session: &Session<'_>, planned: &Planned<'e>) -> Option<&'e str> {
    let Planned { event, plan } = planned;
    let scope = session.webhook.config.lock.as_ref()?.scope;
    if matches!(plan, Plan::Ignore) || !scope.locks(event, plan) {
        return None;
    }
    let user = event.source.user_id.as_deref();
    if user.is_none() {
        tracing::warn!(?scope, "an event names no user, and is handled unlocked");
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

/// The locks of the users of a delivery, each asked for once.
struct Locks<'a, 'e> {
    session: &'a Session<'a>,
    /// The ids of each user's events, for the value of the lock. By them a redelivered event recognises a lock that its own
    /// crashed run left behind.
    labels: HashMap<&'e str, String>,
    locks: HashMap<&'e str, UserLock>,
}

/// One user's lock, for all events of that user in this delivery.
enum UserLock {
    /// Its answer is on the way.
    Asked(Ticket<Acquire>),
    /// It is ours, and the first event that needs it gets it.
    Taken(Lease),
    /// An event of this delivery has it.
    Given,
    /// Another delivery has it, with these event ids.
    Held { ids: Option<String> },
    /// The store is down.
    Unknown,
}

impl<'e> Locks<'_, 'e> {
    /// Adds the request for the user's lock to `round`, unless it was asked for before.
    fn ask(&mut self, user: Option<&'e str>, event: &Event, round: &mut Round) {
        let (Some(user), Some(config)) = (user, &self.session.webhook.config.lock) else { return };
        if self.locks.contains_key(user) {
            return;
        }
        let Ok(key) = Key::new(format!("processing:user:{user}")) else { return };
        let label = self.labels.get(user).map_or("", String::as_str);
        let request = Acquire::new(self.session.webhook.store.clone(), key).ttl(config.ttl).label(label);
        let ticket = if event.is_redelivery { round.add(request) } else { round.add_likely(request) };
        self.locks.insert(user, UserLock::Asked(ticket));
    }

    /// Takes the answers to what was asked for.
    fn take(&mut self, answers: &mut Answers) {
        for lock in self.locks.values_mut() {
            *lock = match std::mem::replace(lock, UserLock::Unknown) {
                UserLock::Asked(ticket) => match answers.take(ticket) {
                    Ok(AcquireOutcome::Acquired(lease)) => UserLock::Taken(lease),
                    Ok(AcquireOutcome::Held { label }) => UserLock::Held { ids: label },
                    Err(_) => UserLock::Unknown,
                },
                answered => answered,
            };
        }
    }

    /// What the user's lock means to `event`, which is ours to handle and needs it.
    fn give(&mut self, user: &str, event: &Event) -> LockOutcome {
        let (Some(config), Some(lock)) = (&self.session.webhook.config.lock, self.locks.get_mut(user)) else {
            return LockOutcome::Unlocked;
        };
        let busy = || LockOutcome::Busy(config.message.clone());
        let (left, given) = match std::mem::replace(lock, UserLock::Given) {
            UserLock::Taken(lease) => (UserLock::Given, LockOutcome::Held(lease)),
            UserLock::Held { ids } => {
                let own = event.webhook_event_id.as_deref();
                let mine = ids.iter().flat_map(|ids| ids.split_whitespace()).any(|id| Some(id) == own);
                (UserLock::Held { ids }, if mine { LockOutcome::LeftBehind } else { busy() })
            }
            UserLock::Given => (UserLock::Given, busy()),
            UserLock::Asked(_) | UserLock::Unknown => (UserLock::Unknown, LockOutcome::Unlocked),
        };
        *lock = left;
        log_lock_outcome(event, &given);
        given
    }

    /// Releases the locks that only duplicates asked for. At once: a duplicate starts no cooldown.
    async fn release_unused(self) {
        let mut round = Round::new();
        for lock in self.locks.into_values() {
            if let UserLock::Taken(lease) = lock {
                // Whatever the answer is: the lock ends by itself.
                let _ = round.add(lease.releasing_after(Duration::ZERO));
            }
        }
        self.session.send(round).await;
    }
}

/// The ids of each user's events.
fn labels<'e>(events: &[Planned<'e>]) -> HashMap<&'e str, String> {
    let mut ids: HashMap<&str, Vec<&str>> = HashMap::new();
    for Planned { event, .. } in events {
        if let (Some(user), Some(id)) = (event.source.user_id.as_deref(), event.webhook_event_id.as_deref())
            && id.len() <= MAX_LABEL_ID_BYTES
        {
            ids.entry(user).or_default().push(id);
        }
    }
    ids.into_iter().map(|(user, ids)| (user, ids[..ids.len().min(MAX_LABEL_IDS)].join(" "))).collect()
}

fn log_lock_outcome(event: &Event, lock: &LockOutcome) {
    let (event_type, source_type) = (event.kind.label(), event.source.chat.label());
    let status = match lock {
        LockOutcome::Held(_) => "acquired",
        LockOutcome::Busy(_) => "missed",
        LockOutcome::LeftBehind => "left_behind",
        LockOutcome::Unlocked => "failed_open",
    };
    counter!("processing_lock_acquire_total", "status" => status, "source_type" => source_type).increment(1);
    match lock {
        LockOutcome::Held(_) | LockOutcome::LeftBehind => {
            tracing::info!(event_type, status, "processing lock")
        }
        LockOutcome::Busy(_) => {
            counter!("processing_lock_miss_total", "source_type" => source_type).increment(1);
            tracing::info!(event_type, status, "processing lock");
        }
        LockOutcome::Unlocked => tracing::warn!(event_type, status, "the store is down: unlocked"),
    }
}

/// Counts the outcome of an event's claim in the metric of idempotent calls.
pub(crate) fn count_dedupe(outcome: &'static str) {
    counter!("idem_total", "outcome" => outcome).increment(1);
}
