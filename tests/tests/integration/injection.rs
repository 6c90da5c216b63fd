//! Whatever stands in an id, a name or a key that somebody sends: it reaches the keys that spec §3 gives it, or none.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use aws_lambda_events::sqs::{SqsEvent, SqsMessage};
use http::Method;
use onetap_bus::Job;
use onetap_config::Secret;
use onetap_line::testing::MessagingApi;
use onetap_store::testing::TestStore;
use onetap_store::{Batch, Expect, Key, Store, Ttl};
use onetap_tests::recording::{
    Touched, forecast_keys, is_log_of_a_user, keys_of_a_user, names_of_an_event, peek, recording, touched,
};
use onetap_tests::stage::{self, planted};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Separators of our names and of others', ends of strings and of lines, other people's keys, other spellings.
fn nasty() -> Vec<String> {
    let mut all: Vec<String> = [
        ":",
        "*",
        "?",
        "[a]",
        "{}",
        "{U2}",
        "a b",
        "a\tb",
        "a\nb",
        "a\r\nSET x y",
        "a\u{0}b",
        "\u{0}",
        "..",
        "../U2",
        "U2/../U1",
        "/",
        "\\",
        "\"",
        "'",
        "$",
        "%3A",
        "U2%3Aprofile",
        "%2e%2e%2fU2",
        "%00",
        "U2:profile",
        "U2:last_transaction",
        "U2:ledger",
        ":U2",
        "U2:",
        "user:U2:profile",
        "processing:user:U2",
        "idem:line:1",
        "line:1",
        "job-1:vision:10",
        "vision:10",
        "scan:state:other-job",
        ":other-job",
        "other-job:",
        "é",
        "e\u{301}",
        "Ｕ２",
        "\u{202e}2U",
        "\u{feff}U2",
        "🙂",
        "使用者",
        "null",
        "0",
        "-1",
    ]
    .map(str::to_owned)
    .into();
    all.extend([64, 65, 128, 129, 256, 257, 2048, 2049, 60_000].map(|length| "x".repeat(length)));
    all
}

/// Somebody else's, of every kind: never read, never changed.
const OTHERS: [&str; 12] = [
    "user:U2:profile",
    "user:U2:last_transaction",
    "user:U2:ledger",
    "user:U2:pending",
    "user::ledger",
    "processing:user:U2",
    "idem:line:other",
    "scan:state:other-job",
    "published:other-job:vision:10",
    "router:published:other-job:10",
    "user::profile",
    "user::last_transaction",
];

async fn with_others() -> Arc<TestStore> {
    let store = recording();
    for key in OTHERS {
        let put = Batch::new().put(&Key::new(key).unwrap(), Expect::Absent, "of somebody else", Ttl::Forever);
        let _ = store.commit(&put).await.unwrap();
    }
    store.requests();
    store
}

async fn others_are_untouched(store: &TestStore, touched: &Touched, what: &str) {
    for key in OTHERS {
        assert!(!touched.keys.contains(key), "{what:?} reached {key}");
        assert_eq!(peek(store, key).await.as_deref(), Some("of somebody else"), "{what:?} changed {key}");
    }
}

fn only<S: Into<String>>(keys: impl IntoIterator<Item = S>) -> BTreeSet<String> {
    keys.into_iter().map(Into::into).collect()
}

/// In place of the data of the button that confirms an erasure, which depends on the user.
const CONFIRMED_ERASURE: &str = "a confirmed erasure";

/// Every kind of event that does something.
fn deeds() -> Vec<Value> {
    let text = |words: &str| json!({"type": "message", "message": {"type": "text", "text": words}});
    let tap = |data: &str| json!({"type": "postback", "postback": {"data": data}});
    vec![
        text("永和"),
        text("設定住家 永和區"),
        text("午餐 120 信用卡"),
        text("午餐 120"),
        text("最近紀錄"),
        text("本月"),
        text("修改金額 150"),
        text("刪除上一筆"),
        text("刪除我的資料"),
        tap(CONFIRMED_ERASURE),
        tap("action=weather&type=home"),
        tap("action=recent_queries"),
        json!({"type": "message", "message": {"type": "location", "latitude": 25.03, "longitude": 121.56}}),
        json!({"type": "follow"}),
        json!({"type": "unfollow"}),
        json!({"type": "join"}),
    ]
}

