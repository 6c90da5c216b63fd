//! What calls and the SQS consumer say about their work says nothing about people. A program of its own: a subscriber of one thread
//! misses the lines whose call site another thread reached first.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onetap_idem::sqs::{Consumer, SqsEvent};
use onetap_idem::{Failure, Idempotency};
use onetap_store::testing::{Fault, TestStore};
use onetap_store::{Memory, Observed, Store};
use onetap_telemetry::Recorder;
use serde_json::json;
use tokio::time::{Instant, sleep};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(serde::Deserialize)]
struct Order {
    user: String,
    does: String,
}

#[tokio::test(start_paused = true)]
async fn no_log_line_or_metric_names_a_user_or_quotes_a_message() {
    let recorder = Recorder::default();
    let _metrics = recorder.on_this_thread();
    let lines = Lines::default();
    let writer = {
        let lines = lines.clone();
        move || lines.clone()
    };
    let subscriber =
        tracing_subscriber::fmt().json().with_max_level(tracing_subscriber::filter::LevelFilter::TRACE);
    let guard =
        tracing_subscriber::util::SubscriberInitExt::set_default(subscriber.with_writer(writer).finish());

    // The first delivery is not claimed, the second not recorded.
    let plan = |call| match call {
        1 | 3..=7 => Fault::NotSent,
        _ => Fault::Pass,
    };
    let store: Arc<dyn Store> = Arc::new(Observed::new(TestStore::faulty(Arc::new(Memory::new()), plan)));
    let idem = Idempotency::new(store);
    let orders =
        Consumer::json(idem.clone(), |order: &Order| format!("{}:{}", order.user, order.does)).tied_to_body();
    let does = ["well", "fail", "refuse", "sleep"];
    let mut records: Vec<_> = does
        .iter()
        .enumerate()
        .map(|(n, does)| {
            let body = json!({"user": "somebody", "does": does, "secret": n}).to_string();
            json!({"messageId": n.to_string(), "body": body})
        })
        .collect();
    records.push(json!({"messageId": "8", "body": r#"{"user":"somebody","does":"well","secret":8}"#}));
    records.push(json!({"messageId": "9", "body": "somebody's secret words"}));
    let event: SqsEvent = serde_json::from_value(json!({"Records": records})).unwrap();
    for _ in 0..3 {
        let deadline = Instant::now() + Duration::from_secs(5);
        let response =
            orders.handle(event.clone(), deadline, async |order: Order, _| match order.does.as_str() {
                "fail" => Err(Failure::Transient("somebody failed")),
                "refuse" => Err(Failure::Permanent("somebody refused")),
                "sleep" => {
                    sleep(Duration::from_secs(60)).await;
                    Ok(())
                }
                _ => Ok(()),
            });
        assert!(response.await.batch_item_failures.len() >= 4);
    }
    let called = idem.execute("somebody:call", || async { Err::<(), _>("somebody failed") }).await;
    assert!(called.is_err());
    drop(guard);

    let logged = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let of_the_call = logged.lines().rfind(|line| line.contains("\"idempotent call\"")).unwrap();
    for member in [r#""kind":"execute""#, r#""outcome":"store_error""#, r#""latency_ms":0"#] {
        assert!(of_the_call.contains(member), "{member} in {of_the_call}");
    }
    let said = logged + &recorder.prometheus();
    for outcome in ["store_error", "unrecorded", "failed", "permanent", "cut_off", "mismatch", "malformed"] {
        assert!(said.contains(outcome), "{outcome} is said");
    }
    for word in ["somebody", "secret", "refused"] {
        assert!(!said.contains(word), "{word} in {said}");
    }
}
