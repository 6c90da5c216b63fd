//! Publishing: one effect for each event, on every backend.

use crate::support;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use onetap_bus::{Bus, Config, Error, Event, Published};
use onetap_store::testing::{Fault, TestStore};
use onetap_store::{Batch, Commit, Expect, Key, Memory, Store};
use support::{World, event, on_every_backend};

const HOUR: Duration = Duration::from_secs(3600);

on_every_backend! {
    a_new_event_is_in_the_stream_the_log_and_the_state
    an_event_again_is_a_duplicate_and_its_first_bytes_stay
    an_event_twice_in_one_call_is_new_once
    the_state_never_goes_back_and_a_late_event_still_comes
    a_number_that_another_stage_took_is_refused
    an_event_that_another_producer_appended_is_routed_once
    an_event_whose_own_marker_went_first_is_a_duplicate
    the_largest_event_is_published
    racing_publishers_publish_each_event_once
}

fn bus(world: &World) -> Bus {
    Bus::new(world.store.clone(), world.config.clone())
}

async fn value(world: &World, key: String) -> Option<String> {
    world.store.get(&Key::new(key).unwrap()).await.unwrap()
}

fn published(event: &Event) -> String {
    format!("published:{}:{}:{}", event.job().id(), event.stage(), event.seq())
}

