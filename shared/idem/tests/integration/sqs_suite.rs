//! What the SQS consumer promises, each promise a function over any store.

#![allow(unreachable_pub, reason = "a module of tests")]

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onetap_idem::sqs::Consumer;
use onetap_idem::{EffectKeys, Failure, Idempotency, Policy};
use onetap_sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use onetap_store::testing::{Fault, Gate, TestStore};
use onetap_store::{Memory, Store};
use tokio::time::{Instant, sleep};

use crate::idem_suite::{LONG, STEADY, Sorry, config, engine, fresh, over, record};

/// One test for each promise. `$open` is an expression whose future gives a store, and what keeps its server.
#[macro_export]
macro_rules! sqs_promises {
    (@each $attributes:tt $open:expr; $($promise:ident)*) => {
        $($crate::sqs_promises! { @test $attributes $open; $promise })*
    };
    (@test [$($attribute:tt)*] $open:expr; $promise:ident) => {
        $($attribute)*
        async fn $promise() {
            let (store, _server) = $open.await;
            $crate::sqs_suite::$promise(store).await
        }
    };
    ($attributes:tt $open:expr) => {
        $crate::sqs_promises! { @each $attributes $open;
            ten_records_cost_2_round_trips_and_a_redelivery_1
            a_record_is_handled_once_however_often_it_is_delivered
            what_fails_comes_again_and_its_neighbours_do_not
            what_fails_for_good_is_not_kept_and_runs_after_a_redrive
            a_panic_fails_its_record_alone_and_releases_its_claim
            a_lost_reply_to_the_claims_changes_nothing
            a_lost_reply_to_the_results_changes_nothing
            two_lost_replies_in_a_row_to_a_batch_change_nothing
            a_store_that_is_down_at_the_claims_runs_nothing_and_fails_all
            what_is_done_and_cannot_be_recorded_is_done
            a_batch_whose_owner_dies_is_taken_over_with_the_same_effect_keys
            what_is_handled_elsewhere_comes_again
            a_key_twice_in_a_batch_runs_once_and_shares_its_outcome
            a_key_with_another_body_is_refused_where_keys_are_tied_to_bodies
            a_late_owners_record_is_refused_and_comes_again
            at_most_once_a_crash_is_never_run_again
            at_most_once_what_was_not_begun_is_released
            at_most_once_claims_whose_replies_are_lost_for_good_are_released
            a_fifo_group_stops_at_its_first_failure_and_goes_on_from_there
        }
    };
}

/// A message of a standard queue, whose body is its key.
pub fn message(body: &str) -> SqsMessage {
    let mut message = SqsMessage::default();
    message.message_id = Some(format!("id of {body}"));
    message.body = Some(body.to_owned());
    message.event_source_arn = Some("arn:aws:sqs:local:000000000000:orders".to_owned());
    message
}

/// A message of a FIFO queue.
pub fn message_of(group: &str, body: &str) -> SqsMessage {
    let mut message = message(body);
    message.event_source_arn = Some("arn:aws:sqs:local:000000000000:orders.fifo".to_owned());
    message.attributes.insert("MessageGroupId".to_owned(), group.to_owned());
    message
}

pub fn event(messages: impl IntoIterator<Item = SqsMessage>) -> SqsEvent {
    let mut event = SqsEvent::default();
    event.records = messages.into_iter().collect();
    event
}

/// An event with these bodies, of a standard queue.
pub fn standard(bodies: &[String]) -> SqsEvent {
    event(bodies.iter().map(|body| message(body)))
}

/// An event with these bodies, in one group of a FIFO queue.
pub fn fifo(bodies: &[String]) -> SqsEvent {
    event(bodies.iter().map(|body| message_of("group", body)))
}

/// `n` bodies that no other test has.
pub fn bodies(n: usize) -> Vec<String> {
    (0..n).map(|n| fresh(&format!("body {n}"))).collect()
}

pub fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new())
}

pub fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Messages are named by their body; one with an empty body is malformed.
pub fn consumer(idem: Idempotency) -> Consumer<String> {
    Consumer::new(idem, |message: SqsMessage| {
        let body = message.body.filter(|body| !body.is_empty())?;
        Some((body.clone(), body))
    })
}

/// A deadline that does not come.
pub fn later() -> Instant {
    Instant::now() + LONG
}

