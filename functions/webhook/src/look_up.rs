//! What an event is answered, and what it writes: the profile and the forecast are looked up here.

use metrics::counter;
use onetap_ledger::Book;
use onetap_line::Messages;
use onetap_line::webhook::{Chat, Event};
use onetap_store::{Batch, Error, Expect, Key, Values};
use onetap_weather::{ForecastOutcome, LookedUp, Place, ToStore};
use tokio::time::Instant;

use crate::bookkeeping::{Bookkeeping, without_store};
use crate::plan::{Plan, Saved, happened_at_ms};
use crate::profile::{Profile, ProfileChange};
use crate::recall::recall;
use crate::replies;
use crate::session::Session;
use crate::user_edit::{Erasure, UserEdit, profile_key};

/// What was looked up for an event.
pub(crate) struct Findings {
    /// The answer, unless the edit brings it.
    pub(crate) answer: Option<Messages>,
    /// What the event writes for its user. It brings its own answer.
    pub(crate) user_edit: Option<UserEdit>,
    /// How the look-up of the forecast ended, if there was one.
    pub(crate) forecast: Option<ForecastOutcome>,
    /// Keeps the forecast that was fetched.
    pub(crate) forecast_to_store: Option<Batch>,
}

/// Looks up what `event` asks for. `known` was read of the user's keys before.
pub(crate) async fn look_up(session: &Session<'_>, event: &Event, plan: &Plan, known: Values) -> Findings {
    let mut result = ForecastResult::default();
    let (answer, user_edit) = answer_and_edit(session, event, plan, known, &mut result).await;
    Findings { answer, user_edit, forecast: result.outcome, forecast_to_store: result.to_store }
}

/// The answer to an event, and what it writes.
async fn answer_and_edit(
    session: &Session<'_>,
    event: &Event,
    plan: &Plan,
    known: Values,
    result: &mut ForecastResult,
) -> (Option<Messages>, Option<UserEdit>) {
    let user = event.source.user_id.as_deref();
    let profile = async || read_profile(session, user, &known).await;
    let at = happened_at_ms(event, session.now.unix());
    let busy = || Some(replies::text(replies::BUSY));
    // A user who writes to the bot alone follows it.
    let and_is_here = |change: ProfileChange| match event.source.chat {
        Chat::User => vec![change, ProfileChange::Here(at)],
        _ => vec![change],
    };
    // Without a user there is nobody to keep something for, and without the store nowhere.
    let if_store_is_up = |edit: Option<Result<UserEdit, Error>>| match edit {
        Some(Ok(edit)) if session.store_is_up() => (None, Some(edit)),
        _ => (busy(), None),
    };
    match plan {
        Plan::Ignore => (None, None),
        Plan::Say(say) => (Some(replies::say(say)), None),
        Plan::Forecast(place) => {
            let answer = forecast(session, place, result).await;
            let changes = and_is_here(ProfileChange::Visit(place));
            let edit = user.and_then(|user| UserEdit::profile(user, changes, Some(answer.clone())).ok());
            (Some(answer), edit)
        }
        Plan::Saved(saved) => match profile().await {
            Some(profile) => (Some(saved_forecast(session, &profile, *saved, result).await), None),
            None => (busy(), None),
        },
        Plan::Recent => match profile().await {
            Some(profile) => (Some(replies::recent(&profile.recent())), None),
            None => (busy(), None),
        },
        Plan::Save(saved, place) => {
            let answer = replies::saved(*saved, place);
            let changes = and_is_here(ProfileChange::Save(*saved, place));
            if_store_is_up(user.map(|user| UserEdit::profile(user, changes, Some(answer))))
        }
        Plan::Ledger(words, say) => {
            let answer = replies::say(say);
            let without_store = without_store(words, &answer).or_else(busy);
            let edit = user.filter(|_| session.store_is_up()).and_then(|user| {
                let (book, profile) = (book(session, user).ok()?, profile_key(user).ok()?);
                let bookkeeping = Bookkeeping::new(book, profile, words.clone(), session.now, answer);
                Some(UserEdit::Ledger(Box::new(bookkeeping.knowing(known.clone()))))
            });
            (without_store, edit)
        }
        Plan::Recall(question) => match user.and_then(|user| book(session, user).ok()) {
            Some(book) => (recall(session, &book, question).await.ok().or_else(busy), None),
            None => (busy(), None),
        },
        Plan::Erase => if_store_is_up(user.map(|user| erasure(session, user).map(UserEdit::Erase))),
        Plan::Follow => {
            let (answer, changes) = (replies::welcome(), vec![ProfileChange::Activate(at)]);
            let edit = user.and_then(|user| UserEdit::profile(user, changes, Some(answer.clone())).ok());
            (Some(answer), edit)
        }
        Plan::Unfollow => {
            let changes = vec![ProfileChange::Deactivate(at)];
            (None, user.and_then(|user| UserEdit::profile(user, changes, None).ok()))
        }
    }
}

