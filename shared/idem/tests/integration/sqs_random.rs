//! The consumer behind a queue, with everything going wrong at random, against what a simple model expects.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use onetap_idem::sqs::Consumer;
use onetap_idem::{EffectKeys, Failure};
use onetap_sqs::{Queue, SqsMessage, poll};
use onetap_store::testing::random::Random;
use onetap_store::testing::{Fault, TestStore};
use tokio::time::sleep;

use crate::idem_suite::{Sorry, over};
use crate::sqs_suite::{Handled, later, memory, seconds};

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
    let (handled, moods) = (Handled::default(), Mutex::new(moods));
    // Never so many in a row that a result remains unrecorded.
    let faulty = TestStore::faulty(memory(), move |call| match (call as u64 ^ seed) % 7 {
        2 => Fault::ReplyLost,
        4 => Fault::RequestLost,
        6 => Fault::NotSent,
        _ => Fault::Pass,
    });
    let orders = Consumer::new(over(&faulty, seconds(20)), {
        let natures = natures.clone();
        move |message: SqsMessage| {
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
