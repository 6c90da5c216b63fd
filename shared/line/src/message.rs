//! The messages of a reply. Whatever is built here is within LINE's limits, so that LINE does not refuse it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// LINE's limits. Most are in UTF-16 units; labels and the texts of actions LINE counts in grapheme clusters, of
/// which there are never more than units, so that the one measure serves for all.
pub mod limit {
    /// Messages in a reply.
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
    /// Units of an address to open.
    pub const URI: usize = 1000;
}

/// One to five messages, sent as one reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Messages(Vec<Message>);

impl Messages {
    /// Adds a message, if there are fewer than five.
    #[must_use]
    pub fn and(mut self, message: Message) -> Messages {
        self.0.push(message);
        self.0.truncate(limit::MESSAGES);
        self
    }
}

impl From<Message> for Messages {
    fn from(message: Message) -> Messages {
        Messages(vec![message])
    }
}

/// A text message, with quick replies or without. `Debug` does not show the text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "type", rename = "text")]
pub struct Message {
    text: String,
    #[serde(default, skip_serializing_if = "QuickReply::is_empty")]
    quick_reply: QuickReply,
}

#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct QuickReply {
    items: Vec<Item>,
}

impl QuickReply {
    fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "action")]
struct Item {
    action: Action,
}

/// What a tap on a quick reply does.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Action(ActionKind);

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "type")]
enum ActionKind {
    Message { label: String, text: String },
    Location { label: String },
    Uri { label: String, uri: String },
    Postback { label: String, data: String, display_text: String },
}

impl Message {
    /// A message with this text. A text that is too long for LINE is cut and ends in an ellipsis; an empty text, which LINE
    /// refuses, becomes an ellipsis.
    pub fn text(text: impl Into<String>) -> Message {
        Message { text: fit(text.into(), limit::TEXT), quick_reply: QuickReply::default() }
    }

    /// A message with exactly this text; `None` where LINE would refuse it, because it is empty or too long.
    pub fn whole_text(text: impl Into<String>) -> Option<Message> {
        let text = text.into();
        (1..=limit::TEXT).contains(&units(&text)).then(|| Message::text(text))
    }

    /// The text.
    pub fn as_text(&self) -> &str {
        &self.text
    }

    /// Adds a quick reply, unless it is `None` or there are thirteen already.
    #[must_use]
    pub fn quick_reply(mut self, action: impl Into<Option<Action>>) -> Message {
        let items = &mut self.quick_reply.items;
        items.extend(action.into().map(|action| Item { action }));
        items.truncate(limit::QUICK_REPLIES);
        self
    }
}

impl Action {
    /// Sends `text` as if the user had typed it.
    pub fn message(label: impl Into<String>, text: impl Into<String>) -> Action {
        let (label, text) = (fit(label.into(), limit::LABEL), fit(text.into(), limit::ACTION_TEXT));
        Action(ActionKind::Message { label, text })
    }

    /// Opens the map to send a location.
    pub fn location(label: impl Into<String>) -> Action {
        Action(ActionKind::Location { label: fit(label.into(), limit::LABEL) })
    }

    /// Opens an address: `http`, `https`, `line` or `tel`. `None` where LINE would refuse it: an address cannot be cut.
    pub fn uri(label: impl Into<String>, uri: impl Into<String>) -> Option<Action> {
        let (label, uri) = (fit(label.into(), limit::LABEL), uri.into());
        let known = ["http://", "https://", "line://", "tel:"].iter().any(|scheme| uri.starts_with(scheme));
        (known && units(&uri) <= limit::URI).then_some(Action(ActionKind::Uri { label, uri }))
    }

    /// Sends `data` back to the webhook, and shows the label in the chat as what the user chose. `None` where
    /// LINE would refuse the data: half of it would mean something else.
    pub fn postback(label: impl Into<String>, data: impl Into<String>) -> Option<Action> {
        let (label, data) = (fit(label.into(), limit::LABEL), data.into());
        let fits = (1..=limit::DATA).contains(&units(&data));
        fits.then(|| Action(ActionKind::Postback { display_text: label.clone(), label, data }))
    }
}

/// The length in UTF-16 units, as LINE counts it.
pub(crate) fn units(text: &str) -> usize {
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

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message({} bytes, {} quick replies)", self.text.len(), self.quick_reply.items.len())
    }
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            ActionKind::Message { .. } => "Action(message)",
            ActionKind::Location { .. } => "Action(location)",
            ActionKind::Uri { .. } => "Action(uri)",
            ActionKind::Postback { .. } => "Action(postback)",
        })
    }
}
