//! What an event asks for, and whether that needs the lock. No I/O, no clock: the whole chat as a table.

use std::fmt;

use onetap_idem::digest;
use onetap_ledger::Moment;
use onetap_ledger::chat::{self, Habits, Recall, Sentence};
use onetap_line::webhook::{Chat, Event, IncomingMessage, Kind, Source, TextMessage};
use onetap_weather::places::{by_address, by_name, is_place_text, nearest, search};
use onetap_weather::{Found, Place};
use percent_encoding::percent_decode_str;

use crate::confirmation::{button_data, confirms};
use crate::small_talk;

/// How old an event can be when it arrives: redelivered, or after an outage. An older timestamp is wrong.
const MAX_AGE_SECONDS: i64 = 7 * 24 * 3600;
/// How far LINE's clock may be ahead of this one.
const MAX_AHEAD_SECONDS: i64 = 5 * 60;

/// Which events take the processing lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Buttons that can be tapped twice in a second: the saved places' forecasts and the recent places.
    Selective,
    /// Every text, location and button.
    All,
}

impl Scope {
    /// Whether `event` takes the lock. Follow and unfollow never do.
    pub fn locks(self, event: &Event, plan: &Plan) -> bool {
        match (self, &event.kind) {
            (
                Scope::All,
                Kind::Message(IncomingMessage::Text(_) | IncomingMessage::Location { .. })
                | Kind::Postback { .. },
            ) => true,
            (Scope::Selective, Kind::Postback { .. }) => matches!(plan, Plan::Saved(_) | Plan::Recent),
            _ => false,
        }
    }
}

/// A place that a user saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// 住家
    Home,
    /// 公司
    Office,
}

impl Saved {
    /// The data of a button that saves `place` as this one.
    pub(crate) fn data(self, place: &Place) -> String {
        let name = match self {
            Saved::Home => "home",
            Saved::Office => "office",
        };
        format!("action=save&type={name}&place={}", place.name())
    }

    /// As people call it.
    pub fn name(self) -> &'static str {
        match self {
            Saved::Home => "住家",
            Saved::Office => "公司",
        }
    }
}

