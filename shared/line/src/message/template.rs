//! Templates: cards with buttons.

use std::fmt;

use serde_json::{Value, json};

use super::{Action, Message, fit, image_url, limit};

/// A card with a text and buttons: the whole of a [buttons template](Message::buttons), or one column of a
/// [carousel](Message::carousel). `Debug` shows nothing of its content.
#[derive(Clone, PartialEq, Eq)]
pub struct Card {
    text: String,
    title: Option<String>,
    image_url: Option<String>,
    on_tap: Option<Action>,
    actions: Vec<Action>,
}

impl Card {
    /// A card with this text, which is cut where LINE's limit for the card's place requires it.
    pub fn new(text: impl Into<String>) -> Card {
        Card { text: text.into(), title: None, image_url: None, on_tap: None, actions: Vec::new() }
    }

    /// A title above the text; none if it is empty. Beside a title less text fits.
    #[must_use]
    pub fn title(self, title: impl Into<String>) -> Card {
        let title = Some(title.into()).filter(|title| !title.is_empty());
        Card { title: title.map(|title| fit(title, limit::CARD_TITLE)), ..self }
    }

    /// An image above the text; none if LINE would refuse the address, which is encoded as by [`Message::image`]. Beside an image
    /// less text fits.
    #[must_use]
    pub fn image(self, url: impl AsRef<str>) -> Card {
        Card { image_url: image_url(url.as_ref()), ..self }
    }

    /// What a tap beside the buttons does; nothing if it is `None` or only for quick replies.
    #[must_use]
    pub fn on_tap(self, action: impl Into<Option<Action>>) -> Card {
        Card { on_tap: action.into().filter(Action::is_for_templates), ..self }
    }

    /// Adds a button, unless it is `None` or only for quick replies. A buttons template shows the first four, a carousel's
    /// column the first three.
    #[must_use]
    pub fn button(mut self, action: impl Into<Option<Action>>) -> Card {
        self.actions.extend(action.into().filter(Action::is_for_templates));
        self
    }

    /// `None` without a button: LINE requires one.
    fn into_json(self, max_text: usize, max_buttons: usize) -> Option<Value> {
        let Card { text, title, image_url, on_tap, mut actions } = self;
        let is_text_alone = title.is_none() && image_url.is_none();
        let max_text = if is_text_alone { max_text } else { limit::CARD_TEXT_WITH_TITLE };
        actions.truncate(max_buttons);
        if actions.is_empty() {
            return None;
        }
        let actions: Vec<Value> = actions.into_iter().map(Action::into_json).collect();
        let mut card = json!({ "text": fit(text, max_text), "actions": actions });
        let optional = [
            ("title", title.map(Value::String)),
            ("thumbnailImageUrl", image_url.map(Value::String)),
            ("defaultAction", on_tap.map(Action::into_json)),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                card[name] = value;
            }
        }
        Some(card)
    }
}

impl Message {
    /// A buttons template: one card with up to four buttons. `alt_text` is what notifications and the list of chats show.
    /// `None` if the card has no button.
    pub fn buttons(alt_text: impl Into<String>, card: Card) -> Option<Message> {
        let mut template = card.into_json(limit::BUTTONS_TEXT, limit::BUTTONS)?;
        template["type"] = "buttons".into();
        Some(Message::template(alt_text, template))
    }

    /// A confirm template: a question and two buttons. `None` unless there are two, and neither is only for quick replies.
    pub fn confirm(
        alt_text: impl Into<String>,
        text: impl Into<String>,
        left: impl Into<Option<Action>>,
        right: impl Into<Option<Action>>,
    ) -> Option<Message> {
        let button = |action: Option<Action>| action.filter(Action::is_for_templates).map(Action::into_json);
        let (left, right) = (button(left.into())?, button(right.into())?);
        let text = fit(text.into(), limit::CONFIRM_TEXT);
        let template = json!({ "type": "confirm", "text": text, "actions": [left, right] });
        Some(Message::template(alt_text, template))
    }

    /// A carousel template: up to ten cards side by side, each with up to three buttons. LINE requires that all have the same
    /// number of buttons, and either all or none a title and an image: `None` if they differ, or if there is no card.
    pub fn carousel(alt_text: impl Into<String>, cards: impl IntoIterator<Item = Card>) -> Option<Message> {
        let cards = cards.into_iter().take(limit::COLUMNS);
        let columns: Vec<Value> = cards
            .map(|card| card.into_json(limit::COLUMN_TEXT, limit::COLUMN_BUTTONS))
            .collect::<Option<_>>()?;
        let shape = |column: &Value| {
            let buttons = column["actions"].as_array().map(Vec::len);
            (buttons, column["title"].is_string(), column["thumbnailImageUrl"].is_string())
        };
        let first = shape(columns.first()?);
        if columns.iter().any(|column| shape(column) != first) {
            return None;
        }
        Some(Message::template(alt_text, json!({ "type": "carousel", "columns": columns })))
    }

    fn template(alt_text: impl Into<String>, template: Value) -> Message {
        let alt_text = fit(alt_text.into(), limit::ALT_TEXT);
        Message(json!({ "type": "template", "altText": alt_text, "template": template }))
    }
}

impl fmt::Debug for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Card({} bytes, {} buttons)", self.text.len(), self.actions.len())
    }
}
