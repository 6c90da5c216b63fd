//! Messages: within LINE's limits, and the same after they were kept as JSON.

use onetap_line::message::limit;
use onetap_line::{Action, Card, DateTimePicker, Message, Messages, PickerMode, ReplyOutcome};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{TOKEN, soon, start};

fn json_of(message: &Message) -> Value {
    serde_json::to_value(message).unwrap()
}

fn buttons(count: usize) -> Card {
    (0..count).fold(Card::new("請選擇"), |card, n| card.button(Action::message(n.to_string(), "a")))
}

#[test]
fn every_message_has_the_shape_that_line_documents() {
    let yes = || Action::message("好", "yes");
    let visit = Action::uri("看", "https://example.com/a");
    let card = || {
        let card = Card::new("文字").title("標題").image("https://example.com/i.jpg");
        card.on_tap(visit.clone()).button(yes()).button(Action::postback("買", "buy=1"))
    };
    let card_json = json!({
        "text": "文字", "title": "標題", "thumbnailImageUrl": "https://example.com/i.jpg",
        "defaultAction": { "type": "uri", "label": "看", "uri": "https://example.com/a" },
        "actions": [
            { "type": "message", "label": "好", "text": "yes" },
            { "type": "postback", "label": "買", "data": "buy=1", "displayText": "買" },
        ],
    });
    let mut buttons = card_json.clone();
    buttons["type"] = "buttons".into();
    let yes_json = || json!({ "type": "message", "label": "好", "text": "yes" });
    let bubble = json!({ "type": "bubble", "body": { "type": "box", "layout": "vertical", "contents": [] } });
    let template = |template: Value| json!({ "type": "template", "altText": "選單", "template": template });
    for (message, expected) in [
        (Some(Message::text("您好")), json!({ "type": "text", "text": "您好" })),
        (
            Message::sticker("446", "1988"),
            json!({ "type": "sticker", "packageId": "446", "stickerId": "1988" }),
        ),
        (
            Message::image("https://example.com/o.jpg", "https://example.com/p.jpg"),
            json!({
                "type": "image",
                "originalContentUrl": "https://example.com/o.jpg",
                "previewImageUrl": "https://example.com/p.jpg",
            }),
        ),
        (
            Message::location("臺北車站", "臺北市中正區", 25.0478, 121.517),
            json!({
                "type": "location", "title": "臺北車站", "address": "臺北市中正區",
                "latitude": 25.0478, "longitude": 121.517,
            }),
        ),
        (Message::buttons("選單", card()), template(buttons)),
        (
            Message::confirm("選單", "確定?", yes(), yes()),
            template(json!({ "type": "confirm", "text": "確定?", "actions": [yes_json(), yes_json()] })),
        ),
        (
            Message::carousel("選單", [card(), card()]),
            template(json!({ "type": "carousel", "columns": [card_json.clone(), card_json] })),
        ),
        (
            Message::flex("選單", bubble.clone()),
            json!({ "type": "flex", "altText": "選單", "contents": bubble }),
        ),
        (
            Message::raw(json!({ "type": "coupon", "couponId": "1" })),
            json!({ "type": "coupon", "couponId": "1" }),
        ),
    ] {
        let message = message.unwrap();
        assert_eq!((json_of(&message), message.as_json()), (expected.clone(), &expected));
        let mut with_quick_reply = expected;
        with_quick_reply["quickReply"] = json!({ "items": [{ "type": "action", "action": yes_json() }] });
        assert_eq!(
            json_of(&message.quick_reply(yes())),
            with_quick_reply,
            "quick replies go with every type"
        );
    }
}

