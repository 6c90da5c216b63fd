//! One effect: deliveries again, stores and replies that fail. On every backend.

use crate::support;

use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use onetap_line::testing::Fault as LineFault;
use onetap_servers::{Broken, Fault as HttpFault, HttpStub};
use onetap_store::Key;
use onetap_store::Store;
use onetap_store::testing::{Fault, Gate, TestStore};
use serde_json::{Value, json};
use support::*;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use webhook::Times;

on_every_backend! {
    the_same_delivery_ten_times_has_one_reply_an_event_and_no_duplicate_is_told_to_wait
    of_a_delivery_only_what_failed_is_handled_again
    a_reply_that_was_not_sent_is_sent_by_the_redelivery_and_the_write_is_not_repeated
    a_write_whose_reply_is_lost_is_looked_up_and_answered
    a_write_that_may_stand_is_answered_by_the_redelivery_and_nobody_is_told_to_try_again
    erasing_leaves_no_key_of_the_user
}

async fn the_same_delivery_ten_times_has_one_reply_an_event_and_no_duplicate_is_told_to_wait(
    store: Arc<dyn Store>,
) {
    let (bot, user) = bot_with_home(store, &[]).await;
    let events =
        [tap(&user, HOME), text(&support::user(), "午餐 120 信用卡"), text(&support::user(), "信義區")];
    let gate = bot.weather.hold();
    let mut at_once = JoinSet::new();
    for _ in 0..6 {
        at_once.spawn(spawn(&bot.webhook, &events));
    }
    let mut statuses = Vec::new();
    while let Some(status) = at_once.join_next().await {
        statuses.push(status.unwrap().unwrap());
        // The one that has the tap waits for the weather until all others are done.
        if statuses.len() == 5 {
            gate.open();
        }
    }
    assert!(statuses.iter().all(|status| [200, 500].contains(status)), "{statuses:?}");
    for _ in 0..4 {
        assert_eq!(bot.deliver(&events.each_ref().map(redelivered)).await, 200);
    }
    let said = bot.said();
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(!said.contains(&PROCESSING.to_owned()), "{said:?}");
    assert!(said.iter().any(|text| text.starts_with("已記帳")), "{said:?}");
    assert_eq!(bot.weather.calls(), 1, "信義區 is two places");
}

