//! The spec's two tables, row by row: status, message, and what the store holds afterwards.

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use edit_last_transaction::{Config, MAX_BODY, OPENAPI};
use http::Request;
use onetap_config::Secret;
use onetap_store::testing::{Fault, TestStore};
use serde_json::json;
use support::{Api, BROKEN, CHANGED, DINNER, LUNCH, MISSING, TOKEN, config, memory};

async fn with_lunch() -> Api {
    let api = Api::new(memory());
    assert_eq!(api.put(LUNCH).await.status, 201);
    api
}

#[tokio::test]
async fn get_answers_the_entry_as_it_was_stored_with_its_etag() {
    let api = with_lunch().await;
    let got = api.get().await;
    assert_eq!((got.status, got.body.as_str()), (200, LUNCH));
    assert_eq!(got.header("content-type"), Some("application/json; charset=utf-8"));
    assert_eq!(got.etag(), api.get().await.etag());
    api.plant(DINNER).await;
    assert_ne!(got.etag(), api.get().await.etag());
}

#[tokio::test]
async fn put_answers_201_where_there_was_none_and_200_over_whatever_there_was() {
    let api = Api::new(memory());
    let first = api.put(LUNCH).await;
    assert_eq!((first.status, first.body.as_str()), (201, LUNCH));
    let second = api.put(DINNER).await;
    assert_eq!((second.status, second.body.as_str()), (200, DINNER));
    assert_eq!(api.get().await.etag(), second.etag());
    api.plant("broken").await;
    assert_eq!(api.put(LUNCH).await.status, 200);
    assert_eq!(api.stored().await.as_deref(), Some(LUNCH));
}

