//! What LINE accepts, written independently of the code that builds requests, so that they do not share an error.

use serde_json::{Map, Value};

use super::messages;

/// The wrong properties, each with what is wrong.
pub(super) type Errors = Vec<(String, &'static str)>;

/// What is wrong with the body of a reply.
pub(super) fn of_reply(body: &Value) -> Errors {
    let mut errors = Errors::new();
    let fields = ["replyToken", "messages", "notificationDisabled"];
    if let Some(reply) = object(body, "", &fields, &mut errors) {
        text(reply, "", "replyToken", 1, usize::MAX, &mut errors);
        check_messages(reply, &mut errors);
    }
    errors
}

/// What is wrong with the body of a push.
pub(super) fn of_push(body: &Value) -> Errors {
    let mut errors = Errors::new();
    let fields = ["to", "messages", "notificationDisabled", "customAggregationUnits"];
    if let Some(push) = object(body, "", &fields, &mut errors) {
        text(push, "", "to", 1, usize::MAX, &mut errors);
        check_messages(push, &mut errors);
    }
    errors
}

fn check_messages(body: &Map<String, Value>, errors: &mut Errors) {
    if body.get("notificationDisabled").is_some_and(|value| !value.is_boolean()) {
        errors.push(("notificationDisabled".to_owned(), "must be true or false"));
    }
    for (at, message) in list(body, "", "messages", 5, errors) {
        messages::check(message, &at, errors);
    }
}

/// What is wrong with the body of a loading animation.
pub(super) fn of_loading(body: &Value) -> Errors {
    let mut errors = Errors::new();
    let Some(loading) = object(body, "", &["chatId", "loadingSeconds"], &mut errors) else {
        return errors;
    };
    // A group's id begins with C, a room's with R.
    if !loading.get("chatId").and_then(Value::as_str).is_some_and(|id| id.starts_with('U')) {
        errors.push(("chatId".to_owned(), "must be the id of a user"));
    }
    let is_step = |value: &Value| value.as_u64().is_some_and(|value| (1..=12).any(|n| n * 5 == value));
    if loading.get("loadingSeconds").is_some_and(|value| !is_step(value)) {
        errors.push(("loadingSeconds".to_owned(), "must be 5 to 60, in steps of 5"));
    }
    errors
}

/// Whether a retry key is a UUID.
pub(super) fn is_uuid(key: &str) -> bool {
    let groups: Vec<&str> = key.split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups.concat().chars().all(|c| c.is_ascii_hexdigit())
}

pub(super) fn object<'a>(
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
pub(super) fn list<'a>(
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
pub(super) fn text(
    object: &Map<String, Value>,
    at: &str,
    name: &str,
    least: usize,
    most: usize,
    errors: &mut Errors,
) {
    let length = object.get(name).and_then(Value::as_str).map(|text| text.encode_utf16().count());
    if !length.is_some_and(|length| (least..=most).contains(&length)) {
        errors.push((path(at, name), "must be a text, not empty and within its limit"));
    }
}

/// An address, percent-encoded. One that is not is refused.
pub(super) fn address(
    object: &Map<String, Value>,
    at: &str,
    name: &str,
    schemes: &[&str],
    most: usize,
    errors: &mut Errors,
) {
    let is_address = |address: &str| {
        let (scheme, rest) = address.split_once(':')?;
        let rest = if scheme == "tel" { rest } else { rest.strip_prefix("//")? };
        let is_pair = |part: &str| {
            let pair = part.as_bytes().get(..2);
            pair.is_some_and(|pair| pair.iter().all(u8::is_ascii_hexdigit))
        };
        let is_good = schemes.contains(&scheme)
            && rest.starts_with(|c: char| !"/?#:@".contains(c))
            && rest.chars().all(|c| c.is_ascii_alphanumeric() || "-._~:/?#@!$&'()*+,;=%".contains(c))
            && rest.split('%').skip(1).all(is_pair)
            && rest.matches('#').count() <= 1;
        (is_good && (1..=most).contains(&address.len())).then_some(())
    };
    if object.get(name).and_then(Value::as_str).and_then(is_address).is_none() {
        errors.push((path(at, name), "invalid uri"));
    }
}

pub(super) fn one_of(object: &Map<String, Value>, at: &str, types: &[&str], errors: &mut Errors) {
    if !object.get("type").and_then(Value::as_str).is_some_and(|name| types.contains(&name)) {
        errors.push((path(at, "type"), "unknown type"));
    }
}

pub(super) fn path(at: &str, name: &str) -> String {
    if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") }
}
