//! What LINE accepts as a reply, written independently of the code that builds replies, so that they do not share an error.

use serde_json::{Map, Value};

/// The wrong properties, each with what is wrong.
pub(super) type Errors = Vec<(String, &'static str)>;

/// What is wrong with the body of a reply.
pub(super) fn errors(body: &Value) -> Errors {
    let mut errors = Errors::new();
    let Some(reply) = object(body, "", &["replyToken", "messages", "notificationDisabled"], &mut errors)
    else {
        return errors;
    };
    text(reply, "", "replyToken", 1, usize::MAX, &mut errors);
    optional_bool(reply, "notificationDisabled", &mut errors);
    for (at, message) in list(reply, "", "messages", 5, &mut errors) {
        let fields = ["type", "text", "quickReply"];
        let Some(message) = object(message, &at, &fields, &mut errors) else { continue };
        one_of(message, &at, &["text"], &mut errors);
        text(message, &at, "text", 1, 5000, &mut errors);
        if let Some(quick_reply) = message.get("quickReply") {
            let at = format!("{at}.quickReply");
            let Some(quick_reply) = object(quick_reply, &at, &["items"], &mut errors) else { continue };
            for (at, item) in list(quick_reply, &at, "items", 13, &mut errors) {
                let Some(item) = object(item, &at, &["type", "action"], &mut errors) else { continue };
                one_of(item, &at, &["action"], &mut errors);
                action(item.get("action").unwrap_or(&Value::Null), &format!("{at}.action"), &mut errors);
            }
        }
    }
    errors
}

fn action(action: &Value, at: &str, errors: &mut Errors) {
    let own: &[&str] = match action["type"].as_str() {
        Some("message") => &["text"],
        Some("uri") => &["uri"],
        Some("postback") => &["data", "displayText"],
        _ => &[],
    };
    let Some(action) = object(action, at, &[&["type", "label"], own].concat(), errors) else { return };
    one_of(action, at, &["message", "location", "uri", "postback"], errors);
    text(action, at, "label", 1, 20, errors);
    for name in own {
        match *name {
            // The one field that may be left out.
            "displayText" if !action.contains_key("displayText") => {}
            "uri" => text(action, at, "uri", 1, 1000, errors),
            name => text(action, at, name, 1, 300, errors),
        }
    }
    let is_known =
        |uri: &str| ["http:", "https:", "line:", "tel:"].iter().any(|scheme| uri.starts_with(scheme));
    if action.get("uri").and_then(Value::as_str).is_some_and(|uri| !is_known(uri)) {
        errors.push((format!("{at}.uri"), "invalid uri scheme"));
    }
}

fn object<'a>(
    value: &'a Value,
    at: &str,
    known: &[&str],
    errors: &mut Errors,
) -> Option<&'a Map<String, Value>> {
    let Some(object) = value.as_object() else {
        errors.push((at.to_owned(), "must be an object"));
        return None;
    };
    for name in object.keys().filter(|name| !known.contains(&name.as_str())) {
        errors.push((path(at, name), "unknown field"));
    }
    Some(object)
}

/// One to `most` elements, each with its path.
fn list<'a>(
    object: &'a Map<String, Value>,
    at: &str,
    name: &str,
    most: usize,
    errors: &mut Errors,
) -> Vec<(String, &'a Value)> {
    let at = path(at, name);
    let elements = object.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if !(1..=most).contains(&elements.len()) {
        errors.push((at.clone(), "size must be between 1 and its limit"));
    }
    elements.iter().enumerate().map(|(n, element)| (format!("{at}[{n}]"), element)).collect()
}

/// LINE's measure is UTF-16 units; where it is grapheme clusters this is stricter for some emoji.
fn text(object: &Map<String, Value>, at: &str, name: &str, least: usize, most: usize, errors: &mut Errors) {
    let length = object.get(name).and_then(Value::as_str).map(|text| text.encode_utf16().count());
    if !length.is_some_and(|length| (least..=most).contains(&length)) {
        errors.push((path(at, name), "must be a text, not empty and within its limit"));
    }
}

fn one_of(object: &Map<String, Value>, at: &str, types: &[&str], errors: &mut Errors) {
    if !object.get("type").and_then(Value::as_str).is_some_and(|name| types.contains(&name)) {
        errors.push((path(at, "type"), "unknown type"));
    }
}

fn optional_bool(object: &Map<String, Value>, name: &str, errors: &mut Errors) {
    if object.get(name).is_some_and(|value| !value.is_boolean()) {
        errors.push((name.to_owned(), "must be true or false"));
    }
}

fn path(at: &str, name: &str) -> String {
    if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") }
}
