//! Replies, against a Messaging API that knows LINE's rules.

use std::time::Duration;

use onetap_config::{Secret, Variables};
use onetap_line::testing::Fault;
use onetap_line::{Action, Config, Message, Messages, ReplyOutcome, RetryKey};
use serde_json::json;
use tokio::time::Instant;

use crate::support::{client, config, hello, soon, start};

#[tokio::test]
async fn a_reply_is_sent_as_line_wants_it() {
    let (api, client) = start();
    let menu = Message::text("請選擇")
        .quick_reply(Action::message("臺北市信義區", "台北市信義區"))
        .quick_reply(Action::location("傳送位置"))
        .quick_reply(Action::uri("說明", "https://example.com/?a=b"))
        .quick_reply(Action::postback("住家", "action=weather&type=home"));
    let reply = client.reply("token", &Messages::from(Message::text("一")).and(menu), soon()).await;
    assert_eq!(reply.outcome, ReplyOutcome::Sent);
    assert_eq!(reply.request_id.as_deref(), Some("00000000-0000-4000-8000-000000000001"));
    let taken = api.replies();
    assert_eq!((taken.len(), taken[0].reply_token.as_str(), taken[0].text()), (1, "token", "一"));
    let action = |action| json!({ "type": "action", "action": action });
    assert_eq!(
        taken[0].messages,
        [
            json!({ "type": "text", "text": "一" }),
            json!({
                "type": "text",
                "text": "請選擇",
                "quickReply": { "items": [
                    action(json!({ "type": "message", "label": "臺北市信義區", "text": "台北市信義區" })),
                    action(json!({ "type": "location", "label": "傳送位置" })),
                    action(json!({ "type": "uri", "label": "說明", "uri": "https://example.com/?a=b" })),
                    action(json!({
                        "type": "postback", "label": "住家", "data": "action=weather&type=home", "displayText": "住家",
                    })),
                ] },
            }),
        ]
    );
}

#[tokio::test]
async fn a_token_is_good_for_one_reply() {
    let (api, client) = start();
    assert_eq!(client.reply("a", &hello(), soon()).await.outcome, ReplyOutcome::Sent);
    assert_eq!(client.reply("a", &hello(), soon()).await.outcome, ReplyOutcome::InvalidToken);
    api.issue("b");
    assert_eq!(client.reply("c", &hello(), soon()).await.outcome, ReplyOutcome::InvalidToken);
    assert_eq!(client.reply("b", &hello(), soon()).await.outcome, ReplyOutcome::Sent);
    assert_eq!(api.take_replies().len(), 2);
    assert!(api.replies().is_empty());
    assert_eq!(api.requests(), 4);
}

#[tokio::test]
async fn twenty_replies_at_once_with_one_token_are_one() {
    let (api, client) = start();
    let client = std::sync::Arc::new(client);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let client = client.clone();
        tasks.spawn(async move { client.reply("t", &hello(), soon()).await.outcome });
    }
    let outcomes = tasks.join_all().await;
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == ReplyOutcome::Sent).count(), 1);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == ReplyOutcome::InvalidToken).count(), 19);
    assert_eq!(api.replies().len(), 1);
}

#[tokio::test]
async fn every_refusal_is_told_apart() {
    let (api, client) = start();
    let message = |text: &str| json!({ "message": text }).to_string();
    for (status, body, outcome, maybe_sent) in [
        (200, "{}".to_owned(), ReplyOutcome::Sent, true),
        (400, message("Invalid reply token"), ReplyOutcome::InvalidToken, false),
        (400, message("The request body has 1 error(s)"), ReplyOutcome::BadRequest, false),
        (400, "<html>".to_owned(), ReplyOutcome::BadRequest, false),
        (404, message("Not found"), ReplyOutcome::BadRequest, false),
        (302, String::new(), ReplyOutcome::BadRequest, false),
        (401, message("Invalid reply token"), ReplyOutcome::Unauthorized, false),
        (403, String::new(), ReplyOutcome::Forbidden, false),
        (429, message("The API rate limit has been exceeded"), ReplyOutcome::RateLimited, false),
        (500, String::new(), ReplyOutcome::ServerError, true),
        (503, "<html>".to_owned(), ReplyOutcome::ServerError, true),
    ] {
        api.fail_next(Fault::Status(status, body.clone()));
        let reply = client.reply("token", &hello(), soon()).await;
        assert_eq!((reply.outcome, reply.outcome.maybe_sent()), (outcome, maybe_sent), "{status} {body}");
        assert_eq!(reply.outcome.is_sent(), status == 200);
        assert_eq!(reply.outcome.is_transient(), status == 429 || status >= 500, "{status}");
        assert!(reply.request_id.is_some());
    }
    assert!(api.replies().is_empty(), "what failed used no token");
}