fn event(deed: &Value, n: usize, source: Value, id: &str) -> Value {
    let mut event = json!({"mode": "active", "webhookEventId": id, "replyToken": format!("token-{n}"),
        "timestamp": 1_700_000_000_000_i64, "source": source});
    event.as_object_mut().unwrap().extend(deed.as_object().unwrap().clone());
    if event["postback"]["data"] == CONFIRMED_ERASURE {
        let user = event["source"]["userId"].as_str().unwrap_or_default();
        event["postback"]["data"] =
            webhook::bookkeeping::confirmation::button_data(user, onetap_ledger::Moment::now()).into();
    }
    event
}

/// Delivers the event to a bot of its own, and returns what it touched.
async fn touched_by(store: &Arc<TestStore>, line: &MessagingApi, event: Value) -> Touched {
    let webhook = stage::webhook(store.clone(), &onetap_http::Client::new(), &line.url());
    let status = stage::deliver(&webhook, json!({ "events": [event] }).to_string().as_bytes()).await;
    assert!(matches!(status.as_u16(), 200 | 500), "{status}");
    touched(store)
}

fn line() -> MessagingApi {
    MessagingApi::start(Secret::new(planted::ACCESS_TOKEN)).unwrap()
}

#[tokio::test]
async fn a_user_id_in_a_delivery_reaches_its_own_keys_and_no_others() {
    let (line, store) = (line(), with_others().await);
    let mut reached = 0;
    for user in nasty() {
        for (n, deed) in deeds().iter().enumerate() {
            let id = format!("01ID{n}");
            let source = json!({"type": "user", "userId": user});
            let touched = touched_by(&store, &line, event(deed, n, source, &id)).await;
            let mut allowed = only(keys_of_a_user(&user));
            allowed.insert(format!("idem:line:{id}"));
            allowed.extend(forecast_keys());
            assert!(touched.keys.is_subset(&allowed), "{user:?}: {touched:?}");
            let own_logs = touched.logs.iter().all(|log| is_log_of_a_user(log, &user));
            assert!(own_logs && touched.channels.is_empty(), "{user:?}: {touched:?}");
            others_are_untouched(&store, &touched, &user).await;
            reached += touched.keys.len();
        }
    }
    assert!(reached > 500, "the store was hardly asked: {reached}");
}

#[tokio::test]
async fn an_event_id_names_its_marker_and_nothing_else() {
    let (line, store) = (line(), with_others().await);
    for (n, id) in nasty().iter().enumerate() {
        let source = json!({"type": "user", "userId": "U1"});
        let touched = touched_by(&store, &line, event(&deeds()[2], n, source, id)).await;
        let mut allowed = only(keys_of_a_user("U1"));
        if id.len() <= 251 {
            let marker = format!("idem:line:{id}");
            assert!(touched.keys.contains(&marker), "{id:?}: {touched:?}");
            allowed.insert(marker);
        }
        assert!(touched.keys.is_subset(&allowed), "{id:?}: {touched:?}");
        others_are_untouched(&store, &touched, id).await;
    }
}

#[tokio::test]
async fn a_group_or_room_id_is_in_no_name_at_all() {
    let (line, store) = (line(), with_others().await);
    for (n, id) in nasty().iter().enumerate() {
        for source in [
            json!({"type": "group", "groupId": id, "userId": "U1"}),
            json!({"type": "room", "roomId": id, "userId": "U1"}),
            json!({"type": "group", "groupId": id}),
            json!({"type": id, "userId": "U1"}),
        ] {
            let touched = touched_by(&store, &line, event(&deeds()[2], n, source, "01ID")).await;
            let mut allowed = only(keys_of_a_user("U1"));
            allowed.insert("idem:line:01ID".to_owned());
            assert!(touched.keys.is_subset(&allowed), "{id:?}: {touched:?}");
            others_are_untouched(&store, &touched, id).await;
        }
    }
}

fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

const ENTRY: &str = r#"{"intent":"bookkeeping","日期":"2025-11-29","時間":"14:30","品項":"午餐","原幣別":"TWD","原幣金額":100.10,"匯率":1.0,"付款方式":"信用卡","交易ID":"20251129-143000","明細說明":"","分類":"飲食","專案":"日常","必要性":"必要","代墊狀態":"無","收款支付對象":"","附註":""}"#;

