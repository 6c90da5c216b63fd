//! One delivery: a round trip that claims its events and takes its locks, the work, and a round trip after each event.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use futures_util::future::join_all;
use onetap_ledger::Moment;
use onetap_line::Messages;
use onetap_line::reply::Outcome as Sent;
use onetap_line::webhook::{Chat, Event, IncomingMessage as Message, Kind, Mode};
use onetap_store::idem::{Claim, Claimed, Committed, Run};
use onetap_store::lease::{self, Acquire, Release};
use onetap_store::{Batch, Commit, Error, Key, Lease, Mismatch};
use onetap_telemetry::{add, count, observe};
use onetap_weather::{Place, Taipei};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use crate::change::{Change, profile_key};
use crate::plan::{Plan, Saved, happened_at, happened_at_ms, plan};
use crate::profile::{Edit, Profile};
use crate::{Webhook, talk};

/// A change that is refused so often in a row has met something else than other writers.
const ROUNDS: usize = 8;

/// So many ids, none of them longer, are in a lock's label: a label is no place for a whole delivery.
const LABELS: usize = 20;
const MAX_LABEL: usize = 64;

/// What the marker of a handled event says.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Marker {
    /// It was answered, or needed no answer.
    Answered,
    /// What it writes is written, and this is the answer that follows. Whoever finds it may send it: LINE takes one
    /// reply a token, so that the user gets it once.
    Answer(Messages),
}

/// How an event ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Answered, or in need of no answer.
    Handled,
    /// Told to wait for the one before it.
    Busy,
    /// Handled before.
    Duplicate,
    /// Not ours, or nothing that this bot does.
    Ignored,
    /// Lacking a field, or of a kind that is not known here.
    Skipped,
    /// Being handled elsewhere: to come again.
    Elsewhere,
    /// Not answered: to come again.
    Failed,
}

/// How the events of a delivery ended, in their order: among the extensions of the answer to it, for a caller in this
/// process. Nothing of it is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endings(pub Vec<Ended>);

impl Ended {
    /// Its name for logs and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Ended::Handled => "handled",
            Ended::Busy => "busy",
            Ended::Duplicate => "duplicate",
            Ended::Ignored => "ignored",
            Ended::Skipped => "skipped",
            Ended::Elsewhere => "elsewhere",
            Ended::Failed => "failed",
        }
    }

    /// Whether LINE is asked to send it again.
    pub fn comes_again(self) -> bool {
        matches!(self, Ended::Elsewhere | Ended::Failed)
    }
}

/// What the claim of an event came to.
enum Turn {
    /// It is ours, with the right to record it; without, where there is no dedupe.
    Ours(Option<Run>),
    /// It was handled before.
    Done(Option<Marker>),
    /// Somebody else is at it.
    Elsewhere,
}

/// What the lock of an event came to.
enum Lock {
    /// None is needed, or the store is down: the work goes on.
    Open,
    /// It is ours until we release it.
    Held(Lease),
    /// Somebody else has it.
    Busy,
    /// An earlier run of this event has it, and is gone: whoever still works has its claim too, and that is ours.
    LeftBehind,
}

/// What asking for a user's lock came to, for all events of that user in this delivery.
enum UserLock {
    /// It is ours, and the first event that needs it gets it.
    Taken(Lease),
    /// An event of this delivery has it.
    Given,
    /// Another delivery has it.
    Held {
        /// The ids of that delivery's events.
        ids: String,
    },
    /// The store is down.
    Unknown,
}

impl UserLock {
    /// What it means to `event`, which is ours to handle and needs the lock.
    fn give(&mut self, event: &Event) -> Lock {
        if let UserLock::Taken(_) = self
            && let UserLock::Taken(lease) = std::mem::replace(self, UserLock::Given)
        {
            return Lock::Held(lease);
        }
        let own = event.webhook_event_id.as_deref();
        match self {
            UserLock::Unknown => Lock::Open,
            UserLock::Held { ids } if ids.split_whitespace().any(|id| Some(id) == own) => Lock::LeftBehind,
            _ => Lock::Busy,
        }
    }
}

/// An event by its number, with what its claim and its lock came to.
type Begun = (usize, Turn, Lock);

