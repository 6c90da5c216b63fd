//! JSON as messages keep it.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::limit;

/// JSON whose objects are written in one order: `type` and `label` first, `quickReply` last, the other keys by name. Answers
/// are kept as text and compared as text, so the same message must always be the same text.
pub(super) struct Ordered<'a>(pub(super) &'a Value);

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(fields) => {
                let mut fields: Vec<(&str, &Value)> =
                    fields.iter().map(|(key, value)| (key.as_str(), value)).collect();
                fields.sort_unstable_by_key(|(key, _)| (rank(key), *key));
                let mut object = serializer.serialize_map(Some(fields.len()))?;
                for (key, value) in fields {
                    object.serialize_entry(key, &Ordered(value))?;
                }
                object.end()
            }
            Value::Array(elements) => serializer.collect_seq(elements.iter().map(Ordered)),
            other => other.serialize(serializer),
        }
    }
}

fn rank(key: &str) -> u8 {
    match key {
        "type" => 0,
        "label" => 1,
        "quickReply" => 3,
        _ => 2,
    }
}

/// Whether it can be a message or an action, and can be read again after it was kept.
pub(super) fn is_object_with_type(json: &Value) -> bool {
    let has_type = json.get("type").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    has_type && depth(json) <= limit::DEPTH
}

/// How many objects and lists are nested in each other.
pub(super) fn depth(json: &Value) -> usize {
    match json {
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        Value::Array(elements) => 1 + elements.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
