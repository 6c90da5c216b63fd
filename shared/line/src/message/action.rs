//! What a tap does: on a quick reply, on a button of a template.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use super::json::{Ordered, is_object_with_type};
use super::{address, fit, limit, units};

/// What a tap on a quick reply or a button does. `Debug` shows its type only.
#[derive(Clone, PartialEq, Eq)]
pub struct Action(Value);

impl Action {
    /// Sends `text` as if the user had typed it.
    pub fn message(label: impl Into<String>, text: impl Into<String>) -> Action {
        let text = fit(text.into(), limit::ACTION_TEXT);
        Action(json!({ "type": "message", "label": fit_label(label), "text": text }))
    }

    /// Opens the map to send a location. Only for quick replies.
    pub fn location(label: impl Into<String>) -> Action {
        Action(json!({ "type": "location", "label": fit_label(label) }))
    }

    /// Opens the camera to send a picture. Only for quick replies.
    pub fn camera(label: impl Into<String>) -> Action {
        Action(json!({ "type": "camera", "label": fit_label(label) }))
    }

    /// Opens the user's pictures to send some. Only for quick replies.
    pub fn camera_roll(label: impl Into<String>) -> Action {
        Action(json!({ "type": "cameraRoll", "label": fit_label(label) }))
    }

    /// Opens an address: `http`, `https`, `line` or `tel`. LINE wants it percent-encoded: characters beyond ASCII are encoded here,
    /// but for those of a host, which must be in Punycode. `None` where LINE would refuse it: an address cannot be cut.
    pub fn uri(label: impl Into<String>, uri: impl AsRef<str>) -> Option<Action> {
        let uri = address::encode(uri.as_ref(), &["http://", "https://", "line://", "tel:"], limit::URI)?;
        Some(Action(json!({ "type": "uri", "label": fit_label(label), "uri": uri })))
    }

    /// Sends `data` back to the webhook, and shows the label in the chat as if the user had said it (`displayText`). `None` where
    /// LINE would refuse the data: half of it would mean something else.
    pub fn postback(label: impl Into<String>, data: impl Into<String>) -> Option<Action> {
        let mut action = Action::postback_silently(label, data)?;
        action.0["displayText"] = action.0["label"].clone();
        Some(action)
    }

    /// The same, and shows nothing in the chat.
    pub fn postback_silently(label: impl Into<String>, data: impl Into<String>) -> Option<Action> {
        let data = data.into();
        is_data(&data).then(|| Action(json!({ "type": "postback", "label": fit_label(label), "data": data })))
    }

    /// Lets the user pick a date or a time, and sends it back to the webhook together with `data`. `None` where LINE would
    /// refuse the data, or if `picker` holds an invalid date.
    pub fn date_time(
        label: impl Into<String>,
        data: impl Into<String>,
        picker: DateTimePicker,
    ) -> Option<Action> {
        let data = data.into();
        if !is_data(&data) || !picker.is_valid() {
            return None;
        }
        let mut action = json!({ "type": "datetimepicker", "label": fit_label(label), "data": data, "mode": picker.mode.name() });
        for (name, value) in [("initial", picker.initial), ("min", picker.min), ("max", picker.max)] {
            if let Some(value) = value {
                action[name] = Value::String(value);
            }
        }
        Some(Action(action))
    }

    /// Copies `text`. `None` if it is empty or too long: half of it would be something else.
    pub fn clipboard(label: impl Into<String>, text: impl Into<String>) -> Option<Action> {
        let text = text.into();
        (1..=limit::CLIPBOARD_TEXT)
            .contains(&units(&text))
            .then(|| Action(json!({ "type": "clipboard", "label": fit_label(label), "clipboardText": text })))
    }

    /// An action as LINE's reference describes it, for what has no constructor here. `None` if it is no object with a `type`, or
    /// nested too deeply. LINE's limits are the caller's.
    pub fn raw(json: Value) -> Option<Action> {
        is_object_with_type(&json).then_some(Action(json))
    }

    /// Whether LINE takes it on a button of a template too.
    pub(super) fn is_for_templates(&self) -> bool {
        !["location", "camera", "cameraRoll"].iter().any(|name| self.0["type"] == *name)
    }

    pub(super) fn into_json(self) -> Value {
        self.0
    }
}

