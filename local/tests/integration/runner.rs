//! The runner as a page, a program or LINE meets it.

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::{Method, StatusCode};
use onetap_config::Secret;
use onetap_line::signature::sign;
use onetap_local::client::Events;
use onetap_servers::{Fault, HttpStub, Proxy};
use serde_json::{Value, json};
use support::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

/// What the public weather service answers.
const WEATHER: &str = include_str!("../../../shared/weather/tests/fixtures/open-meteo.json");

#[tokio::test]
async fn every_path_answers() {
    let runner = Runner::start().await;
    let transaction = format!("/users/{ALICE}/last-transaction");
    let transactions = format!("/users/{ALICE}/transactions?month=2026-11");
    for (method, path, status) in [
        (Method::GET, "/", 200),
        (Method::GET, "/playground/index.html", 200),
        (Method::GET, "/playground/style.css", 200),
        (Method::GET, "/playground/app.js", 200),
        (Method::GET, "/playground/config", 200),
        (Method::GET, "/metrics", 200),
        (Method::GET, "/health", 200),
        (Method::GET, "/openapi.json", 200),
        (Method::GET, transaction.as_str(), 401),
        (Method::GET, transactions.as_str(), 401),
        (Method::GET, "/jobs/job-1/events?domain=scan", 401),
        (Method::GET, "/jobs/job-1?domain=scan", 401),
        (Method::POST, "/line/webhook", 401),
        (Method::POST, "/v2/bot/message/reply", 401),
        (Method::GET, "/v2/bot/info", 401),
        (Method::POST, "/v2/bot/channel/webhook/test", 401),
        (Method::GET, "/v2/bot/nothing", 404),
        (Method::GET, "/nowhere", 404),
        (Method::GET, "/playground/nothing", 404),
        (Method::GET, "/playground/../Cargo.toml", 404),
        (Method::GET, "/line/webhook", 405),
        (Method::GET, "/v2/bot/message/reply", 405),
        (Method::GET, "/playground/deliver", 405),
        (Method::POST, "/playground/live", 405),
        (Method::POST, "/health", 405),
        (Method::DELETE, "/", 405),
    ] {
        let answer = runner.call(method.clone(), path, "").await;
        assert_eq!(answer.status, status, "{method} {path}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert!(
            answer.header("content-security-policy").unwrap().starts_with("default-src 'self'"),
            "{path}"
        );
        let own = path == "/nowhere" || path.starts_with("/playground/nothing");
        assert!(!own || answer.json["error"].is_string(), "{path}");
    }
    assert_eq!(
        runner.call(Method::GET, "/health", "").await.json,
        json!({"status": "ok", "store": "memory"})
    );
    let page = runner.call(Method::GET, "/", "").await;
    assert!(page.text.contains("<title>") && page.header("content-type").unwrap().starts_with("text/html"));
}

#[tokio::test]
async fn the_query_of_a_month_reaches_its_function() {
    let runner = Runner::start().await;
    let bearer = format!("Bearer {}", runner.secret("EDIT_API_TOKEN"));
    let headers = [("authorization", bearer.as_str())];
    let month = |query: &str| {
        let path = format!("/users/{ALICE}/transactions?{query}");
        let client = &runner.client;
        async move { client.call(Method::GET, &path, &headers, String::new()).await.unwrap() }
    };
    assert_eq!(month("month=2025-11").await.json["month"], "2025-11");
    assert_eq!(month("month=2025-13").await.status, 400);
    let csv = month("month=2025-11&format=csv").await;
    assert_eq!(csv.header("content-disposition"), Some("attachment; filename=\"transactions-2025-11.csv\""));
    assert!(csv.text.starts_with("\u{feff}intent,"), "{}", csv.text);
}