/// The bodies whose records failed.
pub fn failed(response: &SqsBatchResponse) -> Vec<String> {
    let ids = response.batch_item_failures.iter().map(|failure| failure.item_identifier.as_str());
    ids.map(|id| id.strip_prefix("id of ").unwrap_or(id).to_owned()).collect()
}

/// How a handler ends.
pub type Ended = Result<(), Failure<Sorry>>;

/// A handler that takes a time and succeeds.
pub async fn slept(time: Duration) -> Ended {
    sleep(time).await;
    Ok(())
}

/// What was handled, in order.
#[derive(Clone, Default)]
pub struct Handled(Arc<Mutex<Vec<String>>>);

impl Handled {
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub fn add(&self, body: String) {
        self.0.lock().unwrap().push(body);
    }

    /// How a handler that succeeds ends.
    pub fn done(&self, body: String) -> Ended {
        self.add(body);
        Ok(())
    }

    /// A handler that succeeds.
    pub async fn handle(&self, body: String, _: EffectKeys) -> Ended {
        self.done(body)
    }
}

/// Delivers `event` to a consumer that handles everything; returns what failed.
pub async fn deliver(idem: Idempotency, event: SqsEvent, handled: &Handled) -> Vec<String> {
    let handler = |body, effects| handled.handle(body, effects);
    failed(&consumer(idem).handle(event, later(), handler).await)
}

pub const NOTHING: [String; 0] = [];

/// Surely after a [`STEADY`] lease.
const OVER: Duration = Duration::from_millis(1900);

pub async fn ten_records_cost_2_round_trips_and_a_redelivery_1(store: Arc<dyn Store>) {
    let counting = TestStore::counting(store);
    let (bodies, handled) = (bodies(10), Handled::default());
    for (delivery, calls) in [(1, 2), (2, 3)] {
        assert_eq!(deliver(over(&counting, LONG), standard(&bodies), &handled).await, NOTHING);
        assert_eq!((counting.calls(), handled.all()), (calls, bodies.clone()), "delivery {delivery}");
    }
}

pub async fn a_record_is_handled_once_however_often_it_is_delivered(store: Arc<dyn Store>) {
    let (bodies, handled) = (bodies(5), Handled::default());
    for event in [standard(&bodies[..3]), standard(&bodies[1..]), fifo(&bodies), fifo(&bodies[..2])] {
        assert_eq!(deliver(engine(&store, LONG), event, &handled).await, NOTHING);
    }
    assert_eq!(handled.all(), bodies);
}

pub async fn what_fails_comes_again_and_its_neighbours_do_not(store: Arc<dyn Store>) {
    let (bodies, handled) = (bodies(3), Handled::default());
    let orders = consumer(engine(&store, LONG));
    let response = orders.handle(standard(&bodies), later(), async |body: String, _| {
        if body == bodies[1] {
            Err(Sorry)?;
        }
        handled.add(body);
        Ok(())
    });
    assert_eq!(failed(&response.await), [bodies[1].clone()]);
    assert_eq!(record(&store, &bodies[1]).await, None, "its claim is released");
    assert_eq!(deliver(engine(&store, LONG), standard(&bodies), &handled).await, NOTHING);
    assert_eq!(handled.all(), [bodies[0].clone(), bodies[2].clone(), bodies[1].clone()]);
}

pub async fn what_fails_for_good_is_not_kept_and_runs_after_a_redrive(store: Arc<dyn Store>) {
    let (bodies, handled) = (bodies(1), Handled::default());
    let orders = consumer(engine(&store, LONG));
    for _ in 0..2 {
        let refuse = async |body, _| {
            handled.add(body);
            Err(Failure::Permanent(Sorry))
        };
        assert_eq!(failed(&orders.handle(standard(&bodies), later(), refuse).await), bodies);
        assert_eq!(record(&store, &bodies[0]).await, None);
    }
    assert_eq!(deliver(engine(&store, LONG), standard(&bodies), &handled).await, NOTHING);
    assert_eq!(handled.all().len(), 3);
}

