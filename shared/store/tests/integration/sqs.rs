//! The consumer's promises on the store in this process, whose clock can be paused, and what only that can show.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use lambda_http::lambda_runtime::{Context, LambdaEvent};
use onetap_sqs::{Queue, SqsBatchResponse, poll};
use onetap_store::idem::{EffectKeys, Failure, Idempotency};
use onetap_store::sqs::Consumer;
use onetap_store::testing::random::Random;
use onetap_store::testing::{Fault, Faulty};
use onetap_store::{Memory, Store};
use onetap_telemetry::Recorder;
use tokio::sync::Barrier;
use tokio::time::{Instant, sleep};

use crate::idem_suite::{LONG, Sorry, engine, over, record};
use crate::sqs_suite::{
    Ended, Handled, NOTHING, bodies, consumer, deliver, event, failed, fifo, later, message, message_of,
    standard,
};

crate::sqs_promises! { [#[tokio::test(start_paused = true)]] async { (memory(), ()) } }

async fn slept(time: Duration) -> Ended {
    sleep(time).await;
    Ok(())
}

fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new())
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test]
async fn a_batch_of_250_is_handled_in_parts_of_100() {
    let counting = Faulty::counting(memory());
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
    let counting = Faulty::counting(memory());
    let response = consumer(over(&counting, LONG)).handle(fifo(&bodies), later(), fails).await;
    assert_eq!((failed(&response).as_slice(), handled.all().as_slice()), (&bodies[99..], &bodies[..99]));
    assert_eq!(counting.calls(), 2, "the later parts are not claimed");
}

