//! What LINE accepts as a message.

use serde_json::{Map, Value};

use super::rules::{Errors, address, list, object, one_of, path, text};
use super::{imagemap, texts};

type Object = Map<String, Value>;

/// The schemes of addresses to open.
pub(super) const LINKS: [&str; 4] = ["http", "https", "line", "tel"];

/// The actions of quick replies, which have all of them.
const QUICK_ACTIONS: [&str; 8] =
    ["message", "uri", "postback", "datetimepicker", "clipboard", "camera", "cameraRoll", "location"];
/// The actions of templates.
const BUTTON_ACTIONS: [&str; 5] = ["message", "uri", "postback", "datetimepicker", "clipboard"];

/// How long the label of an action may be.
#[derive(Clone, Copy)]
enum Label {
    /// 20 characters. There must be one.
    Required,
    /// 12 characters, if there is one: in an image carousel.
    Optional,
}

/// Appends what is wrong with a message.
pub(super) fn check(message: &Value, at: &str, errors: &mut Errors) {
    let own: &[&str] = match message["type"].as_str() {
        Some("text") => &["text", "emojis", "quoteToken"],
        Some("textV2") => &["text", "substitution", "quoteToken"],
        Some("sticker") => &["packageId", "stickerId", "quoteToken"],
        Some("image") => &["originalContentUrl", "previewImageUrl"],
        Some("video") => &["originalContentUrl", "previewImageUrl", "trackingId"],
        Some("audio") => &["originalContentUrl", "duration"],
        Some("location") => &["title", "address", "latitude", "longitude"],
        Some("coupon") => &["couponId", "deliveryTag"],
        Some("imagemap") => &["baseUrl", "altText", "baseSize", "video", "actions"],
        Some("template") => &["altText", "template"],
        Some("flex") => &["altText", "contents"],
        _ => return errors.push((path(at, "type"), "unknown type")),
    };
    let fields = [&["type", "quickReply", "sender"], own].concat();
    let Some(message) = object(message, at, &fields, errors) else { return };
    for name in own.iter().copied() {
        // The others are required.
        let optional = ["emojis", "substitution", "quoteToken", "trackingId", "deliveryTag", "video"];
        if optional[..].contains(&name) && !message.contains_key(name) {
            continue;
        }
        match name {
            "text" => text(message, at, name, 1, 5000, errors),
            "emojis" => texts::emojis(message, at, errors),
            "couponId" | "quoteToken" => text(message, at, name, 1, usize::MAX, errors),
            "deliveryTag" => delivery_tag(message, at, errors),
            "baseUrl" => https(message, at, name, errors),
            "baseSize" => imagemap::base_size(message, at, errors),
            "video" => imagemap::video(message, at, errors),
            "actions" => imagemap::actions(message, at, errors),
            "packageId" | "stickerId" => number_text(message, at, name, errors),
            "originalContentUrl" | "previewImageUrl" => https(message, at, name, errors),
            "title" | "address" => text(message, at, name, 1, 100, errors),
            "latitude" => degrees(message, at, name, 90.0, errors),
            "longitude" => degrees(message, at, name, 180.0, errors),
            "altText" => text(message, at, name, 1, 1500, errors),
            "duration" if message.get("duration").and_then(Value::as_u64).unwrap_or(0) == 0 => {
                errors.push((path(at, name), "must be a number of milliseconds"));
            }
            "template" => template(field(message, name), &path(at, name), errors),
            "contents" => flex(field(message, name), &path(at, name), errors),
            _ => {}
        }
    }
    if message["type"] == "textV2" {
        texts::substitution(message, at, errors);
    }
    if let Some(sender) = message.get("sender") {
        let at = path(at, "sender");
        if let Some(sender) = object(sender, &at, &["name", "iconUrl"], errors) {
            if sender.contains_key("name") {
                text(sender, &at, "name", 1, 20, errors);
            }
            if sender.contains_key("iconUrl") {
                https(sender, &at, "iconUrl", errors);
            }
        }
    }
    if let Some(quick_reply) = message.get("quickReply") {
        let at = path(at, "quickReply");
        let Some(quick_reply) = object(quick_reply, &at, &["items"], errors) else { return };
        for (at, item) in list(quick_reply, &at, "items", 13, errors) {
            let Some(item) = object(item, &at, &["type", "imageUrl", "action"], errors) else { continue };
            one_of(item, &at, &["action"], errors);
            if item.contains_key("imageUrl") {
                https(item, &at, "imageUrl", errors);
            }
            action(field(item, "action"), &path(&at, "action"), &QUICK_ACTIONS, Label::Required, errors);
        }
    }
}