#[tokio::test]
async fn of_twenty_taps_at_once_one_is_answered_with_a_forecast() {
    let gate = Arc::new(Semaphore::new(0));
    let service = HttpStub::always(Fault::Status(200, WEATHER.to_owned()));
    let weather = Proxy::start(&service.url()).await;
    weather.inject(Some(Fault::Held(Arc::clone(&gate))));
    let runner = Runner::with(&[
        ("WEATHER_PROVIDER", "open-meteo"),
        ("OPEN_METEO_BASE_URL", &weather.url()),
        ("PROCESSING_LOCK_TIMEOUT_SECONDS", "60"),
    ])
    .await;
    // Nineteen are told to wait while the weather of the first one is held.
    let nineteen_are_answered = async {
        let start = Instant::now();
        while runner.said(ALICE).await.len() < 19 && start.elapsed() < Duration::from_secs(10) {
            sleep(Duration::from_millis(20)).await;
        }
        gate.add_permits(1);
    };
    let (mut paths, ()) = tokio::join!(runner.deliver(ALICE, tap(HOME), 20), nineteen_are_answered);
    assert_eq!(weather.requests(), 1);
    paths.sort();
    assert_eq!(paths, [vec!["busy"; 19], vec!["handled"]].concat());
    let said = runner.said(ALICE).await;
    assert_eq!(said.len(), 20);
    assert_eq!(said.iter().filter(|text| text.starts_with(FORECAST)).count(), 1, "{said:?}");
    // The one that was last, again.
    let again = runner.control(Method::POST, "redeliver", json!({ "user": ALICE })).await;
    assert_eq!(support::paths(&again), ["deduped"]);
    assert_eq!(runner.said(ALICE).await.len(), 20, "a redelivery says nothing");
}

#[tokio::test]
async fn a_tap_in_the_cooldown_is_busy_with_the_message_that_is_set() {
    let runner = Runner::with(&[
        ("PROCESSING_LOCK_TIMEOUT_SECONDS", "60"),
        ("PROCESSING_LOCK_MIN_HOLD_MS", "60000"),
        ("PROCESSING_LOCK_MESSAGE", "請稍候\n馬上好"),
    ])
    .await;
    assert_eq!(runner.deliver(ALICE, tap(HOME), 1).await, ["handled"]);
    assert_eq!(runner.deliver(ALICE, tap(HOME), 1).await, ["busy"]);
    let snapshot = runner.snapshot().await;
    let replies = snapshot["replies"].as_array().unwrap();
    assert_eq!(replies.iter().filter(|reply| reply["path"] == "busy").count(), 1, "{replies:?}");
    assert_eq!(replies.iter().filter(|reply| reply["text"] == "請稍候\n馬上好").count(), 1, "{replies:?}");
}

#[tokio::test]
async fn a_delivery_has_its_events_with_their_paths() {
    let runner = Runner::start().await;
    let events =
        json!([tap("action=settings"), text("午餐 120 信用卡"), {"type": "sticker"}, {"type": "unfollow"}]);
    let answer = runner.control(
        Method::POST,
        "deliver",
        json!({ "user": BOB, "events": events, "times": 2, "at_once": false }),
    );
    let answer = answer.await;
    let deliveries = answer["deliveries"].as_array().unwrap();
    assert_eq!(deliveries.len(), 2);
    for delivery in deliveries {
        assert_eq!(delivery["status"], 200);
        assert_eq!(paths(&json!({ "deliveries": [delivery] })), ["handled", "handled", "ignored", "handled"]);
        assert_eq!(delivery["events"][1]["type"], "message");
    }
    assert_ne!(deliveries[0]["events"][0]["id"], deliveries[1]["events"][0]["id"]);
    let snapshot = runner.snapshot().await;
    let settings =
        snapshot["replies"].as_array().unwrap().iter().find(|r| r["delivery"] == deliveries[0]["id"]);
    let offered = &settings.unwrap()["quick_replies"][0];
    assert_eq!((&offered["type"], &offered["label"]), (&json!("message"), &json!("設定住家")));
    assert_eq!(offered["uri"], Value::Null);
}

/// What a page was told of a few jobs and a reply.
#[derive(Debug, Default, PartialEq)]
struct Told {
    records: usize,
    markers: usize,
    replies: usize,
    effects: u64,
}

/// Reads a page's stream until it has told all that is wanted; more than that shows too.
async fn told(mut page: Events, wanted: &Told) -> Told {
    let mut told = Told::default();
    let markers = |keys: &Value| {
        let names = keys.as_array().unwrap().iter().map(|key| key["key"].as_str().unwrap());
        names.filter(|name| name.contains("published:")).count()
    };
    let length = |list: &Value| list.as_array().unwrap().len();
    while told.records < wanted.records
        || told.markers < wanted.markers
        || told.replies < wanted.replies
        || told.effects < wanted.effects
    {
        let event = page.next().await.unwrap().unwrap();
        let data: Value = serde_json::from_str(&event.data).unwrap();
        match event.name.as_str() {
            // The first snapshot. On a slow machine another one may follow, which contains what the page missed.
            "snapshot" => {
                told.records = usize::try_from(data["records_total"].as_u64().unwrap()).unwrap();
                told.markers = markers(&data["keys"]);
                told.replies = length(&data["replies"]);
                told.effects = data["queue"]["effects"].as_u64().unwrap();
            }
            "records" => told.records += length(&data),
            "keys" => told.markers += markers(&data["set"]),
            "reply" => told.replies += 1,
            "queue" => told.effects = data["effects"].as_u64().unwrap(),
            other => panic!("{other}"),
        }
    }
    told
}

