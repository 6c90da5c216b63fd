use std::time::Duration;

use onetap_store::{Keep, Log};
use serde_json::Value as Json;

use super::*;

fn view() -> View {
    View::new(Settings {
        store: StoreSetting { kind: "memory", down: false },
        weather: WeatherSetting::default(),
    })
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn put(name: &str, expect: Expect, value: &str) -> Batch {
    Batch::new().put(&key(name), expect, value, Duration::from_secs(60))
}

fn is(text: &str) -> Expect {
    Expect::Is(text.to_owned())
}

/// The name and the data of a message.
fn read(text: &[u8]) -> (String, Json) {
    let text = std::str::from_utf8(text).unwrap();
    let (name, data) = text.trim_end().split_once("\ndata: ").unwrap();
    (name.strip_prefix("event: ").unwrap().to_owned(), serde_json::from_str(data).unwrap())
}

fn snapshot(view: &View) -> Json {
    read(&view.subscribe(Counts::default()).0).1
}

fn shown(view: &View) -> Vec<(String, String)> {
    let text = |value: &Json| value.as_str().unwrap().to_owned();
    let mut keys: Vec<_> = snapshot(view)["keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| (text(&key["key"]), text(&key["value"])))
        .collect();
    keys.sort();
    keys
}

#[test]
fn what_a_batch_did_is_shown() {
    let view = view();
    let now = now_ms();
    let log = Log::new("scan:job:1").unwrap();
    let batch = Batch::new()
        .put(&key("marker"), Expect::Absent, Value::PositionOf(0), Duration::from_secs(60))
        .put(&key("profile"), Expect::Absent, "me", Ttl::Forever)
        .append(&log, "event", Keep::about(9));
    assert!(view.applied(&batch, &[Position::new(7, 1)], now).is_empty());
    let all = snapshot(&view);
    assert_eq!(shown(&view), [("marker".into(), "7-1".into()), ("profile".into(), "me".into())]);
    let marker = all["keys"].as_array().unwrap().iter().find(|key| key["key"] == "marker").unwrap();
    assert_eq!(marker["expires_at"], now + 60_000);
    assert_eq!(all["records"][0]["position"], "7-1");
    assert_eq!((&all["records"][0]["log"], &all["records_total"]), (&json!("scan:job:1"), &json!(1)));
}

#[test]
fn a_users_ledger_is_shown_by_its_key_and_not_among_the_events() {
    let view = view();
    let (ledger, job) = (Log::new("user:U1:ledger:2026-11").unwrap(), Log::new("scan:job:1").unwrap());
    let batch = Batch::new()
        .put(&key("user:U1:ledger"), Expect::Absent, "months", Ttl::Forever)
        .append(&ledger, "an entry", Keep::about(9))
        .append(&job, "an event", Keep::about(9))
        .put(&key("marker"), Expect::Absent, Value::PositionOf(1), Duration::from_secs(60));
    let (_, mut updates) = view.subscribe(Counts::default());
    assert!(view.applied(&batch, &[Position::new(7, 1), Position::new(8, 2)], now_ms()).is_empty());
    view.flush(Counts::default());
    let (name, data) = read(&updates.try_recv().unwrap());
    assert_eq!((name.as_str(), &data["set"][1]["key"]), ("keys", &json!("user:U1:ledger")));
    let (name, data) = read(&updates.try_recv().unwrap());
    assert_eq!((name.as_str(), data.as_array().unwrap().len()), ("records", 1));
    assert_eq!((&data[0]["text"], &data[0]["position"]), (&json!("an event"), &json!("8-2")));
    assert!(shown(&view).contains(&("marker".to_owned(), "8-2".to_owned())));
}

#[test]
fn a_state_goes_up_and_never_down() {
    let view = view();
    for (seq, shows) in [(20, 20), (10, 20), (51, 51), (50, 51)] {
        let text = format!(r#"{{"seq":{seq}}}"#);
        let batch = Batch::new().put_if_newer(&key("state"), seq, text, Duration::from_secs(60));
        assert!(view.applied(&batch, &[], now_ms()).is_empty());
        assert_eq!(shown(&view), [("state".to_owned(), format!(r#"{{"seq":{shows}}}"#))]);
    }
}

#[test]
fn replies_in_another_order_than_their_commits_make_the_store_be_read() {
    let view = view();
    let now = now_ms();
    assert!(view.applied(&put("lock", Expect::Absent, "ann"), &[], now).is_empty());
    // The replies to Ann's release and to Ben's lock, in the wrong order.
    assert_eq!(view.applied(&put("lock", Expect::Absent, "ben"), &[], now), [key("lock")]);
    view.found(&key("lock"), Some("ben"));
    assert_eq!(view.applied(&Batch::new().delete(&key("lock"), "ann"), &[], now), [key("lock")]);
    view.found(&key("lock"), Some("ben"));
    assert_eq!(shown(&view), [("lock".to_owned(), "ben".to_owned())]);
    view.found(&key("lock"), None);
    assert_eq!(shown(&view), []);
}

#[test]
fn a_swap_of_what_was_there_before_is_no_doubt() {
    let view = view();
    assert!(view.applied(&put("old", is("before the runner"), "now"), &[], now_ms()).is_empty());
    assert!(view.applied(&put("old", is("now"), "then"), &[], now_ms()).is_empty());
    assert_eq!(shown(&view), [("old".to_owned(), "then".to_owned())]);
}

#[test]
fn what_expired_is_gone() {
    let view = view();
    let batch = Batch::new().put(&key("short"), Expect::Absent, "x", Duration::from_millis(1));
    let (_, mut updates) = view.subscribe(Counts::default());
    assert!(view.applied(&batch, &[], now_ms() - 10).is_empty());
    assert_eq!(shown(&view), []);
    let (name, data) = read(&updates.try_recv().unwrap());
    assert_eq!((name.as_str(), &data["gone"]), ("keys", &json!(["short"])));
}

#[test]
fn changes_are_told_together_and_once() {
    let view = view();
    let (_, mut updates) = view.subscribe(Counts::default());
    for n in 0..100 {
        let expect = if n == 0 { Expect::Absent } else { is(&(n - 1).to_string()) };
        assert!(view.applied(&put("counter", expect, &n.to_string()), &[], now_ms()).is_empty());
    }
    // A newcomer's snapshot has them, and brings everybody else up to date first.
    let (_, mut newcomer) = view.subscribe(Counts::default());
    let (name, data) = read(&updates.try_recv().unwrap());
    assert_eq!((name.as_str(), &data["set"][0]["value"]), ("keys", &json!("99")));
    view.flush(Counts::default());
    assert!(updates.try_recv().is_err() && newcomer.try_recv().is_err(), "nothing is told twice");
    view.flush(Counts { sent: 1, ..Counts::default() });
    assert_eq!(read(&newcomer.try_recv().unwrap()).0, "queue");
}

#[test]
fn a_long_value_is_cut_at_a_whole_character() {
    assert_eq!(shorten(&"天".repeat(401)), format!("{}…", "天".repeat(400)));
    assert_eq!(shorten(&"天".repeat(400)), "天".repeat(400));
}

#[test]
fn keys_records_and_replies_are_bounded() {
    let view = view();
    let log = Log::new("scan:events:0").unwrap();
    for n in 0..MAX_KEYS + MAX_KEYS / 10 {
        let batch = put(&format!("key-{n}"), Expect::Absent, "x").append(&log, "x", Keep::about(1));
        assert!(view.applied(&batch, &[Position::new(1, 0)], now_ms()).is_empty());
        let text = n.to_string();
        let (user, delivery) = (String::new(), String::new());
        let reply = Reply {
            at: 0,
            user,
            text,
            path: "handled",
            quick_replies: vec![],
            delivery,
            event: 0,
            forecast: None,
        };
        view.replied(reply);
    }
    let all = snapshot(&view);
    let names: Vec<&str> =
        all["keys"].as_array().unwrap().iter().map(|key| key["key"].as_str().unwrap()).collect();
    assert!(names.len() <= MAX_KEYS + MAX_KEYS / 20, "{}", names.len());
    assert!(names.contains(&format!("key-{}", MAX_KEYS + MAX_KEYS / 10 - 1).as_str()), "the newest is there");
    assert!(!names.contains(&"key-0"), "the oldest is not");
    assert_eq!(all["records"].as_array().unwrap().len(), MAX_RECORDS_IN_SNAPSHOT);
    assert_eq!(all["records_total"], MAX_KEYS + MAX_KEYS / 10);
    assert_eq!(all["replies"].as_array().unwrap().len(), MAX_REPLIES_IN_SNAPSHOT);
    assert_eq!(view.state().records.len(), MAX_RECORDS);
    assert_eq!(view.state().replies.len(), MAX_REPLIES);
}

#[test]
fn where_a_forecast_came_from_is_told_after_its_reply_and_stays_with_it() {
    let view = view();
    let (_, mut updates) = view.subscribe(Counts::default());
    let reply = |event| Reply {
        at: 0,
        user: String::new(),
        text: String::new(),
        path: "handled",
        quick_replies: vec![],
        delivery: "d1".to_owned(),
        event,
        forecast: None,
    };
    // The first was sent to the page before the delivery ended.
    view.replied(reply(0));
    view.flush(Counts::default());
    view.replied(reply(2));
    view.looked_up("d1", &[Some("fetched"), None, Some("kept")]);
    view.looked_up("d2", &[Some("stale")]);
    view.flush(Counts::default());
    let told: Vec<String> = std::iter::from_fn(|| updates.try_recv().ok())
        .map(|update| String::from_utf8(update.to_vec()).unwrap())
        .filter(|update| update.starts_with("event: forecast"))
        .collect();
    let event = |text: &str| format!("event: forecast\ndata: {text}\n\n");
    assert_eq!(
        told,
        [
            event(r#"{"delivery":"d1","event":0,"forecast":"fetched"}"#),
            event(r#"{"delivery":"d1","event":2,"forecast":"kept"}"#),
        ]
    );
    let all = snapshot(&view);
    assert_eq!(
        (&all["replies"][0]["forecast"], &all["replies"][1]["forecast"]),
        (&json!("fetched"), &json!("kept"))
    );
}
