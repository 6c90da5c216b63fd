//! The local Messaging API takes and refuses what LINE takes and refuses, of messages that are not built here too.

use bytes::Bytes;
use onetap_config::Secret;
use onetap_line::testing::MessagingApi;
use serde_json::{Value, json};

use crate::support::TOKEN;

/// The properties of `message` that are refused; none if it is taken.
fn refused(message: &Value) -> Vec<String> {
    let api = MessagingApi::start(Secret::new(TOKEN)).unwrap();
    let body = json!({ "replyToken": "t", "messages": [message] }).to_string();
    let request = http::Request::post("/v2/bot/message/reply")
        .header("authorization", format!("Bearer {TOKEN}"))
        .header("content-type", "application/json");
    let (status, answer) = api.answer(&request.body(Bytes::from(body)).unwrap());
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(status == 400, answer["details"].is_array(), "{answer}");
    let details = answer["details"].as_array().cloned().unwrap_or_default();
    details.iter().map(|detail| detail["property"].as_str().unwrap().to_owned()).collect()
}

/// Takes each of `good`, and refuses each of `bad` for this property of the message.
fn judges(good: &[Value], bad: &[(Value, &str)]) {
    for message in good {
        assert_eq!(refused(message), Vec::<String>::new(), "{message:.200}");
    }
    for (message, property) in bad {
        assert_eq!(refused(message), [format!("messages[0].{property}")], "{message:.200}");
    }
}

/// `message` with these fields in place of its own.
fn with(message: &Value, more: Value) -> Value {
    let mut message = message.clone();
    message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    message
}

#[test]
fn an_address_is_percent_encoded() {
    let button = |uri: &str| {
        let action = json!({ "type": "uri", "label": "a", "uri": uri });
        json!({ "type": "text", "text": "a", "quickReply": { "items": [{ "type": "action", "action": action }] } })
    };
    let good = [
        "https://example.com/%E5%A4%A9?a=b&c=-._~!$'()*+,;=:@#d",
        "http://a",
        "tel:+886-2",
        "line://msg/text/a",
    ];
    let bad = [
        "https://a/天",
        "https://a b",
        "https://",
        "https:///a",
        "https:a",
        "tel:",
        "line:",
        "https://a/%",
        "https://a/%4g",
        "https://a/%+4",
        "https://a/{b}",
        "https://a/\"",
        "https://a#b#c",
        "ftp://a",
        "a",
        "",
    ];
    judges(&good.map(button), &bad.map(|uri| (button(uri), "quickReply.items[0].action.uri")));
    let long = |length: usize| format!("https://{}", "a".repeat(length - 8));
    judges(&[button(&long(10_000))], &[(button(&long(10_001)), "quickReply.items[0].action.uri")]);
    let image =
        |url: &str| json!({ "type": "image", "originalContentUrl": "https://a", "previewImageUrl": url });
    let bad = ["http://a", "tel:1", "https://a/天", "https://a b", "https://", &long(2001)];
    judges(&[image(&long(2000))], &bad.map(|url| (image(url), "previewImageUrl")));
}

#[test]
fn an_address_has_another_limit_than_a_text_to_copy() {
    let button = |action: Value| json!({ "type": "text", "text": "a", "quickReply": { "items": [{ "type": "action", "action": action }] } });
    let copy = |length: usize| {
        button(json!({ "type": "clipboard", "label": "a", "clipboardText": "a".repeat(length) }))
    };
    judges(&[copy(1), copy(1000)], &[(copy(1001), "quickReply.items[0].action.clipboardText")]);
    let desktop = |uri: &str| {
        button(json!({ "type": "uri", "label": "a", "uri": "https://a", "altUri": { "desktop": uri } }))
    };
    judges(&[desktop("https://b")], &[(desktop("https://b c"), "quickReply.items[0].action.altUri.desktop")]);
}
