//! The processing lock: taps at once, locks that outlast or are left behind, duplicates. On every backend.

use crate::support;

use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use onetap_store::testing::{Fault, Faulty, Gate};
use onetap_store::{Batch, Commit, Expect, Key, Store};
use serde_json::{Value, json};
use support::*;
use tokio::task::JoinSet;
use tokio::time::sleep;

on_every_backend! {
    of_two_taps_at_once_one_is_answered_and_one_is_told_to_wait
    of_twenty_taps_at_once_one_is_answered_and_nineteen_are_told_to_wait
    after_the_first_is_done_the_next_tap_works_at_once
    work_that_outlasts_the_lock_does_not_free_the_next_holders
    of_one_users_taps_in_a_delivery_the_first_passes_and_other_users_are_not_held_up
    an_event_that_finds_its_own_dead_lock_comes_again
    a_redelivered_duplicate_holds_no_lock_not_even_for_a_moment
    a_redelivered_event_that_is_new_takes_the_lock
}

async fn taps_at_once(store: Arc<dyn Store>, count: usize) {
    let (bot, user) = bot_with_home(store, &[]).await;
    let gate = bot.weather.hold();
    let mut taps = JoinSet::new();
    for _ in 0..count {
        taps.spawn(spawn(&bot.webhook, &[tap(&user, HOME)]));
    }
    // All but one come to their end while that one waits for the weather.
    for _ in 1..count {
        assert_eq!(taps.join_next().await.unwrap().unwrap().unwrap(), 200);
    }
    assert_eq!(bot.said(), vec![PROCESSING; count - 1]);
    gate.open();
    assert_eq!(taps.join_next().await.unwrap().unwrap().unwrap(), 200);
    let said = bot.said();
    assert_eq!(said.len(), 1);
    assert!(said[0].starts_with("新北市永和區"), "{said:?}");
    assert_eq!(bot.weather.calls(), 1);
}

async fn of_two_taps_at_once_one_is_answered_and_one_is_told_to_wait(store: Arc<dyn Store>) {
    taps_at_once(store, 2).await;
}

async fn of_twenty_taps_at_once_one_is_answered_and_nineteen_are_told_to_wait(store: Arc<dyn Store>) {
    taps_at_once(store, 20).await;
}

async fn after_the_first_is_done_the_next_tap_works_at_once(store: Arc<dyn Store>) {
    let (bot, user) = bot_with_home(store, &[]).await;
    for n in 1..=3 {
        assert_eq!(bot.deliver(&[tap(&user, HOME)]).await, 200);
        assert!(bot.said()[0].starts_with("新北市永和區（範例資料）"));
        assert_eq!(bot.weather.calls(), n);
    }
}

async fn work_that_outlasts_the_lock_does_not_free_the_next_holders(store: Arc<dyn Store>) {
    let (bot, user) = bot_with_home(store, &[]).await;
    let short = bot.instance(Arc::clone(&bot.store), &[("PROCESSING_LOCK_TIMEOUT_SECONDS", "1")]);
    let key = Key::new(format!("processing:user:{user}")).unwrap();
    // The first one waits for the weather until its lock has ended, and longer.
    let first_gate = bot.weather.hold();
    let late = spawn(&short, &[tap(&user, HOME)]);
    first_gate.reached().await;
    while bot.store.get(&key).await.unwrap().is_some() {
        sleep(Duration::from_millis(20)).await;
    }
    let next_gate = bot.weather.hold();
    let next = spawn(&bot.webhook, &[tap(&user, HOME)]);
    next_gate.reached().await;
    let held = bot.store.get(&key).await.unwrap().expect("the next one has the lock");
    first_gate.open();
    assert_eq!(late.await.unwrap(), 200);
    assert_eq!(bot.store.get(&key).await.unwrap(), Some(held), "the next one's lock stands");
    assert_eq!(bot.deliver(&[tap(&user, HOME)]).await, 200);
    next_gate.open();
    assert_eq!(next.await.unwrap(), 200);
    let said = bot.said();
    assert_eq!(said.iter().filter(|text| *text == PROCESSING).count(), 1, "{said:?}");
    assert_eq!(said.len(), 3);
    assert_eq!(bot.store.get(&key).await, Ok(None));
}

async fn of_one_users_taps_in_a_delivery_the_first_passes_and_other_users_are_not_held_up(
    store: Arc<dyn Store>,
) {
    let (bot, first) = bot_with_home(store, &[]).await;
    let second = user();
    bot.ask(&second, "設定住家 花蓮市").await;
    let events =
        [tap(&first, HOME), tap(&first, HOME), tap(&second, HOME), tap(&first, "action=recent_queries")];
    assert_eq!(bot.deliver(&events).await, 200);
    let said = bot.said();
    assert_eq!(said.iter().filter(|text| *text == PROCESSING).count(), 2, "{said:?}");
    assert_eq!(said.iter().filter(|text| text.contains("範例資料")).count(), 2, "{said:?}");
    // A duplicate of the first does not stand in the way of a new tap behind it.
    assert_eq!(bot.deliver(&[events[0].clone(), tap(&first, HOME)]).await, 200);
    let said = bot.said();
    assert_eq!(said.len(), 1);
    assert!(said[0].starts_with("新北市永和區"), "{said:?}");
}

