//! What LINE delivers, and what it might.

use onetap_line::webhook::{Chat, ContentProvider, IncomingMessage, Kind, Media, Mode, NotJson};
use onetap_line::{Event, WebhookBody};
use proptest::prelude::*;
use serde_json::{Value, json};

fn parse(body: &Value) -> Vec<Event> {
    WebhookBody::parse(body.to_string().as_bytes()).unwrap().events
}

fn one(event: Value) -> Event {
    let mut events = parse(&json!({ "events": [event] }));
    assert_eq!(events.len(), 1);
    events.remove(0)
}

/// An event with all that LINE sends, changed by `more`.
fn event(more: Value) -> Event {
    let mut event = json!({
        "type": "message",
        "webhookEventId": "01FZ74A0TDDPYRVKNK77XKC3ZR",
        "deliveryContext": { "isRedelivery": true },
        "timestamp": 1_692_251_666_727_i64,
        "source": { "type": "group", "groupId": "Cgroup", "userId": "Uplanted" },
        "replyToken": "planted-token",
        "mode": "active",
        "message": { "id": "444573844083572737", "type": "text", "quoteToken": "q", "text": "台北 planted" },
    });
    event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    one(event)
}

/// Everything that is read of what happened.
fn described(kind: &Kind) -> Value {
    match kind {
        Kind::Message(message) => json!({ "message": described_message(message) }),
        Kind::MessageEdited(message) => json!({ "edited": described_message(message) }),
        Kind::Unsend { message_id, .. } => json!({ "unsend": message_id }),
        Kind::Postback { data, picked, .. } => json!({ "postback": data, "picked": picked }),
        Kind::Follow { is_unblocked, .. } => json!({ "follow": is_unblocked }),
        Kind::Other(name) => json!({ "other": name }),
        Kind::Skipped(field) => json!({ "skipped": field }),
        kind => json!(kind.label()),
    }
}

fn described_message(message: &IncomingMessage) -> Value {
    let media = |name: &str, media: &Media| {
        let provider = match &media.provider {
            ContentProvider::Line => json!("line"),
            ContentProvider::External { url, preview_url, .. } => json!([url, preview_url]),
            _ => json!("unknown"),
        };
        json!({ name: media.id, "provider": provider, "ms": media.duration_ms, "quote": media.quote_token })
    };
    match message {
        IncomingMessage::Text(text) => json!({
            "text": text.as_str(), "id": text.id, "quote": text.quote_token, "quoted": text.quoted_message_id,
        }),
        IncomingMessage::Location { id, title, address, latitude, longitude, .. } => {
            json!({ "location": [latitude, longitude], "id": id, "title": title, "address": address })
        }
        IncomingMessage::Sticker { id, package_id, sticker_id, quote_token, quoted_message_id, .. } => {
            json!({
                "sticker": [package_id, sticker_id], "id": id, "quote": quote_token, "quoted": quoted_message_id,
            })
        }
        IncomingMessage::Image(image) => media("image", image),
        IncomingMessage::Video(video) => media("video", video),
        IncomingMessage::Audio(audio) => media("audio", audio),
        IncomingMessage::File { id, name, size, .. } => json!({ "file": id, "name": name, "size": size }),
        IncomingMessage::Other(name) => json!({ "other": name }),
        message => panic!("{message:?}"),
    }
}

#[test]
fn an_event_of_line_is_read_whole() {
    let event = event(json!({}));
    let text = json!({ "text": "台北 planted", "id": "444573844083572737", "quote": "q", "quoted": null });
    assert_eq!(described(&event.kind), json!({ "message": text }));
    assert_eq!(event.webhook_event_id.as_deref(), Some("01FZ74A0TDDPYRVKNK77XKC3ZR"));
    assert_eq!(event.source.chat, Chat::Group);
    assert_eq!(event.source.user_id.as_deref(), Some("Uplanted"));
    assert_eq!(event.source.chat_id.as_deref(), Some("Cgroup"));
    assert_eq!(event.reply_token.as_deref(), Some("planted-token"));
    assert_eq!(
        (event.mode, event.is_redelivery, event.timestamp),
        (Mode::Active, true, Some(1_692_251_666_727))
    );
}