#[tokio::test]
async fn an_empty_batch_makes_no_call() {
    let counting = Faulty::counting(memory());
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

#[tokio::test(start_paused = true)]
async fn every_third_of_a_lease_one_round_trip_renews_what_runs_and_records_what_ended() {
    let store = memory();
    let counting = Faulty::counting(Arc::clone(&store));
    let (bodies, handled) = (bodies(6), Handled::default());
    let orders = consumer(over(&counting, seconds(30)));
    let work = orders.handle(standard(&bodies), Instant::now() + seconds(300), async |body: String, _| {
        if body == bodies[0] {
            sleep(seconds(95)).await;
        }
        handled.done(body)
    });
    let look = async {
        // Long after the first lease would have ended.
        sleep(seconds(65)).await;
        assert_eq!(counting.calls(), 7, "the claims and six renewals");
        let before = Handled::default();
        assert_eq!(deliver(engine(&store, LONG), standard(&bodies), &before).await, bodies[..1]);
        assert_eq!(before.all(), NOTHING, "what ended was recorded meanwhile");
    };
    let (response, ()) = tokio::join!(work, look);
    assert_eq!((failed(&response), handled.all().len()), (vec![], 6));
    assert_eq!(counting.calls(), 11, "the claims, nine renewals and the last result");
}

#[tokio::test(start_paused = true)]
async fn what_was_recorded_meanwhile_is_not_sent_again() {
    let counting = Faulty::counting(memory());
    let bodies = bodies(3);
    let orders = consumer(over(&counting, seconds(30)));
    let far = Instant::now() + seconds(300);
    let response = orders.handle(standard(&bodies), far, async |body: String, _| {
        if body == bodies[0] {
            sleep(seconds(15)).await;
            panic!("on purpose");
        }
        Ended::Ok(())
    });
    assert_eq!(failed(&response.await), bodies[..1]);
    assert_eq!(counting.calls(), 2, "the claims, and the renewal that recorded the others");
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

#[tokio::test(start_paused = true)]
async fn a_claim_that_lasts_until_the_deadline_is_not_renewed() {
    let counting = Faulty::counting(memory());
    let orders = consumer(over(&counting, seconds(30)));
    let slow = async |_, _| slept(seconds(8)).await;
    let response = orders.handle(standard(&bodies(3)), Instant::now() + seconds(9), slow).await;
    assert_eq!((failed(&response), counting.calls()), (vec![], 2));
}

#[tokio::test(start_paused = true)]
async fn lost_replies_to_renewals_change_nothing() {
    for fault in [Fault::ReplyLost, Fault::RequestLost, Fault::NotSent, Fault::AnsweredLate(seconds(1))] {
        let store = memory();
        let faulty = Faulty::new(Arc::clone(&store), move |call| match call % 2 {
            0 => fault.clone(),
            _ => Fault::Pass,
        });
        let (bodies, handled) = (bodies(4), Handled::default());
        let orders = consumer(over(&faulty, seconds(30)));
        let far = Instant::now() + seconds(300);
        let response = orders.handle(standard(&bodies), far, async |body: String, _| {
            let place = bodies.iter().position(|other| *other == body).unwrap_or_default();
            sleep(seconds(25 * place as u64)).await;
            handled.done(body)
        });
        assert_eq!(failed(&response.await), NOTHING);
        assert_eq!(deliver(engine(&store, LONG), standard(&bodies), &handled).await, NOTHING);
        assert_eq!(handled.all(), bodies);
    }
}

#[tokio::test(start_paused = true)]
async fn claims_that_are_answered_after_their_lease_run_nothing() {
    let store = memory();
    let (bodies, handled) = (bodies(2), Handled::default());
    let slow = Faulty::first(Arc::clone(&store), vec![Fault::AnsweredLate(seconds(2))]);
    assert_eq!(deliver(over(&slow, seconds(1)), standard(&bodies), &handled).await, bodies);
    assert_eq!(handled.all(), NOTHING);
    assert_eq!(deliver(engine(&store, LONG), standard(&bodies), &handled).await, NOTHING);
    assert_eq!(handled.all(), bodies);
}

#[tokio::test(start_paused = true)]
async fn at_the_deadline_the_response_is_there_and_the_handler_is_dropped() {
    let store = memory();
    let (bodies, handled) = (bodies(3), Handled::default());
    let started = Instant::now();
    let orders = consumer(engine(&store, LONG));
    let response = orders.handle(standard(&bodies), started + seconds(2), async |body: String, _| {
        if body == bodies[1] {
            sleep(seconds(3)).await;
        }
        handled.done(body)
    });
    assert_eq!(failed(&response.await), bodies[1..2]);
    assert_eq!(started.elapsed(), seconds(2));
    sleep(seconds(60)).await;
    assert_eq!(handled.all(), [&bodies[0], &bodies[2]].map(String::clone), "it does not go on in secret");
    assert_eq!(deliver(engine(&store, LONG), standard(&bodies), &handled).await, NOTHING);
    assert_eq!(handled.all()[2..], bodies[1..2]);
}

#[tokio::test]
async fn nothing_is_begun_after_the_deadline() {
    let (bodies, begun) = (bodies(3), Handled::default());
    let orders = consumer(engine(&memory(), LONG)).concurrency(1);
    let deadline = Instant::now() + Duration::from_millis(200);
    let response = orders.handle(standard(&bodies), deadline, async |body, _| {
        begun.add(body);
        // It blocks its thread, so that no timer has told of the deadline when it ends.
        while Instant::now() < deadline {
            std::hint::spin_loop();
        }
        Ended::Ok(())
    });
    assert!(failed(&response.await).ends_with(&bodies[1..]));
    assert!(begun.all().len() <= 1, "{:?}", begun.all());
}

#[tokio::test]
async fn a_batch_that_comes_after_its_deadline_makes_no_call() {
    let (bodies, handled) = (bodies(3), Handled::default());
    let counting = Faulty::counting(memory());
    let orders = consumer(over(&counting, LONG));
    let response =
        orders.handle(standard(&bodies), Instant::now(), |body, effects| handled.handle(body, effects));
    assert_eq!(failed(&response.await), bodies);
    assert_eq!((counting.calls(), handled.all()), (0, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_delays_the_response_by_200_ms_at_most() {
    for hangs_at in [1, 2] {
        let hanging = Faulty::new(memory(), move |call| match call == hangs_at {
            true => Fault::SentLate(LONG),
            false => Fault::Pass,
        });
        let started = Instant::now();
        let orders = consumer(over(&hanging, LONG));
        let slow = async |_, _| slept(seconds(1)).await;
        let response = orders.handle(standard(&bodies(2)), started + Duration::from_millis(1100), slow).await;
        assert!(started.elapsed() <= Duration::from_millis(1300), "{:?}", started.elapsed());
        assert_eq!(failed(&response).len(), if hangs_at == 1 { 2 } else { 0 });
    }
}

#[tokio::test(start_paused = true)]
async fn on_lambda_the_response_is_there_before_the_invocation_ends() {
    let mut context = Context::default();
    let end = SystemTime::now() + seconds(5);
    context.deadline = end.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64;
    let started = Instant::now();
    let bodies = bodies(2);
    let orders = consumer(engine(&memory(), LONG));
    let invocation = LambdaEvent::new(standard(&bodies), context);
    let Ok(response) = orders.invoke(invocation, async |_, _| slept(LONG).await).await;
    assert_eq!(failed(&response), bodies);
    assert!((seconds(3)..seconds(5)).contains(&started.elapsed()), "{:?}", started.elapsed());
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
    let slow = [message("private slow"), message("private waiting"), message("private panic")];
    let soon = Instant::now() + seconds(1);
    let stuck = orders.handle(event(slow), soon, async |_, _| slept(LONG).await);
    assert_eq!(failed(&stuck.await).len(), 3);
    let down = Faulty::new(store, |_| Fault::NotSent);
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

/// What a random message is and does.
#[derive(Clone, Copy, PartialEq)]
enum Nature {
    Good,
    Malformed,
    Hopeless,
}

/// A queue whose messages fail, panic and repeat at random, over a store that loses calls: everything good is handled once and in
/// order, everything else ends as a dead letter.
async fn everything_is_handled_once_and_in_order(seed: u64, fifo: bool) {
    let mut random = Random::new(seed);
    let dead = Queue::new(if fifo { "dead.fifo" } else { "dead" });
    let queue = Queue::new(if fifo { "orders.fifo" } else { "orders" }).with_dead_letters(&dead, 60);
    let (mut natures, mut moods) = (HashMap::new(), HashMap::new());
    let mut expected: HashMap<String, Vec<String>> = HashMap::new();
    let mut hopeless = 0;
    for n in 0..5 + random.below(25) {
        let group = format!("group {}", random.below(4));
        let body = format!("{group} message {n}");
        let nature =
            *random.of(&[Nature::Good, Nature::Good, Nature::Good, Nature::Malformed, Nature::Hopeless]);
        natures.insert(body.clone(), nature);
        // How often it fails before it succeeds, and how.
        moods.insert(body.clone(), (random.below(3), random.below(2) == 0));
        let copies = 1 + usize::from(random.below(4) == 0);
        for copy in 0..copies {
            queue.send_to_group(&group, &format!("{body} {copy}"), body.clone());
        }
        match nature {
            Nature::Good => expected.entry(group).or_default().push(body),
            Nature::Malformed | Nature::Hopeless => hopeless += copies,
        }
    }
    let (handled, moods) = (Handled::default(), std::sync::Mutex::new(moods));
    // Never so many in a row that a result remains unrecorded.
    let faulty = Faulty::new(memory(), move |call| match (call as u64 ^ seed) % 7 {
        2 => Fault::ReplyLost,
        4 => Fault::RequestLost,
        6 => Fault::NotSent,
        _ => Fault::Pass,
    });
    let orders = Consumer::new(over(&faulty, seconds(20)), {
        let natures = natures.clone();
        move |message: onetap_sqs::SqsMessage| {
            let body = message.body?;
            (natures[&body] != Nature::Malformed).then(|| (body.clone(), body))
        }
    });
    let handler = async |body: String, _: EffectKeys| {
        sleep(Duration::from_millis(body.len() as u64)).await;
        if natures[&body] == Nature::Hopeless {
            return Err(Failure::Permanent(Sorry));
        }
        let (left, panics) = {
            let mut moods = moods.lock().unwrap();
            let mood = moods.get_mut(&body).unwrap();
            let before = *mood;
            mood.0 = mood.0.saturating_sub(1);
            before
        };
        match (left, panics) {
            (0, _) => handled.done(body),
            (_, false) => Err(Failure::Transient(Sorry)),
            // `panic!` would print a backtrace for each.
            (_, true) => std::panic::resume_unwind(Box::new("on purpose")),
        }
    };
    let deliver = async |event| Some(orders.handle(event, later(), &handler).await);
    tokio::select! {
        never = poll(&queue, deliver) => match never {},
        () = queue.emptied() => {}
    }
    for (group, expected) in &expected {
        let mut seen: Vec<String> =
            handled.all().into_iter().filter(|body| body.starts_with(group)).collect();
        if !fifo {
            seen.sort_by_key(|body| expected.iter().position(|other| other == body));
        }
        assert_eq!(&seen, expected, "seed {seed}");
    }
    assert_eq!(handled.all().len(), expected.values().map(Vec::len).sum::<usize>(), "seed {seed}");
    assert_eq!(dead.len(), hopeless, "seed {seed}");
}

#[tokio::test(start_paused = true)]
async fn a_fifo_queue_is_handled_once_and_in_order_whatever_fails() {
    for seed in 0..150 {
        everything_is_handled_once_and_in_order(seed, true).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_standard_queue_is_handled_once_whatever_fails() {
    for seed in 0..150 {
        everything_is_handled_once_and_in_order(seed, false).await;
    }
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