async fn of_a_delivery_only_what_failed_is_handled_again(store: Arc<dyn Store>) {
    let bot = Bot::new(store);
    let events = ["永和", "花蓮市", "板橋"].map(|place| text(&user(), place));
    assert_eq!(bot.deliver(&events[..2]).await, 200);
    bot.line.fail_next(LineFault::Status(429, r#"{"message":"too many"}"#.into()));
    assert_eq!(bot.deliver(&events).await, 500, "the third failed before its reply");
    assert_eq!(bot.said().len(), 2);
    let calls = bot.weather.calls();
    assert_eq!(bot.deliver(&events).await, 200);
    let said = bot.said();
    assert_eq!(said.len(), 1);
    assert!(said[0].starts_with("新北市板橋區"), "{said:?}");
    assert!(bot.weather.calls() <= calls + 1);
}

async fn a_reply_that_was_not_sent_is_sent_by_the_redelivery_and_the_write_is_not_repeated(
    store: Arc<dyn Store>,
) {
    let (bot, user) = (Bot::new(store), user());
    let entry = text(&user, "午餐 120 信用卡");
    bot.line.fail_next(LineFault::Status(429, r#"{"message":"too many"}"#.into()));
    assert_eq!(bot.deliver(from_ref(&entry)).await, 500);
    let key = Key::new(format!("user:{user}:last_transaction")).unwrap();
    let written = bot.store.get(&key).await.unwrap().expect("it is written before the reply");
    assert!(bot.ask(&user, "修改金額 150").await.contains("• 原幣金額：120 → 150"));
    assert_eq!(bot.deliver(from_ref(&entry)).await, 200);
    let said = bot.said();
    assert_eq!(said.len(), 1);
    assert!(said[0].starts_with("已記帳") && said[0].contains("120"), "{said:?}");
    let now = bot.store.get(&key).await.unwrap().unwrap();
    assert_eq!(now, written.replace(":120,", ":150,"), "the edit in between stands");
    assert_eq!(bot.deliver(&[entry]).await, 200);
    assert_eq!(bot.said().len(), 0, "LINE takes one reply a token");
}

/// The claim comes first, with the reads; then a new entry is written, or an edit of it.
const ENTRY_THEN_EDIT: [(&str, usize, &str); 2] =
    [("午餐 120 信用卡", 2, "已記帳"), ("修改金額 150", 2, "修改成功")];

async fn a_write_whose_reply_is_lost_is_looked_up_and_answered(store: Arc<dyn Store>) {
    let (bot, user) = (Bot::new(Arc::clone(&store)), user());
    for (words, write, answer) in ENTRY_THEN_EDIT {
        let lossy =
            move |call| if call == write || call == write + 1 { Fault::ReplyLost } else { Fault::Pass };
        let instance = bot.instance(TestStore::faulty(Arc::clone(&store), lossy), &[]);
        assert_eq!(deliver(&instance, &[text(&user, words)]).await, 200);
        let said = bot.said();
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with(answer), "{said:?}");
    }
    let key = Key::new(format!("user:{user}:last_transaction")).unwrap();
    assert!(store.get(&key).await.unwrap().unwrap().contains(":150,"));
}

async fn a_write_that_may_stand_is_answered_by_the_redelivery_and_nobody_is_told_to_try_again(
    store: Arc<dyn Store>,
) {
    let (bot, user) = (Bot::new(Arc::clone(&store)), user());
    let key = Key::new(format!("user:{user}:last_transaction")).unwrap();
    for (words, write, answer) in ENTRY_THEN_EDIT {
        // The write is applied, its reply is lost, and then the store cannot be asked.
        let lossy = move |call: usize| match call.cmp(&write) {
            std::cmp::Ordering::Less => Fault::Pass,
            std::cmp::Ordering::Equal => Fault::ReplyLost,
            std::cmp::Ordering::Greater => Fault::NotSent,
        };
        let instance = bot.instance(TestStore::faulty(Arc::clone(&store), lossy), &[]);
        let event = text(&user, words);
        assert_eq!(deliver(&instance, from_ref(&event)).await, 500);
        assert_eq!(bot.said().len(), 0, "the user would say it again, and it is written");
        let written = store.get(&key).await.unwrap();
        assert!(written.is_some());
        assert_eq!(bot.deliver(&[redelivered(&event)]).await, 200);
        let said = bot.said();
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with(answer), "{said:?}");
        assert_eq!(store.get(&key).await.unwrap(), written, "once");
    }
}

async fn erasing_leaves_no_key_of_the_user(store: Arc<dyn Store>) {
    let (bot, user) = bot_with_home(store, &[("PROCESSING_LOCK_SCOPE", "all")]).await;
    bot.ask(&user, "永和").await;
    bot.ask(&user, "午餐 120 信用卡").await;
    let keys = ["user:{}:profile", "user:{}:last_transaction", "processing:user:{}"]
        .map(|name| Key::new(name.replace("{}", &user)).unwrap());
    assert!(bot.store.get(&keys[0]).await.unwrap().is_some());
    assert!(bot.store.get(&keys[1]).await.unwrap().is_some());
    let erased = "已刪除您的所有資料。\n為避免重複處理而暫存的回覆，會在一天內自動刪除。";
    assert_eq!(bot.erase(&user).await, erased);
    for key in &keys {
        assert_eq!(bot.store.get(key).await.unwrap(), None);
    }
    assert_eq!(bot.erase(&user).await, erased, "nothing left is fine too");
    assert_eq!(bot.deliver(&[unfollow(&user)]).await, 200);
    for key in &keys {
        assert_eq!(bot.store.get(key).await.unwrap(), None, "a farewell brings nothing back");
    }
}

/// A store that is down: what needs it says so, everything else goes on, and a delivery asks it once, so that it never
/// costs more than its limit.
async fn goes_on_without(variables: &[(&str, &str)]) {
    for scope in ["selective", "all"] {
        let lookup = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let store = onetap_store::open(&onetap_store::Config::from_lookup(lookup).unwrap()).unwrap();
        let counting = TestStore::counting(store);
        let bot = Bot::with(counting.clone(), &[("PROCESSING_LOCK_SCOPE", scope)]);
        let user = user();
        let cases = [
            (text(&user, "永和"), "新北市永和區"),
            (location(&user, "100臺北市中正區", 25.03, 121.52), "臺北市中正區"),
            (tap(&user, HOME), BUSY),
            (tap(&user, "action=recent_queries"), BUSY),
            (text(&user, "設定住家 永和區"), BUSY),
            (text(&user, "午餐 120 信用卡"), BUSY),
            (text(&user, "修改金額 150"), BUSY),
            (tap(&user, "action=settings"), "請輸入"),
        ];
        for (event, answer) in cases {
            let before = counting.calls();
            assert_eq!(bot.deliver(from_ref(&event)).await, 200);
            assert_eq!(counting.calls() - before, 1, "{answer}");
            let said = bot.said();
            assert_eq!(said.len(), 1);
            assert!(said[0].starts_with(answer), "{said:?} to {answer}");
        }
    }
}

async fn goes_on_without_upstash(url: &str) {
    let variables =
        [("STORE", "upstash"), ("UPSTASH_REDIS_REST_URL", url), ("UPSTASH_REDIS_REST_TOKEN", "t")];
    goes_on_without(&[&variables[..], &[("STORE_TIMEOUT_MS", "100")]].concat()).await;
}

#[tokio::test]
async fn a_dead_store_fails_open() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    goes_on_without_upstash(&format!("http://127.0.0.1:{port}")).await;
    let redis = format!("redis://127.0.0.1:{port}");
    goes_on_without(&[("STORE", "redis"), ("REDIS_URL", &redis), ("STORE_TIMEOUT_MS", "100")]).await;
}

#[tokio::test]
async fn a_hanging_store_fails_open_and_costs_its_limit_once_a_delivery() {
    let server = Broken::accepts_and_never_answers().await;
    goes_on_without_upstash(&server.url()).await;
}

#[tokio::test]
async fn a_store_that_refuses_the_token_fails_open() {
    let denied = r#"{"error":"WRONGPASS invalid or missing auth token"}"#;
    let server = HttpStub::always(HttpFault::Status(401, denied.into()));
    goes_on_without_upstash(&server.url()).await;
}

#[tokio::test]
async fn where_only_the_writes_fail_the_work_goes_on() {
    let bot = Bot::new(TestStore::faulty(memory(), |_| Fault::NotSent));
    let user = user();
    assert!(bot.ask(&user, "永和").await.starts_with("新北市永和區"));
    assert_eq!(bot.ask(&user, "設定住家 永和區").await, BUSY);
    // The claim passes and the write does not: the third call of each delivery, after claim and profile.
    let flaky = TestStore::faulty(memory(), |call| if call % 3 == 0 { Fault::NotSent } else { Fault::Pass });
    let bot = Bot::new(flaky);
    assert!(bot.ask(&user, "永和").await.starts_with("新北市永和區"));
}

#[tokio::test]
async fn the_round_trips_of_an_event_are_counted() {
    let counting = TestStore::counting(memory());
    let (bot, user) = (Bot::with(counting.clone(), &[("WEATHER_FRESH_SECONDS", "1800")]), user());
    let mut before = 0;
    let mut since = || {
        let calls = counting.calls() - before;
        before = counting.calls();
        calls
    };
    bot.deliver(&[text(&user, "設定住家 永和區")]).await;
    assert_eq!(since(), 3, "claim, the profile, the new one with the marker");
    bot.deliver(&[tap(&user, HOME)]).await;
    assert_eq!(
        since(),
        3,
        "claim, lock and the profile, no kept forecast, marker, release and the new forecast"
    );
    bot.deliver(&[tap(&user, HOME)]).await;
    assert_eq!(since(), 2, "claim, lock and the profile, marker and release");
    let later = bot.instance(counting.clone(), &[("WEATHER_FRESH_SECONDS", "1800")]);
    deliver(&later, &[tap(&user, HOME)]).await;
    assert_eq!((since(), bot.weather.calls()), (3, 1), "a new instance reads the kept forecast");
    bot.deliver(&[tap(&user, "action=settings")]).await;
    assert_eq!(since(), 2, "claim, marker");
    for words in [
        "午餐 120 信用卡",
        "晚餐 300 現金",
        "早餐 50、午餐 120、飲料 45 現金",
        "改成 150",
        "修改日期 2025-11-29",
        "分類改成娛樂",
        "刪除上一筆",
        "點心 30",
        "現金",
        "設定付款 現金",
        "點心 30",
    ] {
        bot.deliver(&[text(&user, words)]).await;
        assert_eq!(since(), 2, "{words}: claim and what is there, what is made of it with the marker");
    }
    bot.deliver(&[text(&user, "本月")]).await;
    assert_eq!(since(), 3, "claim, the month, marker");
    bot.deliver(&[text(&user, "最近紀錄")]).await;
    assert_eq!(since(), 4, "claim, the list of months, the latest of them, marker");
    bot.deliver(&[confirmed_erasure(&user)]).await;
    assert_eq!(
        since(),
        6,
        "claim, whether one commit is enough, what is there, that it goes, what is hidden, that it goes"
    );
    bot.deliver(&[text(&user, "設定住家 永和區")]).await;
    since();
    let many: Vec<_> = (0..10).map(|_| tap(&support::user(), HOME)).collect();
    bot.deliver(&many).await;
    assert_eq!(since(), 1 + 10, "one before for all of them, profiles included");
    bot.deliver(&many).await;
    assert_eq!(since(), 2, "ten duplicates: one look, and the locks that they asked for go back in one");
    bot.deliver(&many.iter().map(redelivered).collect::<Vec<_>>()).await;
    assert_eq!(since(), 1, "duplicates that LINE marks ask for no lock");
    bot.deliver(&[redelivered(&tap(&user, HOME))]).await;
    assert_eq!(since(), 3, "claim, lock and the profile, marker and release");
}

#[tokio::test]
async fn a_place_that_is_saved_in_a_delivery_is_there_for_the_tap_after_it() {
    let (bot, user) = (Bot::new(memory()), user());
    bot.deliver(&[text(&user, "設定住家 永和區"), tap(&user, HOME)]).await;
    let said = bot.said();
    assert!(said.len() == 2 && said[1].starts_with("新北市永和區"), "{said:?}");
}

#[tokio::test]
async fn an_event_that_is_being_handled_elsewhere_comes_again() {
    let bot = Bot::new(memory());
    let gate = bot.weather.hold();
    let event = text(&user(), "永和");
    let first = spawn(&bot.webhook, from_ref(&event));
    gate.reached().await;
    assert_eq!(bot.deliver(from_ref(&event)).await, 500);
    gate.open();
    assert_eq!(first.await.unwrap(), 200);
    assert_eq!(bot.deliver(&[event]).await, 200);
    assert_eq!(bot.said().len(), 1);
}

#[tokio::test]
async fn an_event_without_an_id_that_may_be_written_is_not_asked_for_again() {
    // Nothing could tell the redelivery that it is written.
    let (bot, user) = (Bot::new(TestStore::faulty(memory(), |_| Fault::ReplyLost)), user());
    let mut entry = text(&user, "午餐 120 信用卡");
    entry["webhookEventId"] = Value::Null;
    assert_eq!(bot.deliver(&[entry]).await, 200);
    assert_eq!(bot.said(), [BUSY]);
}

#[tokio::test]
async fn after_the_store_has_failed_for_one_user_no_other_users_event_asks_it() {
    let gate = Gate::new();
    // The claims pass; one user's read waits while the other user's read fails.
    let held = gate.clone();
    let store = TestStore::faulty(memory(), move |call| match call {
        1 => Fault::Pass,
        2 => Fault::HeldBefore(held.clone()),
        _ => Fault::NotSent,
    });
    let bot = Bot::new(Arc::clone(&store) as Arc<dyn Store>);
    let events = [text(&user(), "設定住家 永和區"), text(&user(), "設定住家 永和區")];
    let delivery = spawn(&bot.webhook, &events);
    gate.reached().await;
    while store.calls() < 3 {
        tokio::task::yield_now().await;
    }
    // The other user's reply is the sign that its failure was seen.
    while bot.line.requests() == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    gate.open();
    assert_eq!(delivery.await.unwrap(), 200);
    assert_eq!(bot.said(), [BUSY, BUSY]);
    assert_eq!(store.calls(), 3, "the claims, and one read of each user");
}

#[tokio::test]
async fn an_event_without_an_id_is_handled_without_dedupe() {
    let bot = Bot::new(memory());
    let mut event = text(&user(), "永和");
    event.as_object_mut().unwrap().remove("webhookEventId");
    event["replyToken"] = "one".into();
    assert_eq!(bot.deliver(from_ref(&event)).await, 200);
    event["replyToken"] = "two".into();
    assert_eq!(bot.deliver(&[event]).await, 200);
    assert_eq!(bot.said().len(), 2);
}

#[tokio::test]
async fn the_answers_of_line_are_told_apart() {
    let bot = Bot::new(memory());
    for (fault, status, outcome, _) in line_answers() {
        bot.line.fail_always(Some(fault));
        assert_eq!(bot.deliver(&[tap(&user(), "action=settings")]).await, status, "{outcome}");
    }
}

#[tokio::test]
async fn a_reply_for_which_there_was_no_connection_in_time_is_sent_by_the_redelivery() {
    let (full, mute) = (Broken::never_accepts().await, Broken::accepts_and_never_answers().await);
    let tls = mute.url().replace("http:", "https:");
    // Who read the request may have replied: it is sent with the same token. That one needs the time in which it is surely read.
    for (line, reply_ms, status, said) in
        [(full.url(), 200, 500, 1), (tls, 200, 500, 1), (mute.url(), 3000, 500, 1)]
    {
        let bot = Bot::new(memory());
        let times = Times { reply: Duration::from_millis(reply_ms), ..PATIENT };
        let unreachable = bot.timed_instance(Arc::clone(&bot.store), &[("LINE_API_BASE_URL", &line)], times);
        for event in [tap(&user(), "action=settings"), text(&user(), "午餐 120 信用卡")] {
            assert_eq!(deliver(&unreachable, from_ref(&event)).await, status, "{line}");
            assert_eq!(bot.deliver(&[event]).await, 200);
            assert_eq!(bot.said().len(), said, "{line}");
        }
    }
}

#[tokio::test]
async fn a_redelivered_entry_that_was_answered_is_answered_again_and_line_refuses_it() {
    let counting = TestStore::counting(memory());
    let (bot, user) = (Bot::new(counting.clone()), user());
    let entry = text(&user, "午餐 120 信用卡");
    assert_eq!(bot.deliver(from_ref(&entry)).await, 200);
    let (calls, requests) = (counting.calls(), bot.line.requests());
    assert_eq!(bot.deliver(&[redelivered(&entry)]).await, 200);
    assert_eq!(counting.calls() - calls, 1, "the claim finds the marker");
    assert_eq!((bot.line.requests() - requests, bot.said().len()), (1, 1), "the token is used up");
}

#[tokio::test]
async fn an_entry_has_the_time_at_which_it_was_said_however_late_it_arrives() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
    // On the day before, whatever the hour is now.
    let said = now - 26 * 3600;
    for (words, days) in [("午餐 120 信用卡", 0), ("昨天 午餐 120 信用卡", 1)] {
        let (bot, user) = (Bot::new(memory()), user());
        let mut late = redelivered(&text(&user, words));
        late["timestamp"] = (said * 1000 + 7).into();
        assert_eq!(bot.deliver(&[late]).await, 200);
        let key = Key::new(format!("user:{user}:last_transaction")).unwrap();
        let entry: Value = serde_json::from_str(&bot.store.get(&key).await.unwrap().unwrap()).unwrap();
        let said = onetap_ledger::Moment::from_unix(said).unwrap();
        let date = said.date().days_ago(days).unwrap().to_string();
        assert_eq!(entry["日期"], date, "{words}");
        assert_eq!((&entry["時間"], &entry["交易ID"]), (&json!(said.time()), &json!(said.id())), "{words}");
    }
}