/// A delivery on its way.
pub(crate) struct Delivery<'a> {
    webhook: &'a Webhook,
    now: Taipei,
    deadline: Instant,
    /// Until one call fails: then no other is made.
    store_is_up: AtomicBool,
}

impl<'a> Delivery<'a> {
    pub(crate) fn new(webhook: &'a Webhook, deadline: Instant) -> Delivery<'a> {
        Delivery { webhook, now: Taipei::now(), deadline, store_is_up: AtomicBool::new(true) }
    }

    /// Handles every event; one's failure never stops the others. How each ended, in their order.
    pub(crate) async fn handle(&self, events: &[Event]) -> Vec<Ended> {
        let plans: Vec<Plan> = events.iter().map(|event| self.plan(event)).collect();
        let turns = self.begin(events, &plans).await;

        // One user's events one after the other, because they may build on each other; users beside each other.
        let mut users: Vec<(Option<&str>, Vec<Begun>)> = Vec::new();
        for (n, (turn, lock)) in turns.into_iter().enumerate() {
            let user = events[n].source.user_id.as_deref();
            match users.iter_mut().find(|(other, _)| user.is_some() && *other == user) {
                Some((_, own)) => own.push((n, turn, lock)),
                None => users.push((user, vec![(n, turn, lock)])),
            }
        }
        let in_order = |own: Vec<Begun>| async {
            let mut ended = Vec::new();
            for (n, turn, lock) in own {
                // A panic is one event's failure. What it held ends by itself.
                let event = AssertUnwindSafe(self.event(&events[n], &plans[n], turn, lock)).catch_unwind();
                ended.push((n, event.await.unwrap_or(Ended::Failed)));
            }
            ended
        };
        let mut ended = join_all(users.into_iter().map(|(_, own)| in_order(own))).await.concat();
        ended.sort_by_key(|(n, _)| *n);
        ended.into_iter().map(|(_, ended)| ended).collect()
    }

    fn plan(&self, event: &Event) -> Plan {
        match Moment::from_unix(happened_at(event, self.now.unix())) {
            Some(now) if event.mode == Mode::Active => plan(event, now),
            _ => Plan::Ignore,
        }
    }

    /// Claims the events and takes the locks, in one round trip: each a batch of its own, because a lock that is held
    /// must not refuse a claim. Of one user's events that need the lock, the first that is ours to handle gets it.
    ///
    /// An event that LINE marks as redelivered is probably a duplicate. It asks for its lock in a second round trip,
    /// after its claim was granted, so that a duplicate never keeps a new event of the user waiting.
    async fn begin(&self, events: &[Event], plans: &[Plan]) -> Vec<(Turn, Lock)> {
        let claims: Vec<Option<Claim>> =
            events.iter().zip(plans).map(|(e, plan)| self.claim(e, plan)).collect();
        let wants: Vec<Option<&str>> =
            events.iter().zip(plans).map(|(event, plan)| self.locked_user(event, plan)).collect();
        let new = events.iter().zip(&wants).filter(|(event, _)| !event.is_redelivery);
        let asks = self.lock_claims(events, new.filter_map(|(_, user)| *user));

        let claim_batches = claims.iter().flatten().map(Claim::batch);
        let batches: Vec<Batch> = claim_batches.chain(asks.iter().map(|(_, ask)| ask.batch())).collect();
        let sent = Instant::now();
        let mut answers = self.commit_each(&batches).await.into_iter();
        let turns: Vec<Turn> = claims
            .into_iter()
            .map(|claim| claim.map_or(Turn::Ours(None), |claim| self.turn(claim, sent, answers.next())))
            .collect();
        let mut locks: HashMap<&str, UserLock> =
            asks.into_iter().map(|(user, ask)| (user, self.user_lock(ask, sent, answers.next()))).collect();

        let granted = turns.iter().zip(&wants).filter(|(turn, _)| matches!(turn, Turn::Ours(_)));
        let unasked = granted.filter_map(|(_, user)| *user).filter(|user| !locks.contains_key(user));
        let asks = self.lock_claims(events, unasked);
        let batches: Vec<Batch> = asks.iter().map(|(_, ask)| ask.batch()).collect();
        let sent = Instant::now();
        let mut answers = self.commit_each(&batches).await.into_iter();
        locks.extend(asks.into_iter().map(|(user, ask)| (user, self.user_lock(ask, sent, answers.next()))));

        let mut given: Vec<(Turn, Lock)> = Vec::new();
        for ((event, turn), user) in events.iter().zip(turns).zip(wants) {
            let lock = match user.and_then(|user| locks.get_mut(user)) {
                Some(lock) if matches!(turn, Turn::Ours(_)) => told(event, lock.give(event)),
                _ => Lock::Open,
            };
            given.push((turn, lock));
        }
        // Locks that only duplicates asked for.
        let spare = locks.into_values().filter_map(|lock| match lock {
            UserLock::Taken(lease) => Some(lease.release_batch()),
            UserLock::Given | UserLock::Held { .. } | UserLock::Unknown => None,
        });
        self.commit_each(&spare.collect::<Vec<_>>()).await;
        given
    }

    /// A claim on the lock of each of these users, once.
    fn lock_claims<'e>(
        &self,
        events: &[Event],
        users: impl Iterator<Item = &'e str>,
    ) -> Vec<(&'e str, lease::Claim)> {
        let mut claims: Vec<(&str, lease::Claim)> = Vec::new();
        for user in users {
            if let Some(settings) = self.webhook.config.lock
                && !claims.iter().any(|(other, _)| *other == user)
                && let Ok(key) = Key::new(format!("processing:user:{user}"))
            {
                claims.push((user, lease::Claim::new(key, settings.ttl).labelled(&ids_of(user, events))));
            }
        }
        claims
    }