#[tokio::test]
async fn a_user_id_in_a_path_is_plain_or_refused() {
    let store = with_others().await;
    let edit = stage::edit(store.clone());
    for id in nasty().iter().flat_map(|id| [id.clone(), percent_encoded(id)]) {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-".contains(&b);
        let is_plain = (1..=64).contains(&id.len()) && id.bytes().all(plain);
        for (method, place) in stage::user_routes() {
            let path = format!("/users/{id}/{place}");
            let key: &[(&str, &[u8])] = &[("idempotency-key", b"k")];
            let Some(answer) = stage::ask(&edit, method, &path, key, ENTRY.as_bytes()).await else {
                assert!(!is_plain, "HTTP itself has no such path");
                continue;
            };
            let touched = touched(&store);
            if is_plain {
                let own = |key: &String| keys_of_a_user(&id).contains(key) || is_hashed(key);
                assert!(touched.keys.iter().all(own), "{id:?}: {touched:?}");
                assert!(touched.logs.iter().all(|log| is_log_of_a_user(log, &id)), "{id:?}: {touched:?}");
            } else {
                assert!(matches!(answer.status().as_u16(), 400 | 404), "{id:?}: {}", answer.status());
                assert!(touched.is_empty(), "{id:?}: {touched:?}");
            }
            others_are_untouched(&store, &touched, &id).await;
        }
    }
}

