//! LINE's own SDKs agree: on who signed a delivery, on how many events it has, and that our replies are replies.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use onetap_config::Secret;
use onetap_line::signature::{sign, verify};
use onetap_line::{Action, Message, Messages, Verdict, WebhookBody};
use serde_json::{Value, json};

const SECRET: &str = "8c570fa6dd201bb328f1c1eac23a96d8";

#[test]
#[ignore = "needs node and @line/bot-sdk"]
fn the_javascript_sdk_agrees() {
    assert!(tools().join("node_modules/@line/bot-sdk").is_dir(), "@line/bot-sdk not found: run scripts/test");
    agrees("node".into(), "sdk.mjs");
}

#[test]
#[ignore = "needs python and line-bot-sdk"]
fn the_python_sdk_agrees() {
    let python = tools().join("venv/bin/python");
    assert!(python.is_file(), "line-bot-sdk not found: run scripts/test");
    agrees(python, "sdk.py");
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
