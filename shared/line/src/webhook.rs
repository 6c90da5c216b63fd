//! What LINE sends, parsed leniently.
//!
//! A request body is a list of events, and every part of every event may be missing, new, or of an unexpected type. So
//! each part is decoded by itself: `{"events":[…]}` into events, an event into its fields, a field into a text or a number.
//! A part that cannot be decoded counts as missing.
//!
//! LINE adds fields, and so do these types. A test builds an event as LINE does: [`WebhookBody::parse`] of its JSON.

mod fields;
mod message;

use std::fmt;

use fields::{Fields, type_name};
pub use message::{ContentProvider, IncomingMessage, Media, TextMessage};
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// The body of a webhook request.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct WebhookBody {
    /// The user id of the bot that the events are for.
    pub destination: Option<String>,
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
#[non_exhaustive]
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
    /// A user sent a message.
    Message(IncomingMessage),
    /// A user edited a message: this is the whole of it now. Edits may arrive in another order than they were made in; the one
    /// with the largest timestamp is the last.
    MessageEdited(IncomingMessage),
    /// A user unsent a message. LINE asks bots not to show or use it any more.
    #[non_exhaustive]
    Unsend {
        /// The id of that message.
        message_id: String,
    },
    /// A user tapped a button that carries `data`.
    #[non_exhaustive]
    Postback {
        /// The data of the button: here a query string.
        data: String,
        /// What the user picked, if the button asked for it: `2026-01-31`, `09:30` or `2026-01-31T09:30`.
        picked: Option<String>,
    },
    /// A user added the bot, or unblocked it.
    #[non_exhaustive]
    Follow {
        /// Whether the user had blocked it before, if LINE says so.
        is_unblocked: Option<bool>,
    },
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

/// Where an event happened.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
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
        let fields = Fields::of(body);
        let events: Vec<&RawValue> = fields.list("events");
        let events = events.into_iter().map(|event| Event::parse(event.get())).collect();
        Ok(WebhookBody { destination: fields.text("destination"), events })
    }
}

impl Event {
    fn parse(json: &str) -> Event {
        let fields = Fields::of(json);
        let source = fields.object("source");
        let mode = match fields.text("mode").as_deref() {
            Some("active") => Mode::Active,
            None if !fields.has("mode") => Mode::Active,
            _ => Mode::Standby,
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
                let postback = event.object("postback");
                let params = postback.object("params");
                let picked = ["date", "time", "datetime"].into_iter().find_map(|name| params.text(name));
                Kind::Postback { data: postback.text("data").ok_or("postback.data")?, picked }
            }
            "messageEdited" => Kind::MessageEdited(IncomingMessage::parse(&event.object("message"))?),
            "unsend" => {
                let message_id = event.object("unsend").text("messageId").ok_or("unsend.messageId")?;
                Kind::Unsend { message_id }
            }
            "follow" => Kind::Follow { is_unblocked: event.object("follow").get("isUnblocked") },
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
            Kind::Message(_) => "message",
            Kind::Postback { .. } => "postback",
            Kind::MessageEdited(_) => "message_edited",
            Kind::Unsend { .. } => "unsend",
            Kind::Follow { .. } => "follow",
            Kind::Unfollow => "unfollow",
            Kind::Join => "join",
            Kind::Leave => "leave",
            Kind::Other(_) => "other",
            Kind::Skipped(_) => "skipped",
        }
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

impl fmt::Debug for WebhookBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookBody").field("events", &self.events).finish_non_exhaustive()
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

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = if self.user_id.is_some() { "a user" } else { "nobody known" };
        write!(f, "{:?} by {by}", self.chat)
    }
}