#[tokio::test]
async fn a_refusal_says_which_properties_are_wrong() {
    let (api, client) = start();
    let picture = Message::raw(json!({ "type": "image", "originalContentUrl": "a" })).unwrap();
    let messages = hello().and(Message::raw(json!({ "type": "planet" })).unwrap()).and(picture);
    let wrong = ["messages[1].type", "messages[2].originalContentUrl", "messages[2].previewImageUrl"];
    let reply = client.reply("token", &messages, soon()).await;
    assert_eq!(
        (reply.outcome, &reply.properties[..]),
        (ReplyOutcome::BadRequest, &wrong.map(str::to_owned)[..])
    );
    let push = client.push("U1", &messages, &RetryKey::named("a"), soon()).await;
    assert_eq!(push.properties, wrong);
    assert!(client.reply("token", &hello(), soon()).await.properties.is_empty());

    // They are for a log: whatever else is in them stays out.
    let property = |property: &str| json!({ "property": property, "message": "planted" });
    let long = "a".repeat(101);
    let odd = ["a b", "名", "", "a\n", "a=1", "\"", &long].map(property);
    let many: Vec<_> = (0..9).map(|n| property(&format!("messages[{n}].a_b/c"))).collect();
    for (status, details, expected) in [
        (400, json!([property("a"), {}, { "message": "m" }, property("b")]), &["a", "b"][..]),
        (400, json!(odd), &[]),
        (
            400,
            json!(many),
            &[
                "messages[0].a_b/c",
                "messages[1].a_b/c",
                "messages[2].a_b/c",
                "messages[3].a_b/c",
                "messages[4].a_b/c",
            ],
        ),
        (400, json!("planted"), &[]),
        (400, json!([5]), &[]),
        (500, json!([property("a")]), &[]),
    ] {
        let body = json!({ "message": "The request body has 1 error(s)", "details": details }).to_string();
        api.fail_next(Fault::Status(status, body.clone()));
        assert_eq!(client.reply("token", &hello(), soon()).await.properties, expected, "{status} {body}");
    }
    // An odd detail hides nothing else of the refusal.
    let body = json!({ "message": "Invalid reply token", "details": 5 }).to_string();
    api.fail_next(Fault::Status(400, body));
    assert_eq!(client.reply("token", &hello(), soon()).await.outcome, ReplyOutcome::InvalidToken);
}

#[tokio::test]
async fn a_wrong_access_token_is_unauthorized_and_uses_no_reply_token() {
    let (api, right) = start();
    let wrong = client(&api.url(), "stale");
    assert_eq!(wrong.reply("t", &hello(), soon()).await.outcome, ReplyOutcome::Unauthorized);
    assert_eq!(right.reply("t", &hello(), soon()).await.outcome, ReplyOutcome::Sent);
}

#[tokio::test]
async fn what_may_have_arrived_is_not_sent_again() {
    let (api, client) = start();
    let unknown = ReplyOutcome::Unreachable { maybe_sent: true };
    // Over a connection that has served before: there a pool is tempted to try again.
    assert_eq!(client.reply("0", &hello(), soon()).await.outcome, ReplyOutcome::Sent);
    for (n, fault) in [Fault::DropAnswer, Fault::Close].into_iter().enumerate() {
        api.fail_next(fault.clone());
        let before = api.requests();
        let reply = client.reply(&format!("t{n}"), &hello(), soon()).await;
        assert_eq!((reply.outcome, reply.request_id), (unknown, None), "{fault:?}");
        assert!(unknown.is_transient() && !unknown.is_sent());
        assert_eq!(api.requests() - before, 1, "{fault:?}");
    }
    let tokens: Vec<String> = api.replies().into_iter().map(|reply| reply.reply_token).collect();
    assert_eq!(tokens, ["0", "t0"]);
}

#[tokio::test]
async fn a_reply_without_an_answer_in_time_may_have_been_taken_and_is_not_sent_again() {
    let (api, client) = start();
    let client = std::sync::Arc::new(client);
    // Its thread takes the reply, and then answers nothing until the test has seen what the client makes of that.
    let (answer, held) = std::sync::mpsc::channel::<()>();
    let (take, mut taken) = tokio::sync::mpsc::unbounded_channel();
    let held = std::sync::Mutex::new(held);
    api.observe(move |reply| {
        take.send(reply.reply_token.clone()).unwrap();
        let _ = held.lock().unwrap().recv();
    });
    let deadline = Instant::now() + Duration::from_secs(3600);
    let reply = tokio::spawn({
        let client = client.clone();
        async move { client.reply("late", &hello(), deadline).await }
    });
    assert_eq!(taken.recv().await.as_deref(), Some("late"));
    // The time passes at once.
    tokio::time::pause();
    assert_eq!(reply.await.unwrap().outcome, ReplyOutcome::Unreachable { maybe_sent: true });
    let late = deadline.elapsed();
    assert!(late < Duration::from_millis(10), "{late:?} after the deadline");
    drop(answer);
    tokio::time::resume();
    // Whatever had been sent again would have come before the next one.
    assert_eq!(client.reply("next", &hello(), soon()).await.outcome, ReplyOutcome::Sent);
    let tokens: Vec<String> = api.replies().into_iter().map(|reply| reply.reply_token).collect();
    assert_eq!((tokens, api.requests()), (vec!["late".to_owned(), "next".to_owned()], 2));
}

