//! Whole functions over a store in memory: what they answer, and what they leave there.

use std::sync::Arc;

use http::{Method, StatusCode};
use onetap_bus::{Bus, Event, Job, Stages};
use onetap_config::Secret;
use onetap_ledger::{Entry, etag};
use onetap_line::WebhookBody;
use onetap_line::testing::MessagingApi;
use onetap_store::{Batch, Expect, Keep, Key, Log, Store, Ttl};
use onetap_telemetry::Recorder;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::parsers::LUNCH;
use super::{files, now};
use crate::recording::{
    forecast_keys, is_log_of_a_user, keys_of_a_user, names_of_an_event, peek, recording, touched,
};
use crate::stage::{self, planted};
use onetap_store::testing::TestStore;

struct Line {
    api: MessagingApi,
    http: onetap_http::Client,
}

thread_local! {
    static LINE: Line = Line {
        api: MessagingApi::start(Secret::new(planted::ACCESS_TOKEN)).unwrap(),
        http: onetap_http::Client::new(),
    };
}

fn deliver(store: &Arc<TestStore>, body: &[u8]) -> StatusCode {
    LINE.with(|line| {
        let webhook = stage::webhook(store.clone(), &line.http, &line.api.url());
        now(stage::deliver(&webhook, body))
    })
}

