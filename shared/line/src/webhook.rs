//! What LINE delivers, read leniently.
//!
//! A delivery is a list of events, and every part of every event may be missing, new, or of a type nobody expected.
//! So nothing is decoded before it is needed, and each part for itself: `{"events":[…]}` is cut into events, an event
//! into its fields, a field into a text or a number, and whatever fails to be one is just not there.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::value::RawValue;

/// The body of a webhook request.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// In LINE's order. JSON of another shape has none; neither has the console's *Verify* button.
    pub events: Vec<Event>,
}

/// The body is no JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotJson;

impl fmt::Display for NotJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body is not JSON")
    }
}

impl std::error::Error for NotJson {}

/// Something that happened in a chat. `Debug` shows its kind, and nothing that somebody said or is.
#[derive(Clone, PartialEq)]
pub struct Event {
    /// Names this event however often it is delivered.
    pub webhook_event_id: Option<String>,
    /// What happened.
    pub kind: Kind,
    /// Where, and by whom.
    pub source: Source,
    /// Good for one reply, soon.
    pub reply_token: Option<String>,
    /// Whether it is ours to answer.
    pub mode: Mode,
    /// Whether LINE says that it sent the event before.
    pub is_redelivery: bool,
    /// When it happened, in milliseconds since 1970.
    pub timestamp: Option<i64>,
}

/// What happened.
#[derive(Clone, PartialEq)]
pub enum Kind {
    /// Somebody sent something.
    Message(Message),
    /// Somebody tapped a button that carries `data`.
    Postback {
        /// As the button was made with: here a query string.
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
    /// It lacks a field without which nothing can be done with it; this is the field.
    Skipped(&'static str),
}

/// Something that was sent.
#[derive(Clone, PartialEq)]
pub enum Message {
    /// Words.
    Text(String),
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

/// Where an event happened.
#[derive(Clone, PartialEq, Eq)]
pub struct Source {
    /// The kind of chat.
    pub chat: Chat,
    /// Who caused it; in groups and rooms LINE does not always say.
    pub user_id: Option<String>,
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

/// Whether an event is ours to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It is. Older events do not say so.
    Active,
    /// Another module of the channel answers, or a mode that is not known here: send nothing.
    Standby,
}

impl Delivery {
    /// Reads a body. Fails only where it is no JSON at all.
    pub fn parse(body: &[u8]) -> Result<Delivery, NotJson> {
        let body = std::str::from_utf8(body).map_err(|_| NotJson)?;
        // Skipping over it checks all of it, however deep it is nested.
        serde_json::from_str::<IgnoredAny>(body).map_err(|_| NotJson)?;
        let events: Vec<&RawValue> = Fields::of(body).list("events");
        Ok(Delivery { events: events.into_iter().map(|event| Event::parse(event.get())).collect() })
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
            // Without a token there is no answering. In standby none is expected.
            Kind::Message(_) | Kind::Postback { .. } if mode == Mode::Active && reply_token.is_none() => {
                Kind::Skipped("replyToken")
            }
            kind => kind,
        };
        Event {
            webhook_event_id: fields.text("webhookEventId"),
            kind,
            source: Source { chat: Chat::parse(source.text("type")), user_id: source.text("userId") },
            reply_token,
            mode,
            is_redelivery: fields.object("deliveryContext").get("isRedelivery").unwrap_or(false),
            timestamp: fields.get("timestamp"),
        }
    }
}

impl Kind {
    /// Or the field that it lacks.
    fn parse(event: &Fields<'_>) -> Result<Kind, &'static str> {
        Ok(match event.text("type").ok_or("type")?.as_str() {
            "message" => Kind::Message(Message::parse(&event.object("message"))?),
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

    /// Its name for logs and metrics: one of few, whatever LINE sends.
    pub fn label(&self) -> &'static str {
        match self {
            Kind::Message(Message::Text(_)) => "text",
            Kind::Message(Message::Location { .. }) => "location",
            Kind::Message(Message::Other(_)) => "message",
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

impl Message {
    fn parse(message: &Fields<'_>) -> Result<Message, &'static str> {
        Ok(match message.text("type").ok_or("message.type")?.as_str() {
            "text" => Message::Text(message.text("text").ok_or("message.text")?),
            "location" => Message::Location {
                address: message.text("address"),
                latitude: message.get("latitude").ok_or("message.latitude")?,
                longitude: message.get("longitude").ok_or("message.longitude")?,
            },
            other => Message::Other(type_name(other)),
        })
    }
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

/// A type that LINE may add is a plain word; anything else is not repeated, for it may end up in a log.
fn type_name(name: &str) -> String {
    let plain = name.len() <= 40 && name.bytes().all(|b| b.is_ascii_alphabetic());
    if plain { name.to_owned() } else { "?".to_owned() }
}

/// The fields of a JSON object, each still as it was written; of anything else, none. Of a field that is there twice
/// the last counts, as in most parsers.
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

    /// An empty text says no more than a missing one.
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

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Message::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Message::Location { .. } => f.write_str("Location(…)"),
            Message::Other(name) => write!(f, "Other({name})"),
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = if self.user_id.is_some() { "a user" } else { "nobody known" };
        write!(f, "{:?} by {by}", self.chat)
    }
}
