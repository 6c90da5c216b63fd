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

#[test]
fn emojis_stand_where_the_text_has_a_dollar() {
    let emoji =
        |index: Value| json!({ "index": index, "productId": "5ac1bfd5040ab15980c9b435", "emojiId": "001" });
    let text = |text: &str, emojis: Value| json!({ "type": "text", "text": text, "emojis": emojis });
    judges(
        &[
            text("$ LINE emoji $", json!([emoji(json!(0)), emoji(json!(13))])),
            text("🌧$", json!([emoji(json!(2))])),
            text(&"$".repeat(20), (0..20).map(|n| emoji(json!(n))).collect()),
            json!({ "type": "text", "text": "$", "quoteToken": "yHAz4Ua2wx7" }),
        ],
        &[
            (text("a$", json!([emoji(json!(0))])), "emojis[0].index"),
            (text("🌧$", json!([emoji(json!(1))])), "emojis[0].index"),
            (text("$", json!([emoji(json!(0)), emoji(json!(1))])), "emojis[1].index"),
            (text("$", json!([emoji(json!("0"))])), "emojis[0].index"),
            (text("$", json!([{ "index": 0, "emojiId": "001" }])), "emojis[0].productId"),
            (text("$", json!([{ "index": 0, "productId": "5a", "emojiId": "" }])), "emojis[0].emojiId"),
            (text("$", json!([])), "emojis"),
            (text(&"$".repeat(21), (0..21).map(|n| emoji(json!(n))).collect()), "emojis"),
        ],
    );
}

