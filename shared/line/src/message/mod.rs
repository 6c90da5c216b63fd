//! Messages to send. Whatever is built here is within LINE's limits, so that LINE does not refuse it: what is too long is cut,
//! and what cannot be cut yields `None`. Only [`Message::raw`] leaves the limits to its caller.

mod action;
mod address;
mod json;
mod template;

use std::fmt;

pub use action::{Action, DateTimePicker, PickerMode};
use json::{Ordered, depth, is_object_with_type};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
pub use template::Card;

/// LINE's limits. Most are in UTF-16 units; labels, the texts of actions and those of templates LINE counts in grapheme
/// clusters, of which there are never more than units, so that the one measure serves for all.
pub mod limit {
    /// Messages in a reply or push.
    pub const MESSAGES: usize = 5;
    /// Units of a message's text.
    pub const TEXT: usize = 5000;
    /// Quick replies under a message.
    pub const QUICK_REPLIES: usize = 13;
    /// Units of an action's label.
    pub const LABEL: usize = 20;
    /// Units of the text that an action sends or shows.
    pub const ACTION_TEXT: usize = 300;
    /// Units of a postback's data.
    pub const DATA: usize = 300;
    /// Characters of an address to open, percent-encoded.
    pub const URI: usize = 10_000;
    /// Units of the text that an action copies.
    pub const CLIPBOARD_TEXT: usize = 1000;
    /// Characters of the address of an image, percent-encoded.
    pub const IMAGE_URL: usize = 2000;
    /// Units of a location's title, and of its address.
    pub const LOCATION_TEXT: usize = 100;
    /// Digits of a sticker's id, and of its package's. LINE's are shorter.
    pub const STICKER_ID: usize = 20;
    /// Units of the alternative text of a template or a Flex message.
    pub const ALT_TEXT: usize = 1500;
    /// Units of a card's title.
    pub const CARD_TITLE: usize = 40;
    /// Units of a card's text beside a title or an image.
    pub const CARD_TEXT_WITH_TITLE: usize = 60;
    /// Units of the text of a buttons template without title and image.
    pub const BUTTONS_TEXT: usize = 160;
    /// Buttons of a buttons template.
    pub const BUTTONS: usize = 4;
    /// Units of the text of a carousel's column without title and image.
    pub const COLUMN_TEXT: usize = 120;
    /// Buttons of a carousel's column.
    pub const COLUMN_BUTTONS: usize = 3;
    /// Columns of a carousel.
    pub const COLUMNS: usize = 10;
    /// Units of the text of a confirm template.
    pub const CONFIRM_TEXT: usize = 240;
    /// Bytes of the JSON of a Flex bubble.
    pub const FLEX_BUBBLE_BYTES: usize = 30_000;
    /// Bytes of the JSON of a Flex carousel.
    pub const FLEX_CAROUSEL_BYTES: usize = 50_000;
    /// Bubbles of a Flex carousel.
    pub const FLEX_BUBBLES: usize = 12;
    /// Levels of a message's JSON. A message that is kept must also be readable again, and JSON parsers limit the depth.
    pub const DEPTH: usize = 64;
}

/// One to five messages, sent as one reply or push.
///
/// LINE shows the quick replies of the last message only. So those of the others move to it when messages are put together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Messages(Vec<Message>);

impl Messages {
    /// Adds a message, if there are fewer than five. The quick replies of the messages before it move under it.
    #[must_use]
    pub fn and(mut self, mut message: Message) -> Messages {
        if self.0.len() < limit::MESSAGES {
            message.prepend_quick_replies(self.0.iter_mut().flat_map(Message::take_quick_replies).collect());
            self.0.push(message);
        }
        self
    }

    /// Adds a quick reply under the last message, as [`Message::quick_reply`] does.
    #[must_use]
    pub fn quick_reply(mut self, action: impl Into<Option<Action>>) -> Messages {
        let last = self.0.pop().map(|message| message.quick_reply(action));
        self.0.extend(last);
        self
    }

    /// The messages, in the order in which they are sent.
    pub fn as_slice(&self) -> &[Message] {
        &self.0
    }

    fn as_they_are(messages: Vec<Message>) -> Result<Messages, WrongCount> {
        if (1..=limit::MESSAGES).contains(&messages.len()) { Ok(Messages(messages)) } else { Err(WrongCount) }
    }
}

impl From<Message> for Messages {
    fn from(message: Message) -> Messages {
        Messages(vec![message])
    }
}

