//! What is counted, on the thread of the test.

use crate::support::*;

use std::collections::BTreeMap;
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use onetap_line::testing::Fault as LineFault;
use onetap_store::testing::{Fault, Gate, TestStore};
use onetap_telemetry::{Recorder, Service};

use webhook::Times;

/// A counter's values by its label.
fn counted(recorder: &Recorder, name: &str) -> BTreeMap<String, u64> {
    let text = recorder.prometheus();
    let lines = text.lines().filter_map(|line| line.strip_prefix(name)?.split_once(' '));
    let label = |labels: &str| labels.split('"').nth(1).unwrap_or_default().to_owned();
    lines.map(|(labels, count)| (label(labels), count.parse().unwrap())).collect()
}

/// What CloudWatch is told of a counter since the last time, by its outcome.
fn told(recorder: &Recorder, name: &str) -> BTreeMap<String, u64> {
    let lines = recorder.emf(&Service::default());
    let lines = lines.iter().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines.filter_map(|line| Some((line["outcome"].as_str()?.to_owned(), line[name].as_u64()?))).collect()
}

#[tokio::test]
async fn dedupe_redeliveries_forecasts_replies_and_failures_are_counted() {
    let recorder = Recorder::default();
    let _guard = recorder.on_this_thread();
    let counted = |name: &str| counted(&recorder, name);
    let told = |name: &str| told(&recorder, name);
    let expect = |name: &str, values: &[(&str, u64)]| {
        let values = values.iter().map(|(label, count)| ((*label).to_owned(), *count)).collect();
        assert_eq!(counted(name), values, "{name}");
    };
    let bot = Bot::new(memory());
    let too_many = || LineFault::Status(429, r#"{"message":"too many"}"#.into());

    let (menu, entry) = (tap(&user(), "action=settings"), text(&user(), "午餐 120 信用卡"));
    assert_eq!(bot.deliver(&[menu.clone(), entry.clone()]).await, 200);
    expect("idem_total", &[("executed", 2)]);
    assert_eq!(bot.deliver(&[menu, redelivered(&entry)]).await, 200);
    expect("idem_total", &[("executed", 2), ("replayed", 2)]);
    expect("line_redelivery_total", &[("", 1)]);

    // Not answered: a menu is handled again, an entry is written and only lacks its answer.
    let (menu, entry) = (tap(&user(), "action=settings"), text(&user(), "午餐 120 信用卡"));
    for event in [&menu, &entry] {
        bot.line.fail_next(too_many());
        assert_eq!(bot.deliver(from_ref(event)).await, 500);
    }
    expect("idem_total", &[("executed", 3), ("failed", 1), ("replayed", 2)]);
    assert_eq!(bot.deliver(&[menu, entry]).await, 200);
    expect("idem_total", &[("executed", 4), ("failed", 1), ("replayed", 3)]);

    // Handled elsewhere at the same time.
    let (gate, menu) = (Gate::new(), tap(&user(), "action=settings"));
    let held = TestStore::first(Arc::clone(&bot.store), vec![Fault::HeldAfter(gate.clone())]);
    let first = tokio::spawn({
        let (webhook, menu) = (bot.instance(held, &[]), menu.clone());
        async move { deliver(&webhook, &[menu]).await }
    });
    gate.reached().await;
    assert_eq!(bot.deliver(&[menu]).await, 500);
    gate.open();
    assert_eq!(first.await.unwrap(), 200);
    let before = [("executed", 5), ("failed", 1), ("in_progress", 1), ("replayed", 3)];
    expect("idem_total", &before);

    // Without a store, and with one that fails after the claim.
    let down = bot.instance(TestStore::faulty(Arc::clone(&bot.store), |_| Fault::NotSent), &[]);
    assert_eq!(deliver(&down, &[tap(&user(), "action=settings")]).await, 200);
    let goes_down = |call| if call == 1 { Fault::Pass } else { Fault::NotSent };
    for event in [tap(&user(), "action=settings"), text(&user(), "午餐 120 信用卡")] {
        let goes_down = bot.instance(TestStore::faulty(Arc::clone(&bot.store), goes_down), &[]);
        assert_eq!(deliver(&goes_down, &[event]).await, 200);
    }
    // What is ignored, and what has no id, is not deduped.
    let mut nameless = tap(&user(), "action=settings");
    nameless.as_object_mut().unwrap().remove("webhookEventId");
    assert_eq!(bot.deliver(&[in_group(text(&user(), "大家晚安")), nameless]).await, 200);
    expect("idem_total", &[&before[..], &[("store_error", 1), ("unrecorded", 2)]].concat());

    assert!(counted("weather_total").is_empty());
    bot.said();
    bot.weather.fail(true);
    told("weather_total");
    assert_eq!(bot.ask(&user(), "永和").await, BUSY);
    // A share of failures needs all numbers, above all while every forecast fails.
    let all = |one: &str, count: u64| {
        let labels = ["failed", "fallback", "fetched", "kept", "stale"];
        labels.map(|label| (label.to_owned(), if label == one { count } else { 0 })).into()
    };
    assert_eq!(told("weather_total"), all("failed", 1));
    bot.weather.fail(false);
    assert!(bot.ask(&user(), "永和").await.starts_with("新北市永和區"));
    assert_eq!(told("weather_total"), all("fetched", 1));
    bot.weather.fail(true);
    assert!(bot.ask(&user(), "永和").await.starts_with("新北市永和區"));
    assert_eq!(told("weather_total"), all("stale", 1));
    bot.weather.fail(false);
    let hasty = Bot::timed(memory(), &[], Times { forecast: Duration::from_millis(100), ..PATIENT });
    let _never_opened = hasty.weather.hold();
    assert_eq!(hasty.ask(&user(), "永和").await, BUSY);
    assert_eq!(told("weather_total"), all("failed", 1));

    // Each answer of LINE by its own name.
    for (fault, status, outcome, times) in line_answers() {
        bot.line.fail_always(Some(fault));
        let mut replies = counted("line_reply_total");
        assert_eq!(bot.deliver(&[tap(&user(), "action=settings")]).await, status, "{outcome}");
        *replies.entry(outcome.to_owned()).or_default() += times as u64;
        assert_eq!(counted("line_reply_total"), replies, "{outcome}");
    }
    bot.line.fail_always(None);

    // An event that lacks what its kind needs.
    let skipped = r#"line_webhook_events_total{event_type="skipped",outcome="skipped"}"#;
    let of_series = |series: &str| counted(series).values().sum::<u64>();
    assert_eq!(of_series(skipped), 0);
    let lacking = event(&user(), serde_json::json!({"type": "postback", "postback": {}}));
    assert_eq!(bot.deliver(&[lacking]).await, 200);
    assert_eq!(of_series(skipped), 1);

    // What the bot does not read is a message that it skips.
    let unread = r#"line_webhook_events_total{event_type="message",outcome="skipped"}"#;
    assert_eq!(of_series(unread), 0);
    for message in [
        serde_json::json!({"type": "sticker", "id": "1", "packageId": "446", "stickerId": "1988"}),
        serde_json::json!({"type": "image", "id": "2", "contentProvider": {"type": "line"}}),
        serde_json::json!({"type": "somethingNew", "id": "3"}),
    ] {
        assert_eq!(
            bot.deliver(&[event(&user(), serde_json::json!({"type": "message", "message": message}))]).await,
            200
        );
    }
    assert_eq!(of_series(unread), 3);

    // A store that nobody answers for: the lock is not taken, and the work goes on.
    let failed_open = r#"processing_lock_acquire_total{source_type="user",status="failed_open"}"#;
    let before = (of_series(failed_open), counted("kv_error_total"));
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("redis://127.0.0.1:{port}");
    let variables = [("STORE", "redis"), ("REDIS_URL", url.as_str())];
    let lookup = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    let dead = onetap_store::open(&onetap_store::Config::from_lookup(lookup).unwrap()).unwrap();
    assert_eq!(deliver(&bot.instance(dead, &[]), &[tap(&user(), HOME)]).await, 200);
    let mut errors = before.1;
    *errors.entry("set".to_owned()).or_default() += 2;
    *errors.entry("get".to_owned()).or_default() += 1;
    assert_eq!(counted("kv_error_total"), errors, "the claim, the lock and the profile");
    assert_eq!(of_series(failed_open), before.0 + 1);
}
