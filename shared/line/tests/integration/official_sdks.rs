//! LINE's own SDKs agree: on who signed a delivery, on its events, on every message that is built here, and on every call.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use http::Method;
use onetap_config::Secret;
use onetap_line::signature::{sign, verify};
use onetap_line::testing::{MessagingApi, ReceivedRequest};
use onetap_line::webhook::{ContentProvider, IncomingMessage, Kind, Media};
use onetap_line::{
    Action, Card, DateTimePicker, Message, Messages, PickerMode, PushOutcome, RetryKey, Verdict, WebhookBody,
};
use serde_json::{Value, json};

use crate::support::{TOKEN, client, soon};

const SECRET: &str = "8c570fa6dd201bb328f1c1eac23a96d8";

#[test]
#[ignore = "needs node and @line/bot-sdk"]
fn the_javascript_sdk_agrees() {
    agrees(node(), "sdk.mjs");
}

#[test]
#[ignore = "needs python and line-bot-sdk"]
fn the_python_sdk_agrees() {
    agrees(python(), "sdk.py");
}

#[test]
#[ignore = "needs node and @line/bot-sdk"]
fn the_javascript_sdk_makes_the_same_calls() {
    makes_the_same_calls(&node(), "client.mjs");
}

#[test]
#[ignore = "needs python and line-bot-sdk"]
fn the_python_sdk_makes_the_same_calls_and_reads_every_message() {
    let theirs = makes_the_same_calls(&python(), "client.py");
    // Its models have every field that LINE documents and no other: one that it does not know would be lost.
    assert_eq!(theirs["models"], json!(messages()));
    assert_eq!(theirs["destination"], "U8e742f61d673");
    let body = WebhookBody::parse(incoming().as_bytes()).unwrap();
    assert_eq!(body.destination.as_deref(), Some("U8e742f61d673"));
    let provider = |media: &Media| match media.provider {
        ContentProvider::Line => "line",
        ContentProvider::External { .. } => "external",
        _ => "unknown",
    };
    let ours: Vec<Value> = body
        .events
        .iter()
        .map(|event| match &event.kind {
            Kind::Message(IncomingMessage::Image(media)) => json!(["image", media.id, provider(media)]),
            Kind::Message(IncomingMessage::Video(media)) => json!(["video", media.id, provider(media)]),
            Kind::Message(IncomingMessage::Audio(media)) => json!(["audio", media.id, provider(media)]),
            Kind::Message(IncomingMessage::File { id, .. }) => json!(["file", id, null]),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(theirs["incoming"], json!(ours));
}

fn node() -> PathBuf {
    assert!(tools().join("node_modules/@line/bot-sdk").is_dir(), "@line/bot-sdk not found: run scripts/test");
    "node".into()
}

fn python() -> PathBuf {
    let python = tools().join("venv/bin/python");
    assert!(python.is_file(), "line-bot-sdk not found: run scripts/test");
    python
}

/// Lets an SDK and our client call a Messaging API each, which must receive the same requests and give the same answers.
/// Returns what the SDK made of them.
fn makes_the_same_calls(program: &Path, script: &str) -> Value {
    const USER: &str = "U4af4980629000000000000000000000a";
    const MESSAGE: &str = "325708";
    let start = || {
        let api = MessagingApi::start(Secret::new(TOKEN)).unwrap();
        api.put_content(MESSAGE, "image/png", (0..=255).cycle().take(70_000).collect::<Vec<u8>>());
        api.put_profile(
            USER,
            json!({ "displayName": "小明🌧️", "language": "zh-TW", "pictureUrl": "https://example.com/p" }),
        );
        api.set_quota(Some(500));
        api
    };
    // Each with at most five messages.
    let pushes: Vec<(Messages, RetryKey)> = messages()
        .chunks(5)
        .enumerate()
        .map(|(n, chunk)| {
            let first = Messages::from(chunk[0].clone());
            let messages = chunk[1..].iter().cloned().fold(first, Messages::and);
            (messages, RetryKey::named(n.to_string()))
        })
        .collect();

    let theirs = start();
    let push = |(messages, key): &(Messages, RetryKey)| json!({ "to": USER, "messages": messages, "retryKey": key.uuid_for(USER) });
    let body = incoming();
    let cases = json!({
        "url": theirs.url(), "token": TOKEN, "userId": USER, "messageId": MESSAGE, "seconds": 20,
        "messages": messages(), "pushes": pushes.iter().map(push).collect::<Vec<_>>(),
        "secret": SECRET, "body": body, "signature": sign(&Secret::new(SECRET), body.as_bytes()),
    });
    let answer: Value = serde_json::from_slice(&run(program, script, &cases)).unwrap();

    let ours = start();
    let client = client(&ours.url(), TOKEN);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for (messages, key) in &pushes {
            assert_eq!(client.push(USER, messages, key, soon()).await.outcome, PushOutcome::Sent);
        }
        let (messages, key) = pushes.last().unwrap();
        let again = client.push(USER, messages, key, soon()).await;
        assert_eq!(again.outcome, PushOutcome::AlreadyAccepted);
        assert_eq!(answer["again"], json!([409, again.accepted_request_id]), "{script}");
        client.start_loading(USER, 20, soon()).await.unwrap();
        let content = client.content(MESSAGE, 70_000, soon()).await.unwrap();
        let hex: String = content.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(answer["content"], json!([hex, content.content_type]), "{script}");
        let quota = client.quota(soon()).await.unwrap();
        assert_eq!(answer["quota"], json!(["limited", quota.limit, quota.used]), "{script}");
        let profile = client.profile(USER, soon()).await.unwrap();
        let profile =
            [Some(profile.display_name), profile.language, profile.picture_url, profile.status_message];
        assert_eq!(answer["profile"], json!(profile), "{script}");
        let bot = client.bot_info(soon()).await.unwrap();
        assert_eq!(answer["bot"], json!([bot.user_id, bot.basic_id, bot.display_name]), "{script}");
    });
    let requests = |api: &MessagingApi| api.received().iter().map(shape).collect::<Vec<_>>();
    assert_eq!(requests(&ours), requests(&theirs), "{script}");
    assert!(ours.pushes() == theirs.pushes() && ours.loadings() == theirs.loadings(), "{script}");
    answer
}

