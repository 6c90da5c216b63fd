//! The consumer's promises on the store in this process: order, repeats, what is read and what is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onetap_idem::sqs::Consumer;
use onetap_idem::{EffectKeys, Failure, Idempotency};
use onetap_sqs::SqsBatchResponse;
use onetap_store::testing::{Fault, TestStore};
use onetap_store::{Batch, Commit, Key, Store};
use onetap_telemetry::Recorder;
use tokio::sync::Barrier;
use tokio::time::{Instant, sleep};

use crate::idem_suite::{LONG, Sorry, engine, over, record};
use crate::sqs_suite::{
    Ended, Handled, NOTHING, bodies, consumer, deliver, event, failed, fifo, later, memory, message,
    message_of, seconds, slept, standard,
};

crate::sqs_promises! { [#[tokio::test(start_paused = true)]] async { (memory(), ()) } }

#[tokio::test]
async fn a_batch_of_250_is_handled_in_parts_of_100() {
    let counting = TestStore::counting(memory());
    let (bodies, handled) = (bodies(250), Handled::default());
    assert_eq!(deliver(over(&counting, LONG), standard(&bodies), &handled).await, NOTHING);
    assert_eq!((counting.calls(), handled.all()), (6, bodies));
}

#[tokio::test]
async fn a_failure_holds_back_its_group_in_later_parts_too() {
    let (bodies, handled) = (bodies(250), Handled::default());
    let fails = async |body: String, _| match body == bodies[99] {
        true => Err(Failure::Transient(Sorry)),
        false => handled.done(body),
    };
    let counting = TestStore::counting(memory());
    let response = consumer(over(&counting, LONG)).handle(fifo(&bodies), later(), fails).await;
    assert_eq!((failed(&response).as_slice(), handled.all().as_slice()), (&bodies[99..], &bodies[..99]));
    assert_eq!(counting.calls(), 2, "the later parts are not claimed");
}

#[tokio::test]
async fn an_empty_batch_makes_no_call() {
    let counting = TestStore::counting(memory());
    assert_eq!(deliver(over(&counting, LONG), standard(&[]), &Handled::default()).await, NOTHING);
    assert_eq!(counting.calls(), 0);
}

#[tokio::test]
async fn all_records_of_a_standard_queue_run_at_once() {
    let all = Barrier::new(10);
    let orders = consumer(engine(&memory(), LONG));
    let response = orders.handle(standard(&bodies(10)), later(), async |_, _| {
        all.wait().await;
        Ended::Ok(())
    });
    assert_eq!(failed(&response.await), NOTHING);
}

#[tokio::test]
async fn groups_run_at_once_and_the_records_of_a_group_one_after_another() {
    let (bodies, handled) = (bodies(6), Handled::default());
    let both = Barrier::new(2);
    let messages = bodies.iter().enumerate().map(|(n, body)| message_of(["a", "b"][n % 2], body));
    let orders = consumer(engine(&memory(), LONG));
    let response = orders.handle(event(messages), later(), async |body, _| {
        // Each waits for the one of the other group: two of one group at once would pass out of order.
        both.wait().await;
        handled.add(body);
        Ended::Ok(())
    });
    assert_eq!(failed(&response.await), NOTHING);
    let of_group = |group| -> Vec<String> {
        let places = (0..6).filter(|n| n % 2 == group);
        let group: Vec<&String> = places.map(|n| &bodies[n]).collect();
        handled.all().into_iter().filter(|body| group.contains(&body)).collect()
    };
    assert_eq!(of_group(0), [&bodies[0], &bodies[2], &bodies[4]].map(String::clone));
    assert_eq!(of_group(1), [&bodies[1], &bodies[3], &bodies[5]].map(String::clone));
}

#[tokio::test(start_paused = true)]
async fn no_more_handlers_run_at_once_than_asked() {
    let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let orders = consumer(engine(&memory(), LONG)).concurrency(3);
    let response = orders.handle(standard(&bodies(10)), later(), async |_, _| {
        most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        sleep(seconds(1)).await;
        running.fetch_sub(1, Ordering::SeqCst);
        Ended::Ok(())
    });
    assert_eq!(failed(&response.await), NOTHING);
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn what_can_never_be_handled_fails_alone_and_holds_back_nothing() {
    let store = memory();
    let (bodies, handled) = (bodies(3), Handled::default());
    let too_long = "k".repeat(257);
    let group = |body: &str| message_of("group", body);
    let messages = [group(&bodies[0]), group(""), group(&bodies[1]), group(&too_long), group(&bodies[2])];
    let orders = consumer(engine(&store, LONG));
    let response = orders.handle(event(messages), later(), async |body: String, _| match body == bodies[1] {
        true => Err(Failure::Permanent(Sorry)),
        false => handled.done(body),
    });
    assert_eq!(failed(&response.await), [String::new(), bodies[1].clone(), too_long]);
    assert_eq!(handled.all(), [bodies[0].clone(), bodies[2].clone()]);
}

#[tokio::test(start_paused = true)]
async fn what_is_done_and_unrecorded_does_not_come_again_with_an_earlier_record_of_its_group() {
    let store = memory();
    let bodies = bodies(2);
    // The claims, and the renewal that tells of the takeover. Then the store is down.
    let down = TestStore::faulty(Arc::clone(&store), |call| match call {
        1 | 2 => Fault::Pass,
        _ => Fault::NotSent,
    });
    let messages = [&bodies[0], &bodies[1], &bodies[1]].map(|body| message_of("group", body));
    let orders = consumer(over(&down, seconds(30)));
    let far = Instant::now() + seconds(300);
    let response = orders.handle(event(messages), far, async |body: String, _| {
        match body == bodies[0] {
            true => take_over(&store, &body).await,
            false => sleep(seconds(15)).await,
        }
        Ended::Ok(())
    });
    assert_eq!(failed(&response.await), bodies[..1], "the second would be run again");
}

/// Another owner's record takes the place of the one that is there.
async fn take_over(store: &Arc<dyn Store>, body: &str) {
    let key = Key::new(format!("idem:{body}")).unwrap();
    let theirs = Batch::new().delete(&key, record(store, body).await.unwrap());
    assert!(matches!(store.commit(&theirs).await.unwrap(), Commit::Applied(_)));
    let event = event([message(body)]);
    assert_eq!(deliver(engine(store, LONG), event, &Handled::default()).await, NOTHING);
}

#[tokio::test]
async fn a_panic_while_a_message_is_read_fails_that_record() {
    let handled = Handled::default();
    let orders = Consumer::new(engine(&memory(), LONG), |message| {
        let body = message.body?;
        assert_ne!(body, "bad", "on purpose");
        Some((body.clone(), body))
    });
    let messages = event(["good", "bad", "fine"].map(message));
    let response = orders.handle(messages, later(), |body, effects| handled.handle(body, effects)).await;
    assert_eq!(
        (failed(&response), handled.all()),
        (vec!["bad".to_owned()], vec!["good".into(), "fine".into()])
    );
}

#[tokio::test]
async fn a_body_of_json_is_read_and_named_by_its_value() {
    #[derive(serde::Deserialize)]
    struct Order {
        id: u32,
    }
    let handled = Handled::default();
    let store = memory();
    let orders = Consumer::json(engine(&store, LONG), |order: &Order| format!("order:{}", order.id));
    let messages = [r#"{"id":1,"at":"10:00"}"#, r#"{"id":1,"at":"10:01"}"#, r#"{"id":"one"}"#, "", "{"];
    let response = orders.handle(event(messages.map(message)), later(), async |order: Order, _| {
        handled.add(order.id.to_string());
        Ended::Ok(())
    });
    assert_eq!(failed(&response.await), messages[2..]);
    assert_eq!(handled.all(), ["1"]);
    assert!(record(&store, "order:1").await.is_some());
}

#[tokio::test]
async fn a_duplicate_in_another_group_waits_for_its_first_and_shares_its_outcome() {
    let (bodies, handled) = (bodies(4), Handled::default());
    // Group b: the key that is running in group a, then one of its own.
    let messages = || {
        let a = [message_of("a", &bodies[0]), message_of("a", &bodies[1])];
        let b = [message_of("b", &bodies[1]), message_of("b", &bodies[2])];
        event(a.into_iter().chain(b).chain([message_of("c", &bodies[3])]))
    };
    let store = memory();
    let orders = consumer(engine(&store, LONG));
    let response = orders.handle(messages(), later(), async |body: String, _| match body == bodies[1] {
        true => Err(Failure::Transient(Sorry)),
        false => handled.done(body),
    });
    assert_eq!(failed(&response.await), [&bodies[1], &bodies[1], &bodies[2]].map(String::clone));
    assert_eq!(handled.all(), [&bodies[0], &bodies[3]].map(String::clone));
    assert_eq!(deliver(engine(&store, LONG), messages(), &handled).await, NOTHING);
    assert_eq!(handled.all()[2..], bodies[1..3]);
}

#[tokio::test]
async fn what_was_done_before_comes_again_behind_a_failure_of_its_group() {
    let store = memory();
    let (bodies, handled) = (bodies(3), Handled::default());
    assert_eq!(deliver(engine(&store, LONG), fifo(&bodies[1..2]), &handled).await, NOTHING);
    let orders = consumer(engine(&store, LONG));
    let fails = async |_, _| Err(Failure::Transient(Sorry));
    assert_eq!(failed(&orders.handle(fifo(&bodies), later(), fails).await), bodies);
    assert_eq!(deliver(engine(&store, LONG), fifo(&bodies), &handled).await, NOTHING);
    assert_eq!(handled.all(), [&bodies[1], &bodies[0], &bodies[2]].map(String::clone));
}

#[tokio::test]
async fn a_batch_can_be_handled_by_a_task_of_its_own() {
    let (bodies, handled) = (bodies(2), Handled::default());
    let orders = Arc::new(consumer(engine(&memory(), LONG)));
    let (event, log) = (standard(&bodies), handled.clone());
    let task = tokio::spawn(async move {
        let handler = |body: String, _: EffectKeys| {
            let log = log.clone();
            async move { log.done(body) }
        };
        orders.handle(event, later(), handler).await
    });
    assert_eq!((failed(&task.await.unwrap()), handled.all()), (vec![], bodies));
}

#[tokio::test(start_paused = true)]
async fn every_outcome_is_counted_and_no_key_or_body_is_in_it() {
    let recorder = Recorder::default();
    let _guard = recorder.on_this_thread();
    let store = memory();
    let orders = consumer(engine(&store, LONG)).concurrency(1);
    let group = |body: &str| message_of("private group", body);
    let messages = [
        message("private done"),
        message("private done"),
        message("private failing"),
        message("private hopeless"),
        message("private panic"),
        message(""),
        group("private failing group"),
        group("private follower"),
    ];
    let handler = async |body: String, _| match body.as_str() {
        "private failing" | "private failing group" => Err(Failure::Transient(Sorry)),
        "private hopeless" => Err(Failure::Permanent(Sorry)),
        "private panic" => panic!("on purpose"),
        _ => Ok(()),
    };
    assert_eq!(failed(&orders.handle(event(messages), later(), handler).await).len(), 6);
    let elsewhere = engine(&store, LONG).call("private panic").claim().unwrap();
    assert!(
        matches!(store.commit(&elsewhere.batch()).await.unwrap(), Commit::Applied(_)),
        "the panic left no claim"
    );
    let slow = [message("private slow"), message("private waiting"), message("private panic")];
    let soon = Instant::now() + seconds(1);
    let stuck = orders.handle(event(slow), soon, async |_, _| slept(LONG).await);
    assert_eq!(failed(&stuck.await).len(), 3);
    let down = TestStore::faulty(store, |_| Fault::NotSent);
    assert_eq!(deliver(over(&down, LONG), event([message("private")]), &Handled::default()).await.len(), 1);

    let text = recorder.prometheus();
    let mut counted: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("idem_total")).collect();
    counted.sort_unstable();
    let expected = [
        ("cut_off", 1),
        ("deadline_passed", 1),
        ("executed", 1),
        ("failed", 2),
        ("held_back", 1),
        ("in_progress", 1),
        ("malformed", 1),
        ("panicked", 1),
        ("permanent", 1),
        ("replayed", 1),
        ("store_error", 1),
    ];
    let expected = expected.map(|(outcome, n)| format!("{{outcome=\"{outcome}\"}} {n}"));
    assert_eq!(counted, expected);
    assert!(!text.contains("private"));
}

#[path = "../../examples/sqs_batch.rs"]
mod sqs_batch;

#[tokio::test]
async fn the_example_says_what_was_handled_and_what_a_redelivery_does() {
    let mut said = Vec::new();
    sqs_batch::demo(|line| said.push(line)).await.unwrap();
    let expected = [
        "first delivery:",
        "  shipped order 1: book",
        "  to be delivered again: b, d, e",
        "second delivery:",
        "  shipped order 2: bicycle",
        "  to be delivered again: d, e",
    ];
    assert_eq!(said, expected);
}

#[allow(dead_code, reason = "it only has to compile: a plain error becomes a transient failure with `?`")]
async fn a_plain_error_needs_no_wrapping(idem: Idempotency) -> SqsBatchResponse {
    async fn ship(_body: String) -> Result<(), std::io::Error> {
        Ok(())
    }
    let handler = |body, _| async move { Ok(ship(body).await?) };
    consumer(idem).handle(standard(&[]), later(), handler).await
}