#[test]
fn every_action_has_the_shape_that_line_documents() {
    let picker =
        DateTimePicker::new(PickerMode::DateTime).initial("2026-01-31T09:30").min("2026-01-01T00:00");
    for (action, expected) in [
        (Action::message("a", "b"), json!({ "type": "message", "label": "a", "text": "b" })),
        (Action::location("a"), json!({ "type": "location", "label": "a" })),
        (Action::camera("a"), json!({ "type": "camera", "label": "a" })),
        (Action::camera_roll("a"), json!({ "type": "cameraRoll", "label": "a" })),
        (
            Action::uri("a", "tel:090-0000").unwrap(),
            json!({ "type": "uri", "label": "a", "uri": "tel:090-0000" }),
        ),
        (
            Action::postback("a", "b=1").unwrap(),
            json!({ "type": "postback", "label": "a", "data": "b=1", "displayText": "a" }),
        ),
        (
            Action::postback_silently("a", "b=1").unwrap(),
            json!({ "type": "postback", "label": "a", "data": "b=1" }),
        ),
        (
            Action::clipboard("a", "X-42").unwrap(),
            json!({ "type": "clipboard", "label": "a", "clipboardText": "X-42" }),
        ),
        (
            Action::date_time("a", "b=1", picker).unwrap(),
            json!({
                "type": "datetimepicker", "label": "a", "data": "b=1", "mode": "datetime",
                "initial": "2026-01-31T09:30", "min": "2026-01-01T00:00",
            }),
        ),
        (
            Action::date_time("a", "b=1", DateTimePicker::new(PickerMode::Time).max("23:59")).unwrap(),
            json!({ "type": "datetimepicker", "label": "a", "data": "b=1", "mode": "time", "max": "23:59" }),
        ),
    ] {
        assert_eq!(serde_json::to_value(&action).unwrap(), expected);
        let text = serde_json::to_string(&action).unwrap();
        assert_eq!(serde_json::from_str::<Action>(&text).unwrap(), action);
        assert_eq!(format!("{action:?}"), format!("Action({})", expected["type"].as_str().unwrap()));
    }
}

#[test]
fn a_raw_action_is_sent_as_it_is() {
    let json = json!({ "type": "postback", "label": "a", "data": "b", "inputOption": "openKeyboard", "fillInText": "c" });
    let action = Action::raw(json.clone()).unwrap();
    assert_eq!(serde_json::to_value(&action).unwrap(), json);
    let menu = Message::buttons("a", Card::new("b").button(action)).unwrap();
    assert_eq!(menu.as_json()["template"]["actions"], json!([json]));
    assert_eq!(Message::buttons("a", Card::new("b").button(Action::raw(json!({ "type": "camera" })))), None);
    assert_eq!(format!("{:?}", Action::raw(json!({ "type": "planted" })).unwrap()), "Action(raw)");
}

/// Answers are kept as text, and compared as text by the store.
#[test]
fn answers_that_earlier_versions_have_kept_stay_the_same_text() {
    for kept in [
        r#"[{"type":"text","text":"您好"}]"#,
        r#"[{"type":"text","text":"a","quickReply":{"items":[{"type":"action","action":{"type":"message","label":"信義區","text":"台北市信義區"}},{"type":"action","action":{"type":"location","label":"傳送位置"}},{"type":"action","action":{"type":"uri","label":"說明","uri":"https://example.com/?a=b"}},{"type":"action","action":{"type":"postback","label":"住家","data":"a=b","displayText":"住家"}}]}},{"type":"text","text":"二"}]"#,
    ] {
        let messages: Messages = serde_json::from_str(kept).unwrap();
        assert_eq!(serde_json::to_string(&messages).unwrap(), kept);
    }
    let built = Message::text("a")
        .quick_reply(Action::message("信義區", "台北市信義區"))
        .quick_reply(Action::location("傳送位置"))
        .quick_reply(Action::uri("說明", "https://example.com/?a=b"))
        .quick_reply(Action::postback("住家", "a=b"));
    let kept = r#"{"type":"text","text":"a","quickReply":{"items":[{"type":"action","action":{"type":"message","label":"信義區","text":"台北市信義區"}},{"type":"action","action":{"type":"location","label":"傳送位置"}},{"type":"action","action":{"type":"uri","label":"說明","uri":"https://example.com/?a=b"}},{"type":"action","action":{"type":"postback","label":"住家","data":"a=b","displayText":"住家"}}]}}"#;
    assert_eq!(serde_json::to_string(&built).unwrap(), kept);
    assert_eq!(serde_json::from_str::<Message>(kept).unwrap(), built);
}