    /// The claim on an event, if it does anything and has an id to be known by.
    fn claim(&self, event: &Event, plan: &Plan) -> Option<Claim> {
        let id = event.webhook_event_id.as_deref().filter(|_| !matches!(plan, Plan::Ignore))?;
        let call = self.webhook.idem.call(&format!("line:{id}"));
        let refused = |error: &onetap_store::idem::Error| {
            count_dedupe(error.outcome());
            tracing::warn!(%error, "an event is handled without dedupe");
        };
        call.claim().inspect_err(refused).ok()
    }

    /// The user whose lock an event takes.
    fn locked_user<'e>(&self, event: &'e Event, plan: &Plan) -> Option<&'e str> {
        let settings = self.webhook.config.lock.filter(|lock| lock.scope.locks(event, plan))?;
        let user = event.source.user_id.as_deref();
        if user.is_none() && !matches!(plan, Plan::Ignore) {
            tracing::warn!(?settings.scope, "an event names no user, and is handled unlocked");
        }
        user.filter(|_| !matches!(plan, Plan::Ignore))
    }

    /// What the claim of an event came to. What is not ours is counted here; what is, when it has ended.
    fn turn(&self, claim: Claim, sent: Instant, answer: Option<Result<Commit, Error>>) -> Turn {
        // No answer at all is a store that was given up on before.
        let Some(Ok(answer)) = answer else {
            count_dedupe("store_error");
            return Turn::Ours(None);
        };
        let claimed = claim.outcome(sent, answer).inspect_err(|error| self.lost_store(error));
        let (turn, outcome) = match claimed {
            Ok(Claimed::Mine(run)) => return Turn::Ours(Some(run)),
            Ok(Claimed::Done(done)) => (Turn::Done(done.value().ok()), "replayed"),
            Ok(Claimed::Late(_) | Claimed::InProgress { .. }) => (Turn::Elsewhere, "in_progress"),
            Ok(Claimed::Unknown) => (Turn::Elsewhere, "unknown"),
            Ok(Claimed::Mismatch) => (Turn::Elsewhere, "mismatch"),
            Err(_) => (Turn::Ours(None), "store_error"),
        };
        count_dedupe(outcome);
        turn
    }

    fn user_lock(
        &self,
        claim: lease::Claim,
        sent: Instant,
        answer: Option<Result<Commit, Error>>,
    ) -> UserLock {
        // Fail open: no answer, or one that makes no sense.
        let Some(Ok(answer)) = answer else { return UserLock::Unknown };
        let ids = claim.label_of_holder(&answer).unwrap_or_default().to_owned();
        match claim.outcome(&self.webhook.store, sent, answer) {
            Acquire::Acquired(lease) => UserLock::Taken(lease),
            Acquire::Held => UserLock::Held { ids },
        }
    }

    /// Handles one event, and says how it ended.
    async fn event(&self, event: &Event, plan: &Plan, turn: Turn, lock: Lock) -> Ended {
        let start = Instant::now();
        if event.is_redelivery {
            count("line_redelivery_total", &[]);
        }
        let ended = match (turn, lock) {
            _ if matches!(plan, Plan::Ignore) => match event.kind {
                Kind::Skipped(_) | Kind::Other(_) | Kind::Message(Message::Other(_)) => Ended::Skipped,
                _ if event.source.chat == Chat::Unknown => Ended::Skipped,
                _ => Ended::Ignored,
            },
            (Turn::Elsewhere, _) => Ended::Elsewhere,
            (Turn::Done(Some(Marker::Answer(answer))), _) => self.answer_again(event, &answer).await,
            (Turn::Done(_), _) => Ended::Duplicate,
            (Turn::Ours(run), Lock::Busy) => {
                let ended = self.reply(event, &talk::text(talk::PROCESSING)).await;
                self.finish(event, run.map(|run| Record::Ended(run, ended)), None).await;
                if ended == Ended::Handled { Ended::Busy } else { ended }
            }
            // To be told to wait would be the end of it. The lock ends by itself, and then it can be handled.
            (Turn::Ours(run), Lock::LeftBehind) => {
                self.finish(event, run.map(|run| Record::Ended(run, Ended::Elsewhere)), None).await;
                Ended::Elsewhere
            }
            (Turn::Ours(run), Lock::Held(lease)) => self.work(event, plan, run, Some(lease)).await,
            (Turn::Ours(run), Lock::Open) => self.work(event, plan, run, None).await,
        };
        let kind = event.kind.label();
        count("line_webhook_events_total", &[("event_type", kind), ("outcome", ended.label())]);
        observe("processing_duration_seconds", &[("event_type", kind)], start.elapsed());
        tracing::info!(event_type = kind, outcome = ended.label(), "event");
        ended
    }

    /// The work of an event that is ours: what it writes comes before its answer, and everything else after it.
    async fn work(&self, event: &Event, plan: &Plan, run: Option<Run>, lease: Option<Lease>) -> Ended {
        let (answer, change) = self.look_up(event, plan).await;
        let change = match change {
            Some(change) if self.store_is_up() => change,
            unwritten => {
                let ended = match &answer {
                    Some(answer) => self.reply(event, answer).await,
                    // Nothing is said, so that another delivery can write it.
                    None if unwritten.is_some() => Ended::Failed,
                    None => Ended::Handled,
                };
                self.finish(event, run.map(|run| Record::Ended(run, ended)), lease).await;
                return ended;
            }
        };
        let mut answered = None;
        let written = self.write(run.as_ref(), &change).await;
        if run.is_some() {
            count_dedupe(match &written {
                Ok(Written::Answer(_)) => "executed",
                Ok(Written::Elsewhere) => "lost_lease",
                Err(_) => "unrecorded",
            });
        }
        let ended = match written {
            Ok(Written::Answer(Some(written))) => {
                let ended = self.reply(event, &written).await;
                // Who finds the marker now need not send the answer again.
                let sent = run.filter(|_| ended == Ended::Handled);
                answered = sent.map(|run| {
                    Record::Answered(run.amend_batch(&Marker::Answer(written), &Marker::Answered))
                });
                ended
            }
            Ok(Written::Answer(None)) => Ended::Handled,
            Ok(Written::Elsewhere) => Ended::Elsewhere,
            // Nothing is known to be written. A forecast is still a forecast; anything else must be said again.
            Err(_) => match (plan, answer) {
                (Plan::Forecast(_), Some(answer)) => self.reply(event, &answer).await,
                (Plan::Unfollow, _) => Ended::Failed,
                _ => self.reply(event, &talk::text(talk::BUSY)).await,
            },
        };
        self.finish(event, answered, lease).await;
        ended
    }

    /// What an event is answered, and what it writes. What it writes brings its own answer.
    async fn look_up(&self, event: &Event, plan: &Plan) -> (Option<Messages>, Option<Change>) {
        let user = event.source.user_id.as_deref();
        let at = happened_at_ms(event, self.now.unix());
        let busy = || Some(talk::text(talk::BUSY));
        // Who writes to the bot alone follows it.
        let and_is_here = |edit: Edit| match event.source.chat {
            Chat::User => vec![edit, Edit::Here(at)],
            _ => vec![edit],
        };
        // Without a user there is nobody to keep something for, and without the store nowhere.
        let keep = |change: Option<Result<Change, Error>>| match change {
            Some(Ok(change)) if self.store_is_up() => (None, Some(change)),
            _ => (busy(), None),
        };
        match plan {
            Plan::Ignore => (None, None),
            Plan::Say(say) => (Some(talk::say(say)), None),
            Plan::Forecast(place) => {
                let answer = self.forecast(place).await;
                let edits = and_is_here(Edit::Visit(place));
                let change = user.and_then(|u| Change::profile(u, edits, Some(answer.clone())).ok());
                (Some(answer), change)
            }
            Plan::Saved(saved) => match self.profile(user).await {
                Some(profile) => (Some(self.saved_forecast(&profile, *saved).await), None),
                None => (busy(), None),
            },
            Plan::Recent => match self.profile(user).await {
                Some(profile) => (Some(talk::recent(&profile.recent())), None),
                None => (busy(), None),
            },
            Plan::Save(saved, place) => {
                let answer = talk::saved(*saved, place);
                let edits = and_is_here(Edit::Save(*saved, place));
                keep(user.map(|user| Change::profile(user, edits, Some(answer))))
            }
            Plan::Book(change) => {
                let life = self.webhook.config.last_transaction;
                keep(user.map(|user| Change::book(user, life, change.clone())))
            }
            Plan::Erase => keep(user.map(Change::erase)),
            Plan::Follow => {
                let edits = vec![Edit::Activate(at)];
                let change = user.and_then(|u| Change::profile(u, edits, Some(talk::welcome())).ok());
                (Some(talk::welcome()), change)
            }
            Plan::Unfollow => {
                (None, user.and_then(|u| Change::profile(u, vec![Edit::Deactivate(at)], None).ok()))
            }
        }
    }

    async fn saved_forecast(&self, profile: &Profile, saved: Saved) -> Messages {
        match profile.saved(saved) {
            Some(place) => self.forecast(place).await,
            None => talk::not_saved(saved),
        }
    }

    /// A forecast that is late is an apology: the reply needs its time too.
    async fn forecast(&self, place: &Place) -> Messages {
        let deadline = (Instant::now() + self.webhook.config.times.forecast).min(self.before_reply());
        let forecast = timeout_at(deadline, self.webhook.weather.forecast(place, deadline)).await;
        let forecast = forecast.unwrap_or(Err(onetap_weather::Error::Late));
        // Each time both are told, one of them as 0: an alarm that divides by their sum needs both numbers.
        for (outcome, happened) in [("fetched", forecast.is_ok()), ("failed", forecast.is_err())] {
            add("weather_total", &[("outcome", outcome)], happened.into());
        }
        match forecast {
            Ok(forecast) => talk::text(forecast.text(self.now)),
            Err(error) => {
                tracing::warn!(%error, "no forecast");
                talk::text(talk::BUSY)
            }
        }
    }

    /// A user's profile; `None` where it cannot be known.
    async fn profile(&self, user: Option<&str>) -> Option<Profile> {
        let key = profile_key(user?).ok()?;
        let there = self.get(&key).await.ok()?;
        Some(Profile::read(there.as_deref()))
    }

    /// Commits the change together with the marker that has its answer, from what is there.
    async fn write(&self, run: Option<&Run>, change: &Change) -> Result<Written, Error> {
        let keys = change.keys();
        let mut there = vec![None; keys.len()];
        if change.reads_first() {
            for (there, got) in there.iter_mut().zip(join_all(keys.iter().map(|key| self.get(key))).await) {
                *there = got?;
            }
        }
        for _ in 0..ROUNDS {
            let step = change.step(&there);
            let marker = step.answer.clone().map_or(Marker::Answered, Marker::Answer);
            let batch = match run {
                Some(run) => step.writes.and(run.commit_batch(&marker)),
                None => step.writes,
            };
            let answer = self.commit(&batch).await?;
            let committed = match (run, answer) {
                (Some(run), answer) => run.committed(answer),
                (None, Commit::Applied(_)) => Committed::Recorded,
                (None, Commit::Refused(refusal)) => Committed::Refused(refusal),
            };
            match committed {
                Committed::Recorded => return Ok(Written::Answer(step.answer)),
                Committed::Lost => return Ok(Written::Elsewhere),
                Committed::Refused(refusal) => {
                    for (there, key) in there.iter_mut().zip(&keys) {
                        // What the refusal does not speak of is as it was expected to be.
                        if let Some(found) = Mismatch::find(&refusal, key) {
                            *there = found.there.clone();
                        }
                    }
                }
            }
        }
        Err(Error::not_sent("others kept writing first"))
    }

    /// Sends the event's last record, and frees its lock: one round trip for both. A failure is a warning: the claim
    /// and the lock end by themselves.
    async fn finish(&self, event: &Event, record: Option<Record>, lease: Option<Lease>) {
        let release = lease.as_ref().map(Lease::release_batch);
        let batches: Vec<Batch> = record.as_ref().map(Record::batch).into_iter().chain(release).collect();
        let mut answers = self.commit_each(&batches).await.into_iter();
        if let Some(record) = record {
            record.count(answers.next());
        }
        if let Some(lease) = lease {
            let status = match answers.next() {
                Some(Ok(answer)) => match lease.released(answer) {
                    Release::Released => "released",
                    Release::Outlasted => "outlasted",
                },
                _ => "failed",
            };
            count("processing_lock_release_total", &[("status", status)]);
            let event_type = event.kind.label();
            match status {
                "released" => tracing::info!(event_type, status, "processing lock"),
                _ => tracing::warn!(event_type, status, "processing lock"),
            }
        }
    }

    /// The answer of an event whose writes were committed by a run that may not have got to say so.
    async fn answer_again(&self, event: &Event, answer: &Messages) -> Ended {
        match self.reply(event, answer).await {
            Ended::Failed => Ended::Failed,
            _ => Ended::Duplicate,
        }
    }

    /// Sends the reply. Failed means that surely nothing was sent, and that it is worth another delivery.
    async fn reply(&self, event: &Event, messages: &Messages) -> Ended {
        let Some(token) = event.reply_token.as_deref() else { return Ended::Handled };
        let now = Instant::now();
        if now >= self.deadline {
            count("line_reply_total", &[("outcome", "out_of_time")]);
            tracing::error!(outcome = "out_of_time", "reply");
            return Ended::Failed;
        }
        let deadline = (now + self.webhook.config.times.reply).min(self.deadline);
        let reply = self.webhook.line.reply(token, messages, deadline).await;
        let (outcome, request_id) = (reply.outcome.label(), reply.request_id);
        count("line_reply_total", &[("outcome", outcome)]);
        match reply.outcome {
            Sent::Sent => tracing::info!(outcome, request_id, "reply"),
            // A dead token is final: no delivery will bring it back.
            Sent::InvalidToken => tracing::warn!(outcome, request_id, "reply"),
            _ => tracing::error!(outcome, request_id, "reply"),
        }
        match reply.outcome {
            Sent::RateLimited | Sent::Unauthorized | Sent::Unreachable { maybe_sent: false } => Ended::Failed,
            _ => Ended::Handled,
        }
    }

    /// When the time that is left is what a reply has.
    fn before_reply(&self) -> Instant {
        self.deadline - self.webhook.config.times.reply
    }

    fn store_is_up(&self) -> bool {
        self.store_is_up.load(Ordering::Relaxed)
    }

    /// Gives the store up for this delivery; a value that cannot be read is one event's trouble, and not the store's.
    fn lost_store(&self, error: &Error) {
        let down = matches!(error, Error::Unavailable { .. } | Error::Rejected { .. });
        if down && self.store_is_up.swap(false, Ordering::Relaxed) {
            tracing::warn!(%error, "the store failed: this delivery goes on without it");
        }
    }

    async fn get(&self, key: &Key) -> Result<Option<String>, Error> {
        self.ask(self.webhook.store.get(key)).await
    }

    async fn commit(&self, batch: &Batch) -> Result<Commit, Error> {
        self.ask(self.webhook.store.commit(batch)).await
    }

    /// No answers at all where the store was given up on, or takes longer than the delivery has.
    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        if batches.is_empty() || !self.store_is_up() {
            return Vec::new();
        }
        let Ok(answers) = timeout_at(self.deadline, self.webhook.store.commit_each(batches)).await else {
            self.lost_store(&late());
            return Vec::new();
        };
        answers.iter().filter_map(|answer| answer.as_ref().err()).for_each(|error| self.lost_store(error));
        answers
    }

    async fn ask<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        if !self.store_is_up() {
            return Err(late());
        }
        // Whatever is asked for is asked before a reply, which needs its time too.
        let answer = timeout_at(self.before_reply(), call).await.unwrap_or_else(|_| Err(late()));
        answer.inspect_err(|error| self.lost_store(error))
    }
}