fn router(event: &Event) -> String {
    format!("router:published:{}:{}", event.job().id(), event.seq())
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

/// The state of the event's job: an event, with its members in any order.
async fn state(world: &World, event: &Event) -> serde_json::Value {
    json(&event.job().state(&*world.store).await.unwrap().unwrap())
}

fn texts(records: &[onetap_store::Record]) -> Vec<&str> {
    records.iter().map(|record| record.text.as_str()).collect()
}

async fn a_new_event_is_in_the_stream_the_log_and_the_state(world: World) {
    let event = world.event("a", "vision", 10);
    let Published::New(id) = bus(&world).publish(&event).await.unwrap() else { panic!("not new") };
    assert_eq!(value(&world, router(&event)).await.as_deref(), Some("1"));
    assert_eq!(value(&world, published(&event)).await, Some(id.to_string()));
    assert_eq!(state(&world, &event).await, json(event.text()));
    let (log, stream) = (world.read(&world.log("a")).await, world.read(&world.stream("a")).await);
    assert_eq!(texts(&log), [event.text()]);
    if world.has_shard_streams() {
        assert_eq!(texts(&stream), [event.text()]);
        assert_eq!(stream[0].position, id, "the id is the stream's");
    } else {
        assert_eq!(stream, []);
        assert_eq!(log[0].position, id, "the id is the log's");
    }
}

async fn an_event_again_is_a_duplicate_and_its_first_bytes_stay(world: World) {
    let (first, other) = (event(&world.job("a"), "rule", 20, "1"), event(&world.job("a"), "rule", 20, "2"));
    let Published::New(id) = bus(&world).publish(&first).await.unwrap() else { panic!("not new") };
    for again in [&first, &other, &first] {
        assert_eq!(bus(&world).publish(again).await.unwrap(), Published::Duplicate(Some(id)));
    }
    assert_eq!(texts(&world.read(&world.log("a")).await), [first.text()]);
    assert_eq!(state(&world, &first).await, json(first.text()));
}

async fn an_event_twice_in_one_call_is_new_once(world: World) {
    let (a, b) = (world.event("a", "rule", 20), world.event("b", "rule", 20));
    let answers = bus(&world).publish_each(&[a.clone(), b.clone(), a.clone(), b, a]).await;
    let (Ok(Published::New(first)), Ok(Published::New(second))) = (&answers[0], &answers[1]) else {
        panic!("{answers:?}")
    };
    let again: Vec<Published> = answers[2..].iter().map(|answer| *answer.as_ref().unwrap()).collect();
    assert_eq!(again, [first, second, first].map(|id| Published::Duplicate(Some(*id))));
}

async fn the_state_never_goes_back_and_a_late_event_still_comes(world: World) {
    let events = [("rule", 21), ("vision", 10), ("rule", 20), ("answer", 30)]
        .map(|(stage, seq)| world.event("a", stage, seq));
    for (event, highest) in events.iter().zip([0, 0, 0, 3]) {
        assert!(matches!(bus(&world).publish(event).await, Ok(Published::New(_))));
        assert_eq!(state(&world, event).await, json(events[highest].text()));
    }
    let order: Vec<&str> = events.iter().map(Event::text).collect();
    assert_eq!(texts(&world.read(&world.log("a")).await), order, "in the order of their coming");
}

async fn a_number_that_another_stage_took_is_refused(world: World) {
    let (first, second) = (world.event("a", "queued", 5), world.event("a", "started", 5));
    assert!(matches!(bus(&world).publish(&first).await, Ok(Published::New(_))));
    for _ in 0..2 {
        assert!(matches!(bus(&world).publish(&second).await, Err(Error::SeqTaken)));
    }
    assert!(matches!(bus(&world).publish(&first).await, Ok(Published::Duplicate(Some(_)))));
    assert_eq!(value(&world, published(&second)).await, None);
    assert_eq!(texts(&world.read(&world.log("a")).await), [first.text()]);
}

async fn an_event_that_another_producer_appended_is_routed_once(world: World) {
    let (event, other) = (world.event("a", "vision", 10), world.event("a", "vision", 11));
    let marker = Batch::new().put(&Key::new(published(&event)).unwrap(), Expect::Absent, "1", HOUR);
    assert!(matches!(world.store.commit(&marker).await, Ok(Commit::Applied(_))));
    let answers = bus(&world).publish_each(&[event.clone(), other.clone(), event.clone()]).await;
    assert!(matches!(answers[0], Ok(Published::Routed)));
    assert!(matches!(answers[1], Ok(Published::New(_))));
    assert!(
        matches!(answers[2], Ok(Published::Duplicate(None))),
        "where it stands in the stream only its producer knows"
    );
    assert_eq!(bus(&world).publish(&event).await.unwrap(), Published::Duplicate(None));
    assert_eq!(value(&world, router(&event)).await.as_deref(), Some("1"));
    assert_eq!(value(&world, published(&event)).await.as_deref(), Some("1"));
    let mut log = world.read(&world.log("a")).await;
    log.sort_by(|a, b| a.text.cmp(&b.text));
    assert_eq!(texts(&log), [event.text(), other.text()]);
    let streamed = if world.has_shard_streams() { vec![other.text()] } else { vec![] };
    assert_eq!(texts(&world.read(&world.stream("a")).await), streamed, "the stream had it already");
}

async fn an_event_whose_own_marker_went_first_is_a_duplicate(world: World) {
    let event = world.event("a", "queued", 5);
    let Published::New(id) = bus(&world).publish(&event).await.unwrap() else { panic!("not new") };
    let gone = Batch::new().delete(&Key::new(published(&event)).unwrap(), id.to_string());
    assert!(matches!(world.store.commit(&gone).await, Ok(Commit::Applied(_))));
    assert_eq!(bus(&world).publish(&event).await.unwrap(), Published::Duplicate(None));
    assert_eq!(world.read(&world.log("a")).await.len(), 1);
}

async fn the_largest_event_is_published(world: World) {
    let small = event(&world.job("a"), "vision", 10, r#""""#).text().len();
    let pad = "字".repeat((onetap_bus::MAX_EVENT_BYTES - small) / 3);
    let events: Vec<Event> =
        (10..14).map(|seq| event(&world.job("a"), "vision", seq, &format!("\"{pad}\""))).collect();
    for answer in bus(&world).publish_each(&events).await {
        assert!(matches!(answer, Ok(Published::New(_))), "{answer:?}");
    }
    assert_eq!(world.read(&world.log("a")).await[3].text, events[3].text());
}

async fn racing_publishers_publish_each_event_once(world: World) {
    let events: Vec<Event> = (0..5)
        .flat_map(|job| (10..14).map(move |seq| (job, seq)))
        .map(|(job, seq)| world.event(&job.to_string(), "vision", seq))
        .collect();
    let publishers = (0..6).map(|n| {
        let (bus, mut events) = (bus(&world), events.clone());
        events.rotate_left(n * 3);
        tokio::spawn(async move {
            let mut new = Vec::new();
            for chunk in events.chunks(5) {
                for (event, answer) in chunk.iter().zip(bus.publish_each(chunk).await) {
                    match answer.unwrap() {
                        Published::New(_) => new.push(event.text().to_owned()),
                        other => assert!(matches!(other, Published::Duplicate(_)), "{other:?}"),
                    }
                }
            }
            new
        })
    });
    let mut new: Vec<String> = Vec::new();
    for publisher in publishers.collect::<Vec<_>>() {
        new.extend(publisher.await.unwrap());
    }
    new.sort();
    let mut all: Vec<String> = events.iter().map(|event| event.text().to_owned()).collect();
    all.sort();
    assert_eq!(new, all);
    for job in 0..5 {
        assert_eq!(world.read(&world.log(&job.to_string())).await.len(), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn lost_requests_and_lost_answers_neither_lose_nor_double_an_event() {
    let world = World::memory().await;
    let plan = |call: usize| match call * 7 % 5 {
        0 => Fault::ReplyLost,
        1 => Fault::NotSent,
        _ => Fault::Pass,
    };
    let faulty = TestStore::faulty(world.store.clone(), plan);
    let bus = Bus::new(faulty, world.config.clone());
    let mut found = HashMap::new();
    for seq in 0..60 {
        let stage = ["queued", "vision", "rule", "answer", "reward", "done"][seq / 10];
        let event = world.event("a", stage, seq as u64);
        while let Err(error) = bus.publish(&event).await {
            *found.entry(error.to_string()).or_insert(0) += 1;
        }
    }
    assert_eq!(found.len(), 2, "both faults happened: {found:?}");
    assert_eq!(world.read(&world.log("a")).await.len(), 60);
    assert_eq!(world.read(&world.stream("a")).await.len(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_marker_that_goes_away_in_between_makes_the_event_come_again() {
    let world = World::memory().await;
    let event = world.event("a", "vision", 10);
    let marker =
        Batch::new().put(&Key::new(published(&event)).unwrap(), Expect::Absent, "1", Duration::from_secs(1));
    assert!(matches!(world.store.commit(&marker).await, Ok(Commit::Applied(_))));
    let late =
        TestStore::first(world.store.clone(), vec![Fault::Pass, Fault::SentLate(Duration::from_secs(2))]);
    let answer = Bus::new(late, world.config.clone()).publish(&event).await;
    assert!(matches!(answer, Err(Error::Store(_))), "{answer:?}");
    assert_eq!(world.read(&world.log("a")).await, []);
    assert!(matches!(bus(&world).publish(&event).await, Ok(Published::New(_))));
}

#[tokio::test(start_paused = true)]
async fn everything_lives_as_long_as_it_is_told_to() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let config = Config { state_ttl: HOUR / 2, published_ttl: HOUR * 3, ..Config::default() };
    let bus = Bus::new(store.clone(), config);
    let job = onetap_bus::Job::new("scan", "job-1").unwrap();
    let event = event(&job, "vision", 10, "{}");
    let _ = bus.publish(&event).await.unwrap();
    let alive = async |store: &Arc<dyn Store>| {
        let marker = store.get(&Key::new(published(&event)).unwrap()).await.unwrap().is_some();
        let routed = store.get(&Key::new(router(&event)).unwrap()).await.unwrap().is_some();
        let log = onetap_store::Log::new("scan:job:job-1").unwrap();
        let log = !store.read(&log, None, 1).await.unwrap().is_empty();
        (job.state(&**store).await.unwrap().is_some(), log, marker, routed)
    };
    let second = Duration::from_secs(1);
    tokio::time::sleep(HOUR / 2 - second).await;
    assert_eq!(alive(&store).await, (true, true, true, true));
    tokio::time::sleep(second * 2).await;
    assert_eq!(alive(&store).await, (false, true, true, true));
    tokio::time::sleep(HOUR * 3 / 2).await;
    assert_eq!(alive(&store).await, (false, false, true, true));
    assert!(matches!(bus.publish(&event).await, Ok(Published::Duplicate(Some(_)))));
    tokio::time::sleep(HOUR).await;
    assert_eq!(alive(&store).await, (false, false, false, false));
}

#[tokio::test(start_paused = true)]
async fn ten_events_are_one_call_and_so_are_ten_duplicates() {
    let world = World::memory().await;
    let counted = TestStore::counting(world.store.clone());
    let bus = Bus::new(counted.clone(), world.config.clone());
    let events: Vec<Event> = (10..20).map(|seq| world.event("a", "vision", seq)).collect();
    for round in 1..=2 {
        assert!(bus.publish_each(&events).await.iter().all(Result::is_ok));
        assert_eq!(counted.calls(), round);
    }
}
