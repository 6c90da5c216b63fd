//! The skill of forecasts and places.

mod texts;

use metrics::counter;
use onetap_bot::{Answer, Context, Incoming, Key};
use onetap_ledger::Moment;
use onetap_store::{Batch, Expect};
use onetap_weather::places::{by_address, by_name, is_place_text, nearest, search};
use onetap_weather::{ForecastOutcome, Found, LookedUp, Place, ToStore};
use tokio::time::Instant;

use crate::Assistant;
use crate::ask::Button;
use crate::profile::{self, PROFILE, Profile, ProfileChange};
use crate::replies;

/// A place that a user saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// 住家
    Home,
    /// 公司
    Office,
}

impl Saved {
    /// As people call it.
    pub fn name(self) -> &'static str {
        match self {
            Saved::Home => "住家",
            Saved::Office => "公司",
        }
    }
}

/// What an event asks of this skill.
#[derive(Clone, Debug)]
pub enum Ask {
    /// The forecast of a place.
    Forecast(&'static Place),
    /// The forecast of a saved place.
    Saved(Saved),
    /// The places that were asked for last.
    Recent,
    /// This place is to be saved.
    Save(Saved, &'static Place),
    /// Which place is to be saved?
    SaveWhich(Saved),
    /// One of these, and perhaps to be saved.
    Choose(Vec<&'static Place>, Option<Saved>),
    /// Where the user is.
    Location,
    /// How places are saved.
    Settings,
    /// No place is called so.
    NoSuchPlace,
    /// No place is called so; the text may not have been meant as a place.
    NoPlaceHelp,
    /// The weather of something that is no place.
    NotUnderstood,
    /// Nothing near there.
    OnlyTaiwan,
    /// In a group a forecast needs the name of a place: the group must not see where a user lives or works.
    NamePlaceInAGroup,
}

impl Ask {
    /// Whether a tap on its button takes the processing lock.
    pub(crate) fn is_locked_button(&self) -> bool {
        match self {
            Ask::Saved(_) | Ask::Recent => true,
            Ask::Forecast(_)
            | Ask::Save(..)
            | Ask::SaveWhich(_)
            | Ask::Choose(..)
            | Ask::Location
            | Ask::Settings
            | Ask::NoSuchPlace
            | Ask::NoPlaceHelp
            | Ask::NotUnderstood
            | Ask::OnlyTaiwan
            | Ask::NamePlaceInAGroup => false,
        }
    }

    /// A button of this skill.
    pub(crate) fn button(action: &str, button: &Button<'_>) -> Option<Ask> {
        let saved = || match button.field("type")?.as_str() {
            "home" => Some(Saved::Home),
            "office" => Some(Saved::Office),
            _ => None,
        };
        match action {
            "weather" if button.field("type").as_deref() == Some("current") => Some(Ask::Location),
            "weather" => saved().map(Ask::Saved),
            "recent_queries" => Some(Ask::Recent),
            "settings" => Some(Ask::Settings),
            "save" => Some(Ask::Save(saved()?, by_name(&button.field("place")?)?)),
            _ => None,
        }
    }

    /// `設定住家 X` or `設定公司 X`, with the space or without.
    pub(crate) fn setting(text: &str) -> Option<Ask> {
        let text = text.strip_prefix("設定")?.trim_start();
        let (saved, name) = [Saved::Home, Saved::Office]
            .into_iter()
            .find_map(|saved| Some((saved, text.strip_prefix(saved.name())?.trim())))?;
        Some(match search(name).found {
            _ if name.is_empty() => Ask::SaveWhich(saved),
            Found::One(place) => Ask::Save(saved, place),
            Found::Many { first, .. } => Ask::Choose(first, Some(saved)),
            Found::Nothing => Ask::NoSuchPlace,
        })
    }

    /// The name of a place, or a question about the weather.
    pub(crate) fn text(text: &str, is_alone: bool) -> Option<Ask> {
        let search = search(text);
        match search.found {
            Found::One(place) => Some(Ask::Forecast(place)),
            Found::Many { first, .. } => Some(Ask::Choose(first, None)),
            Found::Nothing if search.asks_weather => Some(match search.name.as_str() {
                "" | "住家" | "家" | "公司" if !is_alone => Ask::NamePlaceInAGroup,
                "" | "住家" | "家" => Ask::Saved(Saved::Home),
                "公司" => Ask::Saved(Saved::Office),
                name if is_place_text(name) => Ask::NoPlaceHelp,
                _ => Ask::NotUnderstood,
            }),
            Found::Nothing => None,
        }
    }

    /// A text that does not address the bot is answered only if it is the full name of a place, or asks for the weather of one.
    pub(crate) fn overheard(text: &str) -> Option<Ask> {
        let search = search(text);
        match search.found {
            _ if !search.full_name && !search.asks_weather => None,
            Found::One(place) => Some(Ask::Forecast(place)),
            Found::Many { first, .. } => Some(Ask::Choose(first, None)),
            Found::Nothing => None,
        }
    }

    /// A place on the map.
    pub(crate) fn location(
        address: Option<&str>,
        latitude: f64,
        longitude: f64,
        is_alone: bool,
    ) -> Option<Ask> {
        match address.and_then(by_address).or_else(|| nearest(latitude, longitude)) {
            Some(place) => Some(Ask::Forecast(place)),
            None => is_alone.then_some(Ask::OnlyTaiwan),
        }
    }

    /// The keys that its answer reads.
    pub(crate) fn reads(&self, incoming: &Incoming<'_>) -> Vec<Key> {
        match self {
            Ask::Saved(_) | Ask::Recent => PROFILE.keys(incoming),
            _ => Vec::new(),
        }
    }
}

/// Whether a text that is not a known place ends like one.
pub(crate) fn is_like_a_place(text: &str) -> bool {
    is_place_text(text) && text.ends_with(['縣', '市', '鄉', '鎮', '區', '村', '里', '島', '都', '州', '府'])
}

impl Assistant {
    /// The answer of this skill.
    pub(crate) async fn answer_weather(&self, context: &Context<'_>, ask: &Ask) -> Answer {
        match ask {
            Ask::Forecast(place) => {
                let answer = self.forecast(context, place).await;
                // The forecast is right whether the visit is kept or not.
                match profile::change(context, and_is_here(context, ProfileChange::Visit(place)), None) {
                    Some(visit) => answer.and_try(visit),
                    None => answer,
                }
            }
            Ask::Saved(saved) => match self.profile(context).await {
                Some(profile) => match profile.saved(*saved) {
                    Some(place) => self.forecast(context, place).await,
                    None => Answer::say(texts::not_saved(*saved)),
                },
                None => Answer::say(replies::unavailable()),
            },
            Ask::Recent => match self.profile(context).await {
                Some(profile) => Answer::say(texts::recent(&profile.recent())),
                None => Answer::say(replies::unavailable()),
            },
            Ask::Save(saved, place) => {
                let changes = and_is_here(context, ProfileChange::Save(*saved, place));
                match profile::change(context, changes, Some(texts::saved(*saved, place))) {
                    Some(change) => change.into(),
                    None => Answer::say(replies::unavailable()),
                }
            }
            Ask::SaveWhich(saved) => Answer::say(texts::save_which(*saved)),
            Ask::Choose(places, saved) => Answer::say(texts::choose(places, *saved)),
            Ask::Location => Answer::say(texts::ask_location()),
            Ask::Settings => Answer::say(texts::settings()),
            Ask::NoSuchPlace => Answer::say(replies::text(replies::NO_SUCH_PLACE)),
            Ask::NoPlaceHelp => Answer::say(replies::no_place_help()),
            Ask::NotUnderstood => Answer::say(replies::not_understood()),
            Ask::OnlyTaiwan => Answer::say(replies::text("目前只提供臺灣地區的天氣查詢。")),
            Ask::NamePlaceInAGroup => Answer::say(replies::text("在群組裡請說地名，例如：永和區天氣")),
        }
    }

    /// The forecast; an apology if there is none in time for the reply.
    async fn forecast(&self, context: &Context<'_>, place: &Place) -> Answer {
        let deadline = (Instant::now() + self.forecast_timeout).min(context.deadline());
        let Some(now) = Moment::from_unix(context.incoming().now_ms.div_euclid(1000)) else {
            return Answer::say(replies::unavailable());
        };
        let read = async |names: &[String]| {
            let keys: Vec<Key> = names.iter().map(Key::new).collect::<Result<_, _>>().ok()?;
            let there = context.get(&keys).await.ok()?;
            Some(keys.iter().map(|key| there.get(key).map(str::to_owned)).collect())
        };
        let found = self.forecasts.look_up(place, now, deadline, read).await;
        let (text, LookedUp { outcome, to_store, .. }) = (found.text(now), found);
        // Every look-up reports all five outcomes, four of them as 0: the alarm divides by their sum.
        for each in ForecastOutcome::ALL {
            counter!("weather_total", "outcome" => each.label()).increment((each == outcome).into());
        }
        tracing::info!(outcome = outcome.label(), "forecast");
        let answer =
            Answer::say(replies::text(text.as_deref().unwrap_or(replies::UNAVAILABLE))).with(outcome);
        match to_store.and_then(batch_of) {
            Some(forecast) => answer.and_keep(forecast),
            None => answer,
        }
    }

    /// The user's profile; `None` where it cannot be known.
    async fn profile(&self, context: &Context<'_>) -> Option<Profile> {
        context.state(&PROFILE).await.ok()
    }
}

/// A user who writes to the bot alone follows it.
fn and_is_here(context: &Context<'_>, change: ProfileChange) -> Vec<ProfileChange> {
    let incoming = context.incoming();
    match incoming.is_one_to_one() {
        true => vec![change, ProfileChange::Here(incoming.at_ms)],
        false => vec![change],
    }
}

/// The batch that keeps a forecast for other instances and later starts.
fn batch_of(ToStore { key, there, value, ttl }: ToStore) -> Option<Batch> {
    let expect = there.map_or(Expect::Absent, Expect::Is);
    Some(Batch::new().put(&Key::new(key).ok()?, expect, value, ttl))
}