/// The ids of a user's events, which the lock is labelled with: a redelivery sees by them that it is itself that left
/// the lock behind.
fn ids_of(user: &str, events: &[Event]) -> String {
    let own = events.iter().filter(|event| event.source.user_id.as_deref() == Some(user));
    let ids = own.filter_map(|event| event.webhook_event_id.as_deref());
    ids.filter(|id| id.len() <= MAX_LABEL).take(LABELS).collect::<Vec<_>>().join(" ")
}

/// Counts and logs what the lock of an event came to.
fn told(event: &Event, lock: Lock) -> Lock {
    let (event_type, source) = (event.kind.label(), ("source_type", event.source.chat.label()));
    let status = match lock {
        Lock::Held(_) => "acquired",
        Lock::Busy => "missed",
        Lock::LeftBehind => "left_behind",
        Lock::Open => "failed_open",
    };
    count("processing_lock_acquire_total", &[("status", status), source]);
    match lock {
        Lock::Held(_) | Lock::LeftBehind => tracing::info!(event_type, status, "processing lock"),
        Lock::Busy => {
            count("processing_lock_miss_total", &[source]);
            tracing::info!(event_type, status, "processing lock");
        }
        Lock::Open => tracing::warn!(event_type, status, "the store is down: unlocked"),
    }
    lock
}

