//! What LINE accepts as an imagemap: an image with areas to tap on, and perhaps a video.

use serde_json::{Map, Value};

use super::messages::{LINKS, field, https};
use super::rules::{Errors, address, list, object, path, text};

type Object = Map<String, Value>;

pub(super) fn base_size(message: &Object, at: &str, errors: &mut Errors) {
    let at = path(at, "baseSize");
    let Some(size) = object(field(message, "baseSize"), &at, &["width", "height"], errors) else { return };
    if field(size, "width") != 1040 {
        errors.push((path(&at, "width"), "must be 1040"));
    }
    whole(size, &at, "height", 1, errors);
}

pub(super) fn video(message: &Object, at: &str, errors: &mut Errors) {
    let at = path(at, "video");
    let fields = ["originalContentUrl", "previewImageUrl", "area", "externalLink"];
    let Some(video) = object(field(message, "video"), &at, &fields, errors) else { return };
    https(video, &at, "originalContentUrl", errors);
    https(video, &at, "previewImageUrl", errors);
    area(video, &at, errors);
    if let Some(link) = video.get("externalLink") {
        let at = path(&at, "externalLink");
        let Some(link) = object(link, &at, &["linkUri", "label"], errors) else { return };
        address(link, &at, "linkUri", &LINKS, 1000, errors);
        text(link, &at, "label", 1, 30, errors);
    }
}

pub(super) fn actions(message: &Object, at: &str, errors: &mut Errors) {
    for (at, action) in list(message, at, "actions", 50, errors) {
        let own = match action["type"].as_str() {
            Some("uri") => "linkUri",
            Some("message") => "text",
            Some("clipboard") => "clipboardText",
            _ => {
                errors.push((path(&at, "type"), "unknown type"));
                continue;
            }
        };
        let Some(action) = object(action, &at, &["type", "label", "area", own], errors) else { continue };
        match own {
            "linkUri" => address(action, &at, own, &LINKS, 1000, errors),
            "text" => text(action, &at, own, 1, 400, errors),
            _ => text(action, &at, own, 1, 1000, errors),
        }
        if action.contains_key("label") {
            text(action, &at, "label", 1, 100, errors);
        }
        area(action, &at, errors);
    }
}

fn area(of: &Object, at: &str, errors: &mut Errors) {
    let at = path(at, "area");
    let Some(area) = object(field(of, "area"), &at, &["x", "y", "width", "height"], errors) else { return };
    for (name, least) in [("x", 0), ("y", 0), ("width", 1), ("height", 1)] {
        whole(area, &at, name, least, errors);
    }
}

fn whole(object: &Object, at: &str, name: &str, least: u64, errors: &mut Errors) {
    if object.get(name).and_then(Value::as_u64).is_none_or(|number| number < least) {
        errors.push((path(at, name), "must be a whole number that is large enough"));
    }
}