#[tokio::test]
async fn patch_answers_success_with_the_whole_new_entry() {
    let api = with_lunch().await;
    let reply = api.patch(r#"{"原幣金額":150.50,"品項":"工作午餐"}"#).await;
    let expected = LUNCH.replace("100.10", "150.50").replace("午餐", "工作午餐");
    assert_eq!(reply.status, 200);
    assert_eq!(reply.body, format!(r#"{{"success":true,"message":"修改成功","updated_tx":{expected}}}"#));
    assert_eq!(api.stored().await.unwrap(), expected);
    assert_eq!(api.get().await.etag(), reply.etag());
}

#[tokio::test]
async fn delete_answers_204_and_then_404() {
    let api = with_lunch().await;
    let reply = api.delete().await;
    assert_eq!((reply.status, reply.body.as_str()), (204, ""));
    assert_eq!(api.stored().await, None);
    api.delete().await.fails(404, MISSING);
}

#[tokio::test]
async fn without_an_entry_everything_but_put_is_404() {
    let api = Api::new(memory());
    api.get().await.fails(404, MISSING);
    api.patch(r#"{"品項":"晚餐"}"#).await.fails(404, MISSING);
    api.delete().await.fails(404, MISSING);
    let half = Api::with(memory(), support::with_life(Duration::from_secs(1800)));
    half.get().await.fails(404, "目前沒有可修改的交易記錄（交易記錄會在 30 分鐘後自動清除）");
}

#[tokio::test]
async fn a_broken_value_is_500_and_left_as_it_is() {
    let api = Api::new(memory());
    for broken in ["not JSON", "[]", "7", "{}", r#"{"品項":"午餐"}"#, r#"{"交易ID":7}"#, ""] {
        api.plant(broken).await;
        api.get().await.fails(500, BROKEN);
        api.patch(r#"{"品項":"晚餐"}"#).await.fails(500, BROKEN);
        api.delete().await.fails(500, BROKEN);
        assert_eq!(api.stored().await.as_deref(), Some(broken));
    }
}

#[tokio::test]
async fn an_edit_checks_the_fields_it_names_and_not_the_others() {
    let api = Api::new(memory());
    api.plant(r#"{"交易ID":"20251129-140000","原幣金額":"很多"}"#).await;
    assert_eq!(api.patch(r#"{"品項":"晚餐"}"#).await.status, 200);
    assert_eq!(
        api.stored().await.unwrap(),
        r#"{"交易ID":"20251129-140000","原幣金額":"很多","品項":"晚餐"}"#
    );
}

#[tokio::test]
async fn what_cannot_be_read_or_written_is_503_each_with_its_message() {
    const UNREADABLE: &str = "系統暫時無法讀取交易記錄，請稍後再試";
    const UNWRITABLE: &str = "系統暫時無法儲存變更，請稍後再試";
    let api = with_lunch().await;
    let through = |faults| api.through(TestStore::first(Arc::clone(&api.store), faults));
    for fault in [Fault::NotSent, Fault::ReplyLost] {
        through(vec![fault.clone()]).get().await.fails(503, UNREADABLE);
        through(vec![fault.clone()]).patch(r#"{"品項":"晚餐"}"#).await.fails(503, UNREADABLE);
        through(vec![fault]).delete().await.fails(503, UNREADABLE);
    }
    let lost = [vec![Fault::Pass, Fault::NotSent], vec![Fault::Pass, Fault::ReplyLost, Fault::NotSent]];
    through(lost[0].clone()).patch(r#"{"品項":"晚餐"}"#).await.fails(503, UNWRITABLE);
    through(lost[0].clone()).delete().await.fails(503, UNWRITABLE);
    through(vec![Fault::NotSent]).put(DINNER).await.fails(503, UNWRITABLE);
    assert_eq!(api.stored().await.as_deref(), Some(LUNCH));
    through(lost[1].clone()).patch(r#"{"品項":"晚餐"}"#).await.fails(503, UNWRITABLE);
}

#[tokio::test]
async fn if_match_names_a_value_or_a_transaction() {
    let api = with_lunch().await;
    let edit = |condition: String| {
        let api = &api;
        async move { api.ask("PATCH", &[("if-match", &condition)], r#"{"品項":"晚餐"}"#).await }
    };
    let etag = api.get().await.etag().to_owned();
    for stale in ["\"0123456789abcdef0123456789abcdef\"", "20251129-140001", "W/\"x\"", ""] {
        edit(stale.to_owned()).await.fails(412, CHANGED);
        assert_eq!(api.stored().await.as_deref(), Some(LUNCH));
    }
    assert_eq!(edit(etag.clone()).await.status, 200);
    // Sent again, it names a value that is gone; but what it would make is there.
    assert_eq!(edit(etag.clone()).await.status, 200);
    let other = api.ask("PATCH", &[("if-match", &etag)], r#"{"品項":"宵夜"}"#).await;
    other.fails(412, CHANGED);
    for good in ["20251129-140000", "\"20251129-140000\"", "*", "\"x\", 20251129-140000"] {
        assert_eq!(edit(good.to_owned()).await.status, 200);
    }
}

#[tokio::test]
async fn if_match_holds_for_put_and_delete_too() {
    let api = with_lunch().await;
    let stale = [("if-match", "20251129-235959")];
    api.ask("PUT", &stale, DINNER).await.fails(412, CHANGED);
    api.ask("DELETE", &stale, "").await.fails(412, CHANGED);
    assert_eq!(api.stored().await.as_deref(), Some(LUNCH));
    let good = [("if-match", "20251129-140000")];
    assert_eq!(api.ask("PUT", &good, DINNER).await.status, 200);
    assert_eq!(api.ask("DELETE", &[("if-match", "20251129-140100")], "").await.status, 204);
    api.ask("PUT", &good, DINNER).await.fails(412, CHANGED);
}

#[tokio::test]
async fn every_wrong_field_is_reported_and_nothing_is_written() {
    let api = with_lunch().await;
    let table = [
        (r#"{"新欄位":1}"#, "新欄位", "是未知的欄位"),
        (r#"{"原幣金額":-1}"#, "原幣金額", "不可為負數"),
        (r#"{"原幣金額":"150"}"#, "原幣金額", "必須是數字"),
        (r#"{"原幣金額":1e3}"#, "原幣金額", "不可使用指數寫法"),
        (r#"{"原幣金額":1e999}"#, "原幣金額", "不可使用指數寫法"),
        (r#"{"原幣金額":1234567890123456789}"#, "原幣金額", "最多 18 位整數與 8 位小數"),
        (r#"{"原幣金額":0.123456789}"#, "原幣金額", "最多 18 位整數與 8 位小數"),
        (r#"{"匯率":0}"#, "匯率", "必須大於 0"),
        (r#"{"日期":"2025-02-30"}"#, "日期", "必須是存在的日期，格式 YYYY-MM-DD"),
        (r#"{"時間":"24:00"}"#, "時間", "必須是 HH:MM"),
        (r#"{"原幣別":"twd"}"#, "原幣別", "必須是 ISO 4217 幣別代碼"),
        (r#"{"品項":""}"#, "品項", "不可為空"),
        (r#"{"品項":null}"#, "品項", "必須是文字"),
        (r#"{"代墊狀態":"有"}"#, "代墊狀態", "必須是 無、代墊、需支付 或 不索取"),
        (r#"{"交易ID":"20251129-150000"}"#, "交易ID", "不可修改"),
        (r#"{"交易ID":"nonsense"}"#, "交易ID", "必須是 YYYYMMDD-HHMMSS"),
        (r#"{"intent":"other"}"#, "intent", "必須是 bookkeeping"),
        (r#"{"品項":"a","品項":"b"}"#, "品項", "重複出現"),
    ];
    for (body, field, reason) in table {
        let reply = api.patch(body).await;
        assert_eq!((reply.status, reply.json()["errors"][field].as_str()), (422, Some(reason)), "{body}");
    }
    let many = api.patch(r#"{"原幣金額":-1,"日期":"x","多":1,"品項":"好"}"#).await;
    many.fails(422, "原幣金額不可為負數；日期必須是存在的日期，格式 YYYY-MM-DD；多是未知的欄位");
    assert_eq!(many.json()["errors"].as_object().unwrap().len(), 3);
    let nothing = api.patch("{}").await;
    nothing.fails(422, "沒有要修改的欄位");
    let missing = api.put(r#"{"品項":"午餐","原幣金額":1}"#).await;
    assert_eq!((missing.status, missing.json()["errors"].as_object().unwrap().len()), (422, 11));
    assert_eq!(api.stored().await.as_deref(), Some(LUNCH));
    // To name them without changing them is fine.
    let same = api.patch(r#"{"交易ID":"20251129-140000","intent":"bookkeeping","品項":"午餐"}"#).await;
    assert_eq!(same.status, 200);
}

#[tokio::test]
async fn another_currency_needs_its_rate_in_the_same_edit() {
    let api = with_lunch().await;
    for body in [r#"{"原幣別":"USD"}"#, r#"{"原幣別":"USD","原幣金額":12.5}"#] {
        let reply = api.patch(body).await;
        reply.fails(422, "匯率不可省略：原幣別改為 TWD 以外的幣別時，必須一併提供");
        let errors = json!({"匯率": "不可省略：原幣別改為 TWD 以外的幣別時，必須一併提供"});
        assert_eq!(reply.json()["errors"], errors);
    }
    assert_eq!(api.stored().await.as_deref(), Some(LUNCH));
    for _ in 0..2 {
        let reply = api.patch(r#"{"原幣別":"USD","匯率":31.5}"#).await;
        assert_eq!((reply.status, &reply.json()["updated_tx"]["匯率"]), (200, &json!(31.5)));
    }
    // What is not changed needs nothing, and TWD has the rate 1.
    assert_eq!(api.patch(r#"{"原幣別":"USD","品項":"書"}"#).await.status, 200);
    let reply = api.patch(r#"{"原幣別":"TWD"}"#).await;
    assert_eq!((reply.status, &reply.json()["updated_tx"]["匯率"]), (200, &json!(1)));
}

#[tokio::test]
async fn what_is_no_object_is_400_and_what_is_too_large_413() {
    let api = with_lunch().await;
    let deep = format!(r#"{{"x":{}{}}}"#, "[".repeat(30_000), "]".repeat(30_000));
    let deeper = r#"{"a":"#.repeat(13_000);
    for method in ["PUT", "PATCH"] {
        for body in [
            "",
            "null",
            "[]",
            "7",
            "\"品項\"",
            "{",
            r#"{"原幣金額":NaN}"#,
            r#"{"原幣金額":Infinity}"#,
            &deep,
            &deeper,
        ] {
            api.ask(method, &[], body).await.fails(400, "內容必須是 JSON 物件");
        }
        let text = format!(r#"{{"附註":"{}"}}"#, "x".repeat(MAX_BODY));
        api.ask(method, &[], &text).await.fails(413, "內容過大");
        // Judged by its size, before anybody parses it.
        api.ask(method, &[], &"[".repeat(MAX_BODY + 1)).await.fails(413, "內容過大");
    }
    let empty = r#"{"附註":""}"#.len();
    let fits = format!(r#"{{"附註":"{}"}}"#, "x".repeat(MAX_BODY - empty));
    assert_eq!(fits.len(), MAX_BODY);
    assert_eq!(api.patch(&fits).await.status, 200);
}

#[tokio::test]
async fn a_body_that_is_not_utf8_is_400() {
    let api = with_lunch().await;
    let request =
        Request::builder().method("PATCH").uri(api.path()).header("authorization", format!("Bearer {TOKEN}"));
    api.send(request.body(b"{\"\xff\":1}".to_vec()).unwrap()).await.fails(400, "內容必須是 JSON 物件");
}

#[tokio::test]
async fn a_wrong_or_missing_token_is_401_and_a_rotated_pair_both_pass() {
    let api = Api::with(memory(), Config { tokens: ["old", "new"].map(Secret::new).into(), ..config() });
    let ask = |authorization: Option<&str>| {
        let mut request = Request::builder().method("PUT").uri(api.path());
        if let Some(value) = authorization {
            request = request.header("authorization", value);
        }
        let request = request.body(LUNCH.as_bytes().to_vec()).unwrap();
        async { api.send(request).await }
    };
    for wrong in
        [None, Some("Bearer older"), Some("Bearer "), Some("old"), Some("Basic old"), Some("Bearer old,new")]
    {
        let reply = ask(wrong).await;
        reply.fails(401, "缺少或錯誤的 bearer token");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
        assert_eq!(api.stored().await, None);
    }
    assert_eq!(ask(Some("Bearer old")).await.status, 201);
    assert_eq!(ask(Some("Bearer new")).await.status, 200);
}

#[tokio::test]
async fn no_path_reaches_another_key() {
    let api = with_lunch().await;
    let ask = |path: String| {
        let request = Request::put(path).header("authorization", format!("Bearer {TOKEN}"));
        let request = request.body(DINNER.as_bytes().to_vec()).unwrap();
        async { api.send(request).await }
    };
    let user = &api.user;
    let (long, blank, colon) = ("a".repeat(65), format!("{user}%20"), format!("x:{user}"));
    for id in ["a%2Fb", "..", "%2E%2E", "a:b", "%55", "a%00", "a.b", "~", "", &long, &blank, &colon] {
        let reply = ask(format!("/users/{id}/last-transaction")).await;
        reply.fails(400, "user_id 必須是 1 到 64 個英數字、_ 或 -");
    }
    for path in [
        format!("/users/{user}/../{user}/last-transaction"),
        format!("/users/{user}/last-transaction/"),
        format!("//users/{user}/last-transaction"),
        format!("/users/{user}%2Flast-transaction"),
        format!("/users/{user}"),
        "/".to_owned(),
    ] {
        ask(path).await.fails(404, "找不到這個路徑");
    }
    assert_eq!(api.stored().await.as_deref(), Some(LUNCH));
    assert_eq!(ask(format!("/users/{user}/last-transaction?user_id=other")).await.status, 200);
    assert_eq!(api.stored().await.as_deref(), Some(DINNER));
}

#[tokio::test]
async fn other_methods_are_405_with_those_that_are_allowed() {
    let api = with_lunch().await;
    for method in ["POST", "HEAD", "OPTIONS", "TRACE", "QUERY"] {
        let reply = api.ask(method, &[], LUNCH).await;
        reply.fails(405, "不支援這個方法");
        assert_eq!(reply.header("allow"), Some("GET, PUT, PATCH, DELETE"));
    }
    assert_eq!(api.stored().await.as_deref(), Some(LUNCH));
}

#[tokio::test]
async fn the_document_is_served_to_anybody() {
    let api = Api::new(memory());
    let request =
        |method: &str| Request::builder().method(method).uri("/openapi.json").body(Vec::new()).unwrap();
    let reply = api.send(request("GET")).await;
    assert_eq!((reply.status, reply.body.as_str()), (200, OPENAPI));
    assert_eq!(reply.json()["openapi"], "3.1.0");
    assert_eq!(api.send(request("POST")).await.header("allow"), Some("GET"));
}

#[tokio::test]
async fn amounts_keep_their_digits_and_a_newer_writers_fields_their_place() {
    let api = Api::new(memory());
    for amount in
        ["100.10", "0.1", "0.2", "0.30000000", "0.30000004", "0", "123456789012345678.12345678", "1.0"]
    {
        let body = LUNCH.replace("100.10", amount);
        api.put(&body).await;
        assert_eq!(api.get().await.body, body);
        let edited = api.patch(&format!(r#"{{"匯率":{amount},"分類":"教育"}}"#)).await;
        if amount != "0" {
            assert_eq!(edited.status, 200, "{}", edited.body);
            assert!(
                edited.body.contains(&format!(r#""原幣金額":{amount},"匯率":{amount},"#)),
                "{}",
                edited.body
            );
        }
    }
    let newer = LUNCH.replace(r#""分類""#, r#""手續費":0.30000000000000004,"標籤":["a", {"b":1.10}],"分類""#);
    assert_eq!(api.put(&newer).await.body, newer);
    assert!(api.patch(r#"{"分類":"教育"}"#).await.body.contains(&newer.replace("飲食", "教育")));
    let unknown = api.patch(r#"{"手續費":1}"#).await;
    unknown.fails(422, "手續費是未知的欄位");
}