async fn days_pass(days: u64) {
    seconds_pass(days * 86_400).await;
}

#[tokio::test]
async fn the_profile_of_a_user_who_left_ends_after_thirty_days() {
    let (bot, user) = bot_with_home(memory(), &[]).await;
    let key = Key::new(format!("user:{user}:profile")).unwrap();
    days_pass(100).await;
    assert_eq!(bot.deliver(&[unfollow(&user)]).await, 200);
    days_pass(29).await;
    let kept: Value = serde_json::from_str(&bot.store.get(&key).await.unwrap().unwrap()).unwrap();
    assert_eq!((&kept["active"], &kept["home"]), (&json!(false), &json!("新北市永和區")));
    days_pass(2).await;
    assert_eq!(bot.store.get(&key).await.unwrap(), None);
}

#[tokio::test]
async fn a_user_who_comes_back_finds_the_profile_and_keeps_it() {
    let (bot, user) = bot_with_home(memory(), &[]).await;
    assert_eq!(bot.deliver(&[unfollow(&user)]).await, 200);
    days_pass(29).await;
    assert_eq!(bot.deliver(&[follow(&user)]).await, 200);
    assert!(bot.said()[0].starts_with("歡迎使用"));
    days_pass(100).await;
    assert_eq!(bot.deliver(&[tap(&user, HOME)]).await, 200);
    assert!(bot.said()[0].starts_with("新北市永和區"));
}

