//! The consumer and time: renewals, the deadline, a store that is late.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lambda_http::lambda_runtime::{Context, LambdaEvent};
use onetap_store::testing::{Fault, TestStore};
use tokio::time::{Instant, sleep};

use crate::idem::busy;
use crate::idem_suite::{LONG, engine, over};
use crate::sqs_suite::{
    Ended, Handled, NOTHING, bodies, consumer, deliver, failed, fifo, later, memory, seconds, slept, standard,
};

#[tokio::test(start_paused = true)]
async fn every_third_of_a_lease_one_round_trip_renews_what_runs_and_records_what_ended() {
    let store = memory();
    let counting = TestStore::counting(Arc::clone(&store));
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

#[tokio::test]
async fn a_handler_that_is_never_idle_does_not_keep_its_claim_from_being_renewed() {
    let counting = TestStore::counting(memory());
    let lease = Duration::from_millis(300);
    let orders = consumer(over(&counting, lease));
    let response = orders.handle(standard(&bodies(1)), later(), async |_, _| {
        busy(lease * 4).await;
        Ended::Ok(())
    });
    assert_eq!(failed(&response.await), NOTHING);
    assert!(counting.calls() > 2, "the claim and the result only");
}

#[tokio::test(start_paused = true)]
async fn what_was_recorded_meanwhile_is_not_sent_again() {
    let counting = TestStore::counting(memory());
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
    assert_eq!(
        counting.calls(),
        3,
        "the claims, the renewal that recorded the others, and the release of what panicked"
    );
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_lasts_until_the_deadline_is_not_renewed() {
    let counting = TestStore::counting(memory());
    let orders = consumer(over(&counting, seconds(30)));
    let slow = async |_, _| slept(seconds(8)).await;
    let response = orders.handle(standard(&bodies(3)), Instant::now() + seconds(9), slow).await;
    assert_eq!((failed(&response), counting.calls()), (vec![], 2));
}

#[tokio::test(start_paused = true)]
async fn lost_replies_to_renewals_change_nothing() {
    for fault in [Fault::ReplyLost, Fault::RequestLost, Fault::NotSent, Fault::AnsweredLate(seconds(1))] {
        let store = memory();
        let faulty = TestStore::faulty(Arc::clone(&store), move |call| match call % 2 {
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
    let slow = TestStore::first(Arc::clone(&store), vec![Fault::AnsweredLate(seconds(2))]);
    assert_eq!(deliver(over(&slow, seconds(1)), standard(&bodies), &handled).await, bodies);
    assert_eq!(handled.all(), NOTHING);
    assert_eq!(deliver(engine(&store, LONG), standard(&bodies), &handled).await, NOTHING);
    assert_eq!(handled.all(), bodies);
}

#[tokio::test(start_paused = true)]
async fn a_record_whose_claim_lapses_while_it_waits_is_not_begun() {
    let store = memory();
    let (bodies, handled) = (bodies(2), Handled::default());
    // The store is out of reach for the renewals.
    let cut_off = TestStore::faulty(Arc::clone(&store), |call| match call {
        2..=4 => Fault::NotSent,
        _ => Fault::Pass,
    });
    let orders = consumer(over(&cut_off, seconds(30)));
    let far = Instant::now() + seconds(300);
    let late = orders.handle(fifo(&bodies), far, async |body: String, _| {
        if body == bodies[0] {
            sleep(seconds(35)).await;
        }
        handled.done(body)
    });
    let successor = async {
        sleep(seconds(32)).await;
        let before = Handled::default();
        assert_eq!(deliver(engine(&store, LONG), standard(&bodies[1..]), &before).await, NOTHING);
        assert_eq!(before.all(), bodies[1..]);
    };
    let (response, ()) = tokio::join!(late, successor);
    assert_eq!((failed(&response), handled.all()), (bodies[1..].to_vec(), bodies[..1].to_vec()));
    assert_eq!(deliver(engine(&store, LONG), fifo(&bodies), &handled).await, NOTHING);
    assert_eq!(handled.all(), bodies[..1], "each had one run");
}

#[tokio::test(start_paused = true)]
async fn a_record_whose_claim_ended_unheard_is_not_begun() {
    let store = memory();
    let (bodies, handled) = (bodies(2), Handled::default());
    let down = TestStore::faulty(Arc::clone(&store), |call| match call {
        1 => Fault::Pass,
        _ => Fault::NotSent,
    });
    let orders = consumer(over(&down, seconds(30))).concurrency(1);
    let far = Instant::now() + seconds(300);
    let response = orders.handle(standard(&bodies), far, async |body: String, _| {
        sleep(seconds(35)).await;
        handled.done(body)
    });
    assert_eq!((failed(&response.await), handled.all()), (bodies[1..].to_vec(), bodies[..1].to_vec()));
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

#[tokio::test(start_paused = true)]
async fn a_result_that_is_recorded_late_is_nobody_elses_meanwhile() {
    let store = memory();
    let bodies = bodies(1);
    // The record of the result reaches the store 150 ms after it was sent, which is after the deadline.
    let late = Fault::SentLate(Duration::from_millis(150));
    let slow = TestStore::first(Arc::clone(&store), vec![Fault::Pass, late]);
    let (orders, others) = (consumer(over(&slow, LONG)), consumer(engine(&store, LONG)));
    let (start, handled) = (Instant::now(), Handled::default());
    let response = orders.handle(standard(&bodies), start + seconds(1), async |body: String, _| {
        sleep(Duration::from_millis(950)).await;
        handled.done(body)
    });
    let duplicate = async {
        sleep(Duration::from_millis(1050)).await;
        let far = Instant::now() + seconds(60);
        others.handle(standard(&bodies), far, async |body: String, _| handled.done(body)).await
    };
    let (response, duplicate) = tokio::join!(response, duplicate);
    assert_eq!((failed(&response), failed(&duplicate)), (vec![], bodies.clone()), "it is in progress");
    assert_eq!(handled.all(), bodies);
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
    let counting = TestStore::counting(memory());
    let orders = consumer(over(&counting, LONG));
    let response =
        orders.handle(standard(&bodies), Instant::now(), |body, effects| handled.handle(body, effects));
    assert_eq!(failed(&response.await), bodies);
    assert_eq!((counting.calls(), handled.all()), (0, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_delays_the_response_by_200_ms_at_most() {
    for hangs_at in [1, 2] {
        let hanging = TestStore::faulty(memory(), move |call| match call == hangs_at {
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

#[tokio::test(start_paused = true)]
async fn an_invocation_without_a_deadline_has_lambdas_longest() {
    let (bodies, handled) = (bodies(2), Handled::default());
    let orders = consumer(engine(&memory(), LONG));
    let made_up = LambdaEvent::new(standard(&bodies), Context::default());
    let Ok(response) = orders.invoke(made_up, |body, effects| handled.handle(body, effects)).await;
    assert_eq!((failed(&response), handled.all()), (vec![], bodies));
}
