//! What every answer has, and what is turned away before it is looked at.

use http::{HeaderMap, Method, StatusCode};
use onetap_bus::{Event, Job, MAX_EVENT_BYTES, Stages};
use onetap_store::Store;
use onetap_store::testing::{Fault, TestStore};
use onetap_tests::recording::{recording, touched};
use onetap_tests::stage::{self, planted};

const PLACE: &str = "/users/U1/last-transaction";
const MONTH: &str = "/users/U1/transactions?month=2025-11";
const ENTRY: &str = r#"{"intent":"bookkeeping","日期":"2025-11-29","時間":"14:30","品項":"午餐","原幣別":"TWD","原幣金額":100.10,"匯率":1.0,"付款方式":"信用卡","交易ID":"20251129-143000","明細說明":"","分類":"飲食","專案":"日常","必要性":"必要","代墊狀態":"無","收款支付對象":"","附註":""}"#;

/// Everything that an answer may say beside its body. Nothing here tells of a server, a version or a machine.
const HEADERS: [&str; 12] = [
    "access-control-allow-origin",
    "allow",
    "cache-control",
    "content-disposition",
    "content-type",
    "etag",
    "idempotency-replayed",
    "retry-after",
    "vary",
    "www-authenticate",
    "x-accel-buffering",
    "x-content-type-options",
];

fn says_what_it_should(headers: &HeaderMap, what: &str) {
    assert_eq!(headers["x-content-type-options"], "nosniff", "{what}");
    assert_eq!(headers["cache-control"], "no-store", "{what}");
    for name in headers.keys() {
        assert!(HEADERS.contains(&name.as_str()), "{what}: {name}");
    }
}