#[tokio::test]
async fn what_a_user_who_left_does_in_a_group_does_not_keep_the_profile_for_ever() {
    let (bot, user) = bot_with_home(memory(), &[]).await;
    let key = Key::new(format!("user:{user}:profile")).unwrap();
    assert_eq!(bot.deliver(&[unfollow(&user)]).await, 200);
    assert_eq!(bot.deliver(&[in_group(text(&user, "花蓮市"))]).await, 200);
    assert!(bot.store.get(&key).await.unwrap().unwrap().contains("花蓮市"));
    days_pass(31).await;
    assert_eq!(bot.store.get(&key).await.unwrap(), None);
}

/// The profile as it is kept.
async fn kept_profile(bot: &Bot, user: &str) -> Option<Value> {
    let key = Key::new(format!("user:{user}:profile")).unwrap();
    bot.store.get(&key).await.unwrap().map(|text| serde_json::from_str(&text).unwrap())
}

/// `event`, as it happened so many seconds ago.
fn seconds_ago(seconds: u64, mut event: Value) -> Value {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let at = now - Duration::from_secs(seconds);
    event["timestamp"] = u64::try_from(at.as_millis()).unwrap().into();
    event
}

fn follow(user: &str) -> Value {
    event(user, json!({"type": "follow"}))
}

