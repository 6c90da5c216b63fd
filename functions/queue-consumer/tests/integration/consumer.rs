//! One batch and its answer.

use crate::{harness, support};

use std::sync::Arc;
use std::time::Duration;

use harness::plan::malformed;
use harness::{batch, failed, later, received};
use onetap_bus::{Bus, Event, Published, Stages};
use onetap_servers::{Proxy, dynamo};
use onetap_sqs::{Queue, SqsEvent, poll};
use onetap_store::testing::{Answer, Fault, TestStore};
use onetap_store::{Batch, Error, Store, Write};
use queue_consumer::{Config, QueueConsumer};
use support::{World, event_text, on_every_backend};
use tokio::time::Instant;

on_every_backend! {
    ten_with_one_malformed_and_one_panicking_are_eight_done_and_two_failed
    bad_events_end_as_dead_letters_and_leave_nothing_behind
    a_batch_again_succeeds_and_changes_nothing
    a_number_that_another_stage_took_fails
    the_stages_are_those_of_the_configuration
    an_event_that_is_published_directly_and_sent_to_the_queue_has_one_effect
}

fn consumer(world: &World) -> QueueConsumer {
    QueueConsumer::new(world.store.clone(), world.config.clone())
}

fn bodies(world: &World, seqs: impl IntoIterator<Item = u64>) -> Vec<String> {
    seqs.into_iter().map(|seq| event_text(&world.job("a"), "vision", seq, "{}")).collect()
}

/// A store in which one word is fatal, as a bug would be that only some event finds, and another one gets no answer.
fn brittle(store: Arc<dyn Store>) -> Arc<dyn Store> {
    let appends = |batch: &Batch, word: &str| {
        let has_word = |write: &Write| matches!(write, Write::Append { text, .. } if text.contains(word));
        batch.writes().iter().any(has_word)
    };
    TestStore::scripted(store, move |call| async move {
        assert!(!call.batches().iter().any(|batch| appends(batch, "fatal")), "a bug, on purpose");
        let mut answer = call.send().await;
        if let Answer::Commits(commits) = &mut answer {
            let unanswered =
                call.batches().iter().zip(commits).filter(|(batch, _)| appends(batch, "unanswered"));
            unanswered.for_each(|(_, commit)| *commit = Err(Error::unknown("on purpose")));
        }
        answer
    })
}

async fn the_stages_are_those_of_the_configuration(world: World) {
    let stages = Stages::from_json(support::TOKENS).unwrap();
    let consumer = QueueConsumer::new(world.store.clone(), Config { stages, ..world.config.clone() });
    let events = [("plan", 0), ("token", 1000), ("vision", 10), ("token", 999_999), ("plan", 10)];
    let batch = batch(events.map(|(stage, seq)| event_text(&world.job("a"), stage, seq, "{}"))).await;
    let answer = consumer.handle(batch.clone(), later()).await;
    assert_eq!(failed(&batch, &answer), [2, 4], "no such stage, and no such number of the stage");
    assert_eq!(world.read(&world.log("a")).await.len(), 3);
}

