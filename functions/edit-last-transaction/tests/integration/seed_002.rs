//! Seed 002's own scenarios: its unit and integration tests, its table of races, its renewal policy and its errors.
//! Where its concurrency test changes the value before the edit reads it, here it is changed between read and write.

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use onetap_store::testing::{Fault, Gate, TestStore};
use serde_json::json;
use support::{Api, CHANGED, LUNCH, MISSING, memory};
use tokio::time::advance;

#[tokio::test]
async fn kv_store_get_returns_none_when_key_not_found() {
    let api = Api::new(memory());
    assert_eq!(api.stored().await, None);
    api.get().await.fails(404, MISSING);
}

#[tokio::test]
async fn kv_store_set_and_get() {
    let api = Api::new(memory());
    assert_eq!(api.put(LUNCH).await.status, 201);
    assert_eq!(api.get().await.body, LUNCH);
}

#[tokio::test]
async fn optimistic_lock_concurrency_conflict() {
    // The seed's two bare transactions.
    let original = r#"{"交易ID": "20251129-140000", "品項": "午餐"}"#;
    let new = r#"{"交易ID": "20251129-140100", "品項": "晚餐"}"#;
    let api = Api::new(memory());
    api.plant(original).await;
    let gate = Gate::new();
    let faults = vec![Fault::Pass, Fault::HeldBefore(gate.clone())];
    let editing = api.through(TestStore::first(Arc::clone(&api.store), faults));
    let race = async {
        gate.reached().await;
        api.plant(new).await;
        gate.open();
    };
    let (result, ()) = tokio::join!(editing.patch(r#"{"品項":"工作午餐"}"#), race);
    result.fails(409, CHANGED);
    assert_eq!(api.stored().await.as_deref(), Some(new));
    // The seed's own order of things, where the edit says which transaction it means.
    let named = api.ask("PATCH", &[("if-match", "20251129-140000")], r#"{"品項":"工作午餐"}"#).await;
    named.fails(412, CHANGED);
}

#[tokio::test]
async fn an_update_answers_the_updated_transaction() {
    let api = Api::new(memory());
    api.put(LUNCH).await;
    let updated = api.patch(r#"{"品項":"工作午餐"}"#).await.json();
    assert_eq!((&updated["success"], &updated["message"]), (&json!(true), &json!("修改成功")));
    assert_eq!(updated["updated_tx"]["品項"], "工作午餐");
    assert_eq!(updated["updated_tx"]["交易ID"], "20251129-140000");
}

#[tokio::test(start_paused = true)]
async fn every_edit_sets_the_ttl_to_3600_seconds_anew_and_a_read_does_not() {
    let api = Api::new(memory());
    api.put(LUNCH).await;
    for _ in 0..3 {
        advance(Duration::from_secs(3599)).await;
        assert_eq!(api.get().await.status, 200);
        assert_eq!(api.patch(r#"{"附註":"再改"}"#).await.status, 200);
    }
    advance(Duration::from_millis(3_599_999)).await;
    assert_eq!(api.get().await.status, 200);
    advance(Duration::from_millis(1)).await;
    api.get().await.fails(404, MISSING);
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_expires_during_the_edit_is_reported() {
    let api = Api::new(memory());
    api.put(LUNCH).await;
    let gate = Gate::new();
    let faults = vec![Fault::Pass, Fault::HeldBefore(gate.clone())];
    let editing = api.through(TestStore::first(Arc::clone(&api.store), faults));
    let expiry = async {
        gate.reached().await;
        advance(Duration::from_secs(3600)).await;
        gate.open();
    };
    let (result, ()) = tokio::join!(editing.patch(r#"{"品項":"工作午餐"}"#), expiry);
    result.fails(410, "交易已過期（1 小時限制）");
}

#[tokio::test]
async fn several_edits_in_a_row_end_with_the_last() {
    let api = Api::new(memory());
    api.put(LUNCH).await;
    for amount in ["1", "2.50", "3.000"] {
        assert_eq!(api.patch(&format!(r#"{{"原幣金額":{amount}}}"#)).await.status, 200);
    }
    assert_eq!(api.get().await.body, LUNCH.replace("100.10", "3.000"));
}

#[tokio::test]
async fn missing_broken_and_unreachable_are_three_answers() {
    let api = Api::new(memory());
    let edit = r#"{"品項":"工作午餐"}"#;
    api.patch(edit).await.fails(404, MISSING);
    api.plant("{\"品項\": ").await;
    api.patch(edit).await.fails(500, "資料格式錯誤，請重新記帳");
    let down = api.through(TestStore::faulty(Arc::clone(&api.store), |_| Fault::NotSent));
    down.patch(edit).await.fails(503, "系統暫時無法讀取交易記錄，請稍後再試");
    down.put(LUNCH).await.fails(503, "系統暫時無法儲存變更，請稍後再試");
}