#[tokio::test]
async fn where_nobody_listens_nothing_was_sent() {
    let (api, client) = start();
    drop(api);
    let outcome = client.reply("t", &hello(), soon()).await.outcome;
    assert_eq!(outcome, ReplyOutcome::Unreachable { maybe_sent: false });
    assert!(!outcome.maybe_sent());
}

#[tokio::test]
async fn a_standing_fault_lasts_until_it_is_taken_away() {
    let (api, client) = start();
    api.fail_always(Some(Fault::Status(500, String::new())));
    for _ in 0..3 {
        assert_eq!(client.reply("t", &hello(), soon()).await.outcome, ReplyOutcome::ServerError);
    }
    api.fail_always(None);
    assert_eq!(client.reply("t", &hello(), soon()).await.outcome, ReplyOutcome::Sent);
}

#[tokio::test]
async fn the_messaging_api_refuses_what_line_refuses() {
    let (api, _) = start();
    let http = onetap_http::Client::new();
    let post = async |path: &str, media: &str, body: String| {
        let request = http::Request::post(format!("{}{path}", api.url()))
            .header("authorization", "Bearer planted-access-token")
            .header("content-type", media)
            .body(bytes::Bytes::from(body));
        http.send(request.unwrap(), soon(), 1 << 20).await.unwrap().status().as_u16()
    };
    let reply = |messages: serde_json::Value| json!({ "replyToken": "t", "messages": messages }).to_string();
    let text = |text: &str| json!({ "type": "text", "text": text });
    let quick = |action: serde_json::Value, count: usize| {
        let item = json!({ "type": "action", "action": action });
        reply(json!([{ "type": "text", "text": "a", "quickReply": { "items": vec![item; count] } }]))
    };
    let location = || json!({ "type": "location", "label": "here" });
    for body in [
        "{".to_owned(),
        "[]".to_owned(),
        "{}".to_owned(),
        json!({ "replyToken": "", "messages": [text("a")] }).to_string(),
        json!({ "replyToken": "t", "messages": [text("a")], "extra": 1 }).to_string(),
        json!({ "replyToken": "t", "messages": [text("a")], "notificationDisabled": "no" }).to_string(),
        reply(json!([])),
        reply(json!(vec![text("a"); 6])),
        reply(json!([text("")])),
        reply(json!([text(&"a".repeat(5001))])),
        reply(json!([text(&"🌧".repeat(2501))])),
        reply(json!([{ "type": "text", "text": 5 }])),
        reply(json!([{ "type": "sticker", "packageId": "1" }])),
        reply(json!(["a"])),
        reply(json!([{ "type": "text", "text": "a", "quickReply": {} }])),
        quick(location(), 0),
        quick(location(), 14),
        quick(json!({ "type": "location", "label": "x".repeat(21) }), 1),
        quick(json!({ "type": "location" }), 1),
        quick(json!({ "type": "location", "label": "a", "text": "b" }), 1),
        quick(json!({ "type": "message", "label": "a" }), 1),
        quick(json!({ "type": "message", "label": "a", "text": "b".repeat(301) }), 1),
        quick(json!({ "type": "uri", "label": "a", "uri": "javascript:1" }), 1),
        quick(json!({ "type": "uri", "label": "a", "uri": format!("https://{}", "b".repeat(9_993)) }), 1),
        quick(json!({ "type": "uri", "label": "a", "uri": "https://example.com/天氣" }), 1),
        quick(json!({ "type": "uri", "label": "a", "uri": "https://" }), 1),
        quick(json!({ "type": "uri", "label": "a", "uri": "tel:" }), 1),
        quick(json!({ "type": "uri", "label": "a", "uri": "https://a b" }), 1),
        quick(json!({ "type": "uri", "label": "a", "uri": "https://a/%zz" }), 1),
        quick(
            json!({ "type": "uri", "label": "a", "uri": "https://a", "altUri": { "desktop": "https://a b" } }),
            1,
        ),
        quick(json!({ "type": "clipboard", "label": "a", "clipboardText": "b".repeat(1001) }), 1),
        quick(json!({ "type": "postback", "label": "a", "data": "" }), 1),
        quick(json!({ "type": "postback", "label": "a", "data": "b".repeat(301) }), 1),
        quick(json!({ "type": "richmenuswitch", "label": "a" }), 1),
    ] {
        assert_eq!(post("/v2/bot/message/reply", "application/json", body.clone()).await, 400, "{body:.120}");
    }
    let good = quick(location(), 13);
    assert_eq!(post("/v2/bot/message/multicast", "application/json", good.clone()).await, 404);
    assert_eq!(post("/v2/bot/message/push", "application/json", good.clone()).await, 400);
    assert_eq!(post("/v2/bot/info", "application/json", good.clone()).await, 405);
    assert_eq!(post("/v2/bot/message/reply", "text/plain", good.clone()).await, 415);
    assert_eq!(post("/v2/bot/message/reply", "application/json; charset=utf-8", good).await, 200);
}