/// The forecast of the place that is saved, or how to save one.
async fn saved_forecast(
    session: &Session<'_>,
    profile: &Profile,
    saved: Saved,
    result: &mut ForecastResult,
) -> Messages {
    match profile.saved(saved) {
        Some(place) => forecast(session, place, result).await,
        None => replies::not_saved(saved),
    }
}

/// How the look-up of an event's forecast ended.
#[derive(Default)]
struct ForecastResult {
    outcome: Option<ForecastOutcome>,
    /// Keeps the forecast that was fetched.
    to_store: Option<Batch>,
}

/// The forecast; an apology if there is none in time for the reply.
async fn forecast(session: &Session<'_>, place: &Place, result: &mut ForecastResult) -> Messages {
    let webhook = session.webhook;
    let deadline = (Instant::now() + webhook.config.times.forecast).min(session.before_reply());
    let read = async |names: &[String]| {
        let keys: Vec<Key> = names.iter().map(Key::new).collect::<Result<_, _>>().ok()?;
        session.get_all(&keys).await.ok()
    };
    let found = webhook.weather.look_up(place, session.now, deadline, read).await;
    let (text, LookedUp { outcome, to_store, .. }) = (found.text(session.now), found);
    // Every look-up reports all five outcomes, four of them as 0: the alarm divides by their sum.
    for each in ForecastOutcome::ALL {
        counter!("weather_total", "outcome" => each.label()).increment((each == outcome).into());
    }
    tracing::info!(outcome = outcome.label(), "forecast");
    *result = ForecastResult { outcome: Some(outcome), to_store: to_store.and_then(batch_of) };
    replies::text(text.as_deref().unwrap_or(replies::BUSY))
}

/// The batch that keeps a forecast for other instances and later starts.
fn batch_of(ToStore { key, there, value, ttl }: ToStore) -> Option<Batch> {
    let expect = there.map_or(Expect::Absent, Expect::Is);
    Some(Batch::new().put(&Key::new(key).ok()?, expect, value, ttl))
}

/// A user's ledger.
pub(crate) fn book(session: &Session<'_>, user: &str) -> Result<Book, Error> {
    let wrong = || Error::rejected("a user id that no key can hold");
    Book::new(user, session.webhook.config.ledger).ok_or_else(wrong)
}

/// The removal of everything that is kept for a user.
pub(crate) fn erasure(session: &Session<'_>, user: &str) -> Result<Erasure, Error> {
    Ok(Erasure { book: book(session, user)?, profile: profile_key(user)? })
}

/// A user's profile; `None` where it cannot be known.
async fn read_profile(session: &Session<'_>, user: Option<&str>, known: &Values) -> Option<Profile> {
    let key = profile_key(user?).ok()?;
    if known.knows(&key) {
        return Some(Profile::read(known.get(&key)));
    }
    let there = session.get(&key).await.ok()?;
    Some(Profile::read(there.as_deref()))
}