async fn ten_with_one_malformed_and_one_panicking_are_eight_done_and_two_failed(world: World) {
    let consumer = QueueConsumer::new(brittle(world.store.clone()), world.config.clone());
    let mut bodies = bodies(&world, 10..20);
    bodies[3] = "not json".to_owned();
    bodies[6] = event_text(&world.job("a"), "vision", 16, r#""fatal""#);
    let batch = batch(bodies).await;
    for _ in 0..2 {
        let answer = consumer.handle(batch.clone(), later()).await;
        assert_eq!(failed(&batch, &answer), [3, 6]);
    }
    assert_eq!(world.read(&world.log("a")).await.len(), 8);
}

async fn bad_events_end_as_dead_letters_and_leave_nothing_behind(world: World) {
    let dead = Queue::new("dead");
    let queue = Queue::new("jobs").with_visibility(Duration::from_millis(20)).with_dead_letters(&dead, 3);
    let bad: Vec<String> = (0..20).map(|n| malformed(&world.job("a"), n)).collect();
    bad.iter().for_each(|body| queue.send(body.clone()));
    let consumer = consumer(&world);
    tokio::select! {
        never = poll(&queue, async |event| Some(consumer.handle(event, later()).await)) => match never {},
        () = queue.emptied() => {}
    }
    assert_eq!(dead.len(), bad.len());
    assert!(dead.bodies().iter().all(|body| bad.contains(body)));
    assert_untouched(&world).await;
}

/// The store holds no key at all, or where it is shared, none of this job's.
async fn assert_untouched(world: &World) {
    if let Some(url) = &world.redis {
        let mut connection =
            redis::Client::open(url.as_str()).unwrap().get_multiplexed_async_connection().await.unwrap();
        let keys: usize = redis::cmd("DBSIZE").query_async(&mut connection).await.unwrap();
        assert_eq!(keys, 0);
    } else if world.environment.is_empty() {
        let shown = format!("{:?}", world.store);
        assert!(shown.contains("names: 0"), "{shown}");
    } else {
        let url = world.variable("AWS_ENDPOINT_URL_DYNAMODB");
        let scan = serde_json::json!({
            "TableName": world.variable("DYNAMODB_TABLE"), "FilterExpression": "contains(pk, :domain)",
            "ExpressionAttributeValues": {":domain": {"S": world.domain}},
        });
        let (status, answer) = dynamo::call(&url, "Scan", &scan).await;
        assert_eq!((status, &answer["Count"]), (200, &serde_json::json!(0)));
    }
}

async fn a_batch_again_succeeds_and_changes_nothing(world: World) {
    let (first, again) =
        (batch(bodies(&world, 10..20)).await, batch(bodies(&world, (10..20).chain(10..20))).await);
    for batch in [first, again] {
        let answer = consumer(&world).handle(batch, later()).await;
        assert_eq!(answer.batch_item_failures, []);
        assert_eq!(world.read(&world.log("a")).await.len(), 10);
    }
}

async fn an_event_that_is_published_directly_and_sent_to_the_queue_has_one_effect(world: World) {
    let (bus, job) = (Bus::new(world.store.clone(), world.config.clone()), world.job("a"));
    let event = |seq| Event::new(bus.stages(), &job, "vision", seq, &"字").unwrap();
    assert!(matches!(bus.publish(&event(10)).await, Ok(Published::New(_))));
    let answer = consumer(&world).handle(batch(bodies(&world, [10, 11])).await, later()).await;
    assert_eq!(answer.batch_item_failures, []);
    assert!(matches!(bus.publish(&event(11)).await, Ok(Published::Duplicate(Some(_)))));
    assert_eq!(world.read(&world.log("a")).await.len(), 2);
}

async fn a_number_that_another_stage_took_fails(world: World) {
    let job = world.job("a");
    let bodies = [("queued", 1), ("started", 1), ("started", 2)]
        .map(|(stage, seq)| event_text(&job, stage, seq, "{}"));
    let batch = batch(bodies).await;
    let answer = consumer(&world).handle(batch.clone(), later()).await;
    assert_eq!(failed(&batch, &answer), [1], "it would otherwise be lost without a word");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_batch_of_ten_is_one_request_on_upstash() {
    let world = World::upstash().await;
    let consumer = consumer(&world);
    for round in 1..=2 {
        let answer = consumer.handle(batch(bodies(&world, 10..20)).await, later()).await;
        assert_eq!(answer.batch_item_failures, []);
        assert_eq!(world.servers().gateway().unwrap().requests(), round, "new ones and duplicates alike");
    }
}

#[tokio::test]
async fn an_event_is_a_read_and_a_transaction_on_dynamodb() {
    let world = World::dynamodb().await;
    let proxy = Proxy::start(&world.variable("AWS_ENDPOINT_URL_DYNAMODB")).await;
    let store = world.servers().store_with("AWS_ENDPOINT_URL_DYNAMODB", proxy.url());
    let consumer = QueueConsumer::new(store, world.config.clone());
    let jobs = (0..10).map(|n| event_text(&world.job(&n.to_string()), "vision", 10, "{}"));
    let batch = batch(jobs).await;
    assert_eq!(consumer.handle(batch.clone(), later()).await.batch_item_failures, []);
    let count = |name: &str| proxy.operations().iter().filter(|operation| *operation == name).count();
    assert_eq!((count("BatchGetItem"), count("TransactWriteItems"), proxy.requests()), (10, 10, 20));
    assert_eq!(consumer.handle(batch, later()).await.batch_item_failures, []);
    assert_eq!(proxy.requests(), 30, "a duplicate is only read");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_fails_all_but_what_it_is_not_asked_about() {
    let world = World::memory().await;
    let down = TestStore::faulty(world.store.clone(), |_| Fault::NotSent);
    let consumer = QueueConsumer::new(down, world.config.clone());
    let batch = batch(bodies(&world, 10..13)).await;
    assert_eq!(failed(&batch, &consumer.handle(batch.clone(), later()).await), [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn what_was_not_begun_in_time_comes_again() {
    let world = World::memory().await;
    // Each call takes a second, and a hundred events go in one.
    let slow = TestStore::faulty(world.store.clone(), |_| Fault::AnsweredLate(Duration::from_secs(1)));
    let consumer = QueueConsumer::new(slow.clone(), world.config.clone());
    let job = |n: u64| event_text(&world.job(&n.to_string()), "vision", 10, "{}");
    let batch = batch((0..350).map(job)).await;
    let start = Instant::now();
    let answer = consumer.handle(batch.clone(), start + Duration::from_millis(2500)).await;
    assert_eq!(start.elapsed(), Duration::from_millis(2500));
    assert_eq!(failed(&batch, &answer), (200..350).collect::<Vec<_>>());
    assert_eq!(slow.calls(), 3, "the last fifty were never sent");
    let answer = consumer.handle(batch, Instant::now()).await;
    assert_eq!((answer.batch_item_failures.len(), slow.calls()), (350, 3), "without time nothing is begun");
}

#[tokio::test(start_paused = true)]
async fn a_record_that_can_never_be_published_holds_back_nothing_of_its_fifo_group() {
    let world = World::memory().await;
    let queue = Queue::new("jobs.fifo");
    let text = |job: &str, stage: &str, seq| event_text(&world.job(job), stage, seq, "{}");
    let sent = [
        ("a", text("a", "queued", 1)),
        ("b", text("b", "vision", 10)),
        ("a", "bad".into()),
        ("a", text("a", "started", 1)),
        ("a", text("a", "vision", 11)),
        ("b", text("b", "vision", 11)),
    ];
    for (n, (group, body)) in sent.into_iter().enumerate() {
        queue.send_to_group(group, &n.to_string(), body);
    }
    let batch = received(&queue).await;
    for _ in 0..2 {
        let answer = consumer(&world).handle(batch.clone(), later()).await;
        assert_eq!(failed(&batch, &answer), [2, 3], "no event, and a number that is taken");
        assert_eq!(world.read(&world.log("a")).await.len(), 2, "what follows them was published");
        assert_eq!(world.read(&world.log("b")).await.len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_store_error_its_fifo_group_comes_again_and_another_group_does_not() {
    let world = World::memory().await;
    let queue = Queue::new("jobs.fifo");
    let text = |job: &str, seq, data: &str| event_text(&world.job(job), "vision", seq, data);
    let sent = [
        ("a", text("a", 10, "{}")),
        ("a", "bad".into()),
        ("a", text("a", 11, r#""unanswered""#)),
        ("b", text("b", 10, "{}")),
        ("a", text("a", 12, "{}")),
    ];
    for (n, (group, body)) in sent.into_iter().enumerate() {
        queue.send_to_group(group, &n.to_string(), body);
    }
    let batch = received(&queue).await;
    let brittle = QueueConsumer::new(brittle(world.store.clone()), world.config.clone());
    let answer = brittle.handle(batch.clone(), later()).await;
    assert_eq!(failed(&batch, &answer), [1, 2, 4], "what follows it in its group comes after it");
    let answer = consumer(&world).handle(batch.clone(), later()).await;
    assert_eq!(failed(&batch, &answer), [1], "as soon as the store answers, only the bad one is left");
}

#[tokio::test(start_paused = true)]
async fn after_a_panic_its_fifo_group_waits_and_is_not_sent() {
    let world = World::memory().await;
    let queue = Queue::new("jobs.fifo");
    let text = |job: &str, seq, data: &str| event_text(&world.job(job), "vision", seq, data);
    let sent = [
        ("a", text("a", 10, "{}")),
        ("a", text("a", 11, r#""fatal""#)),
        ("b", text("b", 10, "{}")),
        ("a", text("a", 12, "{}")),
    ];
    for (n, (group, body)) in sent.into_iter().enumerate() {
        queue.send_to_group(group, &n.to_string(), body);
    }
    let batch = received(&queue).await;
    let consumer = QueueConsumer::new(brittle(world.store.clone()), world.config.clone());
    let answer = consumer.handle(batch.clone(), later()).await;
    assert_eq!(failed(&batch, &answer), [1, 3]);
    assert_eq!(world.read(&world.log("a")).await.len(), 1);
    assert_eq!(world.read(&world.log("b")).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_panics_at_its_third_delivery_fails_alone_and_a_store_error_never_does() {
    let world = World::memory().await;
    let queue = Queue::new("jobs.fifo");
    let text = |job: &str, seq, data: &str| event_text(&world.job(job), "vision", seq, data);
    let sent = [
        ("a", text("a", 10, r#""fatal""#)),
        ("a", text("a", 11, "{}")),
        ("b", text("b", 10, r#""unanswered""#)),
        ("b", text("b", 11, "{}")),
    ];
    for (n, (group, body)) in sent.into_iter().enumerate() {
        queue.send_to_group(group, &n.to_string(), body);
    }
    let mut batch = received(&queue).await;
    let consumer = QueueConsumer::new(brittle(world.store.clone()), world.config.clone());
    for (delivery, expected) in [(2, &[0, 1, 2, 3][..]), (3, &[0, 2, 3]), (99, &[0, 2, 3])] {
        for record in &mut batch.records {
            record.attributes.insert("ApproximateReceiveCount".to_owned(), delivery.to_string());
        }
        assert_eq!(failed(&batch, &consumer.handle(batch.clone(), later()).await), expected, "{delivery}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_id_on_a_standard_queue_holds_nothing_back() {
    let world = World::memory().await;
    let queue = Queue::new("jobs");
    queue.send_to_group("a", "1", "bad");
    bodies(&world, [10]).into_iter().for_each(|body| queue.send_to_group("a", "2", body));
    let batch = received(&queue).await;
    assert_eq!(failed(&batch, &consumer(&world).handle(batch.clone(), later()).await), [0]);
}

#[tokio::test(start_paused = true)]
async fn a_fifo_group_that_failed_comes_again_in_order_and_ends_in_order() {
    let world = World::memory().await;
    let dead = Queue::new("dead.fifo");
    let queue = Queue::new("jobs.fifo").with_visibility(Duration::from_secs(1)).with_dead_letters(&dead, 4);
    for (n, body) in bodies(&world, 10..20).into_iter().enumerate() {
        queue.send_to_group("a", &n.to_string(), if n == 4 { "bad".to_owned() } else { body });
    }
    let lossy =
        TestStore::faulty(world.store.clone(), |call| if call == 1 { Fault::NotSent } else { Fault::Pass });
    let consumer = QueueConsumer::new(lossy, world.config.clone());
    tokio::select! {
        never = poll(&queue, async |event| Some(consumer.handle(event, later()).await)) => match never {},
        () = queue.emptied() => {}
    }
    assert_eq!(dead.bodies(), ["bad"], "it drags none of its group along");
    let texts: Vec<String> =
        world.read(&world.log("a")).await.into_iter().map(|record| record.text).collect();
    assert_eq!(texts, bodies(&world, (10..20).filter(|seq| *seq != 14)), "all of them, in their order");
}

#[tokio::test(start_paused = true)]
async fn a_record_without_an_id_fails_its_batch() {
    let world = World::memory().await;
    let mut batch = batch(["bad".to_owned()]).await;
    batch.records[0].message_id = None;
    let answer = consumer(&world).handle(batch, later()).await;
    assert_eq!(answer.batch_item_failures[0].item_identifier, "", "which Lambda takes for all of them");
}

#[tokio::test]
async fn the_events_of_the_repository_are_answered_as_their_names_say() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../events/queue-consumer");
    let mut seen = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let event: SqsEvent = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let world = World::memory().await;
        let answer = consumer(&world).handle(event.clone(), later()).await;
        let expected: &[usize] = match path.file_stem().and_then(|name| name.to_str()).unwrap() {
            "one-event" | "whole-job" | "duplicates" => &[],
            "malformed" => &[1, 2, 3],
            "fifo-malformed-alone" => &[1],
            name => panic!("what of {name}?"),
        };
        assert_eq!(failed(&event, &answer), expected, "{}", path.display());
        seen += 1;
    }
    assert_eq!(seen, 5);
}