#[tokio::test]
async fn a_farewell_that_comes_late_does_not_end_the_profile_of_a_user_who_is_back() {
    let (bot, user) = bot_with_home(memory(), &[]).await;
    let farewell = seconds_ago(60, unfollow(&user));
    let down = bot.instance(TestStore::faulty(Arc::clone(&bot.store), |_| Fault::NotSent), &[]);
    assert_eq!(deliver(&down, from_ref(&farewell)).await, 500);
    assert_eq!(bot.deliver(&[seconds_ago(30, follow(&user))]).await, 200);
    assert_eq!(bot.deliver(&[redelivered(&farewell)]).await, 200, "it is not asked for again");
    days_pass(100).await;
    assert_eq!(kept_profile(&bot, &user).await.expect("it is kept")["active"], true);
    // A later one counts.
    assert_eq!(bot.deliver(&[seconds_ago(10, unfollow(&user))]).await, 200);
    days_pass(31).await;
    assert_eq!(kept_profile(&bot, &user).await, None);
}

#[tokio::test]
async fn what_comes_late_of_a_user_who_has_left_does_not_keep_the_profile_for_ever() {
    let late =
        |user: &str| [follow(user), text(user, "花蓮市"), text(user, "設定公司 花蓮市"), unfollow(user)];
    for n in 0..4 {
        let (bot, user) = bot_with_home(memory(), &[]).await;
        assert_eq!(bot.deliver(&[seconds_ago(30, unfollow(&user))]).await, 200);
        let event = late(&user)[n].clone();
        let kind = event["type"].clone();
        assert_eq!(bot.deliver(&[seconds_ago(60, event)]).await, 200);
        let profile = kept_profile(&bot, &user).await.unwrap();
        assert_eq!(profile["active"], false, "{n}: {kind}");
        assert_eq!(profile.to_string().contains("花蓮市"), [1, 2].contains(&n), "the place is kept");
        days_pass(31).await;
        assert_eq!(kept_profile(&bot, &user).await, None, "{n}: {kind}");
    }
}

