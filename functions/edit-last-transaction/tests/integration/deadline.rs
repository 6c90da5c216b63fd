//! Whatever the store does, the caller has an answer before Lambda ends the invocation.

use crate::support;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::Request;
use lambda_http::{Context, RequestExt};
use onetap_store::Store;
use onetap_store::testing::{Fault, TestStore};
use support::{Api, LUNCH, Reply, TOKEN, memory};
use tokio::time::{Instant, sleep};

/// Lambda's time limit for this function.
const INVOCATION: Duration = Duration::from_secs(10);

const UNREADABLE: &str = "系統暫時無法讀取交易記錄，請稍後再試";
const UNWRITABLE: &str = "系統暫時無法儲存變更，請稍後再試";

/// Asks with so much time left, by a clock that is paused; says how much of it was taken.
async fn ask(api: &Api, method: &str, body: &str) -> (Reply, Duration) {
    ask_with(api, method, None, body).await
}

/// The same under an `Idempotency-Key`.
async fn ask_with(api: &Api, method: &str, key: Option<&str>, body: &str) -> (Reply, Duration) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut context = Context::default();
    context.deadline = u64::try_from((now + INVOCATION).as_millis()).unwrap();
    let request = Request::builder().method(method).uri(api.path());
    let request = request.header("authorization", format!("Bearer {TOKEN}"));
    let request = key.into_iter().fold(request, |request, key| request.header("idempotency-key", key));
    let request = request.body(body.as_bytes().to_vec()).unwrap().with_lambda_context(context);
    let began = Instant::now();
    let reply = api.send(request).await;
    (reply, began.elapsed())
}

#[tokio::test(start_paused = true)]
async fn an_edit_that_keeps_losing_is_503_before_the_invocation_ends() {
    let api = Api::new(memory());
    api.put(LUNCH).await;
    // Every call takes as long as the store's time limit allows, and meanwhile somebody else changes the entry.
    let slow = TestStore::faulty(Arc::clone(&api.store), |_| Fault::SentLate(Duration::from_millis(500)));
    let slow = api.through(slow);
    let rival = async {
        for n in 0.. {
            sleep(Duration::from_millis(100)).await;
            api.plant(&LUNCH.replace("飲食", &format!("飲食 {n}"))).await;
        }
    };
    let edits = async {
        for (method, body) in [("PATCH", r#"{"品項":"工作午餐"}"#), ("PUT", LUNCH), ("DELETE", "")] {
            let (reply, took) = ask(&slow, method, body).await;
            reply.fails(503, UNWRITABLE);
            assert!(took < INVOCATION, "{method}: {took:?}");
            assert!(took > INVOCATION / 2, "{method} gave up after {took:?}");
        }
    };
    tokio::select! {
        () = edits => {}
        () = rival => {}
    }
    assert!(!api.stored().await.unwrap().contains("工作"));
}

#[tokio::test(start_paused = true)]
async fn a_store_slower_than_the_invocation_is_503_before_it_ends() {
    let api = Api::new(memory());
    api.put(LUNCH).await;
    let edit = r#"{"品項":"工作午餐"}"#;
    let late = |call: usize| {
        let faults = move |n| if n < call { Fault::Pass } else { Fault::SentLate(INVOCATION * 2) };
        api.through(TestStore::faulty(Arc::clone(&api.store), faults))
    };
    // The first call reads, where there is something to read; the next one writes.
    let table = [
        ("GET", "", 1, UNREADABLE),
        ("PATCH", edit, 1, UNREADABLE),
        ("PATCH", edit, 2, UNWRITABLE),
        ("PUT", LUNCH, 1, UNWRITABLE),
        ("PUT", LUNCH, 2, UNWRITABLE),
        ("DELETE", "", 1, UNREADABLE),
        ("DELETE", "", 2, UNWRITABLE),
    ];
    for (method, body, call, message) in table {
        let (reply, took) = ask(&late(call), method, body).await;
        reply.fails(503, message);
        assert!(took < INVOCATION, "{method} {call}: {took:?}");
    }
    assert_eq!(api.stored().await.as_deref(), Some(LUNCH));
    // Under a key: the claim, the read and the write are each one call.
    for (method, body) in [("PATCH", edit), ("PUT", LUNCH)] {
        for call in 1..=3 {
            let key = format!("{method}-{call}");
            let (reply, took) = ask_with(&late(call), method, Some(&key), body).await;
            assert!(took < INVOCATION, "{method} {call}: {took:?}");
            assert_eq!(reply.status, 503, "{method} {call}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_too_late_asks_the_store_for_nothing() {
    let api = Api::new(memory());
    let counting = TestStore::counting(Arc::clone(&api.store));
    let counted = api.through(Arc::clone(&counting) as Arc<dyn Store>);
    let mut context = Context::default();
    context.deadline =
        u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let request = Request::put(api.path()).header("authorization", format!("Bearer {TOKEN}"));
    let request = request.body(LUNCH.as_bytes().to_vec()).unwrap().with_lambda_context(context);
    counted.send(request).await.fails(503, UNWRITABLE);
    assert_eq!((counting.calls(), api.stored().await), (0, None));
}
