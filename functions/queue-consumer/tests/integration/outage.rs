//! The store goes away for ten seconds in the middle: nothing is lost, and nothing is doubled after it returns.

use crate::{harness, support};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use harness::plan::Plan;
use harness::witness::{Subscriber, witnessed};
use harness::{Dice, consumed, later};
use onetap_servers::{Fault as Broken, Proxy, TcpProxy};
use onetap_sqs::{Queue, SqsEvent};
use onetap_store::Store;
use onetap_store::testing::{Fault, TestStore};
use queue_consumer::QueueConsumer;
use support::World;
use tokio::time::sleep;

const JOBS: usize = 10;
const OUTAGE: Duration = Duration::from_secs(10);
/// Consumes a plan through `store`, which `break_it` breaks and `mend_it` mends.
async fn survives(world: &World, store: Arc<dyn Store>, break_it: impl Fn(), mend_it: impl Fn()) -> Plan {
    let plan = Plan::new(world, JOBS, &mut Dice::new(3));
    let queue = Queue::new("jobs").with_visibility(Duration::from_secs(2));
    let consumer = QueueConsumer::new(store, world.config.clone());
    let (down, felt) = (AtomicBool::new(false), AtomicUsize::new(0));
    let function = async |event: SqsEvent| {
        let good = plan.well_formed(&event);
        let answer = consumer.handle(event, later()).await;
        let failed = answer.batch_item_failures.iter().filter(|f| good.contains(&f.item_identifier)).count();
        if down.load(Ordering::SeqCst) {
            felt.fetch_add(failed, Ordering::SeqCst);
        }
        Some(answer)
    };
    let (before, rest) = plan.deliveries.split_at(plan.deliveries.len() / 3);
    let (during, after) = rest.split_at(rest.len() / 2);
    let story = async {
        let send = |bodies: &[String]| bodies.iter().for_each(|body| queue.send(body.clone()));
        send(before);
        // Not when it has nothing to do, but in the midst of it.
        while queue.len() > before.len() * 2 / 3 {
            sleep(Duration::from_millis(1)).await;
        }
        break_it();
        down.store(true, Ordering::SeqCst);
        send(during);
        sleep(OUTAGE).await;
        // The outage is as long as it takes to be felt.
        while felt.load(Ordering::SeqCst) < during.len() / 2 {
            sleep(Duration::from_millis(10)).await;
        }
        down.store(false, Ordering::SeqCst);
        mend_it();
        send(after);
    };
    let dead = consumed(&plan, &queue, &[(); 4].map(|()| &function), story).await;
    plan.assert_kept(world, &queue, &dead).await;
    plan
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_or_doubled_by_an_outage_on_memory() {
    let mut world = World::memory().await;
    let (store, published) = witnessed(world.store);
    world.store = store;
    let down = Arc::new(AtomicBool::new(false));
    let store = TestStore::faulty(world.store.clone(), {
        let down = down.clone();
        move |call| match (down.load(Ordering::SeqCst), call % 3) {
            (true, 0) => Fault::ReplyLost,
            (true, _) => Fault::NotSent,
            (false, _) => Fault::AnsweredLate(Duration::from_millis(5)),
        }
    });
    let plan = survives(
        &world,
        store,
        || down.store(true, Ordering::SeqCst),
        || down.store(false, Ordering::SeqCst),
    )
    .await;
    plan.assert_published(published.lock().unwrap().clone());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn nothing_is_lost_or_doubled_by_an_outage_on_redis() {
    let world = World::redis().await;
    let subscriber = Subscriber::start(&world).await.unwrap();
    let address = world.redis.clone().unwrap().replace("redis://", "");
    let proxy = TcpProxy::start(address).await;
    let store = world.servers().store_with("REDIS_URL", proxy.url());
    let break_it = || {
        proxy.refuse(true);
        // First the answers fail to come, then the connections break.
        proxy.stall(true);
        proxy.cut();
    };
    let mend_it = || {
        proxy.stall(false);
        proxy.refuse(false);
    };
    let plan = survives(&world, store, break_it, mend_it).await;
    plan.assert_published(subscriber.heard().await);
}

/// Through a proxy that does the first requests without answering, then nothing at all. `url` is the variable that
/// names the server.
async fn behind_a_proxy(world: &World, url: &'static str) -> Plan {
    let proxy = Proxy::start(&world.variable(url)).await;
    let store = world.servers().store_with(url, proxy.url());
    let break_it = || {
        proxy.inject_next(vec![Broken::DropReply; 6]);
        proxy.inject(Some(Broken::Close));
    };
    survives(world, store, break_it, || proxy.inject(None)).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn nothing_is_lost_or_doubled_by_an_outage_on_upstash() {
    let world = World::upstash().await;
    let subscriber = Subscriber::start(&world).await.unwrap();
    let plan = behind_a_proxy(&world, "UPSTASH_REDIS_REST_URL").await;
    plan.assert_published(subscriber.heard().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_doubled_by_an_outage_on_dynamodb() {
    behind_a_proxy(&World::dynamodb().await, "AWS_ENDPOINT_URL_DYNAMODB").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs DynamoDB Local"]
async fn nothing_is_lost_or_doubled_by_an_outage_on_dynamodb_local() {
    behind_a_proxy(&World::dynamodb_local().await, "AWS_ENDPOINT_URL_DYNAMODB").await;
}