#[tokio::test]
async fn a_user_who_talks_to_the_bot_alone_is_here_and_keeps_the_profile() {
    for words in ["花蓮市", "設定公司 花蓮市"] {
        let (bot, user) = bot_with_home(memory(), &[]).await;
        assert_eq!(bot.deliver(&[seconds_ago(60, unfollow(&user))]).await, 200);
        // The follow in between was lost.
        assert_eq!(bot.deliver(&[seconds_ago(30, text(&user, words))]).await, 200);
        days_pass(100).await;
        assert_eq!(kept_profile(&bot, &user).await.expect("it is kept")["active"], true, "{words}");
        // A farewell from before that is late here too.
        assert_eq!(bot.deliver(&[seconds_ago(45, unfollow(&user))]).await, 200);
        assert_eq!(kept_profile(&bot, &user).await.unwrap()["active"], true, "{words}");
    }
}

#[tokio::test]
async fn a_profile_of_an_earlier_version_ends_thirty_days_after_the_next_unfollow() {
    // Without an expiry, as 0.1 wrote them, and with what no version writes.
    for old in [
        r#"{"home":"新北市永和區","recent":[],"active":false}"#,
        r#"{"home":"新北市永和區","recent":[],"active":true,"since":"yesterday"}"#,
    ] {
        let (bot, user) = (Bot::new(memory()), user());
        let key = Key::new(format!("user:{user}:profile")).unwrap();
        let there = onetap_store::Batch::new().put(
            &key,
            onetap_store::Expect::Absent,
            old,
            onetap_store::Ttl::Forever,
        );
        assert!(matches!(bot.store.commit(&there).await, Ok(onetap_store::Commit::Applied(_))));
        assert_eq!(bot.deliver(&[unfollow(&user)]).await, 200);
        let profile = kept_profile(&bot, &user).await.unwrap();
        assert_eq!((&profile["active"], &profile["home"]), (&json!(false), &json!("新北市永和區")));
        days_pass(31).await;
        assert_eq!(kept_profile(&bot, &user).await, None, "{old}");
    }
}

