//! What users send.

use std::fmt;
use std::ops::Range;

use serde_json::value::RawValue;

use super::fields::{Fields, type_name};

/// A message that a user sent.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum IncomingMessage {
    /// A text message.
    Text(TextMessage),
    /// A place on the map.
    #[non_exhaustive]
    Location {
        /// The id of the message.
        id: Option<String>,
        /// Its name, if it has one.
        title: Option<String>,
        /// As LINE's map names it, if it does.
        address: Option<String>,
        /// Degrees north.
        latitude: f64,
        /// Degrees east.
        longitude: f64,
    },
    /// A sticker.
    #[non_exhaustive]
    Sticker {
        /// The id of the message.
        id: Option<String>,
        /// Its package's id.
        package_id: String,
        /// Its id.
        sticker_id: String,
        /// What a message needs in order to quote it.
        quote_token: Option<String>,
        /// The id of the message that it quotes.
        quoted_message_id: Option<String>,
    },
    /// An image.
    Image(Media),
    /// A video.
    Video(Media),
    /// A voice message or another recording.
    Audio(Media),
    /// A file. [`Client::content`](crate::Client::content) downloads it.
    #[non_exhaustive]
    File {
        /// The id of the message.
        id: String,
        /// Its name.
        name: Option<String>,
        /// Its size in bytes.
        size: Option<u64>,
    },
    /// Another type, by LINE's name for it; or a sticker, image, video, audio or file that lacks a required id.
    Other(String),
}

/// An image, video or recording. `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Media {
    /// The id of the message.
    pub id: String,
    /// Who has it.
    pub provider: ContentProvider,
    /// How long a video or recording is, in milliseconds.
    pub duration_ms: Option<u64>,
    /// What a message needs in order to quote an image or a video.
    pub quote_token: Option<String>,
}

/// Who has what a user sent. `Debug` shows no address.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContentProvider {
    /// LINE: [`Client::content`](crate::Client::content) downloads it.
    Line,
    /// Another server: a LIFF app sent its address.
    #[non_exhaustive]
    External {
        /// Where it is.
        url: String,
        /// Where a smaller image of it is.
        preview_url: Option<String>,
    },
    /// One that is not known here.
    Unknown,
}

/// A text, and where it mentions the bot. `Debug` shows neither.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TextMessage {
    /// The id of the message.
    pub id: Option<String>,
    /// What a message needs in order to quote it.
    pub quote_token: Option<String>,
    /// The id of the message that it quotes.
    pub quoted_message_id: Option<String>,
    text: String,
    /// Where the bot is mentioned, in bytes of the text: in ascending order, each on boundaries of characters.
    bot_mentions: Vec<Range<usize>>,
}

impl IncomingMessage {
    pub(super) fn parse(message: &Fields<'_>) -> Result<IncomingMessage, &'static str> {
        Ok(match message.text("type").ok_or("message.type")?.as_str() {
            "text" => IncomingMessage::Text(TextMessage::parse(message)?),
            "location" => IncomingMessage::Location {
                id: message.text("id"),
                title: message.text("title"),
                address: message.text("address"),
                latitude: message.get("latitude").ok_or("message.latitude")?,
                longitude: message.get("longitude").ok_or("message.longitude")?,
            },
            other => IncomingMessage::parse_with_id(other, message)
                .unwrap_or_else(|| IncomingMessage::Other(type_name(other))),
        })
    }

    /// A type that is of no use without an id.
    fn parse_with_id(name: &str, message: &Fields<'_>) -> Option<IncomingMessage> {
        Some(match name {
            "sticker" => IncomingMessage::Sticker {
                id: message.text("id"),
                package_id: message.text("packageId")?,
                sticker_id: message.text("stickerId")?,
                quote_token: message.text("quoteToken"),
                quoted_message_id: message.text("quotedMessageId"),
            },
            "image" => IncomingMessage::Image(Media::parse(message)?),
            "video" => IncomingMessage::Video(Media::parse(message)?),
            "audio" => IncomingMessage::Audio(Media::parse(message)?),
            "file" => IncomingMessage::File {
                id: message.text("id")?,
                name: message.text("fileName"),
                size: message.get("fileSize"),
            },
            _ => return None,
        })
    }
}

impl Media {
    fn parse(message: &Fields<'_>) -> Option<Media> {
        let provider = message.object("contentProvider");
        let name = provider.text("type");
        let provider = match (name.as_deref(), provider.text("originalContentUrl")) {
            (None | Some("line"), _) => ContentProvider::Line,
            (Some("external"), Some(url)) => {
                ContentProvider::External { url, preview_url: provider.text("previewImageUrl") }
            }
            _ => ContentProvider::Unknown,
        };
        Some(Media {
            id: message.text("id")?,
            provider,
            duration_ms: message.get("duration"),
            quote_token: message.text("quoteToken"),
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
        Ok(TextMessage {
            id: message.text("id"),
            quote_token: message.text("quoteToken"),
            quoted_message_id: message.text("quotedMessageId"),
            text,
            bot_mentions,
        })
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
        TextMessage { text: text.into(), ..TextMessage::default() }
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

impl fmt::Debug for IncomingMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IncomingMessage::Text(text) => text.fmt(f),
            IncomingMessage::Location { .. } => f.write_str("Location(…)"),
            IncomingMessage::Sticker { .. } => f.write_str("Sticker(…)"),
            IncomingMessage::Image(_) => f.write_str("Image(…)"),
            IncomingMessage::Video(_) => f.write_str("Video(…)"),
            IncomingMessage::Audio(_) => f.write_str("Audio(…)"),
            IncomingMessage::File { .. } => f.write_str("File(…)"),
            IncomingMessage::Other(name) => write!(f, "Other({name})"),
        }
    }
}

impl fmt::Debug for Media {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Media").field("provider", &self.provider).finish_non_exhaustive()
    }
}

impl fmt::Debug for ContentProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ContentProvider::Line => "Line",
            ContentProvider::External { .. } => "External(…)",
            ContentProvider::Unknown => "Unknown",
        })
    }
}

impl fmt::Debug for TextMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({} bytes)", self.text.len())
    }
}