#[test]
fn every_kind_is_told_apart_and_what_lacks_a_field_says_which() {
    let picked = |params: Value| json!({ "type": "postback", "postback": { "data": "a", "params": params } });
    let edited = json!({ "type": "text", "id": "1", "text": "b", "quotedMessageId": "2", "quoteToken": 5 });
    let edited_text = json!({ "text": "b", "id": "1", "quote": null, "quoted": "2" });
    for (change, kind) in [
        (
            json!({ "type": "postback", "postback": { "data": "a=b" } }),
            json!({ "postback": "a=b", "picked": null }),
        ),
        (
            picked(json!({ "datetime": "2026-01-31T09:30" })),
            json!({ "postback": "a", "picked": "2026-01-31T09:30" }),
        ),
        (picked(json!({ "newRichMenuAliasId": "b" })), json!({ "postback": "a", "picked": null })),
        (picked(json!("2026-01-31")), json!({ "postback": "a", "picked": null })),
        (json!({ "type": "messageEdited", "message": edited }), json!({ "edited": edited_text })),
        (
            json!({ "type": "messageEdited", "message": { "type": "text" } }),
            json!({ "skipped": "message.text" }),
        ),
        (json!({ "type": "unsend", "unsend": { "messageId": "325708" } }), json!({ "unsend": "325708" })),
        (json!({ "type": "unsend", "unsend": {} }), json!({ "skipped": "unsend.messageId" })),
        (json!({ "type": "unsend" }), json!({ "skipped": "unsend.messageId" })),
        (json!({ "type": "follow", "replyToken": null }), json!({ "follow": null })),
        (json!({ "type": "follow", "follow": { "isUnblocked": true } }), json!({ "follow": true })),
        (json!({ "type": "follow", "follow": { "isUnblocked": "no" } }), json!({ "follow": null })),
        (json!({ "type": "unfollow" }), json!("unfollow")),
        (json!({ "type": "join" }), json!("join")),
        (json!({ "type": "leave" }), json!("leave")),
        (json!({ "type": "membership" }), json!({ "other": "membership" })),
        (json!({ "type": "U0123 said hello" }), json!({ "other": "?" })),
        (json!({ "type": null }), json!({ "skipped": "type" })),
        (json!({ "type": 7 }), json!({ "skipped": "type" })),
        (json!({ "type": "" }), json!({ "skipped": "type" })),
        (json!({ "message": null }), json!({ "skipped": "message.type" })),
        (json!({ "message": [] }), json!({ "skipped": "message.type" })),
        (json!({ "message": { "type": "text" } }), json!({ "skipped": "message.text" })),
        (json!({ "message": { "type": "text", "text": 120 } }), json!({ "skipped": "message.text" })),
        (
            json!({ "message": { "type": "location", "longitude": 1 } }),
            json!({ "skipped": "message.latitude" }),
        ),
        (
            json!({ "message": { "type": "location", "latitude": 1, "longitude": "1" } }),
            json!({ "skipped": "message.longitude" }),
        ),
        (json!({ "type": "postback" }), json!({ "skipped": "postback.data" })),
        (json!({ "type": "postback", "postback": { "data": {} } }), json!({ "skipped": "postback.data" })),
        (json!({ "replyToken": null }), json!({ "skipped": "replyToken" })),
        (json!({ "replyToken": 9 }), json!({ "skipped": "replyToken" })),
        (
            json!({ "type": "postback", "postback": { "data": "a" }, "replyToken": "" }),
            json!({ "skipped": "replyToken" }),
        ),
    ] {
        let event = event(change.clone());
        assert_eq!(described(&event.kind), kind, "{change}");
        assert_eq!(event.webhook_event_id.as_deref(), Some("01FZ74A0TDDPYRVKNK77XKC3ZR"), "{change}");
    }
}

