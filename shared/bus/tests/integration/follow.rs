//! Following a job, on every backend.

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use onetap_bus::{Bus, Event, Follower, Resume, Stages};
use onetap_servers::TcpProxy;
use onetap_store::testing::{Answer, Fault, Request, TestStore};
use onetap_store::{Batch, Error, Keep, Record, Store};
use support::{World, on_every_backend};
use tokio::time::{Instant, timeout};

const PATIENCE: Duration = Duration::from_secs(20);

on_every_backend! {
    a_follower_is_told_what_was_there_and_then_what_comes
    a_follower_that_resumes_is_told_the_rest
    a_follower_is_spared_what_it_asked_not_to_see
    a_job_that_was_seen_whole_is_over
    a_last_event_that_is_gone_is_a_gap_and_all_that_is_left_comes
    an_event_after_the_end_is_still_told
    an_event_that_the_end_overtook_is_told_within_the_grace
    a_long_log_is_told_to_its_end
    followers_of_a_running_job_are_told_every_event_once
}

fn bus(world: &World) -> Bus {
    Bus::new(world.store.clone(), world.config.clone())
}

async fn publish(world: &World, events: &[Event]) {
    for answer in bus(world).publish_each(events).await {
        let _ = answer.unwrap();
    }
}

/// A job from its first event to its last.
fn whole_job(world: &World) -> Vec<Event> {
    let stages = [("vision", 10), ("vision", 11), ("rule", 20), ("answer", 30), ("done", 51)];
    stages.map(|(stage, seq)| world.event("a", stage, seq)).into()
}

async fn follow(world: &World, resume: Resume) -> Follower {
    Follower::start(world.store.clone(), Stages::default(), world.job("a"), resume).await.unwrap()
}

async fn next(follower: &mut Follower) -> Option<Record> {
    timeout(PATIENCE, follower.next()).await.expect("something to be told").unwrap()
}

async fn rest(follower: &mut Follower) -> Vec<Record> {
    let mut told = Vec::new();
    while let Some(record) = next(follower).await {
        told.push(record);
    }
    told
}

fn assert_told(told: &[Record], events: &[Event]) {
    let texts: Vec<&str> = told.iter().map(|record| record.text.as_str()).collect();
    assert_eq!(texts, events.iter().map(Event::text).collect::<Vec<_>>());
}

async fn a_follower_is_told_what_was_there_and_then_what_comes(world: World) {
    let events = whole_job(&world);
    publish(&world, &events[..2]).await;
    let mut follower = follow(&world, Resume::default()).await;
    assert!(!follower.has_gap() && !follower.is_over());
    let mut told = vec![next(&mut follower).await.unwrap(), next(&mut follower).await.unwrap()];
    assert!(timeout(Duration::from_millis(60), follower.next()).await.is_err(), "nothing yet");
    for event in &events[2..] {
        publish(&world, std::slice::from_ref(event)).await;
        told.extend(next(&mut follower).await);
    }
    assert_told(&told, &events);
    assert_eq!(next(&mut follower).await, None);
    assert!(follower.is_over());
}

async fn a_follower_that_resumes_is_told_the_rest(world: World) {
    let events = whole_job(&world);
    publish(&world, &events).await;
    let all = rest(&mut follow(&world, Resume::default()).await).await;
    assert_told(&all, &events);
    for (n, record) in all.iter().enumerate() {
        let mut follower = follow(&world, Resume { after: Some(record.position), last_seq: None }).await;
        assert!(!follower.has_gap());
        assert_eq!(rest(&mut follower).await, all[n + 1..]);
    }
}

async fn a_follower_is_spared_what_it_asked_not_to_see(world: World) {
    let events = whole_job(&world);
    publish(&world, &events[..3]).await;
    let mut follower = follow(&world, Resume { after: None, last_seq: Some(20) }).await;
    assert!(!follower.is_over(), "there is nothing to tell, but the job goes on");
    publish(&world, &[world.event("a", "vision", 12), events[3].clone(), events[4].clone()]).await;
    assert_told(&rest(&mut follower).await, &events[3..]);
    let first = rest(&mut follow(&world, Resume::default()).await).await[0].position;
    let both = Resume { after: Some(first), last_seq: Some(30) };
    assert_told(&rest(&mut follow(&world, both).await).await, &events[4..]);
}

