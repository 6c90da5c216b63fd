//! The ledger, read back: a month as JSON or CSV.

use crate::{on_every_backend, support};

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use edit_last_transaction::{LambdaAnswer, MAX_ANSWER_BYTES};
use http::Request;
use lambda_http::{Body, Context, IntoResponse, RequestExt};
use onetap_ledger::{Moment, Month};
use onetap_store::testing::{Fault, TestStore};
use onetap_store::{Batch, Commit, Store};
use onetap_telemetry::Recorder;
use serde_json::json;
use support::{Api, BROKEN, DINNER, LUNCH, TOKEN, memory};
use tokio::time::{Instant, sleep};

const NOVEMBER: &str = "?month=2025-11";
const UNREADABLE: &str = "系統暫時無法讀取交易記錄，請稍後再試";

fn put(entry: &str) -> String {
    format!(r#"{{"op":"put","tx":{entry}}}"#)
}

/// The JSON of November 2025 with these entries, all of them `飲食`.
fn november(total: &str, entries: &[&str]) -> String {
    let count = entries.len();
    let categories = match count {
        0 => String::new(),
        _ => format!(r#"{{"分類":"飲食","count":{count},"total_twd":"{total}"}}"#),
    };
    format!(
        r#"{{"month":"2025-11","count":{count},"total_twd":"{total}","income_twd":"0","by_category":[{categories}],"transactions":[{}]}}"#,
        entries.join(",")
    )
}

async fn every_change_is_one_record_of_its_month(store: Arc<dyn Store>) {
    let api = Api::new(store);
    let month = || async { api.transactions(NOVEMBER, &[]).await.body };
    assert_eq!(month().await, november("0", &[]));
    api.put(LUNCH).await;
    assert_eq!(month().await, november("100.1", &[LUNCH]));
    api.put(DINNER).await;
    assert_eq!(month().await, november("350.1", &[LUNCH, DINNER]));
    let edited = DINNER.replace("250", "250.50");
    api.patch(r#"{"原幣金額":250.50}"#).await;
    assert_eq!(month().await, november("350.6", &[LUNCH, &edited]));
    api.delete().await;
    assert_eq!(month().await, november("100.1", &[LUNCH]));
    let deleted = r#"{"op":"delete","交易ID":"20251129-140100"}"#.to_owned();
    assert_eq!(api.records("2025-11").await, [put(LUNCH), put(DINNER), put(&edited), deleted]);
}

async fn a_replay_adds_no_record(store: Arc<dyn Store>) {
    let api = Api::new(store);
    for (method, body) in [("PUT", LUNCH), ("PATCH", r#"{"原幣金額":150}"#)] {
        let key = [("idempotency-key", method)];
        assert!(api.ask(method, &key, body).await.status < 300);
        assert_eq!(api.ask(method, &key, body).await.header("idempotency-replayed"), Some("true"));
    }
    let edited = LUNCH.replace("100.10", "150");
    assert_eq!(api.records("2025-11").await, [put(LUNCH), put(&edited)]);
    assert_eq!(api.transactions(NOVEMBER, &[]).await.body, november("150", &[&edited]));
}

async fn an_edit_of_the_date_moves_the_entry_in_one_commit(store: Arc<dyn Store>) {
    let api = Api::new(store);
    api.put(LUNCH).await;
    let counting = TestStore::counting(Arc::clone(&api.store));
    let counted = api.through(Arc::clone(&counting) as Arc<dyn Store>);
    assert_eq!(counted.patch(r#"{"日期":"2024-02-29"}"#).await.status, 200);
    assert_eq!(counting.calls(), 2, "one read, one commit");
    assert_eq!(api.transactions(NOVEMBER, &[]).await.body, november("0", &[]));
    let february = api.transactions("?month=2024-02", &[]).await;
    assert!(february.body.contains(&LUNCH.replace("2025-11-29", "2024-02-29")), "{}", february.body);
    assert_eq!((&february.json()["month"], &february.json()["count"]), (&json!("2024-02"), &json!(1)));
    assert_eq!((api.records("2025-11").await.len(), api.records("2024-02").await.len()), (2, 1));
}

async fn an_entry_stays_in_the_ledger_when_the_last_transaction_has_expired(store: Arc<dyn Store>) {
    let api = Api::with(store, support::with_life(Duration::from_millis(200)));
    api.put(LUNCH).await;
    while api.get().await.status != 404 {
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(api.transactions(NOVEMBER, &[]).await.body, november("100.1", &[LUNCH]));
}

async fn a_month_of_five_thousand_records_is_read(store: Arc<dyn Store>) {
    let api = Api::new(store);
    let entries: Vec<String> =
        (0..5000).map(|n| LUNCH.replace("20251129-140000", &format!("20251129-{n:06}"))).collect();
    api.append("2025-11", &entries.iter().map(|entry| put(entry)).collect::<Vec<_>>()).await;
    let read = api.transactions(NOVEMBER, &[]).await;
    let expected = november("500500", &entries.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(read.status == 200 && read.body == expected, "{}", read.status);
    let csv = api.transactions("?month=2025-11&format=csv", &[]).await;
    assert_eq!((csv.status, csv.body.lines().count()), (200, 5001));
}

async fn a_broken_record_hides_no_other(store: Arc<dyn Store>) {
    let api = Api::new(store);
    let recorder = Recorder::default();
    let _metrics = recorder.on_this_thread();
    let broken = [r#"{"op":"put","tx":{"交易ID":"20251129-140000"}}"#, "not JSON", "{}", ""];
    api.put(LUNCH).await;
    api.append("2025-11", &broken.map(str::to_owned)).await;
    api.put(DINNER).await;
    assert_eq!(api.transactions(NOVEMBER, &[]).await.body, november("350.1", &[LUNCH, DINNER]));
    let metrics = recorder.prometheus();
    assert!(metrics.contains("kv_error_total{operation=\"decode\"} 4\n"), "{metrics}");
}

async fn a_known_representation_is_304_until_it_changes(store: Arc<dyn Store>) {
    let api = Api::new(store);
    api.put(LUNCH).await;
    let first = api.transactions(NOVEMBER, &[]).await;
    let csv = api.transactions("?month=2025-11&format=csv", &[]).await;
    assert_ne!(first.etag(), csv.etag());
    let with = |tag: String| {
        let api = &api;
        async move { api.transactions(NOVEMBER, &[("if-none-match", &tag)]).await }
    };
    for known in [first.etag().to_owned(), format!("\"x\", W/{}", first.etag()), "*".to_owned()] {
        let same = with(known).await;
        assert_eq!((same.status, same.body.as_str(), same.etag()), (304, "", first.etag()));
        assert_eq!((same.header("vary"), same.header("content-type")), (Some("Accept"), None));
    }
    assert_eq!(with(csv.etag().to_owned()).await.status, 200);
    api.patch(r#"{"原幣金額":100.1}"#).await;
    let changed = with(first.etag().to_owned()).await;
    assert_eq!(changed.status, 200);
    assert_ne!(changed.etag(), first.etag());
    assert_eq!(with(changed.etag().to_owned()).await.status, 304);
}

#[tokio::test]
async fn income_is_summed_apart_from_spending() {
    let api = Api::new(memory());
    api.put(LUNCH).await;
    let csv_of_lunch = api.transactions("?month=2025-11&format=csv", &[]).await.body;
    let refund =
        DINNER.replace("飲食", "收入").replace("250", "10.10").replace("\"匯率\":1,", "\"匯率\":31.5,");
    assert_ne!(refund, DINNER);
    api.put(&refund).await;
    let lunch = r#"{"分類":"飲食","count":1,"total_twd":"100.1"}"#;
    let sums = format!(r#""count":2,"total_twd":"100.1","income_twd":"318.15","by_category":[{lunch}]"#);
    let month = api.transactions(NOVEMBER, &[]).await.body;
    assert_eq!(month, format!(r#"{{"month":"2025-11",{sums},"transactions":[{LUNCH},{refund}]}}"#));

    // The file has a row more, and the columns that it had.
    let csv = api.transactions("?month=2025-11&format=csv", &[]).await.body;
    let row = csv.strip_prefix(&csv_of_lunch).unwrap();
    assert!(row.contains(",10.10,31.5,") && row.contains(",收入,") && row.lines().count() == 1, "{row}");

    // An edit of the category moves the amount to the other sum.
    api.patch(r#"{"分類":"飲食"}"#).await;
    let month = api.transactions(NOVEMBER, &[]).await.json();
    assert_eq!((&month["total_twd"], &month["income_twd"]), (&json!("418.25"), &json!("0")));
}

#[tokio::test]
async fn a_month_is_json_unless_csv_is_asked_for() {
    let api = Api::new(memory());
    api.put(LUNCH).await;
    let json = Some("application/json; charset=utf-8");
    let csv = Some("text/csv; charset=utf-8; header=present");
    for (format, accept, expected) in [
        ("", "", json),
        ("", "*/*", json),
        ("", "text/csv", csv),
        ("", "text/csv, application/json", json),
        ("", "application/json;q=0.5, text/csv;q=0.6", csv),
        ("&format=csv", "application/json", csv),
        ("&format=json", "text/csv", json),
    ] {
        let headers: &[_] = if accept.is_empty() { &[] } else { &[("accept", accept)] };
        let reply = api.transactions(&format!("{NOVEMBER}{format}"), headers).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, expected), "{format} {accept}");
        assert_eq!(reply.header("vary"), Some("Accept"));
        let name = (expected == csv).then_some("attachment; filename=\"transactions-2025-11.csv\"");
        assert_eq!(reply.header("content-disposition"), name);
    }
}

#[tokio::test]
async fn without_a_month_it_is_the_current_one_in_taipei() {
    let api = Api::new(memory());
    // The second try is for a month that ends during the first.
    for _ in 0..2 {
        let before = Month::from(Moment::now().date());
        let date = format!("{before}-01");
        api.put(&LUNCH.replace("2025-11-29", &date)).await;
        let reply = api.transactions("", &[]).await.json();
        if Month::from(Moment::now().date()) == before {
            assert_eq!((&reply["month"], &reply["count"]), (&json!(before.to_string()), &json!(1)));
            return;
        }
    }
    panic!("two months have ended during the test");
}

#[tokio::test]
async fn an_entry_of_last_year_is_in_its_month_and_in_no_other() {
    let api = Api::new(memory());
    api.put(LUNCH).await;
    api.put(&DINNER.replace("2025-11-29", "2024-11-30")).await;
    assert_eq!(api.transactions(NOVEMBER, &[]).await.body, november("100.1", &[LUNCH]));
    for (month, count) in [("2024-11", 1), ("2024-12", 0), ("2026-11", 0), ("0001-01", 0), ("9999-12", 0)] {
        let reply = api.transactions(&format!("?month={month}"), &[]).await.json();
        assert_eq!((&reply["month"], &reply["count"]), (&json!(month), &json!(count)));
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_said() {
    let api = Api::new(memory());
    let no_month = "month 必須是存在的月份，格式 YYYY-MM";
    for (query, message) in [
        ("?month=2026-13", no_month),
        ("?month=", no_month),
        ("?month=11", no_month),
        ("?month=2025-11&month=2025-12", "參數 month 重複出現"),
        ("?month=2025-11&format=xml", "format 必須是 json 或 csv"),
        ("?mouth=2025-11", "未知的參數「mouth」，只接受 month 與 format"),
        ("?month=2025%-11", "查詢字串的百分號編碼有誤"),
    ] {
        api.transactions(query, &[("accept", "text/csv")]).await.fails(400, message);
    }
    for id in ["", "a:b", "a%2Fb", "..", &"a".repeat(65)] {
        let reply = api.ask_at(&format!("/users/{id}/transactions"), "GET", &[], "").await;
        reply.fails(400, "user_id 必須是 1 到 64 個英數字、_ 或 -");
    }
    for path in ["/users/U1/transactions/", "/users/U1/transactions/2025-11", "/users/transactions"] {
        api.ask_at(path, "GET", &[], "").await.fails(404, "找不到這個路徑");
    }
    for method in ["PUT", "PATCH", "DELETE", "POST", "HEAD", "OPTIONS"] {
        let reply = api.ask_at("/users/U1/transactions", method, &[], LUNCH).await;
        reply.fails(405, "不支援這個方法");
        assert_eq!(reply.header("allow"), Some("GET"));
    }
    let stranger = Request::get("/users/U1/transactions?month=x").header("authorization", "Bearer other");
    api.send(stranger.body(Vec::new()).unwrap()).await.fails(401, "缺少或錯誤的 bearer token");
}

#[tokio::test]
async fn a_store_that_is_down_is_503_on_every_page() {
    let api = Api::new(memory());
    let records: Vec<String> = (0..1001).map(|n| put(&LUNCH.replace("140000", &format!("{n:06}")))).collect();
    api.append("2025-11", &records).await;
    let lost = |passing: usize| [vec![Fault::Pass; passing], vec![Fault::ReplyLost]].concat();
    for faults in [vec![Fault::NotSent], lost(0), lost(1), lost(2)] {
        let down = api.through(TestStore::first(Arc::clone(&api.store), faults));
        down.transactions(NOVEMBER, &[]).await.fails(503, UNREADABLE);
    }
    let counting = TestStore::counting(Arc::clone(&api.store));
    api.through(Arc::clone(&counting) as Arc<dyn Store>).transactions(NOVEMBER, &[]).await;
    assert_eq!(counting.calls(), 3, "two pages of 1000, and whether the log was cleared between them");
}

#[tokio::test]
async fn a_value_in_the_place_of_the_log_is_500() {
    let api = Api::new(memory());
    let key = onetap_store::Key::new(api.log("2025-11").as_str()).unwrap();
    let batch = Batch::new().put(&key, onetap_store::Expect::Absent, "x", Duration::from_secs(60));
    assert!(matches!(api.store.commit(&batch).await.unwrap(), Commit::Applied(_)));
    api.transactions(NOVEMBER, &[]).await.fails(500, BROKEN);
}

#[tokio::test(start_paused = true)]
async fn the_answer_comes_before_the_invocation_ends() {
    // Longer than the machine can be busy between reading the system's clock here and in the function.
    const INVOCATION: Duration = Duration::from_secs(60);
    let api = Api::new(memory());
    let slow = TestStore::faulty(Arc::clone(&api.store), |_| Fault::AnsweredLate(INVOCATION * 2));
    for (left, calls) in [(INVOCATION, 1), (Duration::ZERO, 1)] {
        let mut context = Context::default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        context.deadline = u64::try_from((now + left).as_millis()).unwrap();
        let request = Request::get(format!("/users/{}/transactions", api.user));
        let request = request.header("authorization", format!("Bearer {TOKEN}"));
        let request = request.body(Vec::new()).unwrap().with_lambda_context(context);
        let began = Instant::now();
        api.through(Arc::clone(&slow) as Arc<dyn Store>).send(request).await.fails(503, UNREADABLE);
        assert!(began.elapsed() <= left);
        assert_eq!(slow.calls(), calls);
    }
}

#[tokio::test]
async fn a_month_over_the_limit_of_an_answer_is_500_and_says_why() {
    let api = Api::new(memory());
    let remark = "\\\"".repeat(15_000);
    let large = |n: usize| {
        put(&LUNCH
            .replace("140000", &format!("{n:06}"))
            .replace(r#""附註":"""#, &format!(r#""附註":"{remark}""#)))
    };
    // As a JSON string each record is half as large again, or a bit more.
    let fitting = MAX_ANSWER_BYTES / large(0).len() / 2;
    api.append("2025-11", &(0..fitting).map(large).collect::<Vec<_>>()).await;
    let fits = api.transactions(NOVEMBER, &[]).await;
    assert_eq!(fits.status, 200);
    assert!(serde_json::to_string(&fits.body).unwrap().len() <= MAX_ANSWER_BYTES);
    api.append("2025-11", &(fitting..fitting * 2).map(large).collect::<Vec<_>>()).await;
    let message = "這個月的記錄過多，超過單次回應的上限（5.5 MB）";
    api.transactions(NOVEMBER, &[]).await.fails(500, message);
    api.transactions(NOVEMBER, &[("if-none-match", "*")]).await.fails(500, message);
}

#[tokio::test]
async fn the_byte_order_mark_reaches_lambda() {
    let api = Api::new(memory());
    api.put(LUNCH).await;
    let request = || {
        let request = Request::get(format!("/users/{}/transactions?month=2025-11&format=csv", api.user));
        request.header("authorization", format!("Bearer {TOKEN}")).body("").unwrap()
    };
    let answer = api.function.handle(request()).await;
    let sent = LambdaAnswer(answer.clone()).into_response().await;
    assert_eq!(*sent.body(), Body::Text(answer.body().clone()));
    assert_eq!((sent.status(), sent.headers()), (answer.status(), answer.headers()));
}

on_every_backend! {
    every_change_is_one_record_of_its_month:
    every_change_is_one_record_of_its_month_on_memory
    every_change_is_one_record_of_its_month_on_redis
    every_change_is_one_record_of_its_month_on_upstash
    every_change_is_one_record_of_its_month_on_dynamodb
    every_change_is_one_record_of_its_month_on_dynamodb_local
}
on_every_backend! {
    a_replay_adds_no_record:
    a_replay_adds_no_record_on_memory
    a_replay_adds_no_record_on_redis
    a_replay_adds_no_record_on_upstash
    a_replay_adds_no_record_on_dynamodb
    a_replay_adds_no_record_on_dynamodb_local
}
on_every_backend! {
    an_edit_of_the_date_moves_the_entry_in_one_commit:
    an_edit_of_the_date_moves_the_entry_in_one_commit_on_memory
    an_edit_of_the_date_moves_the_entry_in_one_commit_on_redis
    an_edit_of_the_date_moves_the_entry_in_one_commit_on_upstash
    an_edit_of_the_date_moves_the_entry_in_one_commit_on_dynamodb
    an_edit_of_the_date_moves_the_entry_in_one_commit_on_dynamodb_local
}
on_every_backend! {
    an_entry_stays_in_the_ledger_when_the_last_transaction_has_expired:
    an_entry_stays_in_the_ledger_when_the_last_transaction_has_expired_on_memory
    an_entry_stays_in_the_ledger_when_the_last_transaction_has_expired_on_redis
    an_entry_stays_in_the_ledger_when_the_last_transaction_has_expired_on_upstash
    an_entry_stays_in_the_ledger_when_the_last_transaction_has_expired_on_dynamodb
    an_entry_stays_in_the_ledger_when_the_last_transaction_has_expired_on_dynamodb_local
}
on_every_backend! {
    a_month_of_five_thousand_records_is_read:
    a_month_of_five_thousand_records_is_read_on_memory
    a_month_of_five_thousand_records_is_read_on_redis
    a_month_of_five_thousand_records_is_read_on_upstash
    a_month_of_five_thousand_records_is_read_on_dynamodb
    a_month_of_five_thousand_records_is_read_on_dynamodb_local
}
on_every_backend! {
    a_broken_record_hides_no_other:
    a_broken_record_hides_no_other_on_memory
    a_broken_record_hides_no_other_on_redis
    a_broken_record_hides_no_other_on_upstash
    a_broken_record_hides_no_other_on_dynamodb
    a_broken_record_hides_no_other_on_dynamodb_local
}
on_every_backend! {
    a_known_representation_is_304_until_it_changes:
    a_known_representation_is_304_until_it_changes_on_memory
    a_known_representation_is_304_until_it_changes_on_redis
    a_known_representation_is_304_until_it_changes_on_upstash
    a_known_representation_is_304_until_it_changes_on_dynamodb
    a_known_representation_is_304_until_it_changes_on_dynamodb_local
}
