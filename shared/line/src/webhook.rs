//! What LINE sends, parsed leniently.
//!
//! A request body is a list of events, and every part of every event may be missing, new, or of an unexpected type. So
//! each part is decoded by itself: `{"events":[…]}` into events, an event into its fields, a field into a text or a number.
//! A part that cannot be decoded counts as missing.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::value::RawValue;

/// The body of a webhook request.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookBody {
    /// In LINE's order. JSON of another shape has none; neither has the console's *Verify* button.
    pub events: Vec<Event>,
}

/// The body is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotJson;

impl fmt::Display for NotJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body is not JSON")
    }
}

impl std::error::Error for NotJson {}

/// Something that happened in a chat. `Debug` shows its kind, and nothing about the user.
#[derive(Clone, PartialEq)]
pub struct Event {
    /// The same for every delivery of this event.
    pub webhook_event_id: Option<String>,
    /// What happened.
    pub kind: Kind,
    /// Where, and by whom.
    pub source: Source,
    /// Good for one reply, for a short time.
    pub reply_token: Option<String>,
    /// Whether this channel may answer it.
    pub mode: Mode,
    /// Whether LINE says that it sent the event before.
    pub is_redelivery: bool,
    /// When it happened, in milliseconds since 1970.
    pub timestamp: Option<i64>,
}

/// What happened.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Kind {
    /// Somebody sent something.
    Message(IncomingMessage),
    /// Somebody tapped a button that carries `data`.
    Postback {
        /// The data of the button: here a query string.
        data: String,
    },
    /// A user added the bot, or unblocked it.
    Follow,
    /// A user blocked the bot.
    Unfollow,
    /// The bot joined a group or room.
    Join,
    /// The bot was removed from one.
    Leave,
    /// Another type, by LINE's name for it.
    Other(String),
    /// It cannot be handled because this field is missing.
    Skipped(&'static str),
}

/// A message that a user sent.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum IncomingMessage {
    /// A text message.
    Text(TextMessage),
    /// A place on the map.
    Location {
        /// As LINE's map names it, if it does.
        address: Option<String>,
        /// Degrees north.
        latitude: f64,
        /// Degrees east.
        longitude: f64,
    },
    /// Another type, by LINE's name for it.
    Other(String),
}

/// A text, and where it mentions the bot. `Debug` shows neither.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TextMessage {
    text: String,
    /// Where the bot is mentioned, in bytes of the text: in ascending order, each on boundaries of characters.
    bot_mentions: Vec<Range<usize>>,
}

/// Where an event happened.
#[derive(Clone, PartialEq, Eq)]
pub struct Source {
    /// The kind of chat.
    pub chat: Chat,
    /// Who caused it; in groups and rooms LINE does not always say.
    pub user_id: Option<String>,
    /// Which group or room.
    pub chat_id: Option<String>,
}

/// A kind of chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chat {
    /// With one user.
    User,
    /// A group.
    Group,
    /// A room: several people without a group's name.
    Room,
    /// None, or a kind that is not known here.
    Unknown,
}

/// Whether this channel may answer an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It may. Older events do not say so.
    Active,
    /// Another module of the channel answers, or the mode is unknown: send nothing.
    Standby,
}

impl WebhookBody {
    /// Parses a body. Fails only if it is not JSON.
    pub fn parse(body: &[u8]) -> Result<WebhookBody, NotJson> {
        let body = std::str::from_utf8(body).map_err(|_| NotJson)?;
        // `IgnoredAny` checks all of it without building anything, however deep it is nested.
        serde_json::from_str::<IgnoredAny>(body).map_err(|_| NotJson)?;
        let events: Vec<&RawValue> = Fields::of(body).list("events");
        Ok(WebhookBody { events: events.into_iter().map(|event| Event::parse(event.get())).collect() })
    }
}

impl Event {
    fn parse(json: &str) -> Event {
        let fields = Fields::of(json);
        let source = fields.object("source");
        let mode = match fields.0.get("mode") {
            None => Mode::Active,
            Some(_) if fields.text("mode").as_deref() == Some("active") => Mode::Active,
            Some(_) => Mode::Standby,
        };
        let reply_token = fields.text("replyToken");
        let kind = Kind::parse(&fields).unwrap_or_else(Kind::Skipped);
        let kind = match kind {
            // Without a reply token nothing can be answered. In standby none is expected.
            Kind::Message(_) | Kind::Postback { .. } if mode == Mode::Active && reply_token.is_none() => {
                Kind::Skipped("replyToken")
            }
            kind => kind,
        };
        Event {
            webhook_event_id: fields.text("webhookEventId"),
            kind,
            source: Source {
                chat: Chat::parse(source.text("type")),
                user_id: source.text("userId"),
                chat_id: source.text("groupId").or_else(|| source.text("roomId")),
            },
            reply_token,
            mode,
            is_redelivery: fields.object("deliveryContext").get("isRedelivery").unwrap_or(false),
            timestamp: fields.get("timestamp"),
        }
    }
}

impl Kind {
    /// The kind, or the field that is missing.
    fn parse(event: &Fields<'_>) -> Result<Kind, &'static str> {
        Ok(match event.text("type").ok_or("type")?.as_str() {
            "message" => Kind::Message(IncomingMessage::parse(&event.object("message"))?),
            "postback" => {
                Kind::Postback { data: event.object("postback").text("data").ok_or("postback.data")? }
            }
            "follow" => Kind::Follow,
            "unfollow" => Kind::Unfollow,
            "join" => Kind::Join,
            "leave" => Kind::Leave,
            other => Kind::Other(type_name(other)),
        })
    }

    /// Its name for logs and metrics: one of a fixed set, whatever LINE sends.
    pub fn label(&self) -> &'static str {
        match self {
            Kind::Message(IncomingMessage::Text(_)) => "text",
            Kind::Message(IncomingMessage::Location { .. }) => "location",
            Kind::Message(IncomingMessage::Other(_)) => "message",
            Kind::Postback { .. } => "postback",
            Kind::Follow => "follow",
            Kind::Unfollow => "unfollow",
            Kind::Join => "join",
            Kind::Leave => "leave",
            Kind::Other(_) => "other",
            Kind::Skipped(_) => "skipped",
        }
    }
}

