//! What LINE accepts as emojis and mentions in a text.

use serde_json::{Map, Value};

use super::rules::{Errors, list, object, path, text};

type Object = Map<String, Value>;

/// The emojis of a text message, each of which stands for a `$`.
pub(super) fn emojis(message: &Object, at: &str, errors: &mut Errors) {
    let units: Vec<u16> = words(message).encode_utf16().collect();
    for (at, emoji) in list(message, at, "emojis", 20, errors) {
        let Some(emoji) = object(emoji, &at, &["index", "productId", "emojiId"], errors) else { continue };
        let index = emoji.get("index").and_then(Value::as_u64).and_then(|index| usize::try_from(index).ok());
        if index.and_then(|index| units.get(index)) != Some(&u16::from(b'$')) {
            errors.push((path(&at, "index"), "must be the position of a $"));
        }
        text(emoji, &at, "productId", 1, usize::MAX, errors);
        text(emoji, &at, "emojiId", 1, usize::MAX, errors);
    }
}

/// What stands for the names in braces of a text message (v2).
pub(super) fn substitution(message: &Object, at: &str, errors: &mut Errors) {
    let empty = Object::new();
    let defined = message.get("substitution").map_or(Some(&empty), Value::as_object);
    let below = path(at, "substitution");
    if defined.is_none_or(|defined| defined.len() > 100) {
        errors.push((below.clone(), "must be an object with up to 100 substitutions"));
    }
    let defined = defined.unwrap_or(&empty);
    for (name, what) in defined {
        let at = path(&below, name);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !(1..=20).contains(&name.len()) || !name.chars().all(is_plain) {
            errors.push((at.clone(), "must be a name"));
        }
        check(what, &at, errors);
    }
    let is_good = names(words(message)).is_some_and(|names| {
        let of = |kind: &str| {
            names.iter().filter(|name| defined.get(**name).is_some_and(|it| it["type"] == *kind)).count()
        };
        names.iter().all(|name| defined.contains_key(*name)) && of("mention") <= 20 && of("emoji") <= 20
    });
    if !is_good {
        errors
            .push((path(at, "text"), "must have names in braces that are defined, and 20 of a type at most"));
    }
}

fn check(substitution: &Value, at: &str, errors: &mut Errors) {
    match substitution["type"].as_str() {
        Some("emoji") => {
            let Some(emoji) = object(substitution, at, &["type", "productId", "emojiId"], errors) else {
                return;
            };
            text(emoji, at, "productId", 1, usize::MAX, errors);
            text(emoji, at, "emojiId", 1, usize::MAX, errors);
        }
        Some("mention") => {
            object(substitution, at, &["type", "mentionee"], errors);
            let (mentionee, at) = (&substitution["mentionee"], path(at, "mentionee"));
            let is_user = mentionee["type"] == "user";
            let fields = ["type", "userId"];
            let Some(mentionee) = object(mentionee, &at, &fields[..1 + usize::from(is_user)], errors) else {
                return;
            };
            if is_user {
                text(mentionee, &at, "userId", 1, usize::MAX, errors);
            } else if mentionee.get("type").is_none_or(|name| name != "all") {
                errors.push((path(&at, "type"), "unknown type"));
            }
        }
        _ => errors.push((path(at, "type"), "unknown type")),
    }
}

/// The names in braces; `None` if braces are not in pairs. A doubled brace is one of the text's own.
fn names(text: &str) -> Option<Vec<&str>> {
    let (mut names, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.find(['{', '}']) {
        rest = &rest[at..];
        if rest.starts_with("{{") || rest.starts_with("}}") {
            rest = &rest[2..];
        } else {
            let (name, after) = rest.strip_prefix('{')?.split_once('}')?;
            names.push(name);
            rest = after;
        }
    }
    Some(names)
}

fn words(message: &Object) -> &str {
    message.get("text").and_then(Value::as_str).unwrap_or_default()
}