#[test]
fn a_message_has_its_id_and_what_is_needed_to_fetch_or_quote_it() {
    let external =
        json!({ "type": "external", "originalContentUrl": "https://a/b", "previewImageUrl": "https://a/c" });
    for (message, expected, label) in [
        (
            json!({ "type": "text", "text": "a", "id": "325708", "quoteToken": "quote", "quotedMessageId": "1988" }),
            json!({ "text": "a", "id": "325708", "quote": "quote", "quoted": "1988" }),
            "text",
        ),
        (
            json!({ "type": "text", "text": "a" }),
            json!({ "text": "a", "id": null, "quote": null, "quoted": null }),
            "text",
        ),
        (
            json!({ "type": "location", "id": "325708", "title": "t", "address": "台北市", "latitude": 25.03, "longitude": 121 }),
            json!({ "location": [25.03, 121.0], "id": "325708", "title": "t", "address": "台北市" }),
            "location",
        ),
        (
            json!({ "type": "location", "id": 5, "title": 5, "address": 5, "latitude": 25.03, "longitude": 121 }),
            json!({ "location": [25.03, 121.0], "id": null, "title": null, "address": null }),
            "location",
        ),
        (
            json!({ "type": "sticker", "id": "325708", "packageId": "446", "stickerId": "1988", "quoteToken": "quote",
                "quotedMessageId": "7", "keywords": ["cony"] }),
            json!({ "sticker": ["446", "1988"], "id": "325708", "quote": "quote", "quoted": "7" }),
            "message",
        ),
        (
            json!({ "type": "sticker", "packageId": "446", "stickerId": "1988" }),
            json!({ "sticker": ["446", "1988"], "id": null, "quote": null, "quoted": null }),
            "message",
        ),
        (
            json!({ "type": "image", "id": "325708", "contentProvider": { "type": "line" }, "quoteToken": "quote" }),
            json!({ "image": "325708", "provider": "line", "ms": null, "quote": "quote" }),
            "message",
        ),
        (
            json!({ "type": "image", "id": "325708" }),
            json!({ "image": "325708", "provider": "line", "ms": null, "quote": null }),
            "message",
        ),
        (
            json!({ "type": "video", "id": "325708", "duration": 60_000, "contentProvider": external }),
            json!({ "video": "325708", "provider": ["https://a/b", "https://a/c"], "ms": 60_000, "quote": null }),
            "message",
        ),
        (
            json!({ "type": "audio", "id": "325708", "duration": "long", "contentProvider": { "type": "new" } }),
            json!({ "audio": "325708", "provider": "unknown", "ms": null, "quote": null }),
            "message",
        ),
        (
            json!({ "type": "audio", "id": "325708", "duration": 1, "contentProvider": { "type": "external" } }),
            json!({ "audio": "325708", "provider": "unknown", "ms": 1, "quote": null }),
            "message",
        ),
        (
            json!({ "type": "file", "id": "325708", "fileName": "a.pdf", "fileSize": 2138 }),
            json!({ "file": "325708", "name": "a.pdf", "size": 2138 }),
            "message",
        ),
        (
            json!({ "type": "file", "id": "325708", "fileName": 5, "fileSize": -1 }),
            json!({ "file": "325708", "name": null, "size": null }),
            "message",
        ),
        (
            json!({ "type": "sticker", "id": "1", "packageId": "446" }),
            json!({ "other": "sticker" }),
            "message",
        ),
        (json!({ "type": "image", "id": 325_708 }), json!({ "other": "image" }), "message"),
        (json!({ "type": "file", "fileName": "a.pdf" }), json!({ "other": "file" }), "message"),
        (json!({ "type": "sticker" }), json!({ "other": "sticker" }), "message"),
        (json!({ "type": "a b" }), json!({ "other": "?" }), "message"),
    ] {
        let event = event(json!({ "message": message }));
        assert_eq!(described(&event.kind), json!({ "message": expected }), "{message}");
        assert_eq!(event.kind.label(), label, "{message}");
        let shown = format!("{:?}", event.kind);
        for word in ["325708", "https", "a.pdf", "1988", "quote", "台北"] {
            assert!(!shown.contains(word), "{shown}");
        }
    }
}

#[test]
fn a_body_says_which_bot_it_is_for() {
    let body = |body: Value| WebhookBody::parse(body.to_string().as_bytes()).unwrap().destination;
    assert_eq!(
        body(json!({ "destination": "U8e742f61d673", "events": [] })).as_deref(),
        Some("U8e742f61d673")
    );
    assert_eq!(body(json!({ "destination": "", "events": [] })), None);
    assert_eq!(body(json!({ "events": [{ "type": "follow" }] })), None);
}