async fn a_job_that_was_seen_whole_is_over(world: World) {
    let events = whole_job(&world);
    publish(&world, &events[..4]).await;
    let last = rest_without_end(&world).await;
    assert!(!follow(&world, Resume { after: Some(last), last_seq: None }).await.is_over());
    publish(&world, &events[4..]).await;
    assert!(!follow(&world, Resume { after: Some(last), last_seq: None }).await.is_over());
    let last = rest(&mut follow(&world, Resume::default()).await).await[4].position;
    assert!(follow(&world, Resume { after: Some(last), last_seq: None }).await.is_over());
    assert!(follow(&world, Resume { after: None, last_seq: Some(51) }).await.is_over());
    assert!(!follow(&world, Resume::default()).await.is_over());
}

/// The position of the newest of a job's events, while it has no end.
async fn rest_without_end(world: &World) -> onetap_store::Position {
    world.read(&world.log("a")).await.last().unwrap().position
}

async fn a_last_event_that_is_gone_is_a_gap_and_all_that_is_left_comes(world: World) {
    let events = whole_job(&world);
    let trimmed = "0-1".parse().unwrap();
    let newer = "18446744073709551615-0".parse().unwrap();
    let empty = follow(&world, Resume { after: Some(trimmed), last_seq: None }).await;
    assert!(empty.has_gap() && !empty.is_over(), "all of the log is gone");
    publish(&world, &events).await;
    for gone in [trimmed, newer] {
        let mut follower = follow(&world, Resume { after: Some(gone), last_seq: None }).await;
        assert!(follower.has_gap());
        assert_told(&rest(&mut follower).await, &events);
    }
}

async fn an_event_after_the_end_is_still_told(world: World) {
    let mut events = whole_job(&world);
    publish(&world, &events).await;
    let end = rest(&mut follow(&world, Resume::default()).await).await[4].position;
    let late = world.event("a", "reward", 41);
    publish(&world, std::slice::from_ref(&late)).await;
    let mut follower = follow(&world, Resume { after: Some(end), last_seq: None }).await;
    assert!(!follower.is_over());
    let told = rest(&mut follower).await;
    assert_told(&told, std::slice::from_ref(&late));
    assert!(follow(&world, Resume { after: Some(told[0].position), last_seq: None }).await.is_over());
    events.push(late);
    assert_told(&rest(&mut follow(&world, Resume::default()).await).await, &events);
}

async fn an_event_that_the_end_overtook_is_told_within_the_grace(world: World) {
    let mut events = whole_job(&world);
    events.swap(3, 4);
    publish(&world, &events[..4]).await;
    let mut follower = follow(&world, Resume::default()).await.with_grace(PATIENCE);
    let mut told = Vec::new();
    for _ in 0..4 {
        told.extend(next(&mut follower).await);
    }
    assert!(follower.is_over(), "as far as anybody knows");
    publish(&world, &events[4..]).await;
    told.extend(next(&mut follower).await);
    assert_told(&told, &events);
}