#[tokio::test]
async fn five_pages_and_five_readers_are_told_everything() {
    let runner = Runner::start().await;
    // 5 jobs of 10 events: each in its log and in its stream, with two markers.
    let all = Told { records: 100, markers: 100, replies: 1, effects: 50 };
    let pages = join_all((0..5).map(|_| runner.live())).await;
    let pages = join_all(pages.into_iter().map(|page| told(page, &all)));
    let readers = async {
        let sent =
            runner.control(Method::POST, "jobs", json!({ "jobs": 5, "copies": 3, "shuffle": true })).await;
        assert_eq!((&sent["sent"], &sent["domain"]), (&json!(150), &json!("scan")));
        let read = |job: &Value| {
            let (id, token) = (job["job_id"].as_str().unwrap(), job["token"].as_str().unwrap());
            let path = format!("/jobs/{id}/events?domain=scan&token={token}");
            let client = &runner.client;
            async move {
                let mut events = client.events(&path, &[]).await.unwrap().unwrap();
                let mut seqs = Vec::new();
                while let Some(event) = events.next().await.unwrap() {
                    seqs.push(serde_json::from_str::<Value>(&event.data).unwrap()["seq"].as_u64().unwrap());
                }
                seqs.sort_unstable();
                seqs
            }
        };
        let seqs = join_all(sent["jobs"].as_array().unwrap().iter().map(read)).await;
        runner.deliver(ALICE, tap("action=settings"), 1).await;
        seqs
    };
    let (pages, readers) = tokio::join!(pages, readers);
    assert!(pages.iter().all(|told| *told == all), "{pages:?}");
    assert_eq!(readers, vec![[10, 11, 20, 21, 30, 31, 40, 41, 50, 51]; 5]);
}

#[tokio::test]
async fn a_consumer_that_dies_halfway_loses_and_doubles_nothing() {
    let runner = Runner::start().await;
    assert_eq!(runner.control(Method::POST, "consumer/kill", json!({})).await, json!({ "armed": true }));
    runner.control(Method::POST, "jobs", json!({ "copies": 2, "job_id": "job-7" })).await;
    let mut page = runner.live().await;
    let mut states = Vec::new();
    let queue = loop {
        let event = page.next().await.unwrap().unwrap();
        let data: Value = serde_json::from_str(&event.data).unwrap();
        let queue = match event.name.as_str() {
            "snapshot" => data["queue"].clone(),
            "queue" => data,
            _ => continue,
        };
        states.push(queue["consumer"].as_str().unwrap().to_owned());
        if queue["effects"] == 10 && queue["in_flight"] == 0 && queue["waiting"] == 0 {
            break queue;
        }
    };
    assert!(states.iter().any(|state| state == "killed"), "{states:?}");
    assert_eq!((&queue["sent"], &queue["kills"], &queue["dead"]), (&json!(20), &json!(1), &json!(0)));
    assert_eq!(queue["delivered"], 30, "ten of them twice");
    let snapshot = runner.snapshot().await;
    let records = snapshot["records"].as_array().unwrap().iter();
    let own: Vec<&Value> = records.filter(|record| record["log"] == "scan:job:job-7").collect();
    assert_eq!(own.len(), 10);
    // The same job once more is nothing new.
    runner.control(Method::POST, "jobs", json!({ "job_id": "job-7" })).await;
    loop {
        let event = page.next().await.unwrap().unwrap();
        let data: Value = serde_json::from_str(&event.data).unwrap();
        if event.name == "queue" && data["sent"] == 30 && data["in_flight"] == 0 && data["waiting"] == 0 {
            assert_eq!(data["effects"], 10);
            break;
        }
    }
}