fn fit_label(label: impl Into<String>) -> String {
    fit(label.into(), limit::LABEL)
}

fn is_data(data: &str) -> bool {
    (1..=limit::DATA).contains(&units(data))
}

/// What a user can pick, and in which range. Dates are from `1900-01-01` to `2100-12-31`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DateTimePicker {
    mode: PickerMode,
    initial: Option<String>,
    min: Option<String>,
    max: Option<String>,
}

/// What is picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PickerMode {
    /// A date: `2026-01-31`.
    Date,
    /// A time of day: `09:30`.
    Time,
    /// Both: `2026-01-31T09:30`.
    DateTime,
}

impl PickerMode {
    fn name(self) -> &'static str {
        match self {
            PickerMode::Date => "date",
            PickerMode::Time => "time",
            PickerMode::DateTime => "datetime",
        }
    }

    fn is_valid(self, text: &str) -> bool {
        match self {
            PickerMode::Date => is_date(text),
            PickerMode::Time => is_time(text),
            PickerMode::DateTime => {
                text.split_once('T').is_some_and(|(date, time)| is_date(date) && is_time(time))
            }
        }
    }
}

impl DateTimePicker {
    /// A picker without limits, which begins at the present.
    pub fn new(mode: PickerMode) -> DateTimePicker {
        DateTimePicker { mode, initial: None, min: None, max: None }
    }

    /// Begins at `value`.
    #[must_use]
    pub fn initial(self, value: impl Into<String>) -> DateTimePicker {
        DateTimePicker { initial: Some(value.into()), ..self }
    }

    /// Allows nothing before `value`.
    #[must_use]
    pub fn min(self, value: impl Into<String>) -> DateTimePicker {
        DateTimePicker { min: Some(value.into()), ..self }
    }

    /// Allows nothing after `value`.
    #[must_use]
    pub fn max(self, value: impl Into<String>) -> DateTimePicker {
        DateTimePicker { max: Some(value.into()), ..self }
    }

    /// Whether every value is one of its mode, and `min` ≤ `initial` ≤ `max`, `min` < `max`. The values have a fixed
    /// width, so that texts compare as dates do.
    fn is_valid(&self) -> bool {
        let DateTimePicker { mode, initial, min, max } = self;
        let is_valid = |value: &Option<String>| value.as_deref().is_none_or(|value| mode.is_valid(value));
        let is_before = |a: &Option<String>, b: &Option<String>| match (a, b) {
            (Some(a), Some(b)) => a <= b,
            _ => true,
        };
        [initial, min, max].into_iter().all(is_valid)
            && is_before(min, initial)
            && is_before(initial, max)
            && is_before(min, max)
            && (min.is_none() || min != max)
    }
}

fn is_date(text: &str) -> bool {
    let Some([year, month, day]) = numbers(text, "0000-00-00", '-') else { return false };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    (1900..=2100).contains(&year) && (1..=days).contains(&day)
}

fn is_time(text: &str) -> bool {
    numbers(text, "00:00", ':').is_some_and(|[hour, minute]: [u32; 2]| hour < 24 && minute < 60)
}

/// The numbers between the separators of a text that has the shape of `pattern`.
fn numbers<const N: usize>(text: &str, pattern: &str, separator: char) -> Option<[u32; N]> {
    let has_shape = text.len() == pattern.len()
        && text
            .bytes()
            .zip(pattern.bytes())
            .all(|(a, b)| if b == b'0' { a.is_ascii_digit() } else { a == b });
    let numbers: Vec<u32> = text.split(separator).filter_map(|number| number.parse().ok()).collect();
    numbers.try_into().ok().filter(|_| has_shape)
}

impl Serialize for Action {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Ordered(&self.0).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Action {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Action, D::Error> {
        let action = Action::raw(Value::deserialize(deserializer)?);
        action.ok_or_else(|| D::Error::custom("an action is an object with a type"))
    }
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const KNOWN: [&str; 8] =
            ["message", "location", "camera", "cameraRoll", "uri", "postback", "datetimepicker", "clipboard"];
        let known = KNOWN.into_iter().find(|name| self.0["type"] == *name);
        write!(f, "Action({})", known.unwrap_or("raw"))
    }
}