async fn a_long_log_is_told_to_its_end(world: World) {
    // Longer than a page, and than any job: markers forget, logs that go on do not.
    let (log, end) = (world.log("a"), world.event("a", "done", 51));
    let keep = Keep::all_for(Duration::from_secs(3600));
    let batches: Vec<Batch> = (0..210)
        .map(|n| Batch::new().append(&log, format!(r#"{{"stage":"queued","seq":1,"n":{n}}}"#), keep))
        .collect();
    for batches in batches.chunks(30) {
        for answer in world.store.commit_each(batches).await {
            let _ = answer.unwrap();
        }
    }
    let mut follower = follow(&world, Resume::default()).await;
    publish(&world, &[end]).await;
    let told = rest(&mut follower).await;
    assert_eq!(told.len(), 211);
    assert!(told.is_sorted_by_key(|record| record.position));
}

async fn followers_of_a_running_job_are_told_every_event_once(world: World) {
    let seqs: Vec<u64> = (10..50).filter(|seq| seq % 10 < 5).chain([50, 51]).collect();
    let stage =
        |seq: u64| ["vision", "rule", "answer", "reward", "done"][usize::try_from(seq).unwrap() / 10 - 1];
    let events: Vec<Event> = seqs.iter().map(|seq| world.event("a", stage(*seq), *seq)).collect();
    let followers: Vec<_> = (0..4)
        .map(|_| {
            let (store, job) = (world.store.clone(), world.job("a"));
            tokio::spawn(async move {
                let mut follower =
                    Follower::start(store, Stages::default(), job, Resume::default()).await.unwrap();
                let mut told = Vec::new();
                // Dropped and asked again every other time, as a gateway does that has other things to wait for.
                for patience in [Duration::from_millis(3), PATIENCE].into_iter().cycle() {
                    match timeout(patience, follower.next()).await {
                        Ok(Ok(Some(record))) => told.push(record),
                        Ok(Ok(None)) => return told,
                        Ok(Err(error)) => panic!("{error}"),
                        Err(_) => {}
                    }
                }
                told
            })
        })
        .collect();
    for chunk in events.chunks(3) {
        publish(&world, chunk).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for follower in followers {
        assert_told(&timeout(PATIENCE, follower).await.unwrap().unwrap(), &events);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn a_broken_subscription_is_renewed_on_redis() {
    let world = World::redis().await;
    let proxy = TcpProxy::start(world.redis.as_deref().unwrap().trim_start_matches("redis://")).await;
    let store = world.servers().store_with("REDIS_URL", proxy.url());
    let bus = Bus::new(world.store.clone(), world.config.clone());
    let mut follower =
        Follower::start(store, Stages::default(), world.job("a"), Resume::default()).await.unwrap();
    for event in whole_job(&world) {
        proxy.cut();
        let _ = bus.publish(&event).await.unwrap();
        assert_eq!(next(&mut follower).await.unwrap().text, event.text());
    }
    assert_eq!(next(&mut follower).await, None);
    assert!(proxy.connections() > 3, "it was cut, and connected anew");
}

/// A store whose subscriptions ring twice and are gone, one way or the other.
fn fleeting(store: Arc<dyn Store>) -> Arc<TestStore> {
    TestStore::scripted(store, |call| async move {
        let Request::Watch(_) = call.request else { return call.send().await };
        let fails = call.number % 2 == 1;
        let ring = move |n: usize| async move {
            match n {
                0 | 1 => Some((Ok(()), n + 1)),
                2 if fails => Some((Err(Error::not_sent("broken, on purpose")), n + 1)),
                // Whoever asks once more than that meets a panic.
                _ => None,
            }
        };
        Answer::Watched(Ok(stream::unfold(0, ring).boxed()))
    })
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_keeps_breaking_is_renewed_and_never_asked_after_its_end() {
    let world = World::memory().await;
    let store = fleeting(world.store.clone());
    let mut follower =
        Follower::start(store.clone(), Stages::default(), world.job("a"), Resume::default()).await.unwrap();
    let events = whole_job(&world);
    let publisher = async {
        for event in &events {
            tokio::time::sleep(Duration::from_secs(1)).await;
            publish(&world, std::slice::from_ref(event)).await;
        }
    };
    let (told, ()) = tokio::join!(rest(&mut follower), publisher);
    assert_told(&told, &events);
    let renewed = store.watches();
    assert!(
        (5..100).contains(&renewed),
        "{renewed} times in five seconds: again and again, and not in a circle"
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_told_and_following_goes_on_afterwards() {
    let world = World::memory().await;
    let events = whole_job(&world);
    let store = TestStore::first(world.store.clone(), vec![Fault::Pass, Fault::NotSent]);
    let mut follower =
        Follower::start(store, Stages::default(), world.job("a"), Resume::default()).await.unwrap();
    publish(&world, &events).await;
    assert!(follower.next().await.is_err());
    assert_told(&rest(&mut follower).await, &events);
}

#[tokio::test(start_paused = true)]
async fn a_finished_job_has_no_more_when_its_grace_is_over() {
    let world = World::memory().await;
    let (mut events, late) = (whole_job(&world), world.event("a", "reward", 41));
    publish(&world, &events).await;
    let start = Instant::now();
    let mut follower = follow(&world, Resume::default()).await.with_grace(Duration::from_secs(3));
    let overtaken = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        publish(&world, std::slice::from_ref(&late)).await;
    };
    let mut told = Vec::new();
    let listener = async {
        loop {
            // Dropped in between, and told of late events: neither makes the grace longer.
            match timeout(Duration::from_millis(700), follower.next()).await {
                Ok(Ok(Some(record))) => told.push(record),
                Ok(end) => return end.unwrap(),
                Err(_) => {}
            }
        }
    };
    assert_eq!(tokio::join!(listener, overtaken).0, None);
    assert_eq!(start.elapsed(), Duration::from_secs(3));
    events.push(late);
    assert_told(&told, &events);
    assert!(!follower.has_more().await.unwrap(), "and it stays over");
}

/// A store whose first subscriptions stay open and never ring, as behind a NAT that forgot the connection.
fn silent(store: Arc<dyn Store>, silent: usize) -> Arc<TestStore> {
    TestStore::scripted(store, move |call| async move {
        match call.request {
            Request::Watch(_) if call.number <= silent => Answer::Watched(Ok(stream::pending().boxed())),
            _ => call.send().await,
        }
    })
}

/// Waits for the next event as a gateway does, which sends keep-alive comments meanwhile.
async fn next_of_gateway(follower: &mut Follower) -> Option<Record> {
    for _ in 0..500 {
        if let Ok(next) = timeout(Duration::from_secs(15), follower.next()).await {
            return next.unwrap();
        }
    }
    panic!("two hours without an event");
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_never_rings_delays_an_event_and_is_then_renewed() {
    let world = World::memory().await;
    let events = whole_job(&world);
    let store = silent(world.store.clone(), 1);
    let mut follower =
        Follower::start(store.clone(), Stages::default(), world.job("a"), Resume::default()).await.unwrap();
    let start = Instant::now();
    let publisher = async {
        for (event, pause) in events.iter().zip([1, 59, 1, 1, 1]) {
            tokio::time::sleep(Duration::from_secs(pause)).await;
            publish(&world, std::slice::from_ref(event)).await;
        }
    };
    let mut told = Vec::new();
    let listener = async {
        while let Some(record) = next_of_gateway(&mut follower).await {
            told.push((record, start.elapsed()));
        }
    };
    tokio::join!(publisher, listener);
    let (records, times): (Vec<Record>, Vec<Duration>) = told.into_iter().unzip();
    assert_told(&records, &events);
    assert_eq!(times[0], Duration::from_secs(30), "the log is read after 30 seconds of silence");
    let late: Vec<u64> = times[1..].iter().map(Duration::as_secs).collect();
    assert_eq!(late, [60, 61, 62, 63], "the subscription that missed an event was renewed");
    assert_eq!(store.watches(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_store_whose_subscriptions_are_all_silent_delays_every_event_and_loses_none() {
    let world = World::memory().await;
    let events = whole_job(&world);
    let store = silent(world.store.clone(), usize::MAX);
    let mut follower =
        Follower::start(store, Stages::default(), world.job("a"), Resume::default()).await.unwrap();
    let publisher = async {
        for event in &events {
            tokio::time::sleep(Duration::from_secs(20)).await;
            publish(&world, std::slice::from_ref(event)).await;
        }
    };
    let (told, ()) = tokio::join!(rest_patiently(&mut follower), publisher);
    assert_told(&told, &events);
}

async fn rest_patiently(follower: &mut Follower) -> Vec<Record> {
    let mut told = Vec::new();
    while let Some(record) = next_of_gateway(follower).await {
        told.push(record);
    }
    told
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_silence_costs_120_reads_and_an_event_that_rings_one() {
    let world = World::memory().await;
    let store = silent(world.store.clone(), 0);
    let mut follower =
        Follower::start(store.clone(), Stages::default(), world.job("a"), Resume::default()).await.unwrap();
    let hour = timeout(Duration::from_secs(3610), next_of_gateway(&mut follower)).await;
    assert!(hour.is_err(), "nothing happened");
    let calls = (store.watches(), store.calls());
    assert_eq!(calls, (1, 1 + 1 + 120), "at the start, after the subscription, and every 30 seconds");
    let before = store.calls();
    let publisher = async {
        for event in whole_job(&world) {
            tokio::time::sleep(Duration::from_secs(29)).await;
            publish(&world, &[event]).await;
        }
    };
    let (told, ()) = tokio::join!(rest_patiently(&mut follower), publisher);
    assert_eq!((told.len(), store.calls() - before), (5, 1 + 5), "one more was due before the first");
}