/// There is no message, or there are more than five.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongCount;

impl fmt::Display for WrongCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a reply or push has one to five messages")
    }
}

impl std::error::Error for WrongCount {}

impl TryFrom<Vec<Message>> for Messages {
    type Error = WrongCount;

    fn try_from(messages: Vec<Message>) -> Result<Messages, WrongCount> {
        let Messages(messages) = Messages::as_they_are(messages)?;
        Ok(messages.into_iter().fold(Messages(Vec::new()), Messages::and))
    }
}

impl<'de> Deserialize<'de> for Messages {
    /// What was kept stays the same text.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Messages, D::Error> {
        Messages::as_they_are(Vec::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// A message, with quick replies or without. `Debug` shows its type, and nothing of its content.
///
/// It serializes to LINE's JSON, always in the same order of keys, and back to the same message.
#[derive(Clone, PartialEq, Eq)]
pub struct Message(Value);

impl Message {
    /// A message with this text. A text that is too long for LINE is cut and ends in an ellipsis; an empty text, which LINE
    /// refuses, becomes an ellipsis.
    pub fn text(text: impl Into<String>) -> Message {
        Message(json!({ "type": "text", "text": fit(text.into(), limit::TEXT) }))
    }

    /// A message with exactly this text; `None` where LINE would refuse it, because it is empty or too long.
    pub fn whole_text(text: impl Into<String>) -> Option<Message> {
        let text = text.into();
        (1..=limit::TEXT).contains(&units(&text)).then(|| Message::text(text))
    }

    /// A sticker, of those that LINE lets bots send. `None` if an id is not a decimal number.
    pub fn sticker(package_id: impl Into<String>, sticker_id: impl Into<String>) -> Option<Message> {
        let (package_id, sticker_id) = (package_id.into(), sticker_id.into());
        let is_id = |id: &str| {
            (1..=limit::STICKER_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_digit())
        };
        (is_id(&package_id) && is_id(&sticker_id))
            .then(|| Message(json!({ "type": "sticker", "packageId": package_id, "stickerId": sticker_id })))
    }

    /// An image that LINE loads from `url`, and a smaller one that the chat shows at first. Characters beyond ASCII are
    /// percent-encoded, but for those of a host. `None` unless both are then `https` addresses within LINE's limit.
    pub fn image(url: impl AsRef<str>, preview_url: impl AsRef<str>) -> Option<Message> {
        let (url, preview_url) = (image_url(url.as_ref())?, image_url(preview_url.as_ref())?);
        Some(Message(json!({ "type": "image", "originalContentUrl": url, "previewImageUrl": preview_url })))
    }

    /// A place on the map. Title and address are cut; `None` for degrees that are not on the globe.
    pub fn location(
        title: impl Into<String>,
        address: impl Into<String>,
        latitude: f64,
        longitude: f64,
    ) -> Option<Message> {
        let is_on_globe = (-90.0..=90.0).contains(&latitude) && (-180.0..=180.0).contains(&longitude);
        is_on_globe.then(|| {
            Message(json!({
                "type": "location",
                "title": fit(title.into(), limit::LOCATION_TEXT),
                "address": fit(address.into(), limit::LOCATION_TEXT),
                "latitude": latitude,
                "longitude": longitude,
            }))
        })
    }

    /// A Flex message: `contents` is a bubble or a carousel of bubbles, as LINE's Flex Message Simulator shows them.
    /// `alt_text` is the alternative text, which notifications and the list of chats show. `None` if `contents` is neither, larger
    /// than LINE allows, or a carousel with bubbles of different sizes. What is in a bubble is the caller's.
    pub fn flex(alt_text: impl Into<String>, contents: Value) -> Option<Message> {
        let is_bubble = |contents: &Value| contents["type"] == "bubble";
        let size = |bubble: &Value| bubble["size"].as_str().unwrap_or("mega").to_owned();
        let max_bytes = match contents["type"].as_str()? {
            "bubble" => limit::FLEX_BUBBLE_BYTES,
            "carousel" => {
                let bubbles = contents["contents"].as_array()?;
                let is_carousel = (1..=limit::FLEX_BUBBLES).contains(&bubbles.len())
                    && bubbles
                        .iter()
                        .all(|bubble| is_bubble(bubble) && fits(bubble, limit::FLEX_BUBBLE_BYTES))
                    && bubbles.windows(2).all(|pair| size(&pair[0]) == size(&pair[1]));
                is_carousel.then_some(limit::FLEX_CAROUSEL_BYTES)?
            }
            _ => return None,
        };
        if !fits(&contents, max_bytes) {
            return None;
        }
        let alt_text = fit(alt_text.into(), limit::ALT_TEXT);
        Message::raw(json!({ "type": "flex", "altText": alt_text, "contents": contents }))
    }

    /// A message as LINE's reference describes it, for what has no constructor here. `None` if it is no object with a
    /// `type`, or nested too deeply. LINE's limits are the caller's.
    pub fn raw(json: Value) -> Option<Message> {
        is_object_with_type(&json).then_some(Message(json))
    }

    /// The text of a text message.
    pub fn as_text(&self) -> Option<&str> {
        if self.0["type"] == "text" { self.0["text"].as_str() } else { None }
    }

    /// The message as LINE gets it.
    pub fn as_json(&self) -> &Value {
        &self.0
    }

    /// Adds a quick reply, unless it is `None` or there are thirteen already. LINE shows the quick replies of the last message of a
    /// reply or push only: [`Messages::and`] moves them there.
    #[must_use]
    pub fn quick_reply(mut self, action: impl Into<Option<Action>>) -> Message {
        if let Some(action) = action.into() {
            if let Some(items) = self.quick_replies().filter(|items| items.len() < limit::QUICK_REPLIES) {
                items.push(json!({ "type": "action", "action": action.into_json() }));
            }
        }
        self
    }

    /// Its quick replies, of which there may be none yet; `None` for a raw message where they have another shape.
    fn quick_replies(&mut self) -> Option<&mut Vec<Value>> {
        let quick_reply =
            self.0.as_object_mut()?.entry("quickReply").or_insert_with(|| json!({ "items": [] }));
        quick_reply.get_mut("items")?.as_array_mut()
    }

    fn take_quick_replies(&mut self) -> Vec<Value> {
        let quick_reply = self.0.get_mut("quickReply");
        let items = quick_reply.and_then(|quick_reply| quick_reply.get_mut("items")?.as_array_mut());
        let items = items.map(std::mem::take);
        if let (Some(_), Some(message)) = (&items, self.0.as_object_mut()) {
            message.remove("quickReply");
        }
        items.unwrap_or_default()
    }

    /// Puts `more` before its own, as far as there is room.
    fn prepend_quick_replies(&mut self, more: Vec<Value>) {
        if more.is_empty() {
            return;
        }
        if let Some(items) = self.quick_replies() {
            let room = limit::QUICK_REPLIES.saturating_sub(items.len());
            items.splice(..0, more.into_iter().take(room));
        }
    }
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Ordered(&self.0).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Message, D::Error> {
        let message = Message::raw(Value::deserialize(deserializer)?);
        message.ok_or_else(|| D::Error::custom("a message is an object with a type"))
    }
}

/// The length in UTF-16 units, as LINE counts it.
fn units(text: &str) -> usize {
    text.encode_utf16().count()
}

/// `text`, cut so that it fits into `limit` units with an ellipsis at its end.
fn fit(mut text: String, limit: usize) -> String {
    if !text.is_empty() && units(&text) <= limit {
        return text;
    }
    let mut used = 0;
    let end = text.char_indices().find(|(_, c)| {
        used += c.len_utf16();
        used > limit - 1
    });
    text.truncate(end.map_or(text.len(), |(at, _)| at));
    text.push('…');
    text
}

/// Whether the JSON has no more than `max_bytes`. Such JSON may come from outside: what is too deep is not written at all.
fn fits(json: &Value, max_bytes: usize) -> bool {
    depth(json) <= limit::DEPTH && serde_json::to_vec(json).is_ok_and(|bytes| bytes.len() <= max_bytes)
}

/// LINE loads images over `https` only.
fn image_url(url: &str) -> Option<String> {
    address::encode(url, &["https://"], limit::IMAGE_URL)
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quick_replies = self.0["quickReply"]["items"].as_array().map_or(0, Vec::len);
        match self.as_text() {
            Some(text) => write!(f, "Message({} bytes, {quick_replies} quick replies)", text.len()),
            None => {
                const KNOWN: [&str; 5] = ["sticker", "image", "location", "template", "flex"];
                let known = KNOWN.into_iter().find(|name| self.0["type"] == *name);
                write!(f, "Message({}, {quick_replies} quick replies)", known.unwrap_or("raw"))
            }
        }
    }
}