pub async fn a_panic_fails_its_record_alone_and_releases_its_claim(store: Arc<dyn Store>) {
    let (bodies, handled) = (bodies(3), Handled::default());
    let orders = consumer(engine(&store, LONG));
    let response = orders.handle(standard(&bodies), later(), async |body: String, _| {
        assert_ne!(body, bodies[1], "on purpose");
        handled.add(body);
        Ok::<_, Failure<Sorry>>(())
    });
    assert_eq!(failed(&response.await), [bodies[1].clone()]);
    assert!(!handled.all().contains(&bodies[1]));
    assert_eq!(record(&store, &bodies[1]).await, None);
    assert_eq!(deliver(engine(&store, LONG), standard(&bodies), &handled).await, NOTHING);
    assert_eq!(handled.all().iter().filter(|body| **body == bodies[1]).count(), 1);
    assert_eq!(handled.all().len(), 3);
}

async fn faults_change_nothing(store: Arc<dyn Store>, faults: Vec<Fault>) {
    let (bodies, handled) = (bodies(4), Handled::default());
    let calls = 2 + faults.iter().filter(|fault| !matches!(fault, Fault::Pass)).count();
    let faulty = TestStore::first(Arc::clone(&store), faults);
    assert_eq!(deliver(over(&faulty, LONG), standard(&bodies), &handled).await, NOTHING);
    assert_eq!(faulty.calls(), calls, "one more for each lost reply");
    assert_eq!(deliver(engine(&store, LONG), standard(&bodies), &handled).await, NOTHING);
    assert_eq!(handled.all(), bodies);
}

pub async fn a_lost_reply_to_the_claims_changes_nothing(store: Arc<dyn Store>) {
    faults_change_nothing(Arc::clone(&store), vec![Fault::ReplyLost]).await;
    faults_change_nothing(store, vec![Fault::RequestLost]).await;
}

pub async fn a_lost_reply_to_the_results_changes_nothing(store: Arc<dyn Store>) {
    faults_change_nothing(Arc::clone(&store), vec![Fault::Pass, Fault::ReplyLost]).await;
    faults_change_nothing(Arc::clone(&store), vec![Fault::Pass, Fault::RequestLost]).await;
    faults_change_nothing(store, vec![Fault::Pass, Fault::NotSent]).await;
}

pub async fn two_lost_replies_in_a_row_to_a_batch_change_nothing(store: Arc<dyn Store>) {
    faults_change_nothing(Arc::clone(&store), vec![Fault::ReplyLost, Fault::NotSent]).await;
    faults_change_nothing(store, vec![Fault::Pass, Fault::ReplyLost, Fault::RequestLost]).await;
}

pub async fn a_store_that_is_down_at_the_claims_runs_nothing_and_fails_all(store: Arc<dyn Store>) {
    let (bodies, handled) = (bodies(3), Handled::default());
    let down = TestStore::faulty(Arc::clone(&store), |_| Fault::NotSent);
    assert_eq!(deliver(over(&down, LONG), standard(&bodies), &handled).await, bodies);
    assert_eq!((down.calls(), handled.all()), (1, vec![]), "a request that was not sent is not repeated");
    assert_eq!(deliver(engine(&store, LONG), standard(&bodies), &handled).await, NOTHING);
    assert_eq!(handled.all(), bodies);
}

pub async fn what_is_done_and_cannot_be_recorded_is_done(store: Arc<dyn Store>) {
    for policy in [Policy::AtLeastOnce, Policy::AtMostOnce] {
        let (bodies, handled) = (bodies(3), Handled::default());
        let down = TestStore::faulty(Arc::clone(&store), |call| match call {
            1 => Fault::Pass,
            _ => Fault::NotSent,
        });
        let idem = Idempotency::with_config(Arc::clone(&down) as Arc<dyn Store>, config(LONG).policy(policy));
        assert_eq!(deliver(idem, fifo(&bodies), &handled).await, NOTHING, "{policy:?}");
        assert_eq!(handled.all(), bodies);
        // Their claims are left, so that another message with such a key does not run at once.
        assert_eq!(deliver(engine(&store, LONG), standard(&bodies), &handled).await, bodies);
        assert_eq!(handled.all(), bodies);
    }
}

