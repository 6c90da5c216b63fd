//! Beside the Python programs, which use the same keys and skip what is marked, on a Redis of its own.

use crate::support;

use futures_util::StreamExt;
use onetap_bus::{Bus, Event, Job, Published};
use redis::aio::MultiplexedConnection;
use support::{World, event};

/// The script of a Python worker: nothing if the marker exists, else append, set the state, set the marker.
const WORKER: &str = r"
    if redis.call('EXISTS', KEYS[3]) == 1 then return 0 end
    redis.call('XADD', KEYS[1], 'MAXLEN', '~', '10000', '*', 'data', ARGV[1])
    redis.call('SETEX', KEYS[2], ARGV[2], ARGV[1])
    redis.call('SETEX', KEYS[3], ARGV[3], '1')
    return 1";

async fn connect(world: &World) -> MultiplexedConnection {
    let client = redis::Client::open(world.redis.as_deref().unwrap()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

/// Publishes as a Python worker does; returns whether the event was new to it.
async fn worker(connection: &mut MultiplexedConnection, event: &Event) -> bool {
    let (domain, id) = (event.job().domain(), event.job().id());
    let new: i64 = redis::cmd("EVAL")
        .arg(WORKER)
        .arg(3)
        .arg(format!("{domain}:events:{}", event.job().shard(4)))
        .arg(format!("{domain}:state:{id}"))
        .arg(format!("published:{id}:{}:{}", event.stage(), event.seq()))
        .arg(event.text())
        .arg(3600)
        .arg(7200)
        .query_async(connection)
        .await
        .unwrap();
    new == 1
}

async fn stream(connection: &mut MultiplexedConnection) -> Vec<(String, Vec<(String, String)>)> {
    redis::cmd("XRANGE").arg("scan:events:0").arg("-").arg("+").query_async(connection).await.unwrap()
}

fn first_event() -> Event {
    event(&Job::new("scan", "job-1").unwrap(), "vision", 10, r#"{"status":"done"}"#)
}

/// The seed's own test: publish twice, true then false, one message in the stream.
async fn publish_twice(world: World) {
    let bus = Bus::new(world.store.clone(), world.config.clone());
    let publish = async || matches!(bus.publish(&first_event()).await.unwrap(), Published::New(_));
    assert!(publish().await);
    assert!(!publish().await);
    let stream = world.store.read(&onetap_store::Log::new("scan:events:0").unwrap(), None, 10).await.unwrap();
    assert_eq!(stream.len(), 1);
    assert!(stream[0].text.contains("job-1"));
}

#[tokio::test]
async fn published_twice_is_one_message_on_memory() {
    publish_twice(World::memory().await).await;
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn published_twice_is_one_message_on_redis() {
    publish_twice(World::redis().await).await;
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn published_twice_is_one_message_on_upstash() {
    publish_twice(World::upstash().await).await;
}

async fn beside_a_worker(world: World) {
    let mut connection = connect(&world).await;
    let bus = Bus::new(world.store.clone(), world.config.clone());
    let events: Vec<Event> =
        (10..14).map(|seq| event(&Job::new("scan", "job-1").unwrap(), "vision", seq, "{}")).collect();
    // Theirs, then ours: routed, and the stream keeps the one they appended.
    assert!(worker(&mut connection, &events[0]).await);
    assert_eq!(bus.publish(&events[0]).await.unwrap(), Published::Routed);
    // Ours, then theirs: they skip it.
    assert!(matches!(bus.publish(&events[1]).await, Ok(Published::New(_))));
    assert!(!worker(&mut connection, &events[1]).await);
    // Both of theirs before ours, the later one first.
    assert!(worker(&mut connection, &events[3]).await);
    assert!(worker(&mut connection, &events[2]).await);
    let routed = bus.publish_each(&events[2..]).await;
    assert!(matches!(routed[..], [Ok(Published::Routed), Ok(Published::Routed)]), "{routed:?}");
    let entries = stream(&mut connection).await;
    assert_eq!(entries.len(), 4);
    assert!(entries.iter().all(|(_, fields)| fields.len() == 1 && fields[0].0 == "data"));
    let log = onetap_store::Log::new("scan:job:job-1").unwrap();
    let log = world.store.read(&log, None, 10).await.unwrap();
    assert_eq!(
        log.iter().map(|r| r.text.as_str()).collect::<Vec<_>>(),
        events.iter().map(Event::text).collect::<Vec<_>>()
    );
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let state = events[0].job().state(&*world.store).await.unwrap().unwrap();
    assert_eq!(json(&state), json(events[3].text()), "routing mends what the worker set back");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_worker_of_the_seed_and_this_bus_skip_each_others_events_on_redis() {
    beside_a_worker(World::redis().await).await;
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_worker_of_the_seed_and_this_bus_skip_each_others_events_on_upstash() {
    beside_a_worker(World::upstash().await).await;
}

async fn subscriber_hears(world: World) {
    let client = redis::Client::open(world.redis.as_deref().unwrap()).unwrap();
    let mut subscriber = client.get_async_pubsub().await.unwrap();
    subscriber.subscribe("scan:events:job-1").await.unwrap();
    let bus = Bus::new(world.store.clone(), world.config.clone());
    let last = event(&Job::new("scan", "job-1").unwrap(), "done", 51, "{}");
    for event in [first_event(), first_event(), last.clone()] {
        let _ = bus.publish(&event).await.unwrap();
    }
    let mut heard: Vec<String> = Vec::new();
    let mut messages = subscriber.on_message();
    while heard.last().is_none_or(|text| text != last.text()) {
        heard.push(messages.next().await.unwrap().get_payload().unwrap());
    }
    assert_eq!(heard, [first_event().text(), last.text()]);
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_subscriber_of_the_seed_hears_each_event_once_on_redis() {
    subscriber_hears(World::redis().await).await;
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_subscriber_of_the_seed_hears_each_event_once_on_upstash() {
    subscriber_hears(World::upstash().await).await;
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn keys_live_as_long_as_the_seeds_do_on_redis() {
    let world = World::redis().await;
    let bus = Bus::new(world.store.clone(), world.config.clone());
    let _ = bus.publish(&first_event()).await.unwrap();
    let mut connection = connect(&world).await;
    for (key, seconds) in [
        ("published:job-1:vision:10", 7200),
        ("router:published:job-1:10", 7200),
        ("scan:state:job-1", 3600),
        ("scan:job:job-1", 7200),
        ("scan:events:0", -1),
    ] {
        let left: i64 = redis::cmd("TTL").arg(key).query_async(&mut connection).await.unwrap();
        assert!((seconds - 20..=seconds).contains(&left), "{key} lives {left} s");
    }
    let keys: i64 = redis::cmd("DBSIZE").query_async(&mut connection).await.unwrap();
    assert_eq!(keys, 5, "and there is nothing else");
}