#[tokio::test]
async fn a_farewell_that_could_not_be_written_comes_again() {
    let (bot, user) = bot_with_home(memory(), &[]).await;
    let farewell = unfollow(&user);
    // The store fails from its first, second or third call on: the claim, the profile, the new profile.
    for works in 0..3 {
        let failing = move |call| if call <= works { Fault::Pass } else { Fault::NotSent };
        let failing = bot.instance(TestStore::faulty(Arc::clone(&bot.store), failing), &[]);
        assert_eq!(deliver(&failing, from_ref(&farewell)).await, 500, "{works} calls work");
        days_pass(1).await;
    }
    assert_eq!(bot.deliver(&[farewell]).await, 200);
    let key = Key::new(format!("user:{user}:profile")).unwrap();
    assert!(bot.store.get(&key).await.unwrap().unwrap().contains(r#""active":false"#));
}

#[tokio::test]
async fn a_late_forecast_is_an_apology_within_lines_two_seconds() {
    // Whatever the machine does, the apology is said: the forecast alone has a limit here.
    let bot = Bot::timed(memory(), &[], Times { forecast: Duration::from_millis(100), ..PATIENT });
    let _never_opened = bot.weather.hold();
    assert_eq!(bot.ask(&user(), "永和").await, BUSY);
    // And all of it ends in time on a clock that stands still while anything is done, whether or not the reply, on its
    // way through a real socket, is answered before that clock moves on.
    for store_takes in [0, 700, 1700, 5000] {
        let late = TestStore::first(memory(), vec![Fault::SentLate(Duration::from_millis(store_takes))]);
        let bot = Bot::timed(late, &[], Times::default());
        let _never_opened = bot.weather.hold();
        tokio::time::pause();
        let start = Instant::now();
        bot.deliver(&[text(&user(), "永和")]).await;
        assert!(start.elapsed() <= LINES_SHARE, "{:?}", start.elapsed());
        tokio::time::resume();
    }
}

/// What a delivery has of LINE's two seconds, and the timer's own millisecond.
const LINES_SHARE: Duration = Duration::from_millis(1801);

#[test]
fn of_lines_two_seconds_a_forecast_has_one_and_a_reply_half_a_second() {
    let times = Times::default();
    let shares = [times.delivery, times.forecast, times.reply].map(|share| share.as_millis());
    assert_eq!(shares, [1800, 1000, 500]);
    assert!(times.forecast + times.reply <= times.delivery);
}

#[tokio::test]
async fn an_event_that_has_no_time_left_for_its_reply_comes_again() {
    // A store whose limit is set too high takes the whole of LINE's two seconds.
    let slow = TestStore::first(memory(), vec![Fault::SentLate(Duration::from_secs(5))]);
    let bot = Bot::timed(Arc::clone(&slow) as Arc<dyn Store>, &[], Times::default());
    let event = tap(&user(), "action=settings");
    tokio::time::pause();
    let start = Instant::now();
    assert_eq!(bot.deliver(from_ref(&event)).await, 500);
    assert!(start.elapsed() <= LINES_SHARE, "{:?}", start.elapsed());
    tokio::time::resume();
    assert_eq!(bot.line.requests(), 0, "nothing was sent");
    assert_eq!(deliver(&bot.instance(slow, &[]), from_ref(&event)).await, 200);
    assert_eq!(bot.said().len(), 1);
}

#[tokio::test]
async fn a_hundred_events_of_a_hundred_users_are_all_answered() {
    let bot = Bot::new(memory());
    let events: Vec<_> = (0..100).map(|_| text(&user(), "永和")).collect();
    assert_eq!(bot.deliver(&events).await, 200);
    assert_eq!(bot.said().len(), 100);
}