#[test]
fn a_text_with_substitutions_defines_each_of_them() {
    let example = json!({
        "type": "textV2",
        "text": "Welcome, {user1}! {laugh}\n{everyone} There is a {{newcomer}}!",
        "substitution": {
            "user1": { "type": "mention", "mentionee": { "type": "user", "userId": "U49585cd0d5" } },
            "laugh": { "type": "emoji", "productId": "5a8555cfe6256cc92ea23c2a", "emojiId": "002" },
            "everyone": { "type": "mention", "mentionee": { "type": "all" } },
        },
    });
    let emoji = || json!({ "type": "emoji", "productId": "5a", "emojiId": "002" });
    let all = || json!({ "type": "mention", "mentionee": { "type": "all" } });
    let text = |text: &str, substitution: Value| json!({ "type": "textV2", "text": text, "substitution": substitution });
    let of_keys =
        |keys: &[&str]| Value::Object(keys.iter().map(|key| ((*key).to_owned(), emoji())).collect());
    let many: Vec<String> = (0..101).map(|n| n.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let (longest, too_long) = ("k".repeat(20), "k".repeat(21));
    judges(
        &[
            example.clone(),
            json!({ "type": "textV2", "text": "a" }),
            text("{a}", of_keys(&["a"])),
            text(&format!("{{{longest}}}"), of_keys(&[&longest])),
            text(&"{a}".repeat(20), of_keys(&["a"])),
            text("a", of_keys(&many[..100])),
            with(&example, json!({ "quoteToken": "q" })),
        ],
        &[
            (json!({ "type": "textV2", "text": "{a}" }), "text"),
            (text("{b}", of_keys(&["a"])), "text"),
            (text("{a", of_keys(&["a"])), "text"),
            (text("a}", of_keys(&["a"])), "text"),
            (text("{a}}", of_keys(&["a"])), "text"),
            (text("{}", of_keys(&["a"])), "text"),
            (text(&"{a}".repeat(21), of_keys(&["a"])), "text"),
            (text(&"{a}".repeat(21), json!({ "a": all() })), "text"),
            (text(&"a".repeat(5001), json!({})), "text"),
            (text("", json!({})), "text"),
            (text("a", of_keys(&["a b"])), "substitution.a b"),
            (text("a", of_keys(&[""])), "substitution."),
            (text("a", of_keys(&[&too_long])), &format!("substitution.{too_long}")),
            (text("a", of_keys(&many)), "substitution"),
            (text("a", json!({ "a": { "type": "image" } })), "substitution.a.type"),
            (text("a", json!({ "a": { "type": "emoji", "productId": "5a" } })), "substitution.a.emojiId"),
            (
                text("a", json!({ "a": { "type": "mention", "mentionee": { "type": "user" } } })),
                "substitution.a.mentionee.userId",
            ),
            (
                text("a", json!({ "a": { "type": "mention", "mentionee": { "type": "group" } } })),
                "substitution.a.mentionee.type",
            ),
            (text("a", json!({ "a": { "type": "mention" } })), "substitution.a.mentionee"),
        ],
    );
}

#[test]
fn a_coupon_has_an_id() {
    let coupon =
        json!({ "type": "coupon", "couponId": "01JYNW8JMQVFBNWF1APF8Z3FS7", "deliveryTag": "winter_2026" });
    let tag = |tag: String| with(&coupon, json!({ "deliveryTag": tag }));
    judges(
        &[coupon.clone(), json!({ "type": "coupon", "couponId": "1" }), tag("a".repeat(30))],
        &[
            (json!({ "type": "coupon" }), "couponId"),
            (tag("a".repeat(31)), "deliveryTag"),
            (tag("a b".to_owned()), "deliveryTag"),
            (with(&coupon, json!({ "text": "a" })), "text"),
        ],
    );
}

#[test]
fn an_imagemap_has_areas() {
    let area = json!({ "x": 0, "y": 586, "width": 520, "height": 454 });
    let link = json!({ "type": "uri", "linkUri": "https://example.com/", "area": area });
    let say = json!({ "type": "message", "label": "hello", "text": "Hello", "area": area });
    let copy = json!({ "type": "clipboard", "clipboardText": "3B48740B", "area": area });
    let video = json!({
        "originalContentUrl": "https://example.com/video.mp4",
        "previewImageUrl": "https://example.com/video_preview.jpg",
        "area": area,
        "externalLink": { "linkUri": "https://example.com/see_more.html", "label": "See More" },
    });
    let imagemap = json!({
        "type": "imagemap",
        "baseUrl": "https://example.com/bot/images/rm001",
        "altText": "This is an imagemap",
        "baseSize": { "width": 1040, "height": 1040 },
        "video": video,
        "actions": [link, say, copy],
    });
    let changed = |more: Value| with(&imagemap, more);
    let only = |action: &Value, more: Value| changed(json!({ "actions": [with(action, more)] }));
    let mut silent = imagemap.clone();
    silent.as_object_mut().unwrap().remove("video");
    judges(
        &[
            imagemap.clone(),
            silent,
            only(&link, json!({ "label": "a".repeat(100), "linkUri": "tel:0900" })),
            only(&say, json!({ "text": "a".repeat(400) })),
            changed(json!({ "actions": vec![link.clone(); 50] })),
        ],
        &[
            (changed(json!({ "baseUrl": "http://example.com" })), "baseUrl"),
            (changed(json!({ "altText": "" })), "altText"),
            (changed(json!({ "baseSize": { "width": 1024, "height": 1040 } })), "baseSize.width"),
            (changed(json!({ "baseSize": { "width": 1040 } })), "baseSize.height"),
            (changed(json!({ "actions": [] })), "actions"),
            (changed(json!({ "actions": vec![link.clone(); 51] })), "actions"),
            (only(&link, json!({ "type": "postback" })), "actions[0].type"),
            (only(&link, json!({ "linkUri": "https://a b" })), "actions[0].linkUri"),
            (only(&link, json!({ "linkUri": format!("https://{}", "a".repeat(993)) })), "actions[0].linkUri"),
            (only(&link, json!({ "label": "a".repeat(101) })), "actions[0].label"),
            (only(&say, json!({ "text": "a".repeat(401) })), "actions[0].text"),
            (only(&copy, json!({ "clipboardText": "" })), "actions[0].clipboardText"),
            (only(&say, json!({ "area": null })), "actions[0].area"),
            (only(&say, json!({ "area": with(&area, json!({ "x": -1 })) })), "actions[0].area.x"),
            (only(&say, json!({ "area": with(&area, json!({ "width": "520" })) })), "actions[0].area.width"),
            (
                changed(
                    json!({ "video": with(&video, json!({ "area": with(&area, json!({ "y": 0.5 })) })) }),
                ),
                "video.area.y",
            ),
            (
                changed(json!({ "video": with(&video, json!({ "originalContentUrl": "a" })) })),
                "video.originalContentUrl",
            ),
            (
                changed(
                    json!({ "video": with(&video, json!({ "externalLink": { "linkUri": "https://a" } })) }),
                ),
                "video.externalLink.label",
            ),
        ],
    );
}

#[test]
fn an_image_carousel_may_have_short_labels() {
    let carousel = |action: Value| {
        let columns = json!([{ "imageUrl": "https://example.com/item1.jpg", "action": action }]);
        json!({ "type": "template", "altText": "a", "template": { "type": "image_carousel", "columns": columns } })
    };
    let label = |label: &str| carousel(json!({ "type": "message", "label": label, "text": "yes" }));
    let at = "template.columns[0].action.label";
    judges(
        &[carousel(json!({ "type": "message", "text": "yes" })), label("a"), label("twelve chars")],
        &[(label("thirteen char"), at), (label(""), at)],
    );
    let button = json!({ "type": "message", "text": "yes" });
    let confirm = json!({ "type": "confirm", "text": "a", "actions": [button, { "type": "message", "label": "a", "text": "b" }] });
    let confirm = json!({ "type": "template", "altText": "a", "template": confirm });
    judges(&[], &[(confirm, "template.actions[0].label")]);
}

#[test]
fn the_bubbles_of_a_carousel_have_one_size() {
    let bubble = |size: Value| match size {
        Value::Null => json!({ "type": "bubble" }),
        size => json!({ "type": "bubble", "size": size }),
    };
    let flex = |sizes: [Value; 3]| {
        let contents = json!({ "type": "carousel", "contents": sizes.map(bubble) });
        json!({ "type": "flex", "altText": "a", "contents": contents })
    };
    judges(
        &[
            flex([json!(null), json!("mega"), json!(null)]),
            flex([json!("nano"), json!("nano"), json!("nano")]),
        ],
        &[
            (flex([json!(null), json!(null), json!("kilo")]), "contents.contents"),
            (flex([json!("nano"), json!("micro"), json!("nano")]), "contents.contents"),
        ],
    );
}

#[test]
fn a_sender_has_a_short_name() {
    let sender = |sender: Value| json!({ "type": "text", "text": "a", "sender": sender });
    judges(
        &[
            sender(json!({ "name": "a".repeat(20), "iconUrl": "https://example.com/i.png" })),
            sender(json!({ "name": "Cony" })),
            sender(json!({})),
        ],
        &[
            (sender(json!({ "name": "a".repeat(21) })), "sender.name"),
            (sender(json!({ "iconUrl": "http://example.com/i.png" })), "sender.iconUrl"),
            (sender(json!({ "title": "a" })), "sender.title"),
            (sender(json!("Cony")), "sender"),
        ],
    );
}

#[test]
fn a_picker_takes_either_letter_between_date_and_time() {
    let picker = |more: Value| {
        let action = json!({ "type": "datetimepicker", "label": "a", "data": "b", "mode": "datetime" });
        let item = json!({ "type": "action", "action": with(&action, more) });
        json!({ "type": "text", "text": "a", "quickReply": { "items": [item] } })
    };
    let at = |name: &str| format!("quickReply.items[0].action.{name}");
    judges(
        &[
            picker(
                json!({ "initial": "2017-12-25t00:00", "max": "2018-01-24t23:59", "min": "2017-12-25t00:00" }),
            ),
            picker(json!({ "max": "2018-01-24T23:59", "min": "2018-01-24t23:58" })),
        ],
        &[
            (picker(json!({ "initial": "2017-12-25 00:00" })), &at("initial")),
            (picker(json!({ "max": "2018-01-24t23:58", "min": "2018-01-24T23:59" })), &at("max")),
            (picker(json!({ "max": "2018-01-24T23:59", "min": "2018-01-24t23:59" })), &at("max")),
        ],
    );
}