#[tokio::test]
async fn with_the_store_down_a_place_still_gets_its_forecast() {
    let runner = Runner::start().await;
    let set = runner.control(Method::PUT, "store", json!({ "down": true })).await;
    assert_eq!(set["store"], json!({ "kind": "memory", "down": true }));
    assert_eq!(runner.deliver(ALICE, text("永和區"), 2).await, ["handled", "handled"]);
    assert_eq!(runner.deliver(ALICE, tap(HOME), 1).await, ["handled"]);
    let said = runner.said(ALICE).await;
    assert_eq!(said.iter().filter(|text| text.starts_with(FORECAST)).count(), 2, "unlocked: {said:?}");
    assert!(said.iter().any(|text| text.starts_with("系統暫時")), "the saved place is not known: {said:?}");
    runner.control(Method::PUT, "store", json!({ "down": false })).await;
    runner.deliver(ALICE, tap(HOME), 1).await;
    assert!(runner.said(ALICE).await.last().unwrap().starts_with(FORECAST));
}

#[tokio::test]
async fn whoever_has_the_secret_may_play_line() {
    let runner = Runner::start().await;
    let event = json!({"type": "postback", "postback": {"data": "action=settings"}, "replyToken": "from-outside",
        "webhookEventId": "01OUTSIDE", "source": {"type": "user", "userId": BOB}});
    let body = json!({ "events": [event] }).to_string();
    let signature = sign(&Secret::new(runner.secret("LINE_CHANNEL_SECRET")), body.as_bytes());
    let post = |signature: String| {
        let (client, body) = (&runner.client, body.clone());
        async move {
            let headers = [("x-line-signature", signature.as_str())];
            client.call(Method::POST, "/line/webhook", &headers, body).await.unwrap().status
        }
    };
    assert_eq!(post("bm90IHNpZ25lZA==".to_owned()).await, 401);
    assert!(runner.said(BOB).await.is_empty());
    assert_eq!(post(signature.clone()).await, 200);
    assert_eq!(post(signature).await, 200);
    assert_eq!(runner.said(BOB).await.len(), 1);
    // The stub takes no second reply for it, nor any for a token that nobody issued.
    let bearer = format!("Bearer {}", runner.secret("LINE_CHANNEL_ACCESS_TOKEN"));
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    for token in ["from-outside", "never-issued"] {
        let reply = json!({"replyToken": token, "messages": [{"type": "text", "text": "hi"}]}).to_string();
        let answer =
            runner.client.call(Method::POST, "/v2/bot/message/reply", &headers, reply).await.unwrap();
        assert_eq!(
            (answer.status, answer.json),
            (StatusCode::BAD_REQUEST, json!({"message": "Invalid reply token"}))
        );
    }
}

#[tokio::test]
async fn the_stub_tells_about_its_channel_and_tests_the_webhook() {
    let runner = Runner::start().await;
    let bearer = format!("Bearer {}", runner.secret("LINE_CHANNEL_ACCESS_TOKEN"));
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let call = async |method, path: &str| {
        let answer = runner.client.call(method, path, &headers, "{}").await.unwrap();
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        answer.json
    };
    assert_eq!(call(Method::GET, "/v2/bot/info").await["displayName"], "the playground");
    let endpoint = format!("{}/line/webhook", runner.local.url());
    let webhook = call(Method::GET, "/v2/bot/channel/webhook/endpoint").await;
    assert_eq!(webhook, json!({ "endpoint": endpoint, "active": true }));
    assert_eq!(call(Method::GET, "/v2/bot/message/quota").await, json!({ "type": "none" }));
    assert_eq!(call(Method::GET, "/v2/bot/message/quota/consumption").await, json!({ "totalUsage": 0 }));
    let test = call(Method::POST, "/v2/bot/channel/webhook/test").await;
    assert_eq!((&test["success"], &test["statusCode"]), (&true.into(), &200.into()));
}

