//! An event as a bot gets it.

use onetap_line::webhook::{Chat, Event, IncomingMessage, Kind};

/// How old an event can be when it arrives: redelivered, or after an outage. An older timestamp is wrong.
const MAX_AGE_MS: i64 = 7 * 24 * 3_600_000;
/// How far LINE's clock may be ahead of this one.
const MAX_AHEAD_MS: i64 = 5 * 60_000;

/// An event, when it happened, and to which channel. The methods are for what most bots read; everything else is in
/// [`event`](Incoming::event), whose [`kind`](Event::kind) is an enum.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Incoming<'a> {
    /// The event.
    pub event: &'a Event,
    /// When it happened, in milliseconds since 1970: its timestamp, or the function's clock if that cannot be true.
    pub at_ms: i64,
    /// The function's clock, in milliseconds since 1970.
    pub now_ms: i64,
    /// The channel's `destination`, the user id of its bot, if the function serves several, each with its own secret and token.
    pub channel: Option<&'a str>,
    /// The channel's `name` in `LINE_CHANNELS`, if it has one.
    pub channel_name: Option<&'a str>,
}

impl<'a> Incoming<'a> {
    /// `event`, where the clock shows `now_ms`.
    pub fn new(event: &'a Event, now_ms: i64) -> Incoming<'a> {
        let possible = now_ms - MAX_AGE_MS..=now_ms + MAX_AHEAD_MS;
        let at_ms = event.timestamp.filter(|at| possible.contains(at)).unwrap_or(now_ms);
        Incoming { event, at_ms, now_ms, channel: None, channel_name: None }
    }

    /// The text, if it is a text message.
    pub fn text(&self) -> Option<&'a str> {
        match &self.event.kind {
            Kind::Message(IncomingMessage::Text(text)) => Some(text.as_str()),
            _ => None,
        }
    }

    /// The ids of the package and of the sticker, if it is one.
    pub fn sticker(&self) -> Option<(&'a str, &'a str)> {
        match &self.event.kind {
            Kind::Message(IncomingMessage::Sticker { package_id, sticker_id, .. }) => {
                Some((package_id, sticker_id))
            }
            _ => None,
        }
    }

    /// The data of the button, if one was tapped.
    pub fn data(&self) -> Option<&'a str> {
        match &self.event.kind {
            Kind::Postback { data, .. } => Some(data),
            _ => None,
        }
    }

    /// The group or room in which it happened, if LINE says so; `None` in a chat with the bot alone.
    pub fn chat_id(&self) -> Option<&'a str> {
        self.event.source.chat_id.as_deref()
    }

    /// Where a push that belongs to this event goes: the group or room, else the user.
    pub fn push_to(&self) -> Option<&'a str> {
        if self.is_one_to_one() { self.user_id() } else { self.chat_id() }
    }

    /// Who caused it, if LINE says so.
    pub fn user_id(&self) -> Option<&'a str> {
        self.event.source.user_id.as_deref()
    }

    /// Whether it happened in a chat with the bot alone.
    pub fn is_one_to_one(&self) -> bool {
        self.event.source.chat == Chat::User
    }
}
