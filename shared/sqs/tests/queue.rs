//! What a consumer can rely on, with the clock paused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

use std::cell::RefCell;
use std::time::Duration;

use onetap_sqs::{Queue, SqsBatchResponse, SqsEvent, SqsMessage, completed, poll};
use tokio::time::{Instant, timeout};

const SECOND: Duration = Duration::from_secs(1);

fn bodies(messages: &[SqsMessage]) -> Vec<&str> {
    messages.iter().filter_map(|message| message.body.as_deref()).collect()
}

fn receipt(message: &SqsMessage) -> &str {
    message.receipt_handle.as_deref().unwrap()
}

async fn nothing(queue: &Queue, within: Duration) -> bool {
    timeout(within, queue.receive(10)).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn a_message_is_hidden_while_it_is_with_a_consumer_and_then_comes_again() {
    let queue = Queue::new("jobs").with_visibility(SECOND * 5);
    queue.send("a");
    let start = Instant::now();
    assert_eq!(bodies(&queue.receive(10).await), ["a"]);
    assert!(nothing(&queue, SECOND * 4).await);
    let again = queue.receive(10).await;
    assert_eq!(start.elapsed(), SECOND * 5);
    assert_eq!(again[0].attributes["ApproximateReceiveCount"], "2");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_message_is_gone_and_an_old_receipt_deletes_nothing() {
    let queue = Queue::new("jobs").with_visibility(SECOND);
    queue.send("a");
    let first = queue.receive(10).await;
    let second = queue.receive(10).await;
    assert!(!queue.delete(receipt(&first[0])), "it is with somebody else now");
    assert_eq!(queue.len(), 1);
    assert!(queue.delete(receipt(&second[0])));
    assert!(!queue.delete(receipt(&second[0])));
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_came_too_often_moves_to_the_dead_letter_queue() {
    let dead = Queue::new("dead");
    let queue = Queue::new("jobs").with_visibility(SECOND).with_dead_letters(&dead, 3);
    queue.send("a");
    for _ in 0..3 {
        assert_eq!(bodies(&queue.receive(10).await), ["a"]);
        assert!(dead.is_empty());
    }
    assert!(nothing(&queue, SECOND * 10).await);
    assert_eq!((queue.len(), dead.bodies()), (0, vec!["a".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_waits_gets_what_is_sent_later() {
    let queue = Queue::new("jobs");
    let (received, ()) = tokio::join!(queue.receive(10), async {
        tokio::time::sleep(SECOND).await;
        queue.send("late");
    });
    assert_eq!(bodies(&received), ["late"]);
}

#[tokio::test(start_paused = true)]
async fn no_more_than_asked_for_comes_at_once() {
    let queue = Queue::new("jobs");
    (0..25).for_each(|n| queue.send(n.to_string()));
    assert_eq!(
        [queue.receive(10).await.len(), queue.receive(10).await.len(), queue.receive(10).await.len()],
        [10, 10, 5]
    );
}

#[tokio::test(start_paused = true)]
async fn a_fifo_group_waits_for_its_first_and_others_do_not() {
    let queue = Queue::new("jobs.fifo").with_visibility(SECOND);
    for (n, group) in ["a", "b", "a"].iter().enumerate() {
        queue.send_to_group(group, &n.to_string(), format!("{group}{n}"));
    }
    let first = queue.receive(1).await;
    assert_eq!(bodies(&first), ["a0"]);
    let second = queue.receive(10).await;
    assert_eq!(bodies(&second), ["b1"], "a2 waits for a0");
    assert!(queue.delete(receipt(&second[0])));
    let again = queue.receive(10).await;
    assert_eq!(bodies(&again), ["a0", "a2"], "together, in order");
    assert!(queue.delete(receipt(&again[0])));
    assert!(nothing(&queue, SECOND / 2).await);
    assert_eq!(bodies(&queue.receive(10).await), ["a2"]);
}

#[tokio::test(start_paused = true)]
async fn a_fifo_queue_drops_a_deduplication_id_for_five_minutes() {
    let queue = Queue::new("jobs.fifo");
    queue.send_to_group("a", "1", "first");
    queue.send_to_group("a", "1", "second");
    assert_eq!(queue.bodies(), ["first"]);
    tokio::time::sleep(Duration::from_secs(301)).await;
    queue.send_to_group("a", "1", "third");
    assert_eq!(queue.bodies(), ["first", "third"]);
}

#[tokio::test(start_paused = true)]
async fn a_group_on_a_standard_queue_orders_nothing() {
    let queue = Queue::new("jobs");
    queue.send_to_group("a", "1", "a0");
    queue.send_to_group("a", "1", "a1");
    assert_eq!(bodies(&queue.receive(1).await), ["a0"]);
    assert_eq!(bodies(&queue.receive(1).await), ["a1"]);
}

#[tokio::test(start_paused = true)]
async fn a_poller_deletes_what_was_done_and_a_dead_function_deletes_nothing() {
    let dead = Queue::new("dead");
    let queue = Queue::new("jobs").with_visibility(SECOND).with_dead_letters(&dead, 5);
    (0..12).for_each(|n| queue.send(n.to_string()));
    let calls = RefCell::new(Vec::new());
    let function = async |event: SqsEvent| {
        calls.borrow_mut().push(event.records.len());
        if calls.borrow().len() == 1 {
            return None;
        }
        let mut answer = SqsBatchResponse::default();
        for message in event.records.iter().filter(|message| message.body.as_deref() == Some("7")) {
            answer.add_failure(message.message_id.clone().unwrap());
        }
        Some(answer)
    };
    tokio::select! {
        never = poll(&queue, function) => match never {},
        () = queue.emptied() => {}
    }
    assert_eq!(dead.bodies(), ["7"]);
    assert_eq!(
        *calls.borrow(),
        [10, 2, 10, 1, 1, 1],
        "died, the rest, the first ten again, then only 7, to its fifth"
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_names_what_was_not_there_settles_nothing() {
    let queue = Queue::new("jobs");
    queue.send("a");
    queue.send("b");
    let batch = queue.receive(10).await;
    let settled = |failures: &[&str]| {
        let mut answer = SqsBatchResponse::default();
        failures.iter().for_each(|id| answer.add_failure(*id));
        completed(&batch, &answer).len()
    };
    let id = batch[0].message_id.as_deref().unwrap();
    assert_eq!((settled(&[]), settled(&[id])), (2, 1));
    assert_eq!((settled(&[""]), settled(&["unknown"]), settled(&[id, "unknown"])), (0, 0, 0));
}