pub(super) fn field<'a>(object: &'a Object, name: &str) -> &'a Value {
    object.get(name).unwrap_or(&Value::Null)
}

fn action(action: &Value, at: &str, types: &[&str], label: Label, errors: &mut Errors) {
    let own: &[&str] = match action["type"].as_str() {
        Some("message") => &["text"],
        Some("uri") => &["uri", "altUri"],
        Some("postback") => &["data", "displayText", "inputOption", "fillInText"],
        Some("datetimepicker") => &["data", "mode", "initial", "max", "min"],
        Some("clipboard") => &["clipboardText"],
        _ => &[],
    };
    let Some(action) = object(action, at, &[&["type", "label"], own].concat(), errors) else { return };
    one_of(action, at, types, errors);
    match label {
        Label::Required => text(action, at, "label", 1, 20, errors),
        Label::Optional if action.contains_key("label") => text(action, at, "label", 1, 12, errors),
        Label::Optional => {}
    }
    let is_required = |name: &str| matches!(name, "text" | "uri" | "data" | "mode" | "clipboardText");
    for name in own.iter().filter(|name| is_required(name) || action.contains_key(**name)) {
        match *name {
            "uri" => address(action, at, name, &LINKS, 10_000, errors),
            "altUri" => {
                let at = path(at, name);
                if let Some(alternative) = object(field(action, name), &at, &["desktop"], errors) {
                    address(alternative, &at, "desktop", &LINKS, 10_000, errors);
                }
            }
            "clipboardText" => text(action, at, name, 1, 1000, errors),
            "initial" | "max" | "min" if !is_moment(field(action, name), field(action, "mode")) => {
                errors.push((path(at, name), "must be a date or time of its mode"));
            }
            name => text(action, at, name, 1, 300, errors),
        }
    }
    let moment = |name| action.get(name).and_then(Value::as_str).map(str::to_ascii_uppercase);
    if let (Some(min), Some(max)) = (moment("min"), moment("max")) {
        if min >= max {
            errors.push((path(at, "max"), "must be later than min"));
        }
    }
}

/// Whether a text looks like the dates or times of this mode.
fn is_moment(value: &Value, mode: &Value) -> bool {
    let shape = match mode.as_str() {
        Some("date") => "dddd-dd-dd",
        Some("time") => "dd:dd",
        Some("datetime") => "dddd-dd-ddTdd:dd",
        _ => return false,
    };
    // The letter between date and time may be small.
    let digits_as_d = |c: char| if c.is_ascii_digit() { 'd' } else { c.to_ascii_uppercase() };
    value.as_str().is_some_and(|value| value.chars().map(digits_as_d).eq(shape.chars()))
}

fn template(template: &Value, at: &str, errors: &mut Errors) {
    match template["type"].as_str() {
        Some("buttons") => {
            let own = ["type", "imageAspectRatio", "imageSize"];
            card(template, at, &own, 160, 4, errors);
        }
        Some("confirm") => {
            let Some(confirm) = object(template, at, &["type", "text", "actions"], errors) else { return };
            text(confirm, at, "text", 1, 240, errors);
            let buttons = list(confirm, at, "actions", 2, errors);
            if buttons.len() != 2 {
                errors.push((path(at, "actions"), "size must be 2"));
            }
            for (at, button) in buttons {
                action(button, &at, &BUTTON_ACTIONS, Label::Required, errors);
            }
        }
        Some("carousel") => {
            let fields = ["type", "columns", "imageAspectRatio", "imageSize"];
            let Some(carousel) = object(template, at, &fields, errors) else { return };
            let columns = list(carousel, at, "columns", 10, errors);
            let shape = |column: &Value| {
                let buttons = column["actions"].as_array().map(Vec::len);
                (buttons, column.get("title").is_some(), column.get("thumbnailImageUrl").is_some())
            };
            if columns.windows(2).any(|pair| shape(pair[0].1) != shape(pair[1].1)) {
                errors.push((path(at, "columns"), "must all have the same parts"));
            }
            for (at, column) in columns {
                card(column, &at, &[], 120, 3, errors);
            }
        }
        Some("image_carousel") => {
            let Some(carousel) = object(template, at, &["type", "columns"], errors) else { return };
            for (at, column) in list(carousel, at, "columns", 10, errors) {
                let Some(column) = object(column, &at, &["imageUrl", "action"], errors) else { continue };
                https(column, &at, "imageUrl", errors);
                action(
                    field(column, "action"),
                    &path(&at, "action"),
                    &BUTTON_ACTIONS,
                    Label::Optional,
                    errors,
                );
            }
        }
        _ => errors.push((path(at, "type"), "unknown type")),
    }
}