#[tokio::test]
async fn every_answer_of_the_edit_function_is_neither_sniffed_nor_stored_and_tells_nothing_of_its_server() {
    let store = recording();
    let edit = stage::edit(store.clone());
    let broken = stage::edit(TestStore::faulty(store, |_| Fault::NotSent));
    let key: &[(&str, &[u8])] = &[("idempotency-key", b"tap-1")];
    let mut seen = Vec::new();
    for (function, method, path, headers, body) in [
        (&edit, Method::GET, PLACE, &[][..], ""),
        (&edit, Method::PUT, PLACE, key, ENTRY),
        (&edit, Method::PUT, PLACE, key, ENTRY),
        (&edit, Method::PUT, PLACE, key, "{}"),
        (&edit, Method::GET, PLACE, &[], ""),
        (&edit, Method::PATCH, PLACE, &[], r#"{"附註":"改"}"#),
        (&edit, Method::PATCH, PLACE, &[("if-match", b"\"other\"")], r#"{"附註":"又改"}"#),
        (&edit, Method::PATCH, PLACE, &[("idempotency-key", b"")], r#"{"附註":"改"}"#),
        (&edit, Method::PATCH, PLACE, &[], "{"),
        (&edit, Method::POST, PLACE, &[], ""),
        (&edit, Method::GET, MONTH, &[], ""),
        (&edit, Method::GET, MONTH, &[("accept", b"text/csv")], ""),
        (&edit, Method::GET, MONTH, &[("if-none-match", b"*")], ""),
        (&edit, Method::GET, "/users/U1/transactions?month=x", &[], ""),
        (&edit, Method::PUT, MONTH, &[], ENTRY),
        (&edit, Method::DELETE, PLACE, &[], ""),
        (&edit, Method::GET, "/openapi.json", &[], ""),
        (&edit, Method::POST, "/openapi.json", &[], ""),
        (&edit, Method::GET, "/", &[], ""),
        (&broken, Method::GET, PLACE, &[], ""),
        (&broken, Method::GET, MONTH, &[], ""),
        (&broken, Method::PUT, PLACE, &[], ENTRY),
    ] {
        let what = format!("{method} {path}");
        let answer = stage::ask(function, method, path, headers, body.as_bytes()).await.unwrap();
        says_what_it_should(answer.headers(), &what);
        seen.push(answer.status().as_u16());
    }
    let of_the_month = [200, 200, 304, 400, 405];
    let before = [404, 201, 201, 422, 200, 200, 412, 400, 400, 405];
    let after = [204, 200, 405, 404, 503, 503, 503];
    assert_eq!(seen, [&before[..], &of_the_month, &after].concat());
    let answer = edit.handle(http::Request::get(PLACE).body("").unwrap()).await;
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    says_what_it_should(answer.headers(), "without a token");
}

#[tokio::test]
async fn every_answer_of_the_gateway_is_neither_sniffed_nor_stored_and_tells_nothing_of_its_server() {
    let store = recording();
    let event = r#"{"job_id":"job-1","domain":"scan","stage":"done","seq":51,"data":{},"timestamp":"2025-11-03T08:15:30Z"}"#;
    assert_eq!(stage::consume(&stage::consumer(store.clone()), &[event]).await, Vec::<usize>::new());
    let gateway = stage::gateway(store.clone());
    let broken = stage::gateway(TestStore::faulty(store, |_| Fault::NotSent));
    let token = |id: &str| stage::job_token(&Job::new("scan", id).unwrap());
    let (one, two) = (token("job-1"), token("job-2"));
    for (gateway, target, status) in [
        (&gateway, format!("/jobs/job-1/events?domain=scan&token={one}"), 200),
        (&gateway, format!("/jobs/job-1/events?domain=scan&last_seq=51&token={one}"), 204),
        (&gateway, format!("/jobs/job-1?domain=scan&token={one}"), 200),
        (&gateway, format!("/jobs/job-2?domain=scan&token={two}"), 404),
        (&gateway, format!("/jobs/job-1?domain=scan&token={two}"), 401),
        (&gateway, "/jobs/job-1?domain=user".to_owned(), 400),
        (&gateway, "/".to_owned(), 404),
        (&broken, format!("/jobs/job-1?domain=scan&token={one}"), 503),
    ] {
        let (seen, headers, body) = stage::follow(gateway, &target, None).await.unwrap();
        assert_eq!(seen, status, "{target}: {body}");
        says_what_it_should(&headers, &target);
        assert!(!body.contains(planted::JOB_SECRET) && !body.contains(&one), "{body}");
    }
    let post = http::Request::post("/jobs/job-1").body(()).unwrap();
    let answer = gateway.handle(post).await;
    assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
    says_what_it_should(answer.headers(), "POST");
}

/// Neither JSON nor signed: whoever looked into it would say so instead.
fn nonsense(length: usize) -> Vec<u8> {
    vec![b'x'; length]
}

#[tokio::test]
async fn a_body_over_its_limit_is_turned_away_before_it_is_looked_at() {
    let store = recording();
    let webhook = stage::webhook(store.clone(), &onetap_http::Client::new(), "http://127.0.0.1:9");
    for (length, unsigned, signed) in [(1 << 20, 401, 400), ((1 << 20) + 1, 413, 413)] {
        let body = nonsense(length);
        assert_eq!(stage::deliver_signed(&webhook, &body, b"wrong").await, unsigned);
        assert_eq!(stage::deliver(&webhook, &body).await, signed);
    }
    let edit = stage::edit(store.clone());
    for method in [Method::PUT, Method::PATCH] {
        for (length, status) in [(64 << 10, 400), ((64 << 10) + 1, 413)] {
            let answer = stage::ask(&edit, method.clone(), PLACE, &[], &nonsense(length)).await.unwrap();
            assert_eq!(answer.status(), status, "{method}");
        }
    }
    let problem = |length| {
        Event::parse(String::from_utf8(nonsense(length)).unwrap(), &Stages::default())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(problem(MAX_EVENT_BYTES), "the event is not JSON");
    assert_eq!(problem(MAX_EVENT_BYTES + 1), "the event is over 128 KiB");
    let bodies = [nonsense(MAX_EVENT_BYTES + 1)].map(|body| String::from_utf8(body).unwrap());
    assert_eq!(stage::consume(&stage::consumer(store.clone()), &[&bodies[0]]).await, [0]);
    let touched = touched(&store);
    assert!(touched.is_empty(), "{touched:?}");
    assert!(store.max_value() > MAX_EVENT_BYTES);
}