pub async fn a_batch_whose_owner_dies_is_taken_over_with_the_same_effect_keys(store: Arc<dyn Store>) {
    let bodies = bodies(3);
    let (sent, gate) = (Mutex::new(HashSet::new()), Gate::new());
    {
        let orders = consumer(engine(&store, STEADY));
        let dying = orders.handle(standard(&bodies), later(), async |_, effects: EffectKeys| {
            sent.lock().unwrap().insert(effects.key("ship").uuid());
            gate.pass().await;
            Ok::<_, Failure<Sorry>>(())
        });
        let all_sent = async {
            for _ in &bodies {
                gate.reached().await;
            }
        };
        tokio::select! {
            _ = dying => unreachable!("nobody opens the gate"),
            () = all_sent => {}
        }
    }
    sleep(OVER).await;
    let handled = Handled::default();
    let orders = consumer(engine(&store, LONG));
    let response = orders.handle(standard(&bodies), later(), async |body, effects: EffectKeys| {
        handled.add(body);
        assert!(!sent.lock().unwrap().insert(effects.key("ship").uuid()), "the receiver knows the key");
        Ok::<_, Failure<Sorry>>(())
    });
    assert_eq!((failed(&response.await), handled.all()), (vec![], bodies));
    assert_eq!(sent.lock().unwrap().len(), 3);
}

pub async fn what_is_handled_elsewhere_comes_again(store: Arc<dyn Store>) {
    let (bodies, handled, gate) = (bodies(2), Handled::default(), Gate::new());
    let orders = consumer(engine(&store, LONG));
    let elsewhere = orders.handle(standard(&bodies[..1]), later(), async |body, _| {
        gate.pass().await;
        handled.add(body);
        Ok::<_, Failure<Sorry>>(())
    });
    let here = async {
        gate.reached().await;
        let failed = deliver(engine(&store, LONG), standard(&bodies), &handled).await;
        gate.open();
        failed
    };
    let (response, failed_here) = tokio::join!(elsewhere, here);
    assert_eq!((failed(&response), failed_here), (vec![], bodies[..1].to_vec()));
    assert_eq!(handled.all(), [bodies[1].clone(), bodies[0].clone()]);
    assert_eq!(deliver(engine(&store, LONG), standard(&bodies), &handled).await, NOTHING);
    assert_eq!(handled.all().len(), 2);
}

pub async fn a_key_twice_in_a_batch_runs_once_and_shares_its_outcome(store: Arc<dyn Store>) {
    let (bodies, handled) = (bodies(2), Handled::default());
    let twice = [bodies.clone(), bodies.clone()].concat();
    let fails = async |body: String, _| match body == bodies[0] {
        true => Err(Failure::Transient(Sorry)),
        false => handled.done(body),
    };
    let response = consumer(engine(&store, LONG)).handle(standard(&twice), later(), fails).await;
    assert_eq!(failed(&response), [bodies[0].clone(), bodies[0].clone()]);
    assert_eq!(handled.all(), [bodies[1].clone()]);
    assert_eq!(deliver(engine(&store, LONG), standard(&twice), &handled).await, NOTHING);
    assert_eq!(handled.all(), [bodies[1].clone(), bodies[0].clone()]);
}

pub async fn a_key_with_another_body_is_refused_where_keys_are_tied_to_bodies(store: Arc<dyn Store>) {
    let (key, handled) = (fresh("key"), Handled::default());
    let named = |tied: bool| {
        let key = key.clone();
        let named = Consumer::new(engine(&store, LONG), move |message| Some((key.clone(), message.body?)));
        if tied { named.tied_to_body() } else { named }
    };
    let deliver = async |tied, bodies: &[&str]| {
        let event = event(bodies.iter().map(|body| message(body)));
        failed(&named(tied).handle(event, later(), |body, effects| handled.handle(body, effects)).await)
    };
    assert_eq!(deliver(true, &["one", "other", "one"]).await, ["other"]);
    assert_eq!(deliver(true, &["other"]).await, ["other"]);
    assert_eq!(deliver(true, &["one"]).await, NOTHING);
    assert_eq!(deliver(false, &["other"]).await, NOTHING, "without it the key alone counts");
    assert_eq!(handled.all(), ["one"]);
}