fn card(card: &Value, at: &str, more: &[&str], max_text: usize, max_buttons: usize, errors: &mut Errors) {
    let own =
        ["text", "title", "thumbnailImageUrl", "imageBackgroundColor", "defaultAction", "actions"].as_slice();
    let Some(card) = object(card, at, &[own, more].concat(), errors) else { return };
    let is_text_alone = !card.contains_key("title") && !card.contains_key("thumbnailImageUrl");
    text(card, at, "text", 1, if is_text_alone { max_text } else { 60 }, errors);
    if card.contains_key("title") {
        text(card, at, "title", 1, 40, errors);
    }
    if card.contains_key("thumbnailImageUrl") {
        https(card, at, "thumbnailImageUrl", errors);
    }
    if let Some(default) = card.get("defaultAction") {
        action(default, &path(at, "defaultAction"), &BUTTON_ACTIONS, Label::Required, errors);
    }
    for (at, button) in list(card, at, "actions", max_buttons, errors) {
        action(button, &at, &BUTTON_ACTIONS, Label::Required, errors);
    }
}

/// The container of a Flex message; what is in its bubbles is not looked at.
fn flex(contents: &Value, at: &str, errors: &mut Errors) {
    let size = contents.to_string().len();
    match contents["type"].as_str() {
        Some("bubble") => {
            let fields =
                ["type", "size", "direction", "header", "hero", "body", "footer", "styles", "action"];
            object(contents, at, &fields, errors);
            if size > 30_000 {
                errors.push((at.to_owned(), "must be no larger than 30 KB"));
            }
        }
        Some("carousel") => {
            let Some(carousel) = object(contents, at, &["type", "contents"], errors) else { return };
            if size > 50_000 {
                errors.push((at.to_owned(), "must be no larger than 50 KB"));
            }
            let bubbles = list(carousel, at, "contents", 12, errors);
            let width = |bubble: &Value| bubble["size"].as_str().unwrap_or("mega").to_owned();
            if bubbles.windows(2).any(|pair| width(pair[0].1) != width(pair[1].1)) {
                errors.push((path(at, "contents"), "must all have the same size"));
            }
            for (at, bubble) in bubbles {
                if bubble["type"] == "bubble" {
                    flex(bubble, &at, errors);
                } else {
                    errors.push((path(&at, "type"), "must be a bubble"));
                }
            }
        }
        _ => errors.push((path(at, "type"), "unknown type")),
    }
}

pub(super) fn https(object: &Object, at: &str, name: &str, errors: &mut Errors) {
    address(object, at, name, &["https"], 2000, errors);
}

fn delivery_tag(message: &Object, at: &str, errors: &mut Errors) {
    let tag = message.get("deliveryTag").and_then(Value::as_str).unwrap_or_default();
    if !(1..=30).contains(&tag.len()) || !tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    {
        errors.push((path(at, "deliveryTag"), "must be a short name"));
    }
}

fn number_text(object: &Object, at: &str, name: &str, errors: &mut Errors) {
    let digits = object.get(name).and_then(Value::as_str).unwrap_or_default();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        errors.push((path(at, name), "must be a number, as a text"));
    }
}

fn degrees(object: &Object, at: &str, name: &str, most: f64, errors: &mut Errors) {
    if !object.get(name).and_then(Value::as_f64).is_some_and(|degrees| degrees.abs() <= most) {
        errors.push((path(at, name), "must be degrees"));
    }
}
