//! The processing locks of a delivery's users: which events have to wait for another.

use std::collections::HashMap;
use std::time::Duration;

use metrics::counter;
use onetap_line::Messages;
use onetap_line::webhook::Event;
use onetap_store::lease::{Acquire, AcquireOutcome};
use onetap_store::{Answers, Key, Lease, Round, Ticket};

use crate::bot::default_busy;
use crate::panics::caught;
use crate::session::Session;
use crate::{Bot, Lock};

/// How many event ids a lock's value names, and how long one may be: the value stays small for any delivery.
const MAX_LABEL_IDS: usize = 20;
const MAX_LABEL_ID_BYTES: usize = 64;

/// The outcome of an event's lock.
pub(crate) enum LockOutcome {
    /// None is needed, or the store is down: the work goes on unlocked.
    Unlocked,
    /// It is ours until we release it.
    Held(Lease),
    /// Another event of the user has it, or had it a moment ago. The reply to this one.
    Busy(Messages),
    /// A crashed run of the same event holds it. (A live run would hold the claim too, and we hold the claim.)
    LeftBehind,
}

/// The locks of the users of a delivery, each asked for once.
pub(crate) struct Locks<'a, 'e, B> {
    session: &'a Session<'a>,
    bot: &'a B,
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

impl<'a, 'e, B: Bot> Locks<'a, 'e, B> {
    /// The locks of the users of `events`. None is asked for yet.
    pub(crate) fn new(
        session: &'a Session<'a>,
        bot: &'a B,
        events: impl Iterator<Item = &'e Event>,
    ) -> Locks<'a, 'e, B> {
        Locks { session, bot, labels: labels(events), locks: HashMap::new() }
    }

    /// Adds the request for the user's lock to `round`, unless it was asked for before.
    pub(crate) fn ask(&mut self, user: Option<&'e str>, event: &Event, round: &mut Round) {
        let (Some(user), Some(config)) = (user, &self.session.engine.config.lock) else { return };
        if self.locks.contains_key(user) {
            return;
        }
        let Ok(key) = Key::new(format!("processing:user:{user}")) else { return };
        let label = self.labels.get(user).map_or("", String::as_str);
        let request = Acquire::new(self.session.engine.store.clone(), key).ttl(config.ttl).label(label);
        let ticket = if event.is_redelivery { round.add(request) } else { round.add_likely(request) };
        self.locks.insert(user, UserLock::Asked(ticket));
    }

    /// Takes the answers to what was asked for.
    pub(crate) fn take(&mut self, answers: &mut Answers) {
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
    pub(crate) fn give(&mut self, user: &str, event: &Event) -> LockOutcome {
        let Some(lock) = self.locks.get_mut(user) else { return LockOutcome::Unlocked };
        let busy = || LockOutcome::Busy(busy_reply(self.session.engine.config.lock.as_ref(), self.bot));
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
    pub(crate) async fn release_unused(self) {
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

/// The reply to an event that finds the lock held.
pub(crate) fn busy_reply(lock: Option<&Lock>, bot: &impl Bot) -> Messages {
    let configured = lock.and_then(|lock| lock.message.clone()).map(Messages::from);
    configured.or_else(|| caught("busy", || bot.busy())).unwrap_or_else(default_busy)
}

/// The ids of each user's events.
fn labels<'e>(events: impl Iterator<Item = &'e Event>) -> HashMap<&'e str, String> {
    let mut ids: HashMap<&str, Vec<&str>> = HashMap::new();
    for event in events {
        let id = event.webhook_event_id.as_deref().filter(|id| id.len() <= MAX_LABEL_ID_BYTES);
        if let (Some(user), Some(id)) = (event.source.user_id.as_deref(), id) {
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