/// What of a request LINE looks at.
fn shape(request: &ReceivedRequest) -> Value {
    let header = |name: &str| request.headers.get(name).map(|value| value.to_str().unwrap());
    let mut body = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
    if body["notificationDisabled"] == false {
        // LINE's default, which the SDK for Python writes.
        body.as_object_mut().unwrap().remove("notificationDisabled");
    }
    let media = header("content-type").filter(|_| request.method == Method::POST);
    json!({
        "request": format!("{} {}", request.method, request.uri),
        "authorization": header("authorization"),
        "media": media.map(|media| media.split(';').next()),
        "retry key": header("x-line-retry-key"),
        "body": body,
    })
}

/// Every message and action that can be built.
fn messages() -> Vec<Message> {
    let picker = |mode| DateTimePicker::new(mode);
    let actions = || {
        [
            Some(Action::message("信義區", "台北市信義區")),
            Action::uri("說明", "https://example.com/?a=b"),
            Action::postback("住家", "action=weather&type=home"),
            Action::clipboard("複製", "X-42"),
            Action::date_time("日", "a=1", picker(PickerMode::Date).initial("2026-01-31").max("2026-12-31")),
            Action::date_time("時", "a=2", picker(PickerMode::Time).min("09:00")),
            Action::date_time("日時", "a=3", picker(PickerMode::DateTime)),
            Some(Action::location("傳送位置")),
            Some(Action::camera("相機")),
            Some(Action::camera_roll("相簿")),
        ]
        .map(Option::unwrap)
    };
    let card = |text: &str| {
        let card = Card::new(text.repeat(300)).title("標題").image("https://example.com/i.jpg");
        actions().into_iter().fold(card.on_tap(Action::uri("看", "tel:0900")), Card::button)
    };
    let bubble = json!({
        "type": "bubble",
        "body": {
            "type": "box", "layout": "vertical",
            "contents": [{ "type": "text", "text": "您好", "weight": "bold" }],
        },
    });
    let area = json!({ "x": 0, "y": 1, "width": 2, "height": 3 });
    let [yes, no, ..] = actions();
    let messages = [
        Some(Message::text("長🌧️".repeat(3000))),
        Message::sticker("446", "1988"),
        Message::image("https://example.com/o.jpg", "https://example.com/p.jpg"),
        Message::location("臺北車站", "臺北市中正區", 25.0478, 121.517),
        Message::buttons("選單", card("文")),
        Message::buttons("選單", actions().into_iter().fold(Card::new("文字"), Card::button)),
        Message::confirm("選單", "確定?", yes, no),
        Message::carousel("選單", [card("一"), card("二")]),
        Message::flex("選單", bubble.clone()),
        Message::flex("選單", json!({ "type": "carousel", "contents": [bubble.clone(), bubble] })),
        Message::raw(json!({
            "type": "textV2", "text": "{you} {smile} {{}}",
            "substitution": {
                "you": { "type": "mention", "mentionee": { "type": "user", "userId": "U49585cd0d5" } },
                "smile": { "type": "emoji", "productId": "5a8555cfe6256cc92ea23c2a", "emojiId": "002" },
            },
        })),
        Message::raw(
            json!({ "type": "coupon", "couponId": "01JYNW8JMQVFBNWF1APF8Z3FS7", "deliveryTag": "a" }),
        ),
        Message::raw(json!({
            "type": "imagemap", "baseUrl": "https://example.com/a", "altText": "選單",
            "baseSize": { "width": 1040, "height": 1040 },
            "video": {
                "originalContentUrl": "https://example.com/v.mp4", "previewImageUrl": "https://example.com/p.jpg",
                "area": area, "externalLink": { "linkUri": "https://example.com/", "label": "More" },
            },
            "actions": [
                { "type": "uri", "linkUri": "https://example.com/", "area": area },
                { "type": "message", "label": "a", "text": "b", "area": area },
                { "type": "clipboard", "clipboardText": "b", "area": area },
            ],
        })),
        Message::raw(json!({
            "type": "text", "text": "$", "emojis": [{ "index": 0, "productId": "5a", "emojiId": "001" }],
            "sender": { "name": "Cony", "iconUrl": "https://example.com/i.png" },
        })),
    ];
    let with_quick_replies = |message: Message| actions().into_iter().fold(message, Message::quick_reply);
    let messages = messages.map(Option::unwrap);
    messages.clone().into_iter().chain(messages.map(with_quick_replies)).collect()
}

