//! The processing lock: taps at once, locks that outlast or are left behind, duplicates. On every backend.

use crate::support;

use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use onetap_config::Variables;
use onetap_line::testing::Fault as LineFault;
use onetap_store::testing::{Fault, Gate, TestStore};
use onetap_store::{Batch, Commit, Expect, Key, Store};
use serde_json::{Value, json};
use support::*;
use tokio::task::JoinSet;
use tokio::time::sleep;
use webhook::Config;

on_every_backend! {
    of_two_taps_at_once_one_is_answered_and_one_is_told_to_wait
    of_twenty_taps_at_once_one_is_answered_and_nineteen_are_told_to_wait
    after_the_first_is_done_the_next_tap_works_at_once
    work_that_outlasts_the_lock_does_not_free_the_next_holders
    of_one_users_taps_in_a_delivery_the_first_passes_and_other_users_are_not_held_up
    an_event_that_finds_its_own_dead_lock_comes_again
    a_redelivered_duplicate_holds_no_lock_not_even_for_a_moment
    a_redelivered_event_that_is_new_takes_the_lock
    in_the_cooldown_the_next_tap_is_told_to_wait_although_the_first_was_answered
    after_the_cooldown_the_next_tap_works_and_the_lock_need_not_end
    an_event_that_comes_again_has_no_cooldown
    a_duplicate_has_no_cooldown
}

fn lock_of(user: &str) -> Key {
    Key::new(format!("processing:user:{user}")).unwrap()
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
    let key = lock_of(&user);
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
    assert_eq!(bot.store.get(&key).await.unwrap(), None);
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
    let key = lock_of(&user);
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
    let held = TestStore::first(Arc::clone(&bot.store), vec![Fault::HeldAfter(gate.clone())]);
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
    let key = lock_of(&user);
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
        assert_eq!(bot.store.get(&key).await.unwrap(), None);
    }
    assert_eq!(bot.weather.calls() - calls, 2);
}