/// What an event asks for.
#[derive(Clone, Debug)]
pub enum Plan {
    /// Nothing that this bot does.
    Ignore,
    /// An answer that is known without looking anything up.
    Say(Say),
    /// The forecast of a place.
    Forecast(&'static Place),
    /// The forecast of a saved place.
    Saved(Saved),
    /// The places that were asked for last.
    Recent,
    /// This place is to be saved.
    Save(Saved, &'static Place),
    /// A change of the ledger or of the user's habits, or what may be missing in an entry that was said before. The answer if it
    /// is none of these.
    Ledger(Words, Say),
    /// Something of the ledger is to be read.
    Recall(Recall),
    /// Everything that is kept for the user is to go: it was asked for, and confirmed.
    Erase,
    /// The user is here, for the first time or again.
    Follow,
    /// The user has left.
    Unfollow,
}

/// What somebody said, and when. `Debug` does not show it.
#[derive(Clone)]
pub struct Words {
    /// The text.
    pub text: String,
    /// What it means to the ledger of a user without habits.
    pub means: Sentence,
    /// When it was said.
    pub at: Moment,
    /// In which group or room: a hash of its id. `None` in a chat with the bot alone.
    pub chat: Option<String>,
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Words({} bytes)", self.text.len())
    }
}

/// An answer that is known without looking anything up.
#[derive(Clone, Debug)]
pub enum Say {
    /// Send me where you are.
    AskLocation,
    /// The settings menu.
    Settings,
    /// The menu of everything else.
    Other,
    /// A button of another bot, or of another time.
    UnknownAction,
    /// Which of these?
    Choose(Vec<&'static Place>, Option<Saved>),
    /// No place is called so.
    NoSuchPlace,
    /// No place is called so, and what can be said: the text may not have been meant as a place.
    NoPlaceHelp,
    /// Which place is to be saved?
    SaveWhich(Saved),
    /// Nothing near there.
    OnlyTaiwan,
    /// The text is not understood.
    NotUnderstood,
    /// In a group a forecast needs the name of a place: the group must not see where a user lives or works.
    NamePlaceInAGroup,
    /// What can be said.
    Help,
    /// To a group that the bot joined.
    Greeting,
    /// The ledger is not read aloud in a group.
    NotInAGroup,
    /// Whether an erasure is meant, with the data of the button that confirms it.
    ConfirmErasure(String),
    /// The tapped button does not confirm an erasure: it is too old, or another user's.
    ErasureNotConfirmed,
    /// LINE does not say whose data it is about.
    UnknownUser,
    /// A kind word.
    Kind(&'static str),
}

/// When `event` happened: at its timestamp, or at `now` if it has none that can be true. Both in seconds since 1970.
pub fn happened_at(event: &Event, now: i64) -> i64 {
    happened_at_ms(event, now).div_euclid(1000)
}

/// The same in milliseconds since 1970; `now` is in seconds.
pub fn happened_at_ms(event: &Event, now: i64) -> i64 {
    let possible = now - MAX_AGE_SECONDS..=now + MAX_AHEAD_SECONDS;
    let timestamp = event.timestamp.filter(|at| possible.contains(&at.div_euclid(1000)));
    timestamp.unwrap_or(now.saturating_mul(1000))
}

/// What `event`, which happened at `now`, asks for.
pub fn plan(event: &Event, now: Moment) -> Plan {
    if event.source.chat == Chat::Unknown {
        return Plan::Ignore;
    }
    match &event.kind {
        Kind::Postback { data } => postback(data, &event.source, now),
        Kind::Message(IncomingMessage::Text(message)) => text(message, &event.source, now),
        Kind::Message(IncomingMessage::Location { address, latitude, longitude }) => {
            let named = address.as_deref().and_then(by_address);
            match named.or_else(|| nearest(*latitude, *longitude)) {
                Some(place) => Plan::Forecast(place),
                None if event.source.chat == Chat::User => Plan::Say(Say::OnlyTaiwan),
                None => Plan::Ignore,
            }
        }
        Kind::Follow => Plan::Follow,
        Kind::Unfollow => Plan::Unfollow,
        Kind::Join => Plan::Say(Say::Greeting),
        // `IncomingMessage::Other`, `Leave`, `Other`, `Skipped`.
        _ => Plan::Ignore,
    }
}

/// A button's data is a query string.
fn postback(data: &str, source: &Source, now: Moment) -> Plan {
    let field = |name: &str| {
        let mut pairs = data.split('&').filter_map(|pair| pair.split_once('='));
        pairs.rfind(|(n, _)| *n == name).map(|(_, value)| percent_decode_str(value).decode_utf8_lossy())
    };
    let place = || field("place").and_then(|name| by_name(&name));
    let save = |saved| place().map_or(Plan::Say(Say::UnknownAction), |place| Plan::Save(saved, place));
    match (field("action").as_deref(), field("type").as_deref()) {
        (Some("weather"), Some("home")) => Plan::Saved(Saved::Home),
        (Some("weather"), Some("office")) => Plan::Saved(Saved::Office),
        (Some("weather"), Some("current")) => Plan::Say(Say::AskLocation),
        (Some("recent_queries"), _) => Plan::Recent,
        (Some("settings"), _) => Plan::Say(Say::Settings),
        (Some("other"), _) => Plan::Say(Say::Other),
        (Some("save"), Some("home")) => save(Saved::Home),
        (Some("save"), Some("office")) => save(Saved::Office),
        (Some("erase"), _) => {
            let (asked, by) = (field("asked").unwrap_or_default(), field("user").unwrap_or_default());
            match source.user_id.as_deref() {
                Some(user) if confirms(user, &asked, &by, now) => Plan::Erase,
                _ => Plan::Say(Say::ErasureNotConfirmed),
            }
        }
        _ => Plan::Say(Say::UnknownAction),
    }
}

/// A text of a chat with the bot alone, or one of a group or room: there it may not be meant for the bot.
fn text(message: &TextMessage, source: &Source, now: Moment) -> Plan {
    let text = message.without_bot_mentions();
    let text = text.trim();
    if source.chat == Chat::User {
        return words(text, source, now);
    }
    let addressed = text.strip_prefix(ADDRESS);
    let addressed =
        addressed.filter(|rest| rest.starts_with(|c: char| c.is_whitespace() || [':', '：'].contains(&c)));
    match (addressed, message.mentions_bot()) {
        (Some(text), _) => words(text.trim_start_matches([':', '：', ' ', '\u{3000}', '\n']), source, now),
        (None, true) => words(text, source, now),
        (None, false) => overheard(text),
    }
}

/// A text that does not address the bot is answered only if it is the full name of a place, or asks for the weather of one.
fn overheard(text: &str) -> Plan {
    let search = search(text);
    match search.found {
        _ if !search.full_name && !search.asks_weather => Plan::Ignore,
        Found::One(place) => Plan::Forecast(place),
        Found::Many { first, .. } => Plan::Say(Say::Choose(first, None)),
        Found::Nothing => Plan::Ignore,
    }
}

/// A hash of the id of a group or room; `None` for a chat with the bot alone.
pub(crate) fn chat_hash(source: &Source) -> Option<String> {
    let id = source.chat_id.as_deref().unwrap_or_default();
    (source.chat != Chat::User).then(|| digest(&[source.chat.label().as_bytes(), id.as_bytes()]))
}

/// The first that matches: a setting, an erasure, what concerns the ledger, a place, small talk, help.
fn words(text: &str, source: &Source, now: Moment) -> Plan {
    if let Some((saved, name)) = setting(text) {
        return match search(name).found {
            _ if name.is_empty() => Plan::Say(Say::SaveWhich(saved)),
            Found::One(place) => Plan::Save(saved, place),
            Found::Many { first, .. } => Plan::Say(Say::Choose(first, Some(saved))),
            Found::Nothing => Plan::Say(Say::NoSuchPlace),
        };
    }
    if asks_to_erase(text) {
        let ask = |user: &String| Say::ConfirmErasure(button_data(user, now));
        return Plan::Say(source.user_id.as_ref().map_or(Say::UnknownUser, ask));
    }
    let ledger = |means, say| {
        Plan::Ledger(Words { text: text.to_owned(), means, at: now, chat: chat_hash(source) }, say)
    };
    match chat::parse(text, now, &Habits::default()) {
        // A ledger is not read aloud in a group.
        Sentence::Recall(_) if source.chat != Chat::User => return Plan::Say(Say::NotInAGroup),
        Sentence::Recall(recall) => return Plan::Recall(recall),
        Sentence::Other => {}
        means => return ledger(means, Say::Help),
    }
    let search = search(text);
    match search.found {
        Found::One(place) => Plan::Forecast(place),
        Found::Many { first, .. } => Plan::Say(Say::Choose(first, None)),
        Found::Nothing if search.asks_weather => match search.name.as_str() {
            "" | "住家" | "家" | "公司" if source.chat != Chat::User => {
                Plan::Say(Say::NamePlaceInAGroup)
            }
            "" | "住家" | "家" => Plan::Saved(Saved::Home),
            "公司" => Plan::Saved(Saved::Office),
            name if is_place_text(name) => Plan::Say(Say::NoPlaceHelp),
            _ => Plan::Say(Say::NotUnderstood),
        },
        Found::Nothing if text.is_empty() || HELP.contains(&text) => Plan::Say(Say::Help),
        Found::Nothing => match small_talk::answer(text) {
            Some(answer) => Plan::Say(Say::Kind(answer)),
            // It may name what is missing in an entry.
            None if text.chars().count() <= MAX_ANSWER_CHARS => ledger(
                Sentence::Other,
                if is_like_a_place(text) { Say::NoPlaceHelp } else { Say::NotUnderstood },
            ),
            None => Plan::Say(Say::NotUnderstood),
        },
    }
}

/// Whether a text that is not a known place ends like one.
fn is_like_a_place(text: &str) -> bool {
    is_place_text(text) && text.ends_with(['縣', '市', '鄉', '鎮', '區', '村', '里', '島', '都', '州', '府'])
}

/// Whether the text asks for the erasure of everything.
fn asks_to_erase(text: &str) -> bool {
    let text = text.trim_end_matches(['。', '！', '!', '吧']);
    [
        "刪除我的資料",
        "刪除我的所有資料",
        "刪除我所有的資料",
        "刪除我的全部資料",
        "刪除所有資料",
        "清除所有資料",
        "清除我的資料",
    ]
    .contains(&text)
}

/// The longest text that may answer a question of the bot, in characters.
const MAX_ANSWER_CHARS: usize = 40;

/// Prefix that addresses the bot in a group, like a mention.
const ADDRESS: &str = "記帳";

/// Words that look like a place name and ask for help.
const HELP: [&str; 17] = [
    "說明",
    "幫助",
    "使用說明",
    "怎麼用",
    "怎麼使用",
    "如何使用",
    "help",
    "Help",
    "記帳",
    "我要記帳",
    "怎麼記帳",
    "如何記帳",
    "你是誰",
    "你會什麼",
    "功能",
    "教學",
    "選單",
];

/// `設定住家 X` or `設定公司 X`, with the space or without.
fn setting(text: &str) -> Option<(Saved, &str)> {
    let text = text.strip_prefix("設定")?.trim_start();
    [Saved::Home, Saved::Office]
        .into_iter()
        .find_map(|saved| Some((saved, text.strip_prefix(saved.name())?.trim())))
}