pub async fn a_late_owners_record_is_refused_and_comes_again(store: Arc<dyn Store>) {
    let (bodies, handled, gate) = (bodies(1), Handled::default(), Gate::new());
    // Its renewals do not reach the store.
    let cut_off = TestStore::faulty(Arc::clone(&store), {
        let gate = gate.clone();
        move |call| if call == 2 { Fault::HeldBefore(gate.clone()) } else { Fault::Pass }
    });
    let (begun, end) = (Gate::new(), Gate::new());
    let orders = consumer(over(&cut_off, STEADY));
    let late = orders.handle(standard(&bodies), later(), async |body, _| {
        begun.pass().await;
        end.pass().await;
        handled.add(body);
        Ok::<_, Failure<Sorry>>(())
    });
    let successor = async {
        begun.reached().await;
        begun.open();
        gate.reached().await;
        sleep(OVER).await;
        assert_eq!(deliver(engine(&store, LONG), standard(&bodies), &handled).await, NOTHING);
        end.open();
    };
    let (response, ()) = tokio::join!(late, successor);
    assert_eq!(failed(&response), bodies);
    assert_eq!(deliver(engine(&store, LONG), standard(&bodies), &handled).await, NOTHING);
    assert_eq!(handled.all().len(), 2, "at least once: the late owner ran too");
}

fn at_most_once(store: &Arc<dyn Store>) -> Idempotency {
    Idempotency::with_config(Arc::clone(store), config(STEADY).policy(Policy::AtMostOnce))
}

pub async fn at_most_once_a_crash_is_never_run_again(store: Arc<dyn Store>) {
    let (bodies, handled) = (bodies(2), Handled::default());
    let orders = consumer(at_most_once(&store));
    let soon = Instant::now() + STEADY;
    let response = orders.handle(standard(&bodies), soon, async |body: String, _| {
        handled.add(body.clone());
        assert_ne!(body, bodies[0], "on purpose");
        sleep(LONG).await;
        Ok::<_, Failure<Sorry>>(())
    });
    assert_eq!(failed(&response.await), bodies);
    sleep(OVER).await;
    assert_eq!(deliver(at_most_once(&store), standard(&bodies), &handled).await, bodies);
    assert_eq!(handled.all(), bodies, "both were begun, and are unknown");
}

pub async fn at_most_once_what_was_not_begun_is_released(store: Arc<dyn Store>) {
    let (bodies, handled) = (bodies(3), Handled::default());
    let orders = consumer(at_most_once(&store));
    let soon = Instant::now() + STEADY;
    let response = orders.handle(fifo(&bodies), soon, async |body: String, _| {
        if body == bodies[1] {
            sleep(LONG).await;
        }
        handled.done(body)
    });
    assert_eq!(failed(&response.await), bodies[1..]);
    assert_eq!(deliver(at_most_once(&store), standard(&bodies[2..]), &handled).await, NOTHING);
    assert_eq!(handled.all(), [bodies[0].clone(), bodies[2].clone()]);
}

pub async fn at_most_once_claims_whose_replies_are_lost_for_good_are_released(store: Arc<dyn Store>) {
    let (bodies, handled) = (bodies(2), Handled::default());
    let faulty = TestStore::first(Arc::clone(&store), vec![Fault::ReplyLost; 5]);
    let unheard = at_most_once(&(Arc::clone(&faulty) as Arc<dyn Store>));
    assert_eq!(deliver(unheard, standard(&bodies), &handled).await, bodies);
    assert_eq!((faulty.calls(), handled.all()), (6, vec![]));
    assert_eq!(deliver(at_most_once(&store), standard(&bodies), &handled).await, NOTHING);
    assert_eq!(handled.all(), bodies);
}

pub async fn a_fifo_group_stops_at_its_first_failure_and_goes_on_from_there(store: Arc<dyn Store>) {
    let (bodies, handled) = (bodies(4), Handled::default());
    let orders = consumer(engine(&store, LONG));
    let messages = || {
        let other = message_of("other", &bodies[3]);
        event(bodies[..3].iter().map(|body| message_of("group", body)).chain([other]))
    };
    let response = orders.handle(messages(), later(), async |body: String, _| match body == bodies[1] {
        true => Err(Failure::Transient(Sorry)),
        false => handled.done(body),
    });
    assert_eq!(failed(&response.await), bodies[1..3]);
    assert_eq!(handled.all(), [bodies[0].clone(), bodies[3].clone()], "the third was not run");
    assert_eq!(record(&store, &bodies[2]).await, None, "its claim is released");
    assert_eq!(deliver(engine(&store, LONG), messages(), &handled).await, NOTHING);
    assert_eq!(handled.all()[2..], bodies[1..3]);
}