#[tokio::test]
async fn with_the_lock_disabled_none_is_taken_and_dedupe_stays() {
    let counting = TestStore::counting(memory());
    let bot = Bot::with(counting.clone(), &[("PROCESSING_LOCK_ENABLED", "false")]);
    let user = user();
    let gate = bot.weather.hold();
    bot.ask(&user, "設定住家 永和區").await;
    bot.ask(&user, "設定公司 板橋區").await;
    let first = tap(&user, HOME);
    let office = tap(&user, "action=weather&type=office");
    let taps = [first.clone(), office].map(|tap| spawn(&bot.webhook, &[tap]));
    for _ in &taps {
        gate.reached().await;
    }
    taps.iter().for_each(|_| gate.open());
    for tap in taps {
        assert_eq!(tap.await.unwrap(), 200);
    }
    assert!(bot.said().iter().all(|text| text.starts_with("新北市")));
    assert_eq!(bot.deliver(&[first]).await, 200);
    assert_eq!(bot.said().len(), 0);
    assert_eq!(bot.store.get(&lock_of(&user)).await.unwrap(), None);
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

/// A cooldown that does not end while a test looks at it.
const COOLDOWN: (&str, &str) = ("PROCESSING_LOCK_MIN_HOLD_MS", "60000");

async fn in_the_cooldown_the_next_tap_is_told_to_wait_although_the_first_was_answered(store: Arc<dyn Store>) {
    let (bot, user) = bot_with_home(store, &[COOLDOWN]).await;
    let (first, second) = (tap(&user, HOME), tap(&user, HOME));
    assert_eq!(bot.deliver(from_ref(&first)).await, 200);
    assert!(bot.said()[0].starts_with("新北市永和區"));
    let lock = bot.store.get(&lock_of(&user)).await.unwrap();
    assert!(lock.is_some());
    assert_eq!(bot.deliver(from_ref(&second)).await, 200);
    assert_eq!(bot.said(), [PROCESSING]);
    for handled in [&first, &second] {
        for again in [handled.clone(), redelivered(handled)] {
            assert_eq!(bot.deliver(&[again]).await, 200);
            assert_eq!(bot.said(), [] as [&str; 0], "a duplicate is silent");
        }
    }
    assert_eq!(bot.store.get(&lock_of(&user)).await.unwrap(), lock, "nobody touched it");
    assert_eq!(bot.weather.calls(), 1);
    assert!(bot.ask(&user, "永和").await.starts_with("新北市永和區"), "what needs no lock works");
}

async fn after_the_cooldown_the_next_tap_works_and_the_lock_need_not_end(store: Arc<dyn Store>) {
    // The lock itself would last for the whole test.
    let variables = [("PROCESSING_LOCK_MIN_HOLD_MS", "500"), ("PROCESSING_LOCK_TIMEOUT_SECONDS", "3600")];
    let (bot, user) = bot_with_home(store, &variables).await;
    for n in 1..=2 {
        assert_eq!(bot.deliver(&[tap(&user, HOME)]).await, 200);
        assert!(bot.said()[0].starts_with("新北市永和區"));
        assert_eq!(bot.weather.calls(), n);
        while bot.store.get(&lock_of(&user)).await.unwrap().is_some() {
            sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn an_event_that_comes_again_has_no_cooldown(store: Arc<dyn Store>) {
    let (bot, user) = bot_with_home(store, &[COOLDOWN]).await;
    let event = tap(&user, HOME);
    bot.line.fail_next(LineFault::Status(429, r#"{"message":"too many"}"#.into()));
    assert_eq!(bot.deliver(from_ref(&event)).await, 500);
    assert_eq!(bot.store.get(&lock_of(&user)).await.unwrap(), None);
    assert_eq!(bot.deliver(&[redelivered(&event)]).await, 200);
    assert!(bot.said()[0].starts_with("新北市永和區"));
    assert!(bot.store.get(&lock_of(&user)).await.unwrap().is_some(), "it is handled, and cools down");
}

async fn a_duplicate_has_no_cooldown(store: Arc<dyn Store>) {
    let (bot, user) = bot_with_home(store, &[]).await;
    let event = tap(&user, HOME);
    assert_eq!(bot.deliver(from_ref(&event)).await, 200);
    assert_eq!(bot.said().len(), 1);
    let cooling = bot.instance(Arc::clone(&bot.store), &[COOLDOWN]);
    for again in [event.clone(), redelivered(&event)] {
        assert_eq!(deliver(&cooling, &[again]).await, 200);
        assert_eq!(bot.said(), [] as [&str; 0]);
        assert_eq!(bot.store.get(&lock_of(&user)).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_cooldown_counts_from_the_tap_and_ends_with_the_locks_ttl() {
    // The seconds after the tap at which the next is told to wait, and at which it works.
    for (min_hold, ttl, waits, works) in [("60000", "3600", 30, 61), ("3600000", "60", 30, 61)] {
        let variables = [("PROCESSING_LOCK_MIN_HOLD_MS", min_hold), ("PROCESSING_LOCK_TIMEOUT_SECONDS", ttl)];
        let (bot, user) = bot_with_home(memory(), &variables).await;
        // The work takes its time: it is not added to the cooldown.
        let gate = bot.weather.hold();
        let first = spawn(&bot.webhook, &[tap(&user, HOME)]);
        gate.reached().await;
        seconds_pass(waits).await;
        gate.open();
        assert_eq!(first.await.unwrap(), 200);
        assert_eq!(bot.deliver(&[tap(&user, HOME)]).await, 200);
        let said = bot.said();
        assert_eq!(said.iter().filter(|text| *text == PROCESSING).count(), 1, "{said:?}");
        seconds_pass(works - waits).await;
        gate.open();
        assert_eq!(bot.deliver(&[tap(&user, HOME)]).await, 200);
        let said = bot.said();
        assert!(said[0].starts_with("新北市永和區"), "{said:?}");
    }
}

#[tokio::test]
async fn a_cooldown_costs_no_round_trip() {
    for (min_hold, next_tap) in [("0", 3), ("60000", 2)] {
        let counting = TestStore::counting(memory());
        let variables = [("PROCESSING_LOCK_MIN_HOLD_MS", min_hold)];
        let (bot, user) = bot_with_home(counting.clone(), &variables).await;
        let event = tap(&user, HOME);
        for (event, calls, what) in [
            (event.clone(), 3, "claim, lock and the profile, the kept forecast, marker and release"),
            (tap(&user, HOME), next_tap, "in the cooldown: claim and lock, marker"),
            (redelivered(&event), 1, "claim"),
        ] {
            let before = counting.calls();
            assert_eq!(bot.deliver(&[event]).await, 200);
            assert_eq!(counting.calls() - before, calls, "{what}");
        }
    }
}

#[tokio::test]
async fn the_message_of_the_lock_is_any_text_that_line_takes() {
    for message in ["請稍候", "第一行\n第二行", r"一行\n而已", &"好".repeat(5000), &"😀".repeat(2500)]
    {
        let variables = [COOLDOWN, ("PROCESSING_LOCK_MESSAGE", message)];
        let (bot, user) = bot_with_home(memory(), &variables).await;
        assert_eq!(bot.deliver(&[tap(&user, HOME), tap(&user, HOME)]).await, 200);
        assert_eq!(bot.deliver(&[tap(&user, HOME)]).await, 200);
        let said = bot.said();
        assert_eq!(said.iter().filter(|text| *text == message).count(), 2, "as it is, both times");
    }
}

#[test]
fn a_cooldown_or_a_message_that_cannot_be_meant_stops_the_start() {
    let needed = [("LINE_CHANNEL_SECRET", SECRET), ("LINE_CHANNEL_ACCESS_TOKEN", TOKEN)];
    let read = |name: &str, value: &str| {
        let known = |asked: &str| needed.into_iter().chain([(name, value)]).find(|(name, _)| *name == asked);
        Config::from_variables(&Variables::from_lookup(|asked| known(asked).map(|(_, v)| v.to_owned())))
    };
    let (message, min_hold) = ("PROCESSING_LOCK_MESSAGE", "PROCESSING_LOCK_MIN_HOLD_MS");
    let too_long = ["好".repeat(5001), "😀".repeat(2501)];
    let wrong = [(message, &*too_long[0]), (message, &too_long[1]), (min_hold, "-1"), (min_hold, "soon")];
    for (name, value) in wrong {
        assert_eq!(read(name, value).unwrap_err().variable(), name);
    }
    // A template leaves unset what it has no value for.
    for name in [message, min_hold] {
        let lock = read(name, "").unwrap().bot.lock.unwrap();
        assert_eq!((lock.message, lock.min_hold), (None, Duration::ZERO), "the message is the bot's own");
    }
}