/// The last that is recorded of an event.
enum Record {
    /// How an event that writes nothing ended.
    Ended(Run, Ended),
    /// That the answer of an event that writes something was sent.
    Answered(Batch),
}

impl Record {
    /// What is to be handled again gives its claim up.
    fn batch(&self) -> Batch {
        match self {
            Record::Ended(run, ended) if ended.comes_again() => run.abandon_batch(),
            Record::Ended(run, _) => run.commit_batch(&Marker::Answered),
            Record::Answered(amended) => amended.clone(),
        }
    }

    /// Counts what the dedupe of the event came to, by the store's answer to the batch.
    fn count(self, answer: Option<Result<Commit, Error>>) {
        count_dedupe(match (self, answer) {
            // Counted when it was written.
            (Record::Answered(_), _) => return,
            (Record::Ended(_, Ended::Elsewhere), _) => "in_progress",
            (Record::Ended(_, Ended::Failed), _) => "failed",
            (Record::Ended(run, _), Some(Ok(answer))) => match run.committed(answer) {
                Committed::Recorded => "executed",
                Committed::Refused(_) | Committed::Lost => "lost_lease",
            },
            (Record::Ended(..), _) => "unrecorded",
        });
    }
}

/// Counts an event under the outcomes of idempotent calls: the dedupe of an event is one.
fn count_dedupe(outcome: &str) {
    count("idem_total", &[("outcome", outcome)]);
}

fn late() -> Error {
    Error::unknown("no time left in this delivery")
}

/// What became of a change.
enum Written {
    /// It is written, and this is its answer.
    Answer(Option<Messages>),
    /// A successor has taken the event over.
    Elsewhere,
}