/// A run that dies between taking its lock and claiming its event leaves the lock to the redelivery, which must not tell
/// the user to wait: that would be all that ever came of it.
async fn an_event_that_finds_its_own_dead_lock_comes_again(store: Arc<dyn Store>) {
    let (bot, user) = bot_with_home(store, &[]).await;
    let (event, second, other) = (tap(&user, HOME), tap(&user, HOME), tap(&user, HOME));
    let key = Key::new(format!("processing:user:{user}")).unwrap();
    let id = |event: &Value| event["webhookEventId"].as_str().unwrap().to_owned();
    let token = format!("somebody {} {}", id(&event), id(&second));
    let dead = Batch::new().put(&key, Expect::Absent, token.as_str(), Duration::from_secs(60));
    assert!(matches!(bot.store.commit(&dead).await, Ok(Commit::Applied(_))));
    for delivery in [&[event.clone()][..], &[event.clone(), second], &[redelivered(&event)]] {
        assert_eq!(bot.deliver(delivery).await, 500);
        assert_eq!(bot.said(), [] as [&str; 0], "nothing is said");
    }
    assert_eq!(bot.deliver(&[other]).await, 200);
    assert_eq!(bot.said(), [PROCESSING], "another event is told to wait");
    let ended = Batch::new().delete(&key, token.as_str());
    assert!(matches!(bot.store.commit(&ended).await, Ok(Commit::Applied(_))));
    assert_eq!(bot.deliver(from_ref(&event)).await, 200);
    assert!(bot.said()[0].starts_with("新北市永和區"), "it is handled as if it were new");
}

async fn a_redelivered_duplicate_holds_no_lock_not_even_for_a_moment(store: Arc<dyn Store>) {
    let (bot, user) = bot_with_home(store, &[]).await;
    let first = tap(&user, HOME);
    assert_eq!(bot.deliver(from_ref(&first)).await, 200);
    assert_eq!(bot.said().len(), 1);
    // The duplicate has asked the store, and does not know the answer yet.
    let gate = Gate::new();
    let held = Faulty::first(Arc::clone(&bot.store), vec![Fault::HeldAfter(gate.clone())]);
    let duplicate = spawn(&bot.instance(held, &[]), &[redelivered(&first)]);
    gate.reached().await;
    assert_eq!(bot.deliver(&[tap(&user, HOME)]).await, 200);
    let said = bot.said();
    assert!(said[0].starts_with("新北市永和區"), "{said:?}");
    gate.open();
    assert_eq!(duplicate.await.unwrap(), 200);
    assert_eq!(bot.said(), [] as [&str; 0]);
}

async fn a_redelivered_event_that_is_new_takes_the_lock(store: Arc<dyn Store>) {
    let (bot, user) = bot_with_home(store, &[]).await;
    let calls = bot.weather.calls();
    let key = Key::new(format!("processing:user:{user}")).unwrap();
    let gate = bot.weather.hold();
    // Beside a new event, which asks for the lock of both: in their order the redelivered one gets it.
    let events = [redelivered(&tap(&user, HOME)), tap(&user, HOME), redelivered(&tap(&user, HOME))];
    for delivery in [&events[..1], &[redelivered(&tap(&user, HOME)), events[1].clone(), events[2].clone()]] {
        let first = spawn(&bot.webhook, delivery);
        gate.reached().await;
        assert!(bot.store.get(&key).await.unwrap().is_some(), "it has the lock");
        assert_eq!(bot.deliver(&[redelivered(&tap(&user, HOME))]).await, 200);
        gate.open();
        assert_eq!(first.await.unwrap(), 200);
        let said = bot.said();
        assert_eq!(said.iter().filter(|text| *text == PROCESSING).count(), delivery.len(), "{said:?}");
        assert_eq!(said.len(), delivery.len() + 1);
        assert_eq!(bot.store.get(&key).await, Ok(None));
    }
    assert_eq!(bot.weather.calls() - calls, 2);
}

#[tokio::test]
async fn with_the_lock_disabled_none_is_taken_and_dedupe_stays() {
    let counting = Faulty::counting(memory());
    let bot = Bot::with(counting.clone(), &[("PROCESSING_LOCK_ENABLED", "false")]);
    let user = user();
    let gate = bot.weather.hold();
    bot.ask(&user, "設定住家 永和區").await;
    let first = tap(&user, HOME);
    let taps = [first.clone(), tap(&user, HOME)].map(|tap| spawn(&bot.webhook, &[tap]));
    for _ in &taps {
        gate.reached().await;
    }
    taps.iter().for_each(|_| gate.open());
    for tap in taps {
        assert_eq!(tap.await.unwrap(), 200);
    }
    assert!(bot.said().iter().all(|text| text.starts_with("新北市永和區")));
    assert_eq!(bot.deliver(&[first]).await, 200);
    assert_eq!(bot.said().len(), 0);
    assert_eq!(bot.store.get(&Key::new(format!("processing:user:{user}")).unwrap()).await, Ok(None));
}

#[tokio::test]
async fn the_lock_is_keyed_by_the_user_in_every_kind_of_chat() {
    let cases = [
        (json!({"type": "user", "userId": "U1"}), true),
        (json!({"type": "group", "groupId": "G1", "userId": "U1"}), true),
        (json!({"type": "room", "roomId": "R1", "userId": "U1"}), true),
        (json!({"type": "group", "groupId": "G1"}), false),
        (json!({"type": "room", "roomId": "R1"}), false),
        (json!({"type": "user"}), false),
    ];
    for (source, locked) in cases {
        let bot = Bot::new(memory());
        let key = Key::new("processing:user:U1").unwrap();
        let held = Batch::new().put(&key, Expect::Absent, "x", Duration::from_secs(60));
        let _ = bot.store.commit(&held).await.unwrap();
        let mut event = tap("U1", HOME);
        event["source"] = source.clone();
        assert_eq!(bot.deliver(&[event]).await, 200);
        let said = bot.said();
        assert_eq!(said[0] == PROCESSING, locked, "{source}: {said:?}");
    }
}
