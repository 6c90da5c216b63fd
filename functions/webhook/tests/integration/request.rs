//! What comes over HTTP: signatures, sizes, nonsense.

use crate::support;

use http::Request;
use lambda_http::Body;
use onetap_config::Secret;
use onetap_line::signature::sign;
use proptest::prelude::*;
use serde_json::{Value, json};
use support::*;

async fn post(bot: &Bot, body: &[u8], signature: Option<&str>) -> u16 {
    let mut request = Request::post("/line/webhook");
    if let Some(signature) = signature {
        request = request.header("x-line-signature", signature);
    }
    bot.webhook.handle(request.body(Body::Binary(body.to_vec())).unwrap()).await.status().as_u16()
}

#[tokio::test]
async fn only_lines_own_signature_is_taken() {
    let bot = Bot::new(memory());
    let body = json!({"events": [text(&user(), "永和")]}).to_string();
    let good = sign(&Secret::new(SECRET), body.as_bytes());
    let other = sign(&Secret::new("other"), body.as_bytes());
    let wrong = [None, Some(""), Some("AAAA"), Some("not base64!"), Some(other.as_str()), Some(&good[..43])];
    for signature in wrong {
        assert_eq!(post(&bot, body.as_bytes(), signature).await, 401, "{signature:?}");
    }
    assert_eq!(post(&bot, format!("{body} ").as_bytes(), Some(&good)).await, 401, "over the raw body");
    assert_eq!((bot.line.requests(), bot.weather.calls()), (0, 0));
    assert_eq!(post(&bot, body.as_bytes(), Some(&good)).await, 200);
    assert_eq!(bot.line.requests(), 1);
}

#[tokio::test]
async fn two_secrets_verify_while_one_is_rotated() {
    let bot = Bot::with(memory(), &[("LINE_CHANNEL_SECRET", "new-secret, planted-channel-secret")]);
    let body = br#"{"events":[]}"#;
    for secret in ["new-secret", SECRET] {
        assert_eq!(post(&bot, body, Some(&sign(&Secret::new(secret), body))).await, 200);
    }
    assert_eq!(post(&bot, body, Some(&sign(&Secret::new("old"), body))).await, 401);
}

#[tokio::test]
async fn a_body_of_any_kind_gets_the_documented_status() {
    let bot = Bot::new(memory());
    let signed = |body: &[u8]| sign(&Secret::new(SECRET), body);
    let large = vec![b' '; 2 << 20];
    let cases: [(&[u8], u16); 9] = [
        (br#"{"destination":"U0","events":[]}"#, 200),
        (b"{}", 200),
        (b"[]", 200),
        (br#"{"events":{}}"#, 200),
        (br#"{"events":[null,1,"x",[],{}]}"#, 200),
        (b"", 400),
        (b"{", 400),
        (b"\xff\xfe", 400),
        (&large, 413),
    ];
    for (body, status) in cases {
        assert_eq!(
            post(&bot, body, Some(&signed(body))).await,
            status,
            "{:?}",
            String::from_utf8_lossy(&body[..body.len().min(40)])
        );
    }
    assert_eq!(post(&bot, &large, None).await, 413);
    let get = Request::get("/line/webhook").body(Body::Empty).unwrap();
    let answer = bot.webhook.handle(get).await;
    assert_eq!((answer.status().as_u16(), answer.headers()["allow"].to_str().unwrap()), (405, "POST"));
}

#[tokio::test]
async fn what_cannot_be_handled_does_not_stop_its_neighbours() {
    let bot = Bot::new(memory());
    let events = [
        event("U1", json!({"type": "unsend", "unsend": {"messageId": "1"}})),
        event("U1", json!({"type": "message"})),
        event("U1", json!({"type": "message", "message": {"type": "sticker"}})),
        event("U1", json!({"type": "postback", "postback": {}})),
        event("U1", json!({"type": 7})),
        json!({"webhookEventId": "x"}),
        in_group(event(
            "U1",
            json!({"type": "postback", "postback": {"data": HOME}, "source": {"type": "group"}}),
        )),
        text(&user(), "永和"),
    ];
    assert_eq!(bot.deliver(&events).await, 200);
    let said = bot.said();
    assert!(said.iter().any(|text| text.starts_with("新北市永和區")), "{said:?}");
}

#[tokio::test]
async fn in_standby_nothing_is_sent() {
    let bot = Bot::new(memory());
    let mut event = text(&user(), "永和");
    event["mode"] = "standby".into();
    assert_eq!(bot.deliver(&[event]).await, 200);
    assert_eq!((bot.line.requests(), bot.weather.calls()), (0, 0));
}

#[tokio::test]
async fn long_and_colourful_texts_are_answered() {
    let bot = Bot::new(memory());
    for words in
        ["🙂".repeat(2500), "字".repeat(5000), "👩‍👩‍👧‍👦 120".to_owned(), "\u{0}\u{1}".to_owned(), " ".to_owned()]
    {
        assert_eq!(bot.deliver(&[text(&user(), &words)]).await, 200);
    }
    assert_eq!(bot.line.requests(), bot.said().len(), "LINE took every one of them");
}

fn any_json() -> impl Strategy<Value = Value> {
    let words = prop_oneof![
        Just("message".to_owned()),
        Just("postback".to_owned()),
        Just("text".to_owned()),
        Just("user".to_owned()),
        Just(HOME.to_owned()),
        Just("設定住家 永和".to_owned()),
        Just("午餐 120 現金".to_owned()),
        any::<String>(),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        words.prop_map(Value::from)
    ];
    let names = prop_oneof![
        Just("type"),
        Just("message"),
        Just("postback"),
        Just("data"),
        Just("text"),
        Just("source"),
        Just("userId"),
        Just("replyToken"),
        Just("webhookEventId"),
        Just("mode"),
        Just("latitude"),
        Just("longitude"),
        Just("events"),
    ];
    leaf.prop_recursive(4, 40, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::hash_map(names.clone().prop_map(str::to_owned), inner, 0..8)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Any signed body is answered, and never with a panic.
#[test]
fn no_body_makes_it_panic() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bot = Bot::new(memory());
    let config = ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(events in prop::collection::vec(any_json(), 0..4), bytes in prop::collection::vec(any::<u8>(), 0..60), header in ".{0,60}")| {
        let status = runtime.block_on(bot.deliver(&events));
        prop_assert!([200, 500].contains(&status));
        let status = runtime.block_on(deliver_body(&bot.webhook, bytes.clone()));
        prop_assert!([200, 400].contains(&status));
        let header: String = header.chars().filter(|c| c.is_ascii_graphic()).collect();
        prop_assert_eq!(runtime.block_on(post(&bot, &bytes, Some(&header))), 401);
    });
}
