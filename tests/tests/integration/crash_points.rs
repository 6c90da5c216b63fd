//! The process of a function is killed at every call that it makes, just before it, just after it, and between the parts
//! of one that has several. Then the platform does what it does, and the effects are those of one run.

use onetap_ledger::{Entry, etag};
use onetap_servers::Backend;
use onetap_tests::crash::{Points, Request, Scenario, World};
use serde_json::{Value, json};

const LUNCH: &str = r#"{"intent":"bookkeeping","日期":"2025-11-29","時間":"12:30","品項":"午餐","原幣別":"TWD","原幣金額":120,"匯率":1,"付款方式":"現金","交易ID":"20251129-123000","明細說明":"","分類":"其他","專案":"日常","必要性":"必要","代墊狀態":"無","收款支付對象":"","附註":""}"#;
const DINNER: &str = r#"{"intent":"bookkeeping","日期":"2025-11-29","時間":"19:00","品項":"晚餐","原幣別":"TWD","原幣金額":300,"匯率":1,"付款方式":"信用卡","交易ID":"20251129-190000","明細說明":"","分類":"其他","專案":"日常","必要性":"必要","代墊狀態":"無","收款支付對象":"","附註":""}"#;

// ---- LINE's webhook ----

/// The `n`th event, of this user.
fn event(n: u32, user: &str, more: Value) -> Value {
    let mut event = json!({
        "webhookEventId": format!("event-{n}-{{id}}"),
        "deliveryContext": {"isRedelivery": false},
        "timestamp": 1_700_000_000_000_i64,
        "mode": "active",
        "replyToken": reply(n),
        "source": {"type": "user", "userId": user},
    });
    event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    event
}

fn says(n: u32, user: &str, words: &str) -> Value {
    event(n, user, json!({"type": "message", "message": {"type": "text", "id": "1", "text": words}}))
}

fn taps_home(n: u32, user: &str) -> Value {
    event(n, user, json!({"type": "postback", "postback": {"data": "action=weather&type=home"}}))
}

/// A tap on the button that confirms an erasure.
fn confirms_erasure(n: u32) -> Value {
    event(n, USER, json!({"type": "postback", "timestamp": "{now}", "postback": {"data": "{erasure}"}}))
}

fn redelivered(mut event: Value) -> Value {
    event["deliveryContext"]["isRedelivery"] = true.into();
    event
}

fn reply(n: u32) -> String {
    format!("reply-{n}-{{id}}")
}

fn marker(n: u32) -> String {
    format!("idem:line:event-{n}-{{id}}")
}

fn delivery<const N: usize>(events: [Value; N]) -> Request {
    Request::Delivery(events.to_vec().into())
}

const USER: &str = "U{id}";
const TRANSACTION: &str = "user:U{id}:last_transaction";
const PROFILE: &str = "user:U{id}:profile";
const PENDING: &str = "user:U{id}:pending";

/// What one event of `USER` does, which is number 1.
fn one_event(name: &'static str, event: Value) -> Scenario {
    Scenario {
        keys: [TRANSACTION, PROFILE, PENDING, &marker(1)].map(str::to_owned).to_vec(),
        ledgers: vec![USER.to_owned()],
        locks: vec![format!("processing:user:{USER}")],
        replies: vec![reply(1)],
        ..Scenario::new(name, delivery([event]))
    }
}

