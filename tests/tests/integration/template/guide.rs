//! The guide against the template and the code: what it tells people to type exists.

use std::collections::BTreeSet;

use onetap_line::WebhookBody;
use onetap_tests::functions::root;
use serde_json::{Value, json};
use webhook::ask::{Ask, Say, ask};

use super::document::Template;

/// The text of `docs/guide.md`.
pub fn guide() -> String {
    std::fs::read_to_string(root().join("docs/guide.md")).unwrap()
}

/// The words of the guide that are made of these characters.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '=')).filter(|word| !word.is_empty())
}

#[test]
fn every_parameter_and_output_that_the_guide_names_is_there() {
    let template = Template::read();
    let (parameters, outputs) = (template.names("Parameters"), template.names("Outputs"));
    let guide = guide();
    let camel = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_uppercase()) && name.contains(|c: char| c.is_ascii_lowercase())
    };
    let set: BTreeSet<&str> = words(&guide)
        .filter_map(|word| Some(word.split_once('=')?.0))
        .filter(|name| *name != "OutputKey")
        .filter(|name| camel(name))
        .collect();
    assert!(set.contains("Store") && set.contains("JobEventsAllowOrigin"), "{set:?}");
    for name in set {
        assert!(parameters.contains(name), "the guide sets {name}");
    }
    let asked: Vec<&str> = guide.split("$(output ").skip(1).map(|rest| words(rest).next().unwrap()).collect();
    assert!(asked.len() >= 3);
    for name in asked.into_iter().chain(["WebhookUrl", "DashboardUrl", "QueueArn", "DeadLettersUrl"]) {
        assert!(outputs.contains(name) && guide.contains(name), "the guide asks for {name}");
    }
    let secrets = template.at("/Parameters/SecretName/Description").as_str().unwrap();
    for name in words(secrets).filter(|word| word.contains('_')) {
        assert!(guide.contains(name), "the guide does not say where {name} goes");
    }
    for group in ["webhook", "http-api"] {
        assert!(guide.contains(&format!("onetap/{group}`")), "the log of {group}");
    }
}

fn understood(data: &str) -> Ask {
    let event = json!({
        "type": "postback", "mode": "active", "webhookEventId": "01", "replyToken": "token", "timestamp": 0,
        "source": { "type": "user", "userId": "U1" }, "postback": { "data": data },
    });
    let delivery = WebhookBody::parse(json!({ "events": [event] }).to_string().as_bytes()).unwrap();
    ask(&onetap_bot::Incoming::new(&delivery.events[0], 1_700_000_000_000)).unwrap()
}

#[test]
fn every_button_of_the_rich_menu_does_something_else() {
    let menu: Value =
        serde_json::from_slice(&std::fs::read(root().join("docs/rich-menu.json")).unwrap()).unwrap();
    let mut plans = BTreeSet::new();
    for area in menu["areas"].as_array().unwrap() {
        assert_eq!(area["action"]["type"], "postback");
        let plan = understood(area["action"]["data"].as_str().unwrap());
        assert!(!matches!(plan, Ask::Say(Say::UnknownAction)), "{area}");
        plans.insert(format!("{plan:?}"));
    }
    assert_eq!(plans.len(), 6);
    assert!(matches!(understood("action=nothing"), Ask::Say(Say::UnknownAction)));
}

#[test]
fn the_rich_menu_is_one_that_line_takes_and_its_buttons_cover_its_picture() {
    let menu: Value =
        serde_json::from_slice(&std::fs::read(root().join("docs/rich-menu.json")).unwrap()).unwrap();
    let whole = |value: &Value| value.as_u64().unwrap();
    let (width, height) = (whole(&menu["size"]["width"]), whole(&menu["size"]["height"]));
    assert!(menu["chatBarText"].as_str().unwrap().chars().count() <= 14);
    assert!(menu["areas"].as_array().unwrap().len() <= 20);
    assert!((800..=2500).contains(&width) && height >= 250 && width as f64 / height as f64 >= 1.45);
    let bounds = menu["areas"].as_array().unwrap().iter().map(|area| {
        let side = |name: &str| whole(&area["bounds"][name]);
        (side("x"), side("y"), side("x") + side("width"), side("y") + side("height"))
    });
    let bounds: Vec<_> = bounds.collect();
    let covered: u64 = bounds.iter().map(|(left, top, right, bottom)| (right - left) * (bottom - top)).sum();
    assert_eq!(covered, width * height, "no gap");
    for (n, one) in bounds.iter().enumerate() {
        assert!(one.2 <= width && one.3 <= height, "inside");
        let apart =
            |two: &(u64, u64, u64, u64)| one.2 <= two.0 || two.2 <= one.0 || one.3 <= two.1 || two.3 <= one.1;
        assert!(bounds[..n].iter().all(apart), "side by side");
    }
    let picture = std::fs::read(root().join("docs/rich-menu.png")).unwrap();
    assert!(picture.len() <= 1 << 20, "LINE takes a megabyte");
    // A PNG's header: width and height stand at 16 and 20.
    let side = |at: usize| u64::from(u32::from_be_bytes(picture[at..at + 4].try_into().unwrap()));
    assert_eq!((&picture[1..4], side(16), side(20)), (&b"PNG"[..], width, height));
}
