//! JSON objects, each field decoded by itself.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The fields of a JSON object, not yet decoded; no fields if it is not an object. Of duplicate fields the last counts, as
/// in most parsers. A name that is no text, such as half a surrogate pair, counts as no field.
#[derive(Default)]
pub(super) struct Fields<'a>(BTreeMap<String, &'a RawValue>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fields<'de>, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Fields<'de>, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some((name, value)) = object.next_entry::<&RawValue, &RawValue>()? {
            if let Ok(name) = serde_json::from_str(name.get()) {
                fields.insert(name, value);
            }
        }
        Ok(Fields(fields))
    }
}

impl<'a> Fields<'a> {
    pub(super) fn of(json: &'a str) -> Fields<'a> {
        serde_json::from_str(json).unwrap_or_default()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(super) fn object(&self, name: &str) -> Fields<'a> {
        self.0.get(name).map(|value| Fields::of(value.get())).unwrap_or_default()
    }

    pub(super) fn list<T: Deserialize<'a>>(&self, name: &str) -> Vec<T> {
        self.0.get(name).and_then(|value| serde_json::from_str(value.get()).ok()).unwrap_or_default()
    }

    pub(super) fn get<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.0.get(name)?.get()).ok()
    }

    /// An empty text counts as missing.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.get(name).filter(|text: &String| !text.is_empty())
    }
}

/// A type that LINE may add is a plain word; anything else is replaced, because the name may get into a log.
pub(super) fn type_name(name: &str) -> String {
    let plain = name.len() <= 40 && name.bytes().all(|b| b.is_ascii_alphabetic());
    if plain { name.to_owned() } else { "?".to_owned() }
}