#[test]
fn a_source_of_any_kind_may_name_a_user_or_none() {
    for (source, chat, user) in [
        (json!({ "type": "user", "userId": "U1" }), Chat::User, Some("U1")),
        (json!({ "type": "group", "groupId": "C1", "userId": "U1" }), Chat::Group, Some("U1")),
        (json!({ "type": "group", "groupId": "C1" }), Chat::Group, None),
        (json!({ "type": "room", "roomId": "R1", "userId": "U1" }), Chat::Room, Some("U1")),
        (json!({ "type": "room" }), Chat::Room, None),
        (json!({ "type": "user", "userId": 5 }), Chat::User, None),
        (json!({ "type": "user", "userId": "" }), Chat::User, None),
        (json!({ "type": "planet", "userId": "U1" }), Chat::Unknown, Some("U1")),
        (json!(null), Chat::Unknown, None),
        (json!("U1"), Chat::Unknown, None),
    ] {
        let event = event(json!({ "source": source }));
        let chat_id = ["groupId", "roomId"].iter().find_map(|name| source.get(name)?.as_str());
        assert_eq!(event.source.chat, chat, "{source}");
        assert_eq!(event.source.user_id.as_deref(), user, "{source}");
        assert_eq!(event.source.chat_id.as_deref(), chat_id, "{source}");
    }
}

#[test]
fn only_what_is_active_is_answered_and_standby_needs_no_token() {
    let table =
        [(json!("active"), Mode::Active), (json!("standby"), Mode::Standby), (json!("new"), Mode::Standby)];
    for (mode, expected) in table.into_iter().chain([(json!(5), Mode::Standby)]) {
        assert_eq!(event(json!({ "mode": mode })).mode, expected, "{mode}");
    }
    assert_eq!(one(json!({ "type": "join" })).mode, Mode::Active);
    let standby = event(json!({ "mode": "standby", "replyToken": null }));
    assert_eq!(standby.kind.label(), "text");
}

#[test]
fn what_is_odd_is_not_there_and_takes_nothing_along() {
    let event = event(json!({
        "webhookEventId": 5, "deliveryContext": "yes", "timestamp": "now", "future": { "deep": [1, 2] },
    }));
    assert_eq!((event.webhook_event_id, event.is_redelivery, event.timestamp), (None, false, None));
    assert_eq!(event.reply_token.as_deref(), Some("planted-token"));
}

