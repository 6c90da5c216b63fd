//! What an event is answered, and what it writes: the profile and the forecast are looked up here.

use metrics::counter;
use onetap_ledger::Book;
use onetap_ledger::chat::{self, Supply};
use onetap_line::Messages;
use onetap_line::webhook::{Chat, Event};
use onetap_store::Error;
use onetap_weather::Place;
use tokio::time::{Instant, timeout_at};

use crate::plan::{Plan, Saved, happened_at_ms};
use crate::profile::{Profile, ProfileChange};
use crate::recall::recall;
use crate::replies;
use crate::session::Session;
use crate::user_edit::{Erasure, UserEdit, profile_key};

/// The answer to an event, and what it writes. What is written brings its own answer.
pub(crate) async fn look_up(
    session: &Session<'_>,
    event: &Event,
    plan: &Plan,
) -> (Option<Messages>, Option<UserEdit>) {
    let user = event.source.user_id.as_deref();
    let at = happened_at_ms(event, session.now.unix());
    let busy = || Some(replies::text(replies::BUSY));
    // A user who writes to the bot alone follows it.
    let and_is_here = |change: ProfileChange| match event.source.chat {
        Chat::User => vec![change, ProfileChange::Here(at)],
        _ => vec![change],
    };
    // Without a user there is nobody to keep something for, and without the store nowhere.
    let keep = |edit: Option<Result<UserEdit, Error>>| match edit {
        Some(Ok(edit)) if session.store_is_up() => (None, Some(edit)),
        _ => (busy(), None),
    };
    match plan {
        Plan::Ignore => (None, None),
        Plan::Say(say) => (Some(replies::say(say)), None),
        Plan::Forecast(place) => {
            let answer = forecast(session, place).await;
            let changes = and_is_here(ProfileChange::Visit(place));
            let edit = user.and_then(|user| UserEdit::profile(user, changes, Some(answer.clone())).ok());
            (Some(answer), edit)
        }
        Plan::Saved(saved) => match profile(session, user).await {
            Some(profile) => (Some(saved_forecast(session, &profile, *saved).await), None),
            None => (busy(), None),
        },
        Plan::Recent => match profile(session, user).await {
            Some(profile) => (Some(replies::recent(&profile.recent())), None),
            None => (busy(), None),
        },
        Plan::Save(saved, place) => {
            let answer = replies::saved(*saved, place);
            let changes = and_is_here(ProfileChange::Save(*saved, place));
            keep(user.map(|user| UserEdit::profile(user, changes, Some(answer))))
        }
        Plan::Book(change) => keep(user.map(|user| Ok(UserEdit::book(book(session, user)?, change.clone())))),
        Plan::HalfSaid(words, say) => {
            let answer = say.as_ref().map(replies::say);
            // A way to pay is the answer to a question that only the store knows.
            let without_store = match chat::supply(&words.text, words.at) {
                Supply::Payment if say.is_some() => busy(),
                _ => answer.clone(),
            };
            let book = user.filter(|_| session.store_is_up()).and_then(|user| book(session, user).ok());
            (without_store, book.map(|book| UserEdit::HalfSaid(book, words.clone(), answer)))
        }
        Plan::Recall(question) => match user.and_then(|user| book(session, user).ok()) {
            Some(book) => (recall(session, &book, *question).await.ok().or_else(busy), None),
            None => (busy(), None),
        },
        Plan::Erase => keep(user.map(|user| erasure(session, user).map(UserEdit::Erase))),
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

async fn saved_forecast(session: &Session<'_>, profile: &Profile, saved: Saved) -> Messages {
    match profile.saved(saved) {
        Some(place) => forecast(session, place).await,
        None => replies::not_saved(saved),
    }
}

/// The forecast; an apology if it comes too late for the reply.
async fn forecast(session: &Session<'_>, place: &Place) -> Messages {
    let webhook = session.webhook;
    let deadline = (Instant::now() + webhook.config.times.forecast).min(session.before_reply());
    let forecast = timeout_at(deadline, webhook.weather.forecast(place, deadline)).await;
    let forecast = forecast.unwrap_or(Err(onetap_weather::Error::Late));
    // Both are reported each time, one of them as 0: an alarm that divides by their sum needs both numbers.
    for (outcome, happened) in [("fetched", forecast.is_ok()), ("failed", forecast.is_err())] {
        counter!("weather_total", "outcome" => outcome).increment(happened.into());
    }
    match forecast {
        Ok(forecast) => replies::text(forecast.text(session.now)),
        Err(error) => {
            tracing::warn!(%error, "no forecast");
            replies::text(replies::BUSY)
        }
    }
}

/// A user's ledger.
fn book(session: &Session<'_>, user: &str) -> Result<Book, Error> {
    let wrong = || Error::rejected("a user id that no key can hold");
    Book::new(user, session.webhook.config.ledger).ok_or_else(wrong)
}

/// The removal of everything that is kept for a user.
pub(crate) fn erasure(session: &Session<'_>, user: &str) -> Result<Erasure, Error> {
    Ok(Erasure { book: book(session, user)?, profile: profile_key(user)? })
}

/// A user's profile; `None` where it cannot be known.
async fn profile(session: &Session<'_>, user: Option<&str>) -> Option<Profile> {
    let key = profile_key(user?).ok()?;
    let there = session.get(&key).await.ok()?;
    Some(Profile::read(there.as_deref()))
}