fn deliveries() -> Vec<Scenario> {
    let lives_at_home = || delivery([says(0, USER, "設定住家 永和區")]);
    let has_lunch = || delivery([says(0, USER, "午餐 120 信用卡")]);
    let entry = || says(1, USER, "晚餐 300 現金");
    // A profile, entries in two months, and one that lacks something.
    let has_everything =
        || vec![lives_at_home(), put(LUNCH, &[]), has_lunch_of(USER), delivery([says(8, USER, "點心 30")])];
    vec![
        Scenario {
            before: vec![lives_at_home()],
            ..one_event("a tap that takes the lock", taps_home(1, USER))
        },
        Scenario {
            before: vec![lives_at_home()],
            ..one_event(
                "a redelivered tap that takes the lock after its claim",
                redelivered(taps_home(1, USER)),
            )
        },
        Scenario { between: Some(put(LUNCH, &[])), records: 2, ..one_event("an entry", entry()) },
        Scenario {
            before: vec![has_lunch()],
            between: Some(patch(r#"{"原幣金額":999}"#, &[])),
            records: 3,
            ..one_event("an edit in the chat", says(1, USER, "修改金額 150"))
        },
        Scenario {
            before: vec![has_lunch()],
            between: Some(put(DINNER, &[])),
            records: 3,
            ..one_event("a deletion in the chat", says(1, USER, "刪除上一筆"))
        },
        Scenario {
            between: Some(put(LUNCH, &[])),
            records: 4,
            ..one_event(
                "an entry of three lines",
                says(1, USER, "早餐 50 現金\n午餐 120 信用卡\n2025-10-31 晚餐 300 現金"),
            )
        },
        Scenario {
            before: vec![put(LUNCH, &[])],
            between: Some(patch(r#"{"附註":"別人"}"#, &[])),
            records: 4,
            ..one_event("a move to another month in the chat", says(1, USER, "修改日期 2025-10-31"))
        },
        one_event("an entry that lacks something", says(1, USER, "午餐 120")),
        Scenario {
            before: vec![delivery([says(0, USER, "午餐 120")])],
            between: Some(put(DINNER, &[])),
            keys: [PENDING, TRANSACTION, &marker(1)].map(str::to_owned).to_vec(),
            records: 2,
            ..one_event("what completes an entry", says(1, USER, "信用卡"))
        },
        Scenario {
            before: vec![delivery([says(0, USER, "午餐 120")])],
            ..one_event("what drops an entry", says(1, USER, "取消"))
        },
        Scenario {
            before: vec![has_lunch()],
            records: 2,
            ..one_event("a category that is remembered", says(1, USER, "分類改成娛樂"))
        },
        Scenario {
            before: vec![has_lunch()],
            records: 1,
            ..one_event("an edit that lacks its rate", says(1, USER, "幣別改美金"))
        },
        Scenario {
            before: vec![has_lunch(), delivery([says(8, USER, "幣別改美金")])],
            records: 2,
            ..one_event("the rate of an edit", says(1, USER, "31.5"))
        },
        one_event("a default way to pay", says(1, USER, "設定付款 現金")),
        one_event("a setting", says(1, USER, "設定公司 花蓮市")),
        Scenario {
            before: vec![lives_at_home()],
            ..one_event("a forecast, which is remembered", says(1, USER, "花蓮市"))
        },
        Scenario {
            before: has_everything(),
            afterwards: vec![delivery([confirms_erasure(2)])],
            ..one_event("an erasure", confirms_erasure(1))
        },
        Scenario {
            before: has_everything(),
            records: 2,
            ..one_event("a question whether an erasure is meant", says(1, USER, "刪除我的資料"))
        },
        Scenario {
            before: has_everything(),
            between: Some(put(DINNER, &[])),
            records: 1,
            ..one_event("an erasure before a new entry", confirms_erasure(1))
        },
        Scenario {
            before: vec![lives_at_home()],
            replies: Vec::new(),
            ..one_event("a farewell", event(1, USER, json!({"type": "unfollow", "replyToken": null})))
        },
        Scenario {
            before: vec![delivery([entry()])],
            records: 1,
            ..one_event("an event that was handled", entry())
        },
        Scenario {
            before: vec![lives_at_home(), delivery([taps_home(1, USER)])],
            ..one_event("a tap that was answered", taps_home(1, USER))
        },
        Scenario {
            before: vec![lives_at_home()],
            keys: [
                "user:V{id}:last_transaction",
                "user:W{id}:profile",
                PROFILE,
                &marker(1),
                &marker(2),
                &marker(3),
                &marker(4),
            ]
            .map(str::to_owned)
            .to_vec(),
            ledgers: vec!["V{id}".to_owned()],
            records: 1,
            locks: ["U", "V", "W"].map(|user| format!("processing:user:{user}{{id}}")).to_vec(),
            replies: [1, 2, 3, 4].map(reply).to_vec(),
            may_wait: vec![reply(2)],
            ..Scenario::new(
                "several events of several users",
                delivery([
                    taps_home(1, USER),
                    taps_home(2, USER),
                    says(3, "V{id}", "午餐 120 信用卡"),
                    event(4, "W{id}", json!({"type": "follow"})),
                ]),
            )
        },
    ]
}

/// Each of them is over when its lock has ended. The weather provider is down, and the fallback answers.
fn taps_with_a_cooldown() -> Vec<Scenario> {
    let taps = |name, events: Vec<Value>| {
        let request = Request::Delivery(events.into());
        Scenario {
            before: vec![delivery([says(0, USER, "設定住家 永和區")])],
            request,
            ..one_event(name, taps_home(1, USER))
        }
    };
    vec![
        taps("a tap with a cooldown", vec![taps_home(1, USER)]),
        taps("a redelivered tap with a cooldown", vec![redelivered(taps_home(1, USER))]),
        // If it dies between the two, the second comes again and finds the lock of its own delivery cooling down.
        Scenario {
            keys: [PROFILE.to_owned(), marker(1), marker(2)].to_vec(),
            replies: [1, 2].map(reply).to_vec(),
            may_wait: vec![reply(2)],
            ..taps("two taps with a cooldown", vec![taps_home(1, USER), taps_home(2, USER)])
        },
    ]
}

/// The example that counts: its state changes once for each event.
fn counted() -> Vec<Scenario> {
    const COUNT: &str = "user:U{id}:count";
    let counts = |events: Vec<Value>| Request::Counter(events.into());
    let one = |name, more: &[u32]| Scenario {
        before: vec![counts(vec![says(8, USER, "one"), says(9, USER, "two")])],
        keys: [COUNT.to_owned(), marker(1)].into_iter().chain(more.iter().map(|n| marker(*n))).collect(),
        replies: [1].iter().chain(more).map(|n| reply(*n)).collect(),
        ..Scenario::new(name, counts([1].iter().chain(more).map(|n| says(*n, USER, "more")).collect()))
    };
    vec![
        one("an event that is counted", &[]),
        // Each is counted once and hears a number. If it dies after the first claim alone, the first is counted last.
        Scenario {
            may_wait: [1, 2, 3].map(reply).to_vec(),
            ..one("three events of one delivery that are counted", &[2, 3])
        },
        Scenario {
            between: Some(counts(vec![says(7, USER, "meanwhile")])),
            ..one("a count that races another", &[])
        },
        Scenario {
            request: counts(vec![redelivered(says(1, USER, "again"))]),
            ..one("a redelivered event that is counted", &[])
        },
        Scenario {
            request: counts(vec![says(9, USER, "two")]),
            keys: vec![COUNT.to_owned(), marker(9)],
            replies: vec![reply(9)],
            ..one("an event that was counted", &[])
        },
    ]
}

fn has_lunch_of(user: &str) -> Request {
    delivery([says(9, user, "午餐 120 信用卡")])
}

// ---- the API of the last transaction ----

fn api(method: &str, body: &str, headers: &[(&str, &str)]) -> Request {
    Request::Http {
        method: method.to_owned(),
        path: "/users/U{id}/last-transaction".to_owned(),
        headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        body: body.to_owned(),
    }
}

fn put(entry: &str, headers: &[(&str, &str)]) -> Request {
    api("PUT", entry, headers)
}

fn patch(edit: &str, headers: &[(&str, &str)]) -> Request {
    api("PATCH", edit, headers)
}

fn calls() -> Vec<Scenario> {
    let call = |name, request| Scenario {
        keys: vec![TRANSACTION.to_owned()],
        ledgers: vec![USER.to_owned()],
        ..Scenario::new(name, request)
    };
    let key: &[(&str, &str)] = &[("idempotency-key", "key-{id}")];
    let lunch = etag(&Entry::from_body(LUNCH.as_bytes()).unwrap().to_json());
    vec![
        // Its own first attempt is what the second finds there.
        Scenario { ends_with: &[201, 200], records: 1, ..call("a PUT", put(LUNCH, &[])) },
        Scenario {
            before: vec![put(LUNCH, &[])],
            between: Some(patch(r#"{"附註":"別人"}"#, &[])),
            keyed: true,
            records: 3,
            ..call("a PUT with a key", put(DINNER, key))
        },
        Scenario {
            ends_with: &[201],
            keyed: true,
            records: 1,
            ..call("a PUT of the first entry with a key", put(LUNCH, key))
        },
        Scenario {
            before: vec![put(LUNCH, &[])],
            records: 2,
            ..call("a PATCH", patch(r#"{"品項":"便當"}"#, &[]))
        },
        Scenario {
            before: vec![put(LUNCH, &[])],
            between: Some(patch(r#"{"品項":"水餃"}"#, &[])),
            keyed: true,
            records: 3,
            ..call("a PATCH with a key", patch(r#"{"品項":"便當"}"#, key))
        },
        Scenario {
            before: vec![put(LUNCH, &[])],
            records: 2,
            ..call("a PATCH of one value", patch(r#"{"品項":"便當"}"#, &[("if-match", &lunch)]))
        },
        Scenario {
            before: vec![put(LUNCH, &[])],
            records: 2,
            ..call(
                "a PATCH of one transaction",
                patch(r#"{"品項":"便當"}"#, &[("if-match", "20251129-123000")]),
            )
        },
        Scenario {
            before: vec![put(LUNCH, &[])],
            records: 3,
            ..call("a move to another month", patch(r#"{"日期":"2025-10-31"}"#, &[]))
        },
        Scenario {
            before: vec![put(LUNCH, &[])],
            between: Some(patch(r#"{"日期":"2025-12-01"}"#, &[])),
            keyed: true,
            records: 5,
            ..call("a move to another month with a key", patch(r#"{"日期":"2025-10-31"}"#, key))
        },
        // What is gone cannot be deleted again.
        Scenario {
            before: vec![put(LUNCH, &[])],
            ends_with: &[204, 404],
            records: 2,
            ..call("a DELETE", api("DELETE", "", &[]))
        },
    ]
}

// ---- the queue's consumer ----

fn job_event(job: char, stage: &str, seq: u32) -> String {
    json!({
        "job_id": format!("{job}-{{id}}"),
        "domain": "scan",
        "stage": stage,
        "seq": seq,
        "data": {"status": "done"},
        "timestamp": "2025-11-03T10:00:00Z",
    })
    .to_string()
}

/// A batch of these events, and everything that they leave behind.
fn batch(name: &'static str, events: &[(char, &str, u32)]) -> Scenario {
    let mut keys = Vec::new();
    let mut logs: Vec<String> = (0..4).map(|shard| format!("scan:events:{shard}")).collect();
    for (job, stage, seq) in events {
        keys.push(format!("published:{job}-{{id}}:{stage}:{seq}"));
        keys.push(format!("router:published:{job}-{{id}}:{seq}"));
        keys.push(format!("scan:state:{job}-{{id}}"));
        logs.push(format!("scan:job:{job}-{{id}}"));
    }
    keys.sort();
    keys.dedup();
    logs.sort();
    logs.dedup();
    let bodies = events.iter().map(|(job, stage, seq)| job_event(*job, stage, *seq)).collect();
    Scenario { keys, logs, ..Scenario::new(name, Request::Queue(bodies)) }
}

fn batches() -> Vec<Scenario> {
    let ten = [
        ('a', "vision", 10),
        ('a', "vision", 11),
        ('b', "queued", 0),
        ('a', "vision", 10),
        ('b', "vision", 12),
        ('c', "done", 51),
        ('a', "rule", 20),
        ('b', "queued", 0),
        ('c', "answer", 30),
        ('a', "done", 51),
    ];
    let half: Vec<String> = ten[..5].iter().map(|(job, stage, seq)| job_event(*job, stage, *seq)).collect();
    vec![
        batch("one event", &ten[..1]),
        batch("a batch of several jobs with duplicates", &ten),
        Scenario {
            before: vec![Request::Queue(half)],
            ..batch("a batch of which half was done before", &ten)
        },
    ]
}

// ---- on every backend ----

/// The deliveries that run on DynamoDB Local too: it is slow, and these are enough to cover its protocol.
const TELLING: [&str; 12] = [
    "a tap that takes the lock",
    "an entry",
    "an edit in the chat",
    "a deletion in the chat",
    "an entry of three lines",
    "a move to another month in the chat",
    "an entry that lacks something",
    "what completes an entry",
    "an erasure",
    "an erasure before a new entry",
    "an event that was handled",
    "several events of several users",
];

/// Kills, retries, compares; and says how often, because a scenario without calls would prove nothing. A few points may be
/// skipped: on a busy machine the runs that were counted may have made a call more, such as a second try.
async fn survives(world: World, scenarios: Vec<Scenario>, at_least: usize) {
    let (mut all, mut all_skipped) = (0, 0);
    for (name, Points { reached, skipped }) in world.survives(&scenarios).await {
        eprintln!("{reached:4} crash points, {skipped} skipped: {name}");
        assert!(skipped <= reached, "{name}: {skipped} crash points are skipped, and {reached} are not");
        (all, all_skipped) = (all + reached, all_skipped + skipped);
    }
    assert!(all >= at_least, "{all} crash points");
    assert!(all_skipped * 10 <= all, "{all_skipped} crash points are skipped, and {all} are not");
}

/// The retry dies as well, wherever it got to; the one after it finds what both have left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs redis-server"]
async fn an_entry_may_die_and_its_redelivery_may_die_at_any_call_on_redis() {
    let entry = one_event("an entry, twice", says(1, USER, "晚餐 300 現金"));
    let entry = Scenario { records: 1, ..entry };
    let pairs = World::start(Backend::Redis).await.survives_two_crashes(&entry).await;
    assert!(pairs >= 100, "{pairs} pairs of crash points");
}

macro_rules! on_every_backend {
    ($($backend:ident $needs:literal: $webhook:ident $counter:ident $cooldown:ident $edit:ident $consumer:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        #[ignore = $needs]
        async fn $webhook() {
            let world = World::start(Backend::$backend).await;
            if Backend::$backend == Backend::DynamoDbLocal {
                let telling = |it: &Scenario| TELLING.contains(&it.name);
                survives(world, deliveries().into_iter().filter(telling).collect(), 200).await;
            } else {
                survives(world, deliveries(), 270).await;
            }
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        #[ignore = $needs]
        async fn $counter() {
            survives(World::start(Backend::$backend).await, counted(), 30).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        #[ignore = $needs]
        async fn $cooldown() {
            let variables = [
                // An hour: a lock that outlived its TTL of a second would never be free in time.
                ("PROCESSING_LOCK_MIN_HOLD_MS", "3600000"),
                // Nobody listens there: the forecasts are the fallback's.
                ("WEATHER_PROVIDER", "open-meteo"),
                ("OPEN_METEO_BASE_URL", "http://127.0.0.1:1"),
                ("WEATHER_FALLBACK_PROVIDER", "sample"),
            ];
            let world = World::start_with(Backend::$backend, &variables).await;
            survives(world, taps_with_a_cooldown(), 70).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        #[ignore = $needs]
        async fn $edit() {
            survives(World::start(Backend::$backend).await, calls(), 40).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        #[ignore = $needs]
        async fn $consumer() {
            survives(World::start(Backend::$backend).await, batches(), 40).await;
        }
    )*};
}

on_every_backend! {
    Redis "needs redis-server":
        the_webhook_may_die_at_any_call_on_redis
        a_bot_that_counts_may_die_at_any_call_on_redis
        a_tap_with_a_cooldown_may_die_at_any_call_on_redis
        an_edit_may_die_at_any_call_on_redis
        the_consumer_may_die_at_any_call_on_redis;
    Upstash "needs redis-server":
        the_webhook_may_die_at_any_call_on_upstash
        a_bot_that_counts_may_die_at_any_call_on_upstash
        a_tap_with_a_cooldown_may_die_at_any_call_on_upstash
        an_edit_may_die_at_any_call_on_upstash
        the_consumer_may_die_at_any_call_on_upstash;
    DynamoDb "needs the example crash_worker":
        the_webhook_may_die_at_any_call_on_dynamodb
        a_bot_that_counts_may_die_at_any_call_on_dynamodb
        a_tap_with_a_cooldown_may_die_at_any_call_on_dynamodb
        an_edit_may_die_at_any_call_on_dynamodb
        the_consumer_may_die_at_any_call_on_dynamodb;
    DynamoDbLocal "needs DynamoDB Local":
        the_webhook_may_die_at_any_call_on_dynamodb_local
        a_bot_that_counts_may_die_at_any_call_on_dynamodb_local
        a_tap_with_a_cooldown_may_die_at_any_call_on_dynamodb_local
        an_edit_may_die_at_any_call_on_dynamodb_local
        the_consumer_may_die_at_any_call_on_dynamodb_local;
}