/// Any signed body gets a status; what is no JSON reaches nothing, and the rest only its own users' keys.
pub fn webhook_body(bytes: &[u8]) {
    let recorder = Recorder::default();
    let _guard = recorder.on_this_thread();
    let store = recording();
    let status = deliver(&store, bytes);
    let touched = touched(&store);
    let is_json =
        std::str::from_utf8(bytes).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
    if !is_json {
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(touched.is_empty(), "{touched:?}");
        return;
    }
    assert!(matches!(status, StatusCode::OK | StatusCode::INTERNAL_SERVER_ERROR), "{status}");
    let events = WebhookBody::parse(bytes).unwrap().events;
    let users: Vec<&str> = events.iter().filter_map(|event| event.source.user_id.as_deref()).collect();
    let ids = events.iter().filter_map(|event| event.webhook_event_id.as_deref());
    let of_users = users.iter().flat_map(|user| keys_of_a_user(user));
    let allowed = of_users.chain(ids.map(|id| format!("idem:line:{id}"))).chain(forecast_keys()).collect();
    assert!(touched.keys.is_subset(&allowed), "{:?}", touched.keys.difference(&allowed));
    let is_own = |log: &String| users.iter().any(|user| is_log_of_a_user(log, user));
    assert!(touched.logs.iter().all(is_own) && touched.channels.is_empty(), "{touched:?}");
    let metrics = recorder.prometheus();
    let refused = metrics.lines().find(|line| line.contains(r#"line_reply_total{outcome="bad_request"}"#));
    assert_eq!(refused, None, "LINE would not take this reply");
}

pub(super) fn deliveries() -> Vec<Vec<u8>> {
    let body = |event: Vec<u8>| {
        let event: Value = serde_json::from_slice(&event).ok()?;
        let encoded = event["isBase64Encoded"].as_bool().unwrap_or_default();
        Some(event["body"].as_str()?.as_bytes().to_vec()).filter(|_| !encoded)
    };
    files("events/webhook", ".json").into_iter().filter_map(body).collect()
}

/// An event is published once under its own names, or refused without a trace.
pub fn event_json(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let store = recording();
    let consumer = stage::consumer(store.clone());
    let failed = now(stage::consume(&consumer, &[&text]));
    let touched = touched(&store);
    let Ok(event) = Event::parse(text.clone(), &Stages::default()) else {
        assert_eq!(failed, [0]);
        assert!(touched.is_empty(), "{touched:?}");
        return;
    };
    assert_eq!(event.text(), text);
    assert_eq!(failed, Vec::<usize>::new());
    let fields: Value = serde_json::from_str(&text).unwrap();
    let (id, domain) = (fields["job_id"].as_str().unwrap(), fields["domain"].as_str().unwrap());
    assert_eq!(touched, names_of_an_event(domain, id, event.stage(), event.seq()));
    assert_eq!(now(stage::consume(&consumer, &[&text])), Vec::<usize>::new());
    let log = Log::new(format!("{domain}:job:{id}")).unwrap();
    assert_eq!(now(store.read(&log, None, 10)).unwrap().len(), 1, "twice is once");
}

pub(super) fn events() -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    for file in files("events/queue-consumer", ".json") {
        let event: Value = serde_json::from_slice(&file).unwrap();
        for record in event["Records"].as_array().unwrap() {
            bodies.push(record["body"].as_str().unwrap_or_default().as_bytes().to_vec());
        }
    }
    bodies
}

const PLACE: &str = "/users/U1/last-transaction";
const PLACE_KEY: &str = "user:U1:last_transaction";

/// An edit happens under a condition that names what is there, and under no other.
pub fn if_match(bytes: &[u8]) {
    let store = recording();
    let edit = stage::edit(store.clone());
    now(stage::ask(&edit, Method::PUT, PLACE, &[], LUNCH.as_bytes())).unwrap();
    let before = now(peek(&store, PLACE_KEY)).unwrap();
    let body = r#"{"附註":"改"}"#.as_bytes();
    let Some(answer) = now(stage::ask(&edit, Method::PATCH, PLACE, &[("if-match", bytes)], body)) else {
        return;
    };
    let (header, tag) = (String::from_utf8_lossy(bytes), etag(&before));
    let after = now(peek(&store, PLACE_KEY)).unwrap();
    match answer.status() {
        StatusCode::OK => {
            let named = header.contains(&tag) || header.contains("20251129-143000") || header.trim() == "*";
            assert!(named && after != before, "the condition names nothing that is there");
        }
        StatusCode::PRECONDITION_FAILED => assert_eq!(after, before),
        status => panic!("{status}"),
    }
    if header == tag {
        assert_eq!(answer.status(), StatusCode::OK);
    }
}

pub(super) fn conditions() -> Vec<Vec<u8>> {
    let written = Entry::read(LUNCH).unwrap().to_json();
    let [this, other] = [etag(&written), etag("other")];
    [this.clone(), other.clone(), format!("{other}, {this}"), format!("W/{this}"), "*".into()]
        .into_iter()
        .chain(["20251129-143000", "\"20251129-143000\"", "", ",,"].map(str::to_owned))
        .map(String::into_bytes)
        .collect()
}

/// A key is taken as one, or refused before anything is written; what it names is hidden in a hash.
pub fn idempotency_key(bytes: &[u8]) {
    let store = recording();
    let edit = stage::edit(store.clone());
    let put = || now(stage::ask(&edit, Method::PUT, PLACE, &[("idempotency-key", bytes)], LUNCH.as_bytes()));
    let Some(answer) = put() else { return };
    let touched = touched(&store);
    match answer.status() {
        StatusCode::BAD_REQUEST => assert!(touched.is_empty(), "{touched:?}"),
        StatusCode::CREATED => {
            let hidden = |key: &String| {
                key.strip_prefix("idem:").is_some_and(|rest| rest.len() == 64 && is_hex(rest))
                    || keys_of_a_user("U1").contains(key)
            };
            assert!(touched.keys.len() == 3 && touched.keys.iter().all(hidden), "{touched:?}");
            let again = put().unwrap();
            assert_eq!((again.status(), again.body()), (answer.status(), answer.body()));
            assert_eq!(again.headers()["idempotency-replayed"], "true");
        }
        status => panic!("{status}"),
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

pub(super) fn keys() -> Vec<Vec<u8>> {
    let long = "k".repeat(256);
    ["tap-1", " tap ", "", "a:b", "*", "鍵", "7c0a2ff4-0000-4000-8000-000000000001", &long]
        .map(|text| text.as_bytes().to_vec())
        .into()
}

/// A stream tells its own job's events and no other's, and nobody without a token for it: query, `Last-Event-ID` and
/// job id, each on a line.
pub fn sse_query(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split('\n');
    let (mut query, last) = (lines.next().unwrap_or_default().to_owned(), lines.next());
    let id = lines.next().unwrap_or("job-1");
    let job = Job::new("scan", "job-1").unwrap();
    if !query.contains("token=") {
        query = format!("{query}&token={}", stage::job_token(&job));
    }
    let store = recording();
    let event = |id: &str, seq: u64, stage: &str| {
        let text = format!(
            r#"{{"job_id":"{id}","domain":"scan","stage":"{stage}","seq":{seq},"data":"of {id}","timestamp":"2025-11-03T08:15:30Z"}}"#
        );
        Event::parse(text, &Stages::default()).unwrap()
    };
    let bus = Bus::new(store.clone(), onetap_bus::Config::default());
    let all = [event("job-1", 10, "vision"), event("job-1", 51, "done"), event("job-2", 51, "done")];
    for published in now(bus.publish_each(&all)) {
        let _ = published.unwrap();
    }
    store.requests();
    let gateway = stage::gateway(store.clone());
    let target = format!("/jobs/{id}/events?{query}");
    let Some((status, _, body)) = now(stage::follow(&gateway, &target, last.map(str::as_bytes))) else {
        return;
    };
    let touched = touched(&store);
    assert!(!body.contains("job-2"), "told of another job");
    match status {
        StatusCode::OK | StatusCode::NO_CONTENT => {
            assert!(touched.logs.iter().all(|log| log == "scan:job:job-1"), "{touched:?}");
            // Markers tell whether the job has ended.
            let own = |key: &String| key.starts_with("router:published:job-1:");
            assert!(touched.keys.iter().all(own), "{touched:?}");
        }
        StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND => {
            assert!(touched.is_empty(), "{touched:?}");
        }
        status => panic!("{status}"),
    }
}

pub(super) fn queries() -> Vec<Vec<u8>> {
    [
        "domain=scan",
        "domain=scan&last_seq=10",
        "domain=scan&last_seq=51",
        "domain=scan\n0-1",
        "domain=scan\n18446744073709551615-18446744073709551615",
        "domain=scan&lastEventId=1-1",
        "domain=s%63an&last_seq=0\n\njob%2d1",
        "domain=scan\n\njob-2",
        "domain=scan&token=32503680000.00",
        "domain=user\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}

/// A path leads to the entry or the ledger of the user it names, spelled plainly, or nowhere.
pub fn user_path(bytes: &[u8]) {
    let store = recording();
    let edit = stage::edit(store.clone());
    for (method, place) in stage::user_routes() {
        let path = format!("/users/{}/{place}", String::from_utf8_lossy(bytes));
        let Ok(uri) = path.parse::<http::Uri>() else { return };
        let Some(answer) = now(stage::ask(&edit, method, &path, &[], LUNCH.as_bytes())) else { return };
        let touched = touched(&store);
        let id = uri.path().strip_prefix("/users/").and_then(|rest| rest.strip_suffix(&format!("/{place}")));
        let plain = |id: &&str| {
            (1..=64).contains(&id.len())
                && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
        };
        match id.filter(plain) {
            Some(id) => {
                let own_keys = touched.keys.iter().all(|key| keys_of_a_user(id).contains(key));
                let own_logs = touched.logs.iter().all(|log| is_log_of_a_user(log, id));
                assert!(own_keys && own_logs, "{touched:?}");
            }
            None => {
                assert!(matches!(answer.status().as_u16(), 400 | 404), "{}", answer.status());
                assert!(touched.is_empty(), "{touched:?}");
            }
        }
    }
}

pub(super) fn user_ids() -> Vec<Vec<u8>> {
    [
        "U1",
        "U0123456789abcdef0123456789abcdef",
        "a_b-C",
        "U1%2f..",
        "..",
        "U1:profile",
        "%55",
        "",
        "U1/x",
        "*",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}

/// A month is answered in one of its formats or refused with what is wrong, whatever its query and its headers are. The input
/// is the query, then lines with `Accept` and `If-None-Match`.
pub fn month_query(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.splitn(3, '\n');
    let path = format!("/users/U1/transactions?{}", lines.next().unwrap_or_default());
    if path.parse::<http::Uri>().is_err() {
        return;
    }
    let (accept, known) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let store = recording();
    let edit = stage::edit(store.clone());
    now(stage::ask(&edit, Method::PUT, PLACE, &[], LUNCH.as_bytes())).unwrap();
    store.requests();
    let headers: &[(&str, &[u8])] = &[("accept", accept.as_bytes()), ("if-none-match", known.as_bytes())];
    let Some(answer) = now(stage::ask(&edit, Method::GET, &path, headers, b"")) else { return };
    let touched = touched(&store);
    assert!(touched.keys.is_empty() && touched.channels.is_empty(), "{touched:?}");
    assert!(touched.logs.iter().all(|log| is_log_of_a_user(log, "U1")), "{touched:?}");
    let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok());
    match answer.status() {
        StatusCode::OK if header("content-type").is_some_and(|media| media.starts_with("text/csv")) => {
            assert!(answer.body().starts_with('\u{feff}') && answer.body().ends_with("\r\n"));
            assert_eq!(header("etag"), Some(etag(answer.body()).as_str()));
        }
        StatusCode::OK => {
            let month: Value = serde_json::from_str(answer.body()).unwrap();
            assert_eq!(month["count"].as_u64(), month["transactions"].as_array().map(|all| all.len() as u64));
        }
        StatusCode::NOT_MODIFIED => {
            let tag = header("etag").unwrap();
            assert!(known.contains(tag) || known.trim() == "*", "{known:?} names nothing that is there");
            assert!(answer.body().is_empty());
        }
        StatusCode::BAD_REQUEST => {
            let said: Value = serde_json::from_str(answer.body()).unwrap();
            assert!(said["message"].is_string() && touched.is_empty(), "{touched:?}");
        }
        status => panic!("{status}"),
    }
}

pub(super) fn month_queries() -> Vec<Vec<u8>> {
    [
        "month=2025-11",
        "month=2025-11&format=csv",
        "format=json\ntext/csv",
        "month=2025-11\ntext/csv;q=0.5, application/json;q=0.4",
        "month=2025-1%31\n*/*\n*",
        "month=2025-10\n\nW/\"0123456789abcdef0123456789abcdef\", \"x\"",
        "month=2025-13&month=2025-11",
        "",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}

/// What somebody else left in the store makes nothing panic, and is not taken for what it is not.
pub fn stored_value(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let store = recording();
    let keys =
        ["user:U1:profile", PLACE_KEY, "idem:line:01STORED", "scan:state:job-1", "published:job-1:vision:10"];
    let log = Log::new("scan:job:job-1").unwrap();
    let planted = keys.iter().fold(Batch::new(), |batch, key| {
        batch.put(&Key::new(*key).unwrap(), Expect::Absent, text.as_str(), Ttl::Forever)
    });
    let _ = now(store.commit(&planted.append(&log, text.as_str(), Keep::all_for(Ttl::Forever)))).unwrap();
    store.requests();

    let words = ["永和", "設定住家 永和區", "修改金額 150", "午餐 120 信用卡", "刪除上一筆", "刪除我的資料"];
    let event = |(n, words): (usize, &&str)| {
        let id = if n == 0 { "01STORED".to_owned() } else { format!("01NEW{n}") };
        serde_json::json!({"type": "message", "mode": "active", "webhookEventId": id, "replyToken": format!("t{n}"),
            "source": {"type": "user", "userId": "U1"}, "message": {"type": "text", "text": words}})
    };
    let taps = serde_json::json!({"type": "postback", "mode": "active", "webhookEventId": "01TAP", "replyToken": "tap",
        "source": {"type": "user", "userId": "U1"}, "postback": {"data": "action=recent_queries"}});

    let edit = stage::edit(store.clone());
    let read = now(stage::ask(&edit, Method::GET, PLACE, &[], b"")).unwrap();
    assert_eq!(read.status() == StatusCode::OK, Entry::read(&text).is_some());
    let patched = now(stage::ask(&edit, Method::PATCH, PLACE, &[], r#"{"附註":"改"}"#.as_bytes())).unwrap();
    match patched.status().as_u16() {
        200 => assert!(Entry::read(&now(peek(&store, PLACE_KEY)).unwrap()).is_some()),
        413 | 422 | 500 => assert_eq!(now(peek(&store, PLACE_KEY)).as_ref(), Some(&text), "left as it is"),
        status => panic!("{status}"),
    }
    for (n, words) in words.iter().enumerate() {
        let body = serde_json::json!({"events": [event((n, words)), taps]}).to_string();
        let status = deliver(&store, body.as_bytes());
        assert!(matches!(status.as_u16(), 200 | 500), "{status}");
    }

    let gateway = stage::gateway(store.clone());
    let job = Job::new("scan", "job-1").unwrap();
    let target = format!("/jobs/job-1/events?domain=scan&token={}", stage::job_token(&job));
    let (_, _, told) = now(stage::follow(&gateway, &target, None)).unwrap();
    let known = ["retry: 1000", "id: ", "data: ", ": keep-alive"];
    for line in told.split('\n').filter(|line| !line.is_empty()) {
        assert!(
            known.iter().any(|start| line.starts_with(start)),
            "a record became a line of its own: {line:?}"
        );
    }
}

pub(super) fn stored() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = [
        LUNCH,
        r#"{"home":"新北市永和區","office":"臺北市信義區","recent":["花蓮縣花蓮市"],"active":true}"#,
        r#"{"owner":"somebody","until":18446744073709551615}"#,
        r#"{"owner":"somebody","ok":{"answer":{"messages":[]}}}"#,
        r#"{"owner":"somebody","ok":"answered"}"#,
        r#"{"owner":"somebody","kept":false}"#,
        "1",
        "",
        "event: done\r\ndata: {}\r\n\r\nid: 9-9",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into();
    all.extend(events());
    all
}