#[test]
fn no_debug_shows_a_word_or_a_token() {
    let (api, client) = start();
    let message = Message::text("planted").quick_reply(Action::message("planted", "planted"));
    let config = Config { secrets: vec![Secret::new("planted")], ..config(&api.url(), "planted") };
    let shown = format!(
        "{message:?} {:?} {client:?} {config:?} {api:?}",
        Action::postback("planted", "planted").unwrap()
    );
    assert!(!shown.contains("planted"), "{shown}");
    assert!(shown.contains("Message(7 bytes, 1 quick replies)"), "{shown}");
}

#[test]
fn the_configuration_names_the_variable_that_is_wrong() {
    let read = |pairs: &[(&str, &str)]| {
        let lookup =
            |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Config::from_variables(&Variables::from_lookup(lookup)).map_err(|error| error.variable().to_owned())
    };
    let (secret, token) = (("LINE_CHANNEL_SECRET", "new, old,"), ("LINE_CHANNEL_ACCESS_TOKEN", "t/k+="));
    let expected = Config {
        secrets: vec![Secret::new("new"), Secret::new("old")],
        token: Secret::new("t/k+="),
        base_url: "https://api.line.me".to_owned(),
        data_base_url: "https://api-data.line.me".to_owned(),
    };
    assert_eq!(read(&[secret, token]), Ok(expected.clone()));
    let (url, data_url) = ("http://127.0.0.1:9/line".to_owned(), "http://127.0.0.1:9/data".to_owned());
    let (api, data) =
        (("LINE_API_BASE_URL", "http://127.0.0.1:9/line/"), ("LINE_DATA_API_BASE_URL", &*data_url));
    let local = Config { base_url: url.clone(), data_base_url: url, ..expected.clone() };
    assert_eq!(read(&[secret, token, api]), Ok(local.clone()), "a stub serves both");
    assert_eq!(read(&[secret, token, api, data]), Ok(Config { data_base_url: data_url.clone(), ..local }));
    assert_eq!(read(&[secret, token, data]), Ok(Config { data_base_url: data_url.clone(), ..expected }));
    // LINE serves downloads at an address of their own. The template names LINE's other one.
    for lines_own in
        ["https://api.line.me", "https://api.line.me/", "https://API.Line.me", "https://api.line.me:443"]
    {
        let config = read(&[secret, token, ("LINE_API_BASE_URL", lines_own)]).unwrap();
        assert_eq!(config.data_base_url, "https://api-data.line.me", "{lines_own}");
        let config = read(&[secret, token, ("LINE_API_BASE_URL", lines_own), data]).unwrap();
        assert_eq!(config.data_base_url, data_url, "{lines_own}");
    }
    for another in ["https://api.line.me.example.com", "https://line.me", "http://proxy/api.line.me"] {
        let config = read(&[secret, token, ("LINE_API_BASE_URL", another)]).unwrap();
        assert_eq!(config.data_base_url, another);
    }
    assert_eq!(read(&[token]), Err("LINE_CHANNEL_SECRET".to_owned()));
    assert_eq!(read(&[("LINE_CHANNEL_SECRET", " , "), token]), Err("LINE_CHANNEL_SECRET".to_owned()));
    assert_eq!(read(&[secret]), Err("LINE_CHANNEL_ACCESS_TOKEN".to_owned()));
    let newline = ("LINE_CHANNEL_ACCESS_TOKEN", "t\nk");
    assert_eq!(read(&[secret, newline]), Err("LINE_CHANNEL_ACCESS_TOKEN".to_owned()));
    let no_url = ["ftp://x", "nonsense", "https://", "http://x?q=1", "http://name:password@x", "/path"];
    let no_address = ["http://x:99999", "http://x:port", "http://x:", "http://[::1"];
    for wrong in no_url.into_iter().chain(no_address) {
        for name in ["LINE_API_BASE_URL", "LINE_DATA_API_BASE_URL"] {
            assert_eq!(read(&[secret, token, (name, wrong)]), Err(name.to_owned()), "{wrong}");
        }
    }
}