#[test]
fn a_broken_event_never_fails_its_neighbours() {
    let good = r#"{"type":"follow","webhookEventId":"good"}"#;
    let deep = format!(
        r#"{{"type":"follow","webhookEventId":"deep","x":{}1{}}}"#,
        "[".repeat(9999),
        "]".repeat(9999)
    );
    let text = |text: &str| {
        format!(
            r#"{{"type":"message","webhookEventId":"id","replyToken":"t","message":{{"type":"text","text":"{text}"}}}}"#
        )
    };
    let huge = r#"{"type":"message","webhookEventId":"id","message":{"type":"location","latitude":1e999,"longitude":1}}"#;
    let twice = r#"{"type":"join","type":"follow","webhookEventId":"a","webhookEventId":"b"}"#;
    for (odd, id, label) in [
        ("7", None, "skipped"),
        ("null", None, "skipped"),
        ("[]", None, "skipped"),
        (r#""event""#, None, "skipped"),
        ("{}", None, "skipped"),
        (deep.as_str(), Some("deep"), "follow"),
        (&text(r"half a pair \ud83c"), Some("id"), "skipped"),
        (&text(&"長".repeat(5000)), Some("id"), "text"),
        (huge, Some("id"), "skipped"),
        (twice, Some("b"), "follow"),
    ] {
        let body = format!(r#"{{"destination":"U","events":[{good},{odd},{good}]}}"#);
        let events = WebhookBody::parse(body.as_bytes()).unwrap().events;
        let ids: Vec<_> = events.iter().map(|event| event.webhook_event_id.as_deref()).collect();
        assert_eq!(ids, [Some("good"), id, Some("good")], "{odd:.60}");
        assert_eq!(events[1].kind.label(), label, "{odd:.60}");
        assert_eq!([events[0].kind.label(), events[2].kind.label()], ["follow"; 2], "{odd:.60}");
    }
}

/// `"\ud800"` is JSON, and no text.
#[test]
fn a_key_that_is_no_text_hides_nothing_beside_it() {
    let event = r#"{"\udfff":1,"type":"follow","webhookEventId":"a","source":{"type":"user","\ud800x":[],"userId":"U1"},"\ud800":{}}"#;
    let body = format!(r#"{{"\ud800":1,"events":[{event},{event}],"destination":"U2"}}"#);
    let body = WebhookBody::parse(body.as_bytes()).unwrap();
    assert_eq!(body.destination.as_deref(), Some("U2"));
    assert_eq!(body.events.len(), 2);
    for event in body.events {
        assert_eq!((event.kind.label(), event.webhook_event_id.as_deref()), ("follow", Some("a")));
        assert_eq!(event.source.user_id.as_deref(), Some("U1"));
    }
}

#[test]
fn json_without_events_has_none_and_what_is_no_json_is_refused() {
    for body in [
        r#"{"destination":"U","events":[]}"#,
        r#"{"destination":5}"#,
        "{}",
        "[]",
        "5",
        "null",
        r#"{"events":5}"#,
        " \n{} ",
    ] {
        let parsed = WebhookBody::parse(body.as_bytes()).unwrap();
        assert_eq!(parsed.destination.as_deref(), body.contains("\"U\"").then_some("U"), "{body}");
        assert_eq!(parsed.events, [], "{body}");
    }
    let wrong: [&[u8]; 9] = [
        b"",
        b" ",
        b"{",
        b"{}x",
        b"events=1",
        b"<html>",
        b"\xff\xfe",
        b"{\"events\":[\"\xf0\x28\"]}",
        b"\xef\xbb\xbf{}",
    ];
    for body in wrong {
        assert_eq!(WebhookBody::parse(body), Err(NotJson), "{}", String::from_utf8_lossy(body));
    }
}

#[test]
fn a_hundred_events_stay_in_their_order() {
    let events: Vec<Value> =
        (0..100).map(|n| json!({ "type": "follow", "webhookEventId": n.to_string() })).collect();
    let parsed = parse(&json!({ "events": events }));
    assert!(parsed.iter().enumerate().all(|(n, event)| event.webhook_event_id == Some(n.to_string())));
    assert_eq!(parsed.len(), 100);
}

#[test]
fn debug_shows_nobody_and_no_words() {
    let shown = format!(
        "{:?} {:?} {:?}",
        WebhookBody::parse(
            br#"{"destination":"planted","events":[{"type":"unsend","unsend":{"messageId":"planted"}}]}"#
        )
        .unwrap(),
        [
            event(json!({})),
            event(json!({ "type": "messageEdited" })),
            event(json!({ "type": "postback", "postback": { "data": "planted=1" } })),
        ],
        event(
            json!({ "message": { "type": "location", "address": "planted", "latitude": 25.5, "longitude": 1 } })
        ),
    );
    for word in ["planted", "01FZ", "25.5", "Cgroup"] {
        assert!(!shown.contains(word), "{shown}");
    }
    assert!(shown.contains("Text(") && shown.contains("postback") && shown.contains("Group"), "{shown}");
}

/// JSON of every shape, with LINE's field names among the keys.
fn any_json() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        Just("type"),
        Just("events"),
        Just("source"),
        Just("message"),
        Just("postback"),
        Just("text"),
        Just("data"),
        Just("mode"),
        Just("replyToken"),
        Just("userId"),
        Just("webhookEventId"),
        Just("deliveryContext"),
        Just("latitude"),
        Just("timestamp"),
    ];
    let word = prop_oneof![Just("message"), Just("text"), Just("postback"), Just("location"), Just("user")];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(key.clone().prop_map(str::to_owned), inner, 0..8)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_bytes_panic(body in prop::collection::vec(any::<u8>(), 0..400)) {
        let json = serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok();
        prop_assert!(json || WebhookBody::parse(&body).is_err());
    }

    #[test]
    fn a_cut_or_damaged_delivery_does_not_panic(at: prop::sample::Index, byte: u8) {
        let whole = json!({ "events": [{ "type": "message", "message": { "type": "text", "text": "雨🌧️" } }] });
        let mut body = whole.to_string().into_bytes();
        let at = at.index(body.len());
        prop_assert_eq!(WebhookBody::parse(&body[..at]), Err(NotJson));
        body[at] = byte;
        let events = WebhookBody::parse(&body).map_or(0, |delivery| delivery.events.len());
        prop_assert!(events <= 1);
    }

    #[test]
    fn any_list_of_events_gives_an_event_each_and_debug_shows_no_text(events in prop::collection::vec(any_json(), 0..6)) {
        let parsed = parse(&json!({ "events": events }));
        prop_assert_eq!(parsed.len(), events.len());
        for (event, json) in parsed.iter().zip(&events) {
            prop_assert_eq!(event.webhook_event_id.as_deref(), json["webhookEventId"].as_str().filter(|id| !id.is_empty()));
            let shown = format!("{event:?}");
            prop_assert!(shown.is_ascii());
        }
    }
}

/// A text message with these mentions, and what is left of it for the bot; `None` if it does not mention the bot.
fn spoken(text: &str, mentionees: Value) -> Option<String> {
    let message = json!({"type": "text", "text": text, "mention": {"mentionees": mentionees}});
    let event = json!({"type": "message", "replyToken": "r", "message": message});
    let body = json!({"events": [event]}).to_string();
    let body = WebhookBody::parse(body.as_bytes()).unwrap();
    let Kind::Message(IncomingMessage::Text(message)) = &body.events[0].kind else { panic!("a text") };
    assert_eq!(message.as_str(), text);
    message.mentions_bot().then(|| message.without_bot_mentions())
}

fn bot(index: impl Into<Value>, length: impl Into<Value>) -> Value {
    json!({"type": "user", "isSelf": true, "index": index.into(), "length": length.into()})
}

#[test]
fn a_mention_of_the_bot_is_cut_out_of_the_text_by_utf_16_units() {
    let table = [
        ("@bot 午餐 120", json!([bot(0, 4)]), Some("  午餐 120")),
        ("午餐@bot120", json!([bot(2, 4)]), Some("午餐 120")),
        ("👍🏽@bot 午餐👍", json!([bot(4, 4)]), Some("👍🏽  午餐👍")),
        ("午餐 120 @小幫手", json!([bot(7, 4)]), Some("午餐 120  ")),
        ("@bot", json!([bot(0, 4)]), Some(" ")),
        ("@bot @bot 水", json!([bot(5, 4), bot(0, 4)]), Some("    水")),
        ("@bot 水", json!([bot(0, 4), bot(1, 4)]), Some("  水")),
        ("@amy 午餐", json!([{"type": "user", "userId": "U2", "index": 0, "length": 4}]), None),
        ("@amy 午餐", json!([{"type": "user", "isSelf": false, "index": 0, "length": 4}]), None),
        ("@All 午餐", json!([{"type": "all", "index": 0, "length": 4}]), None),
    ];
    for (text, mentionees, expected) in table {
        assert_eq!(spoken(text, mentionees).as_deref(), expected, "{text}");
    }
}

#[test]
fn a_mention_that_points_nowhere_counts_as_missing() {
    const TEXT: &str = "👍@bot 午餐";
    assert_eq!(spoken(TEXT, json!([bot(2, 4)])).as_deref(), Some("👍  午餐"));
    let huge = u64::MAX;
    for (index, length) in [(1, 4), (2, 0), (0, 1), (3, 99), (99, 1), (huge, 1), (1, huge), (huge, huge)] {
        assert_eq!(spoken(TEXT, json!([bot(index, length)])), None, "{index} {length}");
    }
    for wrong in [json!(-1), json!(2.5), json!("2"), json!(null), json!([2]), json!(1e300)] {
        assert_eq!(spoken(TEXT, json!([bot(wrong.clone(), 4)])), None, "{wrong}");
        assert_eq!(spoken(TEXT, json!([bot(2, wrong.clone())])), None, "{wrong}");
        assert_eq!(spoken(TEXT, wrong), None);
    }
    for mentionees in
        [json!([]), json!([null, 7, "x", {}, []]), json!([{"isSelf": "true", "index": 2, "length": 4}])]
    {
        assert_eq!(spoken(TEXT, mentionees), None);
    }
    // One that points nowhere takes nothing from its neighbour.
    assert_eq!(spoken(TEXT, json!([null, bot(1, 4), bot(2, 4)])).as_deref(), Some("👍  午餐"));
}

proptest! {
    #[test]
    fn no_offset_breaks_the_text(
        text in "(?s).{1,20}",
        mentions in proptest::collection::vec((0_usize..24, 0_usize..24), 0..4),
    ) {
        let mentionees = mentions.iter().map(|(index, length)| bot(*index, *length)).collect();
        if let Some(rest) = spoken(&text, mentionees) {
            // What is left is of the text, in its order.
            let mut letters = text.chars();
            let is_next = |c: char| c == ' ' || letters.any(|letter| letter == c);
            prop_assert!(rest.chars().all(is_next), "{rest:?} of {text:?}");
        }
    }
}