/// A delivery of what users send that is no text.
fn incoming() -> String {
    let line = json!({ "type": "line" });
    let external =
        json!({ "type": "external", "originalContentUrl": "https://a/b", "previewImageUrl": "https://a/c" });
    let events: Vec<Value> = [
        json!({ "type": "image", "id": "1", "quoteToken": "q", "contentProvider": line }),
        json!({ "type": "image", "id": "2", "quoteToken": "q", "contentProvider": external }),
        json!({ "type": "video", "id": "3", "quoteToken": "q", "duration": 60_000, "contentProvider": line }),
        json!({ "type": "audio", "id": "4", "duration": 60_000, "contentProvider": line }),
        json!({ "type": "file", "id": "5", "fileName": "a.pdf", "fileSize": 2138 }),
    ]
    .map(|message| {
        json!({
            "type": "message", "webhookEventId": "01FZ74A0TDDPYRVKNK77XKC3ZR", "timestamp": 1_692_251_666_727_i64,
            "deliveryContext": { "isRedelivery": false }, "mode": "active", "replyToken": "t",
            "source": { "type": "user", "userId": "U4af4980629" }, "message": message,
        })
    })
    .to_vec();
    json!({ "destination": "U8e742f61d673", "events": events }).to_string()
}

fn agrees(program: PathBuf, script: &str) {
    let deliveries = deliveries();
    let ours: Vec<Option<usize>> = deliveries
        .iter()
        .map(|(body, signature)| match verify(&[Secret::new(SECRET)], body.as_bytes(), Some(signature)) {
            Verdict::Genuine => Some(WebhookBody::parse(body.as_bytes()).unwrap().events.len()),
            Verdict::Missing | Verdict::Wrong => None,
        })
        .collect();
    assert!(ours.contains(&None) && ours.contains(&Some(0)) && ours.contains(&Some(3)), "{ours:?}");

    let deliveries: Vec<Value> =
        deliveries.iter().map(|(body, signature)| json!({ "body": body, "signature": signature })).collect();
    let cases = json!({ "secret": SECRET, "deliveries": deliveries, "replies": replies() });
    let theirs: Vec<Option<usize>> = serde_json::from_slice(&run(&program, script, &cases)).unwrap();
    assert_eq!(ours, theirs, "{script}");
}