/// LINE shows quick replies under the last message of a reply or push only.
#[test]
fn quick_replies_are_under_the_last_message() {
    let button = |name: &str| Action::message(name, "a");
    let with = |text: &str, names: &[&str]| {
        names.iter().fold(Message::text(text), |message, name| message.quick_reply(button(name)))
    };
    let labels = |messages: &Messages| -> Vec<Vec<String>> {
        let of = |message: &Message| {
            let items = message.as_json()["quickReply"]["items"].as_array().cloned().unwrap_or_default();
            items.iter().map(|item| item["action"]["label"].as_str().unwrap().to_owned()).collect()
        };
        messages.as_slice().iter().map(of).collect()
    };
    let none: [&str; 0] = [];
    let messages = Messages::from(with("一", &["a", "b"])).and(with("二", &[]));
    assert_eq!(labels(&messages), [&none[..], &["a", "b"]]);
    assert_eq!(messages.as_slice()[0], Message::text("一"), "as if it had never had any");
    let messages =
        messages.and(with("三", &["c"])).and(with("四", &["d"])).quick_reply(button("e")).quick_reply(None);
    assert_eq!(labels(&messages), [&none[..], &none, &none, &["a", "b", "c", "d", "e"]]);
    assert_eq!(labels(&Messages::try_from(messages.as_slice().to_vec()).unwrap()), labels(&messages));

    // What was under the last message is never displaced, and a sixth message takes nothing along.
    let many: Vec<String> = (0..limit::QUICK_REPLIES).map(|n| n.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let messages = Messages::from(with("一", &many)).and(with("二", &["a", "b"]));
    let expected: Vec<&str> = many[..11].iter().copied().chain(["a", "b"]).collect();
    assert_eq!(labels(&messages), [&none[..], &expected]);
    let five = (0..4).fold(Messages::from(with("一", &["a"])), |five, _| five.and(with("二", &[])));
    assert_eq!(labels(&five.clone().and(with("六", &["f"]))), labels(&five));

    // Raw messages are whatever they are.
    let odd = Message::raw(json!({ "type": "text", "text": "a", "quickReply": "odd" })).unwrap();
    let messages = Messages::from(odd.clone()).and(Message::text("b")).quick_reply(button("c"));
    assert_eq!((&messages.as_slice()[0], labels(&messages)), (&odd, vec![vec![], vec!["c".to_owned()]]));
}

#[test]
fn a_reply_has_one_to_five_messages() {
    let text = |n: usize| Message::text(n.to_string());
    for count in 0..8 {
        let messages: Vec<Message> = (0..count).map(text).collect();
        let kept = serde_json::to_string(&messages).unwrap();
        let is_possible = (1..=limit::MESSAGES).contains(&count);
        assert_eq!(serde_json::from_str::<Messages>(&kept).is_ok(), is_possible, "{count}");
        let built = Messages::try_from(messages.clone());
        assert_eq!(built.is_ok(), is_possible, "{count}");
        if let Ok(built) = built {
            assert_eq!(built.as_slice(), messages);
        }
    }
    let wrong = Messages::try_from(Vec::new()).unwrap_err();
    assert_eq!(wrong.to_string(), "a reply or push has one to five messages");
}

#[test]
fn json_that_is_no_message_is_not_read_as_one() {
    for wrong in ["5", "null", "\"text\"", "[]", "{}", r#"{"type":5}"#, r#"{"type":""}"#, r#"{"text":"a"}"#] {
        assert!(serde_json::from_str::<Message>(wrong).is_err(), "{wrong}");
        assert_eq!(Message::raw(serde_json::from_str(wrong).unwrap()), None, "{wrong}");
    }
    for wrong in ["5", "{}", "[]", r#"{"type":5}"#, r#"{"type":""}"#] {
        assert!(serde_json::from_str::<Action>(wrong).is_err(), "{wrong}");
        assert_eq!(Action::raw(serde_json::from_str(wrong).unwrap()), None, "{wrong}");
    }
    let deep = (0..limit::DEPTH).fold(json!(1), |inner, _| json!([inner]));
    assert_eq!(Action::raw(json!({ "type": "new", "deep": deep })), None);
}

#[test]
fn a_message_that_could_not_be_read_back_is_none() {
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    let message = |levels: usize| json!({ "type": "new", "deep": nested(levels) });
    assert_eq!(Message::raw(message(limit::DEPTH)), None);
    let deepest = Message::raw(message(limit::DEPTH - 1)).unwrap();
    let text = serde_json::to_string(&Messages::from(deepest.clone())).unwrap();
    assert_eq!(serde_json::from_str::<Messages>(&text).unwrap(), Messages::from(deepest));
    assert_eq!(Message::flex("a", json!({ "type": "bubble", "body": nested(200) })), None);
}

#[test]
fn what_cannot_be_cut_is_no_message() {
    let url = |length: usize| format!("https://example.com/{}", "x".repeat(length - 20));
    assert!(Message::image(url(limit::IMAGE_URL), url(limit::IMAGE_URL)).is_some());
    for wrong in [
        &*url(limit::IMAGE_URL + 1),
        "http://example.com/a.jpg",
        "https://",
        "https:///a",
        "https://圖/a",
        "https://a b",
        "",
        "ftp://a",
        "tel:1",
    ] {
        assert_eq!(Message::image(wrong, url(30)), None, "{wrong:.40}");
        assert_eq!(Message::image(url(30), wrong), None, "{wrong:.40}");
    }
    for wrong in ["", "a", "-1", "1.5", "１", "123456789012345678901"] {
        assert_eq!(Message::sticker(wrong, "1"), None, "{wrong}");
        assert_eq!(Message::sticker("1", wrong), None, "{wrong}");
    }
    for (latitude, longitude) in [(90.1, 0.0), (0.0, -180.1), (f64::NAN, 0.0), (0.0, f64::INFINITY)] {
        assert_eq!(Message::location("a", "b", latitude, longitude), None, "{latitude} {longitude}");
    }
    let bubble = |bytes: usize| json!({ "type": "bubble", "x": "x".repeat(bytes - r#"{"type":"bubble","x":""}"#.len()) });
    assert!(Message::flex("a", bubble(limit::FLEX_BUBBLE_BYTES)).is_some());
    let carousel = |bubbles: Vec<Value>| json!({ "type": "carousel", "contents": bubbles });
    assert!(Message::flex("a", carousel(vec![bubble(100); 12])).is_some());
    assert!(
        Message::flex("a", carousel(vec![json!({ "type": "bubble", "size": "mega" }), bubble(100)]))
            .is_some()
    );
    for wrong in [
        json!(null),
        json!({ "type": "box" }),
        bubble(limit::FLEX_BUBBLE_BYTES + 1),
        carousel(vec![]),
        carousel(vec![bubble(100); 13]),
        carousel(vec![bubble(26_000); 2]),
        carousel(vec![json!({ "type": "carousel", "contents": [] })]),
        carousel(vec![json!({ "type": "bubble" }), json!({ "type": "bubble", "size": "kilo" })]),
        json!({ "type": "carousel" }),
    ] {
        assert_eq!(Message::flex("a", wrong.clone()), None, "{:.80}", wrong.to_string());
    }
}

#[test]
fn a_template_has_the_buttons_that_line_requires() {
    assert_eq!(Message::buttons("a", buttons(0)), None);
    let count = |message: Message| message.as_json()["template"]["actions"].as_array().unwrap().len();
    assert_eq!(count(Message::buttons("a", buttons(9)).unwrap()), limit::BUTTONS);
    assert_eq!(Message::buttons("a", Card::new("a").button(None).button(Action::camera("a"))), None);
    assert_eq!(Message::confirm("a", "b", Action::message("a", "b"), None), None);
    assert_eq!(Message::confirm("a", "b", Action::location("a"), Action::message("a", "b")), None);

    assert_eq!(Message::carousel("a", []), None);
    let columns = |message: Message| message.as_json()["template"]["columns"].as_array().unwrap().len();
    assert_eq!(columns(Message::carousel("a", (0..12).map(|_| buttons(9))).unwrap()), limit::COLUMNS);
    for odd in [buttons(2), buttons(1).title("t"), buttons(1).image("https://a/b"), buttons(0)] {
        assert_eq!(Message::carousel("a", [buttons(1), odd]), None, "all columns have the same parts");
    }
    assert!(Message::carousel("a", [buttons(1).title(""), buttons(1).image("http://a/b")]).is_some());
}

#[test]
fn a_card_has_less_room_for_text_beside_a_title_or_an_image() {
    let long = |card: Card| {
        let card = card.button(Action::message("a", "b"));
        let buttons = Message::buttons("a", card.clone()).unwrap().as_json()["template"]["text"].clone();
        let column =
            Message::carousel("a", [card]).unwrap().as_json()["template"]["columns"][0]["text"].clone();
        [buttons, column].map(|text| text.as_str().unwrap().chars().count())
    };
    let card = || Card::new("長".repeat(500));
    assert_eq!(long(card()), [limit::BUTTONS_TEXT, limit::COLUMN_TEXT]);
    assert_eq!(long(card().title("t")), [limit::CARD_TEXT_WITH_TITLE; 2]);
    assert_eq!(long(card().image("https://a/b")), [limit::CARD_TEXT_WITH_TITLE; 2]);
    assert_eq!(format!("{:?}", card()), "Card(1500 bytes, 0 buttons)");
}

#[test]
fn a_picker_has_dates_that_exist_in_their_order() {
    let valid = |picker: DateTimePicker| Action::date_time("a", "b", picker).is_some();
    for (mode, good, bad) in [
        (
            PickerMode::Date,
            &["2026-01-31", "2024-02-29", "1900-01-01", "2100-12-31"][..],
            &[
                "2026-02-29",
                "2026-13-01",
                "2026-00-01",
                "2026-01-00",
                "1899-12-31",
                "2101-01-01",
                "2026-1-1",
                "2026-01-31T00:00",
                "+026-01-01",
                "",
            ][..],
        ),
        (PickerMode::Time, &["00:00", "23:59"], &["24:00", "9:30", "09:60", "09.30", "09:30:00"]),
        (
            PickerMode::DateTime,
            &["2026-01-31T09:30"],
            &["2026-01-31", "2026-01-31 09:30", "2026-01-31T24:00", "2026-02-30T09:30"],
        ),
    ] {
        for good in good {
            assert!(valid(DateTimePicker::new(mode).min(*good)), "{good}");
        }
        for bad in bad {
            assert!(!valid(DateTimePicker::new(mode).initial(*bad)), "{bad}");
        }
    }
    let time = || DateTimePicker::new(PickerMode::Time);
    assert!(valid(time().min("09:00").initial("09:00").max("10:00")));
    assert!(!valid(time().min("09:00").max("09:00")));
    assert!(!valid(time().min("10:00").max("09:00")));
    assert!(!valid(time().initial("08:00").min("09:00")));
    assert!(!valid(time().initial("11:00").max("10:00")));
    assert_eq!(Action::date_time("a", "", time()), None);
}

#[test]
fn only_text_messages_have_a_text() {
    assert_eq!(Message::text("a").as_text(), Some("a"));
    assert_eq!(
        Message::raw(json!({ "type": "text", "text": "a", "quoteToken": "q" })).unwrap().as_text(),
        Some("a")
    );
    assert_eq!(Message::raw(json!({ "type": "textV2", "text": "a" })).unwrap().as_text(), None);
    assert_eq!(Message::sticker("1", "2").unwrap().as_text(), None);
}

#[test]
fn no_debug_shows_what_is_in_a_message() {
    let action = || Action::message("planted", "planted");
    let messages = [
        Message::image("https://planted/", "https://planted/").unwrap(),
        Message::location("planted", "planted", 25.5, 121.5).unwrap(),
        Message::confirm("planted", "planted", action(), action()).unwrap(),
        Message::flex("planted", json!({ "type": "bubble", "planted": "planted" }))
            .unwrap()
            .quick_reply(action()),
        Message::raw(json!({ "type": "planted", "quickReply": "planted" })).unwrap().quick_reply(action()),
        Message::sticker("1", "2").unwrap(),
    ];
    let shown = format!("{messages:?} {messages:#?}");
    assert!(!shown.contains("planted") && !shown.contains("25.5"), "{shown}");
    let names = ["image, 0", "location, 0", "template, 0", "flex, 1", "raw, 0", "sticker, 0"];
    for (message, name) in messages.iter().zip(names) {
        assert_eq!(format!("{message:?}"), format!("Message({name} quick replies)"));
    }
}

#[test]
fn what_is_too_long_ends_in_an_ellipsis_at_a_whole_character() {
    let long = |text: &str, times: usize| Message::text(text.repeat(times)).as_text().unwrap().to_owned();
    assert_eq!(long("a", limit::TEXT), "a".repeat(limit::TEXT));
    assert_eq!(long("a", limit::TEXT + 1), "a".repeat(limit::TEXT - 1) + "…");
    assert_eq!(long("🌧", limit::TEXT / 2), "🌧".repeat(limit::TEXT / 2));
    // Two units each: one unit of room is left over before the ellipsis.
    assert_eq!(long("🌧", limit::TEXT / 2 + 1), "🌧".repeat(limit::TEXT / 2 - 1) + "…");
    assert_eq!(Message::text("").as_text(), Some("…"));
}

/// LINE refuses the whole reply for one address that is not percent-encoded.
#[test]
fn an_address_is_percent_encoded_or_none() {
    let uri =
        |uri: &str| Action::uri("a", uri).map(|action| serde_json::to_value(action).unwrap()["uri"].clone());
    for (given, sent) in [
        ("https://example.com", "https://example.com"),
        (
            "http://user@example.com:8080/a/../b?c=d&e=%E5%A4%A9#f",
            "http://user@example.com:8080/a/../b?c=d&e=%E5%A4%A9#f",
        ),
        (
            "https://example.com/天氣?q=臺北#é",
            "https://example.com/%E5%A4%A9%E6%B0%A3?q=%E8%87%BA%E5%8C%97#%C3%A9",
        ),
        ("https://example.com?天", "https://example.com?%E5%A4%A9"),
        ("https://example.com/-._~!$&'()*+,;=:@", "https://example.com/-._~!$&'()*+,;=:@"),
        ("line://msg/text/嗨", "line://msg/text/%E5%97%A8"),
        ("tel:+886-2-1234,5", "tel:+886-2-1234,5"),
        ("https://%E4%BE%8B.com", "https://%E4%BE%8B.com"),
    ] {
        assert_eq!(uri(given), Some(json!(sent)), "{given}");
    }
    for wrong in [
        "",
        "https",
        "https:",
        "https://",
        "https:///a",
        "https://?a",
        "https://#a",
        "https://:80/",
        "https://a:b/",
        "https://user@/",
        "https://例.com/",
        "https://user例@a/",
        "https://[::1]/",
        "https://a[1]",
        "tel:",
        "tel:天氣",
        "line://",
        "line:",
        "https://a b",
        "https://a/b c",
        " https://a",
        "https://a\n",
        "https://a/\u{7f}",
        "https://a/\"",
        "https://a/<b>",
        "https://a/\\",
        "https://a/^",
        "https://a/`",
        "https://a/{b}",
        "https://a/|",
        "https://a/%",
        "https://a/%4",
        "https://a/%4g",
        "https://a/%é",
        "https://a#b#c",
        "ftp://a",
        "javascript:alert(1)",
        "data:a",
        "//a",
        "/a",
        "a",
    ] {
        assert_eq!(uri(wrong), None, "{wrong:?}");
        assert_eq!(Message::image(wrong, "https://a/b"), None, "{wrong:?}");
    }
    // The limit is one of what is sent.
    let long = |characters: usize| format!("https://a/{}", "天".repeat(characters));
    assert_eq!(limit::URI, 10_000);
    assert!(uri(&long(1110)).is_some_and(|uri| uri.as_str().unwrap().len() == limit::URI));
    assert_eq!(uri(&(long(1110) + "a")), None);
    let image = Message::image(long(221), long(221)).unwrap();
    assert_eq!(image.as_json()["previewImageUrl"].as_str().unwrap().len(), limit::IMAGE_URL - 1);
    assert_eq!(Message::image(long(222), long(1)), None);
    let card = Card::new("a").image("https://a/圖").button(Action::message("a", "b"));
    let card = Message::buttons("a", card).unwrap();
    assert_eq!(card.as_json()["template"]["thumbnailImageUrl"], "https://a/%E5%9C%96");
}

#[test]
fn what_cannot_be_cut_is_no_action() {
    assert_eq!(Action::postback("a", "x".repeat(limit::DATA + 1)), None);
    assert_eq!(Action::postback("a", ""), None);
    assert_eq!(Action::postback_silently("a", ""), None);
    assert_eq!(Action::uri("a", "javascript:alert(1)"), None);
    assert_eq!(Action::uri("a", format!("https://{}", "x".repeat(limit::URI))), None);
    let bare = Message::text("a").quick_reply(None).quick_reply(Action::uri("a", "nonsense"));
    assert_eq!(serde_json::to_value(bare).unwrap(), json!({ "type": "text", "text": "a" }));
}

/// Texts around every limit, with characters of one, two and more units.
fn words() -> impl Strategy<Value = String> + Clone {
    let length = prop_oneof![
        0usize..30,
        38usize..43,
        58usize..63,
        98usize..103,
        118usize..123,
        158usize..163,
        238usize..243,
        290usize..310,
        990usize..1010,
        1490usize..1510,
        1970usize..2010,
        4990usize..5010,
    ];
    ("[a長🌧]|👨‍👩‍👧|é", length).prop_map(|(character, length)| character.repeat(length))
}

/// Paths around the limit of an image's address.
fn path() -> impl Strategy<Value = String> + Clone {
    prop_oneof![0usize..30, 1970usize..2010].prop_map(|length| "a".repeat(length))
}

fn any_action() -> impl Strategy<Value = Option<Action>> + Clone {
    let time = || (0..25, 0..61).prop_map(|(hour, minute)| format!("{hour:02}:{minute:02}"));
    let picker = (prop::option::of(time()), prop::option::of(time()), prop::option::of(time()));
    (0..8, words(), words(), picker).prop_map(|(kind, label, text, (initial, min, max))| match kind {
        0 => Some(Action::message(label, text)),
        1 => Some(Action::location(label)),
        2 => Action::uri(label, format!("https://example.com/{text}")),
        3 => Action::postback(label, text),
        4 => Some(Action::camera(label)),
        5 => Some(Action::camera_roll(label)),
        6 => Action::clipboard(label, text),
        _ => {
            let mut picker = DateTimePicker::new(PickerMode::Time);
            picker = initial.into_iter().fold(picker, DateTimePicker::initial);
            picker = min.into_iter().fold(picker, DateTimePicker::min);
            Action::date_time(label, "data", max.into_iter().fold(picker, DateTimePicker::max))
        }
    })
}

fn any_card() -> impl Strategy<Value = Card> {
    let parts = (words(), prop::option::of(words()), prop::option::of(path()), any_action());
    (parts, prop::collection::vec(any_action(), 0..6)).prop_map(|((text, title, image, on_tap), actions)| {
        let mut card = Card::new(text).on_tap(on_tap);
        card = title.into_iter().fold(card, Card::title);
        card = image.into_iter().fold(card, |card, path| card.image(format!("https://example.com/{path}")));
        actions.into_iter().fold(card, Card::button)
    })
}

/// Any message that can be built; what cannot be is a text.
fn any_message() -> impl Strategy<Value = Message> {
    let bubble =
        || words().prop_map(|text| json!({ "type": "bubble", "body": { "type": "text", "text": text } }));
    let cards = (any_card(), 1usize..12).prop_map(|(card, count)| vec![card; count]);
    let degrees = -181.0..181.0;
    let message = prop_oneof![
        words().prop_map(|text| Some(Message::text(text))),
        any::<(u64, u64)>().prop_map(|(a, b)| Message::sticker(a.to_string(), b.to_string())),
        (path(), path())
            .prop_map(|(a, b)| Message::image(format!("https://a/{a}"), format!("https://a/{b}"))),
        (words(), words(), degrees.clone(), degrees).prop_map(|(a, b, x, y)| Message::location(a, b, x, y)),
        (words(), any_card()).prop_map(|(alt, card)| Message::buttons(alt, card)),
        (words(), words(), any_action(), any_action())
            .prop_map(|(alt, text, a, b)| Message::confirm(alt, text, a, b)),
        (words(), cards).prop_map(|(alt, cards)| Message::carousel(alt, cards)),
        (words(), bubble()).prop_map(|(alt, bubble)| Message::flex(alt, bubble)),
        (words(), prop::collection::vec(bubble(), 1..14)).prop_map(|(alt, bubbles)| Message::flex(
            alt,
            json!({ "type": "carousel", "contents": bubbles })
        )),
    ];
    (message, prop::collection::vec(any_action(), 0..20)).prop_map(|(message, actions)| {
        let message = message.unwrap_or_else(|| Message::text("none"));
        actions.into_iter().fold(message, |message, action| message.quick_reply(action))
    })
}

/// Any reply that can be built.
fn any_messages() -> impl Strategy<Value = Messages> {
    prop::collection::vec(any_message(), 1..8).prop_map(|messages| {
        let mut messages = messages.into_iter();
        let first = Messages::from(messages.next().unwrap());
        messages.fold(first, Messages::and)
    })
}

/// Any object with a type, as a bot may write it that knows more than this crate.
fn any_raw() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<f32>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("type"),
        Just("text"),
        Just("label"),
        Just("quickReply"),
        Just("items"),
        Just("a"),
        Just(""),
    ]
    .prop_map(str::to_owned);
    let fields = leaf.prop_recursive(5, 60, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..8)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    (any::<String>(), prop::collection::btree_map(any::<String>(), fields, 0..5)).prop_map(
        |(kind, fields)| {
            let mut raw = Value::Object(fields.into_iter().collect());
            raw["type"] = format!("{kind}.").into();
            raw
        },
    )
}

proptest! {
    #[test]
    fn no_text_becomes_an_address_that_line_refuses(
        scheme in "(https|http|line|tel|ftp|):(//)?",
        rest in "([a-z0-9]|[ -~]|%[0-9a-gA-G]{2}|[/?#:@%]|é|天|🌧|\\PC){0,12}",
    ) {
        let (api, _) = start();
        let address = format!("{scheme}{rest}");
        let button = Action::uri("a", address.clone());
        let image = Message::image(address.clone(), address);
        let text = button.map(|action| Message::text("a").quick_reply(action));
        for message in image.into_iter().chain(text) {
            let body = json!({ "replyToken": message.as_json().to_string(), "messages": [message] });
            let request = http::Request::post("/v2/bot/message/reply")
                .header("authorization", format!("Bearer {TOKEN}"))
                .header("content-type", "application/json");
            let (status, answer) = api.answer(&request.body(body.to_string().into()).unwrap());
            prop_assert_eq!(status.as_u16(), 200, "{} for {}", answer, body);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn whatever_is_built_is_taken_and_read_back(messages in any_messages()) {
        let (_api, client) = start();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let reply = runtime.block_on(async { client.reply("token", &messages, soon()).await });
        prop_assert_eq!(reply.outcome, ReplyOutcome::Sent, "{}", serde_json::to_string(&messages).unwrap());
        let kept = serde_json::to_string(&messages).unwrap();
        let read: Messages = serde_json::from_str(&kept).unwrap();
        prop_assert_eq!(serde_json::to_string(&read).unwrap(), kept);
        prop_assert_eq!(read, messages);
    }

    #[test]
    fn whatever_is_raw_is_sent_as_it_is_and_read_back(raw in any_raw()) {
        let message = Message::raw(raw.clone()).unwrap();
        let kept = serde_json::to_string(&Messages::from(message.clone())).unwrap();
        prop_assert_eq!(serde_json::from_str::<Messages>(&kept).unwrap(), Messages::from(message.clone()));
        prop_assert_eq!(serde_json::to_value(&message).unwrap(), raw);
        let shown = format!("{message:?}");
        prop_assert!(shown.len() < 50);
    }
}
