//! Everything at once: events delivered several times, out of order, to consumers that keep dying, while clients that
//! keep losing their connection look on. Afterwards each event has had its one effect.

use crate::{harness, support};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use harness::plan::{Plan, pairs};
use harness::subscriber::{follow, gateway};
use harness::witness::{Subscriber, witnessed};
use harness::worker::Worker;
use harness::{Dice, consumed, later};
use onetap_sqs::Queue;
use onetap_store::testing::{Fault, TestStore};
use queue_consumer::QueueConsumer;
use support::World;
use tokio::time::sleep;

const JOBS: usize = 100;
/// DynamoDB Local is slow, and stands for the protocol's sake: dynoxide takes the full number.
const FEW_JOBS: usize = 15;
/// A quarter of a minute's worth: on a machine that crawls, nothing would ever be done between two kills.
const MOST_KILLS: usize = 40;
/// For so long the queue is filled.
const FILLING: Duration = Duration::from_secs(3);

/// Fills the queue, kills workers, follows jobs, until the queue is empty and the clients have seen the end; then every
/// event has had its one effect.
async fn run(world: &World, plan: &Plan, workers: &[Worker], queue: &Queue) {
    let gateway = gateway(world.patient_store());
    let (over, kills) = (AtomicBool::new(false), AtomicUsize::new(0));
    let fill = async {
        for part in plan.deliveries.chunks(plan.deliveries.len() / 30) {
            part.iter().for_each(|body| queue.send(body.clone()));
            sleep(FILLING / 30).await;
        }
    };
    let functions: Vec<_> = workers.iter().map(|worker| |event| worker.invoke(event)).collect();
    let kill = async {
        let mut dice = Dice::new(7);
        for _ in 0..MOST_KILLS {
            sleep(dice.millis(200, 500)).await;
            workers[dice.below(workers.len())].kill();
            kills.fetch_add(1, Ordering::SeqCst);
        }
        std::future::pending::<()>().await;
    };
    let work = async {
        let dead = tokio::select! {
            dead = consumed(plan, queue, &functions, fill) => dead,
            () = kill => Queue::new("never"),
        };
        over.store(true, Ordering::SeqCst);
        dead
    };
    let (gateway, over_now) = (&gateway, &over);
    let watch = (0..3).map(|n| async move {
        let last_seq = (n == 2).then_some(20);
        let told = follow(gateway, &plan.jobs[n].0, last_seq, over_now, &mut Dice::new(n as u64 * 77)).await;
        let log = pairs(&plan.log(world, n).await);
        let seq = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap()["seq"].as_u64();
        let expected: Vec<_> = log.into_iter().filter(|(_, text)| seq(text) > last_seq).collect();
        assert_eq!(told, expected, "client {n}");
    });
    let (dead, _) = tokio::join!(work, join_all(watch));
    let interrupted: usize = workers.iter().map(|worker| worker.interrupted.load(Ordering::SeqCst)).sum();
    assert!(kills.into_inner() >= 5 && interrupted >= 3, "{interrupted} batches were interrupted");
    plan.assert_kept(world, queue, &dead).await;
}

fn queue() -> Queue {
    Queue::new("jobs").with_visibility(Duration::from_secs(1))
}

async fn processes_die(world: World, jobs: usize) {
    let plan = Plan::new(&world, jobs, &mut Dice::new(1));
    let subscriber = Subscriber::start(&world).await;
    let workers: Vec<Worker> = (0..4).map(|_| Worker::process(&world.environment)).collect();
    run(&world, &plan, &workers, &queue()).await;
    if let Some(subscriber) = subscriber {
        plan.assert_published(subscriber.heard().await);
    }
}

#[tokio::test(start_paused = true)]
async fn every_event_has_one_effect_while_consumers_die_on_memory() {
    let mut world = World::memory().await;
    let (store, published) = witnessed(world.store);
    world.store = store;
    let plan = Plan::new(&world, JOBS, &mut Dice::new(1));
    // A store that takes its time, before and after it has done it, so that there is a middle to die in.
    let slow = TestStore::faulty(world.store.clone(), |call| {
        let time = Duration::from_millis(5 + call as u64 % 20);
        if call % 2 == 0 { Fault::SentLate(time) } else { Fault::AnsweredLate(time) }
    });
    let worker = || Worker::task(QueueConsumer::new(slow.clone(), world.config.clone()));
    let workers: Vec<Worker> = (0..4).map(|_| worker()).collect();
    run(&world, &plan, &workers, &queue()).await;
    plan.assert_published(published.lock().unwrap().clone());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn every_event_has_one_effect_while_consumers_die_on_redis() {
    processes_die(World::redis().await, JOBS).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn every_event_has_one_effect_while_consumers_die_on_upstash() {
    processes_die(World::upstash().await, JOBS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_has_one_effect_while_consumers_die_on_dynamodb() {
    processes_die(World::dynamodb().await, JOBS).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs DynamoDB Local"]
async fn every_event_has_one_effect_while_consumers_die_on_dynamodb_local() {
    processes_die(World::dynamodb_local().await, FEW_JOBS).await;
}

/// A consumer that is killed outright leaves nothing that the next one does not finish: here with the kill exactly
/// between the store's doing it and the consumer's hearing of it.
#[tokio::test(start_paused = true)]
async fn a_consumer_that_dies_before_it_hears_of_its_own_success_leaves_duplicates() {
    let world = World::memory().await;
    let held = onetap_store::testing::Gate::new();
    let store = TestStore::first(world.store.clone(), vec![Fault::HeldAfter(held.clone())]);
    let consumer = Arc::new(QueueConsumer::new(store, world.config.clone()));
    let plan = Plan::new(&world, 1, &mut Dice::new(1));
    let batch = harness::batch(plan.events().cloned()).await;
    let dying = tokio::spawn({
        let (consumer, batch) = (consumer.clone(), batch.clone());
        async move { consumer.handle(batch, later()).await }
    });
    held.reached().await;
    dying.abort();
    let answer = consumer.handle(batch, later()).await;
    assert_eq!(answer.batch_item_failures, []);
    assert_eq!(plan.log(&world, 0).await.len(), 20);
}