/// Bodies and signatures, good ones and bad.
fn deliveries() -> Vec<(String, String)> {
    let event = |more: Value| {
        let mut event = json!({
            "type": "message", "webhookEventId": "01FZ74A0TDDPYRVKNK77XKC3ZR", "timestamp": 1_692_251_666_727_i64,
            "deliveryContext": { "isRedelivery": false }, "mode": "active", "replyToken": "t",
            "source": { "type": "group", "groupId": "C4af4980629", "userId": "U4af4980629" },
            "message": { "id": "4", "type": "text", "quoteToken": "q", "text": "天氣🌧️" },
        });
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event
    };
    let location =
        json!({ "id": "5", "type": "location", "latitude": 25.03, "longitude": 121.56, "address": "台北市" });
    let postback = json!({ "data": "action=weather&type=home" });
    let kinds = [
        json!([]),
        json!([event(json!({}))]),
        json!([
            event(json!({ "message": location })),
            event(
                json!({ "type": "postback", "postback": postback, "source": { "type": "room", "roomId": "R1" } })
            ),
            event(json!({ "type": "somethingNew", "mode": "standby" })),
        ]),
    ];
    let bodies = kinds.map(|events| json!({ "destination": "U8e742f61d673", "events": events }).to_string());
    let secret = Secret::new(SECRET);
    let mut deliveries = Vec::new();
    for body in bodies {
        let good = sign(&secret, body.as_bytes());
        let pretty = format!("{body}\n");
        deliveries.push((pretty.clone(), sign(&secret, pretty.as_bytes())));
        deliveries.push((pretty, good.clone()));
        deliveries.push((body.clone(), sign(&Secret::new("another"), body.as_bytes())));
        deliveries
            .extend(["", "AAAA", "no base64!", &good[4..]].map(|wrong| (body.clone(), wrong.to_owned())));
        deliveries.push((body, good));
    }
    deliveries
}

fn replies() -> Vec<Value> {
    let menu = Message::text("請選擇")
        .quick_reply(Action::message("信義區", "台北市信義區"))
        .quick_reply(Action::location("傳送位置"))
        .quick_reply(Action::uri("說明", "https://example.com"))
        .quick_reply(Action::postback("住家", "action=weather&type=home"));
    let five =
        (0..8).fold(Messages::from(menu), |messages, _| messages.and(Message::text("長".repeat(6000))));
    [five, Messages::from(Message::text(""))].map(|m| json!({ "replyToken": "t", "messages": m })).to_vec()
}

fn run(program: &Path, script: &str, cases: &Value) -> Vec<u8> {
    let mut child = Command::new(program)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(script))
        .env("ONETAP_TOOLS", tools())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{} cannot be started: {error}", program.display()));
    child.stdin.take().unwrap().write_all(cases.to_string().as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{script} failed");
    done.stdout
}

/// Where `scripts/test` installs what is not in Debian.
fn tools() -> PathBuf {
    std::env::var_os("ONETAP_TOOLS").expect("ONETAP_TOOLS, which .cargo/config.toml sets").into()
}