/// `idem:` and a hash: nothing that a caller wrote.
fn is_hashed(key: &str) -> bool {
    key.strip_prefix("idem:")
        .is_some_and(|hash| hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[tokio::test]
async fn an_idempotency_key_is_hashed_together_with_whose_it_is() {
    let store = with_others().await;
    let edit = stage::edit(store.clone());
    let mut names = BTreeSet::new();
    let mut taken = 0;
    for key in nasty() {
        for (method, path) in [
            (Method::PUT, "/users/U1/last-transaction"),
            (Method::PUT, "/users/U3/last-transaction"),
            (Method::PATCH, "/users/U1/last-transaction"),
        ] {
            let body = if method == Method::PUT { ENTRY } else { r#"{"附註":"改"}"# };
            let header: &[(&str, &[u8])] = &[("idempotency-key", key.as_bytes())];
            let Some(answer) = stage::ask(&edit, method, path, header, body.as_bytes()).await else {
                continue;
            };
            let touched = touched(&store);
            others_are_untouched(&store, &touched, &key).await;
            if answer.status().as_u16() == 400 {
                assert!(touched.is_empty(), "{key:?}: {touched:?}");
                continue;
            }
            assert!(answer.status().is_success(), "{key:?}: {}", answer.status());
            let (hashed, rest): (Vec<&String>, Vec<&String>) =
                touched.keys.iter().partition(|key| is_hashed(key));
            let user = if path.contains("U1") { "U1" } else { "U3" };
            assert_eq!(hashed.len(), 1, "{key:?}: {touched:?}");
            assert!(rest.iter().all(|key| keys_of_a_user(user).contains(key)), "{key:?}: {touched:?}");
            assert!(names.insert(hashed[0].clone()), "{key:?} shares its record with another request's");
            taken += 1;
        }
    }
    assert!(taken > 60, "{taken}");
}

fn job_event(id: &str, domain: &str, stage: &str, seq: u64) -> String {
    json!({"job_id": id, "domain": domain, "stage": stage, "seq": seq, "data": {},
        "timestamp": "2025-11-03T08:15:30Z"})
    .to_string()
}

#[tokio::test]
async fn a_job_a_domain_or_a_stage_that_is_no_name_is_refused_without_a_trace() {
    let store = with_others().await;
    let consumer = stage::consumer(store.clone());
    let reserved = ["user", "processing", "idem", "published", "router"].map(str::to_owned);
    for (n, name) in nasty().into_iter().chain(reserved).enumerate() {
        // A job of its own for each, because a job's sequence numbers are unique.
        let job = format!("job-{n}");
        for (id, domain, stage, seq) in
            [(name.as_str(), "scan", "vision", 11), (&job, &name, "vision", 12), (&job, "scan", &name, 5)]
        {
            let failed = stage::consume(&consumer, &[&job_event(id, domain, stage, seq)]).await;
            let touched = touched(&store);
            if failed.is_empty() {
                assert_eq!(touched, names_of_an_event(domain, id, stage, seq), "{name:?}");
            } else {
                assert!(touched.is_empty(), "{name:?}: {touched:?}");
            }
            others_are_untouched(&store, &touched, &name).await;
        }
    }
}

#[tokio::test]
async fn no_two_events_share_a_name_that_tells_them_apart() {
    let ids = [
        "a",
        "b",
        "a:b",
        "a:vision",
        "a:vision:10",
        "vision:10",
        ":",
        "::",
        "state:a",
        "job:a",
        "10",
        "a:1",
        "1",
    ];
    let domains = ["a", "b", "state", "job", "events", "vision"];
    let stages = [("vision", 10), ("vision", 11), ("a", 1), ("b", 1), ("10", 1), ("1", 1), ("state", 0)];
    let (mut markers, mut states, mut logs) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for id in ids {
        for (stage, seq) in stages {
            let names = names_of_an_event("scan", id, stage, seq);
            let marker = names.keys.iter().find(|key| key.starts_with("published:")).unwrap().clone();
            assert!(markers.insert(marker), "{id} {stage} {seq}");
        }
        for domain in domains {
            let names = names_of_an_event(domain, id, "vision", 10);
            let state =
                names.keys.iter().find(|key| key.starts_with(&format!("{domain}:state:"))).unwrap().clone();
            let log =
                names.logs.iter().find(|log| log.starts_with(&format!("{domain}:job:"))).unwrap().clone();
            assert!(states.insert(state) && logs.insert(log), "{domain} {id}");
        }
    }
    assert_eq!((markers.len(), states.len()), (ids.len() * stages.len(), ids.len() * domains.len()));
    assert!(markers.is_disjoint(&states) && states.is_disjoint(&logs));
}

#[tokio::test]
async fn a_message_group_is_in_no_name_at_all() {
    let store = with_others().await;
    let consumer = stage::consumer(store.clone());
    for group in nasty() {
        let mut message = SqsMessage::default();
        message.message_id = Some("1".to_owned());
        message.event_source_arn = Some("arn:aws:sqs:us-east-1:1:jobs.fifo".to_owned());
        message.attributes.insert("MessageGroupId".to_owned(), group.clone());
        message.body = Some(job_event("job-1", "scan", "vision", 10));
        let mut event = SqsEvent::default();
        event.records.push(message);
        let answer = consumer.handle(event, Instant::now() + Duration::from_secs(30)).await;
        assert!(answer.batch_item_failures.is_empty());
        let touched = touched(&store);
        assert_eq!(touched, names_of_an_event("scan", "job-1", "vision", 10), "{group:?}");
    }
}

#[tokio::test]
async fn a_stream_is_of_the_job_that_its_token_names_or_of_none() {
    let store = with_others().await;
    let gateway = stage::gateway(store.clone());
    let token = stage::job_token(&Job::new("scan", "job-1").unwrap());
    for name in nasty().iter().flat_map(|name| [name.clone(), percent_encoded(name)]) {
        for (target, header) in [
            (format!("/jobs/{name}/events?domain=scan&token={token}"), None),
            (format!("/jobs/{name}?domain=scan&token={token}"), None),
            (format!("/jobs/job-1/events?domain={name}&token={token}"), None),
            (format!("/jobs/job-1/events?domain=scan&token={name}"), None),
            (format!("/jobs/job-1/events?domain=scan&domain={name}&token={token}"), None),
            (format!("/jobs/job-1/events?domain=scan&last_seq={name}&token={token}"), None),
            (format!("/jobs/job-1/events?domain=scan&token={token}"), Some(name.as_bytes())),
        ] {
            let Some((status, _, _)) = stage::follow(&gateway, &target, header).await else { continue };
            let touched = touched(&store);
            others_are_untouched(&store, &touched, &name).await;
            match status.as_u16() {
                200 | 204 => {
                    assert!(
                        touched.logs.iter().all(|log| log == "scan:job:job-1"),
                        "{target:?}: {touched:?}"
                    );
                    assert!(
                        touched.channels.iter().all(|channel| channel == "scan:events:job-1"),
                        "{touched:?}"
                    );
                }
                400 | 401 | 404 => assert!(touched.is_empty(), "{target:?}: {touched:?}"),
                status => panic!("{target:?}: {status}"),
            }
        }
    }
}

#[tokio::test]
async fn a_token_opens_the_one_job_that_it_was_made_for() {
    let store = recording();
    let gateway = stage::gateway(store.clone());
    let ids = ["a", "a:1", "1", ":", "a:", ":a", "a:b", "b", "a.b", "scan:a"];
    let jobs: Vec<(&str, &str)> = ids.iter().flat_map(|id| [("scan", *id), ("a", *id), ("b", *id)]).collect();
    for (domain, id) in &jobs {
        let token = stage::job_token(&Job::new(*domain, *id).unwrap());
        for (other, other_id) in &jobs {
            let target = format!("/jobs/{other_id}?domain={other}&token={token}");
            let (status, _, _) = stage::follow(&gateway, &target, None).await.unwrap();
            let own = (domain, id) == (other, other_id);
            // Its own has no state yet.
            assert_eq!(status.as_u16(), if own { 404 } else { 401 }, "{domain} {id} for {other} {other_id}");
        }
    }
}