#[tokio::test]
async fn what_is_wrong_with_a_call_is_named() {
    let runner = Runner::start().await;
    let events = json!([{ "type": "follow" }]);
    for (method, call, body, named) in [
        (Method::POST, "deliver", json!({ "user": "bob", "events": events }), "user"),
        (Method::POST, "deliver", json!({ "user": BOB, "events": [] }), "events"),
        (Method::POST, "deliver", json!({ "user": BOB, "events": [{}] }), "type"),
        (Method::POST, "deliver", json!({ "user": BOB, "events": events, "times": 51 }), "times"),
        (Method::POST, "deliver", json!({ "user": BOB, "events": events, "tims": 2 }), "tims"),
        (Method::POST, "deliver", json!({ "events": events }), "user"),
        (Method::PUT, "weather", json!({ "delay_ms": 10_001 }), "delay_ms"),
        (Method::PUT, "weather", json!({ "delay_ms": -1 }), "integer"),
        (Method::PUT, "weather", json!({ "provider": "up" }), "`up` is not works, down or refuses"),
        (Method::PUT, "weather", json!({ "fallback": true }), "boolean"),
        (Method::PUT, "weather", json!({ "faulback": "down" }), "faulback"),
        (Method::PUT, "weather", json!({}), "provider"),
        (Method::PUT, "store", json!({ "down": 1 }), "boolean"),
        (Method::POST, "jobs", json!({ "copies": 6 }), "copies"),
        (Method::POST, "jobs", json!({ "jobs": 0 }), "jobs"),
        (Method::POST, "jobs", json!({ "jobs": 2, "job_id": "a" }), "job_id"),
        (Method::POST, "jobs", json!({ "job_id": "a b" }), "job_id"),
    ] {
        let answer = runner.call(method, &format!("/playground/{call}"), &body.to_string()).await;
        assert_eq!(answer.status, 400, "{body}");
        assert!(answer.json["error"].as_str().unwrap().contains(named), "{body}: {}", answer.text);
    }
    let none = runner.call(Method::POST, "/playground/redeliver", &json!({ "user": BOB }).to_string()).await;
    assert_eq!(none.status, 409);
}

#[tokio::test]
async fn the_controls_answer_no_page_of_another_site() {
    let runner = Runner::start().await;
    for header in
        [("origin", "https://evil.example"), ("host", "evil.example"), ("sec-fetch-site", "cross-site")]
    {
        let answer = runner.client.call(Method::GET, "/playground/config", &[header], "").await.unwrap();
        assert_eq!(answer.status, 403, "{header:?}");
        assert!(!answer.text.contains("token"));
    }
    let origin = runner.local.url();
    let own = [("origin", origin.as_str()), ("sec-fetch-site", "same-origin")];
    assert_eq!(runner.client.call(Method::GET, "/playground/config", &own, "").await.unwrap().status, 200);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_not_read() {
    let runner = Runner::start().await;
    let ask = |head: &'static str, body: Vec<u8>| {
        let address = runner.local.address();
        async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream
                .write_all(format!("POST /line/webhook HTTP/1.1\r\nhost: x\r\n{head}\r\n\r\n").as_bytes())
                .await
                .unwrap();
            // The answer may come before all of it is sent.
            let _ = stream.write_all(&body).await;
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).await.unwrap();
            String::from_utf8(answer.to_vec()).unwrap()
        }
    };
    assert_eq!(ask("content-length: 1048577", vec![]).await, "HTTP/1.1 413");
    let chunk = [b"100001\r\n".as_slice(), &vec![b'x'; 0x10_0001]].concat();
    assert_eq!(ask("transfer-encoding: chunked", chunk).await, "HTTP/1.1 413");
    assert_eq!(ask("content-length: 2", b"{}".to_vec()).await, "HTTP/1.1 401");
}

#[tokio::test]
async fn stopping_ends_the_streams_and_frees_the_port() {
    let runner = Runner::start().await;
    let mut page = runner.live().await;
    assert_eq!(page.next().await.unwrap().unwrap().name, "snapshot");
    let sent = runner.control(Method::POST, "jobs", json!({ "job_id": "job-8" })).await;
    let path = format!("/jobs/job-8/events?domain=scan&token={}", sent["jobs"][0]["token"].as_str().unwrap());
    // Nothing comes on this one: it is for a job that nobody sends.
    let mut reader = runner.client.events(&path, &[]).await.unwrap().unwrap();
    let address = runner.local.address();
    runner.local.stop().await;
    while page.next().await.unwrap().is_some() {}
    while reader.next().await.unwrap().is_some() {}
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn secrets_that_are_given_are_not_shown_and_those_made_up_are() {
    let runner = Runner::with(&[("EDIT_API_TOKEN", "planted-edit-token")]).await;
    let greeting = runner.local.greeting();
    assert!(!greeting.contains("planted-edit-token"), "{greeting}");
    for name in ["LINE_CHANNEL_SECRET", "LINE_CHANNEL_ACCESS_TOKEN", "JOB_EVENTS_SECRET"] {
        assert!(greeting.contains(name) && greeting.contains(&runner.secret(name)), "{greeting}");
    }
    assert!(greeting.contains(&runner.local.url()), "{greeting}");
    let config = runner.control(Method::GET, "config", Value::Null).await;
    assert_eq!(config["edit_token"], "planted-edit-token", "the page needs it");
    assert_eq!((&config["users"][0], &config["lock_ttl_ms"]), (&json!(ALICE), &json!(5000)));
}
