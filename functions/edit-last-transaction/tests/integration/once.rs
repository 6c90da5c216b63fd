//! `Idempotency-Key`: what is not the same on every backend's account is told once, in memory.

use crate::support;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::Request;
use lambda_http::{Context, RequestExt};
use onetap_store::testing::{Fault, Gate, TestStore};
use support::{Api, LUNCH, MISSING, TOKEN, config, memory};
use tokio::time::Instant;

const EDIT: &str = r#"{"品項":"工作午餐"}"#;

#[tokio::test]
async fn a_key_that_is_none_is_400_and_nothing_is_written() {
    let api = Api::new(memory());
    api.put(LUNCH).await;
    let long = "k".repeat(257);
    let invalid = "Idempotency-Key 必須是 1 到 256 個可見的 ASCII 字元";
    let two = "Idempotency-Key 有兩個不同的值";
    let table = [
        (vec![("idempotency-key", "")], invalid),
        (vec![("idempotency-key", &long)], invalid),
        (vec![("idempotency-key", "a"), ("x-idempotency-key", "b")], two),
    ];
    for (headers, message) in table {
        let reply = api.ask("PATCH", &headers, EDIT).await;
        reply.fails(400, message);
        assert_eq!(reply.header("content-type"), Some("application/problem+json"));
        assert_eq!(
            (reply.json()["status"].as_u64(), reply.json()["type"].as_str()),
            (Some(400), Some("about:blank"))
        );
    }
    assert_eq!(api.stored().await.as_deref(), Some(LUNCH));
    let same = [("idempotency-key", "a"), ("x-idempotency-key", "a")];
    assert_eq!(api.ask("PATCH", &same, EDIT).await.status, 200);
}

#[tokio::test]
async fn a_failure_is_not_kept() {
    let api = Api::new(memory());
    let key = [("idempotency-key", "k")];
    api.ask("PATCH", &key, EDIT).await.fails(404, MISSING);
    api.put(LUNCH).await;
    let reply = api.ask("PATCH", &key, EDIT).await;
    assert_eq!((reply.status, reply.header("idempotency-replayed")), (200, None));
}

#[tokio::test]
async fn a_condition_belongs_to_what_a_key_is_tied_to() {
    let api = Api::new(memory());
    api.put(LUNCH).await;
    let with = |condition: &'static str| [("idempotency-key", "k"), ("if-match", condition)];
    assert_eq!(api.ask("PATCH", &with("20251129-140000"), EDIT).await.status, 200);
    assert_eq!(api.ask("PATCH", &with("20251129-140000"), EDIT).await.status, 200);
    assert_eq!(api.ask("PATCH", &with("*"), EDIT).await.status, 422);
}

#[tokio::test]
async fn a_store_that_is_down_at_the_claim_is_503_and_nothing_is_written() {
    let api = Api::new(memory());
    api.put(LUNCH).await;
    let down = api.through(TestStore::first(Arc::clone(&api.store), vec![Fault::NotSent]));
    let key = [("idempotency-key", "k")];
    down.ask("PATCH", &key, EDIT).await.fails(503, "系統暫時無法儲存變更，請稍後再試");
    let down = api.through(TestStore::first(Arc::clone(&api.store), vec![Fault::Pass, Fault::NotSent]));
    down.ask("PATCH", &key, EDIT).await.fails(503, "系統暫時無法讀取交易記錄，請稍後再試");
    assert_eq!(api.stored().await.as_deref(), Some(LUNCH));
    assert_eq!(api.ask("PATCH", &key, EDIT).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_before_lambda_ends_the_invocation() {
    // Longer than the machine can be busy between reading the system's clock here and in the function.
    const LEFT: Duration = Duration::from_secs(60);
    let api = Api::new(memory());
    api.put(LUNCH).await;
    let key = [("idempotency-key", "k")];
    let gate = Gate::new();
    let faults = vec![Fault::Pass, Fault::HeldBefore(gate.clone())];
    let held = api.through(TestStore::first(Arc::clone(&api.store), faults));
    // No limit but the deadline.
    let mut patient = config();
    patient.idem = patient.idem.wait_timeout(Duration::ZERO);
    let other = Api { user: api.user.clone(), ..Api::with(Arc::clone(&api.store), patient) };
    let meanwhile = async {
        gate.reached().await;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let mut context = Context::default();
        context.deadline = u64::try_from((now + LEFT).as_millis()).unwrap();
        let request = Request::patch(other.path()).header("authorization", format!("Bearer {TOKEN}"));
        let request = request.header(key[0].0, key[0].1).body(EDIT.as_bytes().to_vec()).unwrap();
        let began = Instant::now();
        other
            .send(request.with_lambda_context(context))
            .await
            .fails(409, "相同 Idempotency-Key 的請求正在處理中，請稍後再試");
        assert!(began.elapsed() < LEFT, "{:?}", began.elapsed());
        gate.open();
    };
    let (reply, ()) = tokio::join!(held.ask("PATCH", &key, EDIT), meanwhile);
    assert_eq!(reply.status, 200);
}
