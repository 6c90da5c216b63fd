//! What an event asks for: the order in which buttons and texts are tried. No I/O, no clock: the whole chat as a table.

use onetap_bot::Incoming;
use onetap_ledger::Moment;
use onetap_line::Messages;
use onetap_line::webhook::{Chat, Event, IncomingMessage, Kind, TextMessage};
use percent_encoding::percent_decode_str;

use crate::{Scope, bookkeeping, replies, small_talk, weather};

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

/// What an event asks for.
#[derive(Clone, Debug)]
pub enum Ask {
    /// The skill of forecasts and places.
    Weather(weather::Ask),
    /// The skill of the ledger.
    Bookkeeping(bookkeeping::Ask),
    /// An answer of the bot's own.
    Say(Say),
    /// The user is here, for the first time or again.
    Follow,
    /// The user has left.
    Unfollow,
}

/// An answer that belongs to no skill.
#[derive(Clone, Debug)]
pub enum Say {
    /// The menu of everything else.
    Other,
    /// A button of another bot, or of another time.
    UnknownAction,
    /// What can be said.
    Help,
    /// To a group that the bot joined.
    Greeting,
    /// A kind word.
    Kind(&'static str),
}

impl Ask {
    /// Whether the event takes the processing lock. Follow and unfollow never do.
    pub fn locks(&self, event: &Event, scope: Scope) -> bool {
        match (scope, &event.kind) {
            (
                Scope::All,
                Kind::Message(IncomingMessage::Text(_) | IncomingMessage::Location { .. })
                | Kind::Postback { .. },
            ) => true,
            (Scope::Selective, Kind::Postback { .. }) => match self {
                Ask::Weather(ask) => ask.is_locked_button(),
                Ask::Bookkeeping(ask) => ask.is_locked_button(),
                Ask::Say(_) | Ask::Follow | Ask::Unfollow => false,
            },
            _ => false,
        }
    }
}

impl Say {
    /// In the words of the bot.
    pub fn messages(&self) -> Messages {
        match self {
            Say::Other => replies::other(),
            Say::UnknownAction => replies::text("未知的操作"),
            Say::Help => replies::help(),
            Say::Greeting => replies::greeting(),
            Say::Kind(answer) => replies::text(*answer),
        }
    }
}

/// What `incoming` asks for; `None` if it is nothing that this bot does.
pub fn ask(incoming: &Incoming<'_>) -> Option<Ask> {
    let at = Moment::from_unix(incoming.at_ms.div_euclid(1000))?;
    match &incoming.event.kind {
        Kind::Postback { data, .. } => Some(button(&Button(data), incoming, at)),
        Kind::Message(IncomingMessage::Text(message)) => text(message, incoming, at),
        Kind::Message(IncomingMessage::Location { address, latitude, longitude, .. }) => {
            let is_alone = incoming.is_one_to_one();
            weather::Ask::location(address.as_deref(), *latitude, *longitude, is_alone).map(Ask::Weather)
        }
        Kind::Follow { .. } => Some(Ask::Follow),
        Kind::Unfollow => Some(Ask::Unfollow),
        Kind::Join => Some(Ask::Say(Say::Greeting)),
        // Among others an edited message: what was said first is done already.
        _ => None,
    }
}

/// A button's data: a query string.
pub(crate) struct Button<'a>(&'a str);

impl Button<'_> {
    /// The last field of this name.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let mut pairs = self.0.split('&').filter_map(|pair| pair.split_once('='));
        let value = pairs.rfind(|(n, _)| *n == name).map(|(_, value)| percent_decode_str(value));
        value.map(|value| value.decode_utf8_lossy().into_owned())
    }
}

fn button(button: &Button<'_>, incoming: &Incoming<'_>, at: Moment) -> Ask {
    let action = button.field("action");
    let action = action.as_deref().unwrap_or_default();
    weather::Ask::button(action, button)
        .map(Ask::Weather)
        .or_else(|| bookkeeping::Ask::button(action, button, incoming.user_id(), at).map(Ask::Bookkeeping))
        .unwrap_or(Ask::Say(if action == "other" { Say::Other } else { Say::UnknownAction }))
}

/// A text of a chat with the bot alone, or one of a group or room: there it may not be meant for the bot.
fn text(message: &TextMessage, incoming: &Incoming<'_>, at: Moment) -> Option<Ask> {
    let text = message.without_bot_mentions();
    let text = text.trim();
    if incoming.event.source.chat == Chat::User {
        return Some(words(text, incoming, at));
    }
    let addressed = text.strip_prefix(ADDRESS);
    let addressed =
        addressed.filter(|rest| rest.starts_with(|c: char| c.is_whitespace() || [':', '：'].contains(&c)));
    match (addressed, message.mentions_bot()) {
        (Some(text), _) => {
            Some(words(text.trim_start_matches([':', '：', ' ', '\u{3000}', '\n']), incoming, at))
        }
        (None, true) => Some(words(text, incoming, at)),
        (None, false) => weather::Ask::overheard(text).map(Ask::Weather),
    }
}

/// The first that matches: a setting, what concerns the ledger, a place, help, small talk, the answer to a question of the bot.
fn words(text: &str, incoming: &Incoming<'_>, at: Moment) -> Ask {
    let is_alone = incoming.is_one_to_one();
    weather::Ask::setting(text)
        .map(Ask::Weather)
        .or_else(|| bookkeeping::Ask::text(text, incoming, at).map(Ask::Bookkeeping))
        .or_else(|| weather::Ask::text(text, is_alone).map(Ask::Weather))
        .or_else(|| (text.is_empty() || HELP.contains(&text)).then_some(Ask::Say(Say::Help)))
        .or_else(|| small_talk::answer(text).map(|answer| Ask::Say(Say::Kind(answer))))
        .unwrap_or_else(|| {
            let otherwise = if weather::is_like_a_place(text) {
                replies::no_place_help()
            } else {
                replies::not_understood()
            };
            Ask::Bookkeeping(bookkeeping::Ask::perhaps(text, incoming, at, otherwise))
        })
}
