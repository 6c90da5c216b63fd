//! Against an SQS that we did not write: PyPI's moto.

use crate::{harness, support};

use std::time::Duration;

use harness::moto::Moto;
use harness::plan::Plan;
use harness::{Dice, later};
use onetap_sqs::completed;
use queue_consumer::QueueConsumer;
use serde_json::{Value, json};
use support::World;
use tokio::time::sleep;

const RECEIVES: u32 = 3;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto"]
async fn a_queue_of_another_make_ends_empty_and_its_dead_letters_are_the_malformed() {
    let moto = Moto::start().await;
    let dead = moto.create("dead", json!({})).await;
    let queue = moto.create("jobs", json!({"VisibilityTimeout": "1"})).await;
    let world = World::memory().await;
    let plan = Plan::new(&world, 5, &mut Dice::new(9));
    for (n, chunk) in plan.deliveries.chunks(5).enumerate() {
        let entry = |(m, body): (usize, &String)| json!({"Id": format!("{n}-{m}"), "MessageBody": body});
        let entries: Vec<Value> = chunk.iter().enumerate().map(entry).collect();
        let sent = moto.call("SendMessageBatch", json!({"QueueUrl": queue.0, "Entries": entries})).await;
        assert_eq!(sent["Successful"].as_array().unwrap().len(), chunk.len());
    }

    let consumer = QueueConsumer::new(world.store.clone(), world.config.clone());
    // On a busy machine a good message, too, may come more often than a queue with dead letters allows: it gets them
    // when only the malformed are left.
    let redrive = json!({"deadLetterTargetArn": dead.1, "maxReceiveCount": RECEIVES}).to_string();
    let mut redrive = Some(json!({"QueueUrl": queue.0, "Attributes": {"RedrivePolicy": redrive}}));
    loop {
        match moto.count(&queue).await {
            0 => break,
            left if left <= plan.malformed.len() as u64 => {
                if let Some(redrive) = redrive.take() {
                    moto.call("SetQueueAttributes", redrive).await;
                }
            }
            _ => {}
        }
        let event = moto.receive(&queue).await;
        if event.records.is_empty() {
            sleep(Duration::from_millis(100)).await;
            continue;
        }
        let answer = consumer.handle(event.clone(), later()).await;
        moto.delete(&queue, &completed(&event.records, &answer)).await;
    }

    let mut letters = Vec::new();
    while moto.count(&dead).await > 0 {
        let event = moto.receive(&dead).await;
        letters.extend(event.records.iter().filter_map(|message| message.body.clone()));
        moto.delete(&dead, &event.records.iter().collect::<Vec<_>>()).await;
    }
    letters.sort();
    let mut malformed = plan.malformed.clone();
    malformed.sort();
    assert!(letters == malformed, "{} dead letters, {} malformed", letters.len(), malformed.len());
    let (empty, buried) = (onetap_sqs::Queue::new("jobs"), onetap_sqs::Queue::new("dead"));
    letters.into_iter().for_each(|letter| buried.send(letter));
    plan.assert_kept(&world, &empty, &buried).await;
}