impl IncomingMessage {
    fn parse(message: &Fields<'_>) -> Result<IncomingMessage, &'static str> {
        Ok(match message.text("type").ok_or("message.type")?.as_str() {
            "text" => IncomingMessage::Text(TextMessage::parse(message)?),
            "location" => IncomingMessage::Location {
                address: message.text("address"),
                latitude: message.get("latitude").ok_or("message.latitude")?,
                longitude: message.get("longitude").ok_or("message.longitude")?,
            },
            other => IncomingMessage::Other(type_name(other)),
        })
    }
}

impl TextMessage {
    fn parse(message: &Fields<'_>) -> Result<TextMessage, &'static str> {
        let text = message.text("text").ok_or("message.text")?;
        let mentionees: Vec<&RawValue> = message.object("mention").list("mentionees");
        let bot_mention = |mentionee: &RawValue| {
            let fields = Fields::of(mentionee.get());
            fields.get("isSelf").filter(|is_self| *is_self)?;
            byte_range(&text, fields.get("index")?, fields.get("length")?)
        };
        let mut bot_mentions: Vec<_> = mentionees.into_iter().filter_map(bot_mention).collect();
        bot_mentions.sort_unstable_by_key(|range| (range.start, range.end));
        Ok(TextMessage { text, bot_mentions })
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it mentions the bot.
    pub fn mentions_bot(&self) -> bool {
        !self.bot_mentions.is_empty()
    }

    /// The text without the mentions of the bot. A blank is left in the place of each, so that the words beside it stay apart.
    pub fn without_bot_mentions(&self) -> String {
        let (mut text, mut end) = (String::with_capacity(self.text.len()), 0);
        for mention in &self.bot_mentions {
            text.push_str(self.text.get(end..mention.start).unwrap_or_default());
            text.push(' ');
            end = end.max(mention.end);
        }
        text + self.text.get(end..).unwrap_or_default()
    }
}

impl<T: Into<String>> From<T> for TextMessage {
    fn from(text: T) -> TextMessage {
        TextMessage { text: text.into(), bot_mentions: Vec::new() }
    }
}

/// The bytes of `text` that these UTF-16 units are; `None` if there are no such units, or if they begin or end within a
/// character.
fn byte_range(text: &str, index: usize, length: usize) -> Option<Range<usize>> {
    let end = index.checked_add(length).filter(|_| length > 0)?;
    Some(byte_at(text, index)?..byte_at(text, end)?)
}

fn byte_at(text: &str, unit: usize) -> Option<usize> {
    let mut units = 0;
    for (at, c) in text.char_indices() {
        if units >= unit {
            return (units == unit).then_some(at);
        }
        units += c.len_utf16();
    }
    (units == unit).then_some(text.len())
}

impl Chat {
    fn parse(name: Option<String>) -> Chat {
        match name.as_deref() {
            Some("user") => Chat::User,
            Some("group") => Chat::Group,
            Some("room") => Chat::Room,
            _ => Chat::Unknown,
        }
    }

    /// Its name for logs and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Chat::User => "user",
            Chat::Group => "group",
            Chat::Room => "room",
            Chat::Unknown => "unknown",
        }
    }
}

/// A type that LINE may add is a plain word; anything else is replaced, because the name may get into a log.
fn type_name(name: &str) -> String {
    let plain = name.len() <= 40 && name.bytes().all(|b| b.is_ascii_alphabetic());
    if plain { name.to_owned() } else { "?".to_owned() }
}

/// The fields of a JSON object, not yet decoded; no fields if it is not an object. Of duplicate fields the last counts, as
/// in most parsers.
#[derive(Default)]
struct Fields<'a>(BTreeMap<String, &'a RawValue>);

impl<'a> Fields<'a> {
    fn of(json: &'a str) -> Fields<'a> {
        Fields(serde_json::from_str(json).unwrap_or_default())
    }

    fn object(&self, name: &str) -> Fields<'a> {
        self.0.get(name).map(|value| Fields::of(value.get())).unwrap_or_default()
    }

    fn list<T: Deserialize<'a>>(&self, name: &str) -> Vec<T> {
        self.0.get(name).and_then(|value| serde_json::from_str(value.get()).ok()).unwrap_or_default()
    }

    fn get<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.0.get(name)?.get()).ok()
    }

    /// An empty text counts as missing.
    fn text(&self, name: &str) -> Option<String> {
        self.get(name).filter(|text: &String| !text.is_empty())
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("kind", &self.kind)
            .field("source", &self.source)
            .field("mode", &self.mode)
            .field("is_redelivery", &self.is_redelivery)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Message(message) => message.fmt(f),
            Kind::Other(name) => write!(f, "Other({name})"),
            Kind::Skipped(field) => write!(f, "Skipped(no {field})"),
            _ => f.write_str(self.label()),
        }
    }
}

impl fmt::Debug for IncomingMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IncomingMessage::Text(text) => text.fmt(f),
            IncomingMessage::Location { .. } => f.write_str("Location(…)"),
            IncomingMessage::Other(name) => write!(f, "Other({name})"),
        }
    }
}

impl fmt::Debug for TextMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({} bytes)", self.text.len())
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = if self.user_id.is_some() { "a user" } else { "nobody known" };
        write!(f, "{:?} by {by}", self.chat)
    }
}
