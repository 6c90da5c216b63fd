//! What only DynamoDB can do to a log or a batch.

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use onetap_servers::dynamo::call;
use onetap_servers::{Dynamo, Fault, Proxy, create_table};
use onetap_store::testing::conformance::Names;
use onetap_store::{Batch, Commit, Credentials, DynamoDb, Expect, Keep, Log, Position, Store, Ttl};
use serde_json::{Value, json};
use support::PATIENT;

const HOUR: Duration = Duration::from_secs(3600);

async fn append(store: &Arc<dyn Store>, log: &Log, text: &str, ttl: impl Into<Ttl>) -> Position {
    match store.commit(&Batch::new().append(log, text, Keep::all_for(ttl))).await.unwrap() {
        Commit::Applied(positions) => positions[0],
        Commit::Refused(_) => panic!("refused"),
    }
}

async fn texts(store: &Arc<dyn Store>, log: &Log, after: Option<Position>) -> Vec<String> {
    store.read(log, after, 10).await.unwrap().into_iter().map(|record| record.text).collect()
}

/// A log in its table, whose items can be changed behind the store's back.
struct Behind<'a>(&'a Dynamo, &'a Log);

impl Behind<'_> {
    fn key(&self, position: Position) -> Value {
        let (epoch, n) = position.parts();
        json!({ "pk": { "S": self.1.as_str() }, "sk": { "S": format!("{epoch:020}-{n:020}") } })
    }

    async fn call(&self, operation: &str, mut input: Value) -> Value {
        input["TableName"] = "onetap".into();
        let (status, answer) = call(&self.0.url(), operation, &input).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    async fn record(&self, position: Position) -> Value {
        self.call("GetItem", json!({ "Key": self.key(position) })).await["Item"].clone()
    }

    async fn put(&self, item: Value) {
        self.call("PutItem", json!({ "Item": item })).await;
    }

    async fn remove(&self, position: Position) -> Value {
        let item = self.record(position).await;
        self.call("DeleteItem", json!({ "Key": self.key(position) })).await;
        item
    }
}

#[tokio::test]
async fn a_hole_in_the_middle_of_a_log_ends_the_page() {
    for ttl in [Ttl::Of(HOUR), Ttl::Forever] {
        let (store, server) = support::open_dynoxide().await;
        let log = Names::new().log("log");
        let mut at = Vec::new();
        for text in ["1", "2", "3", "4", "5"] {
            at.push(append(&store, &log, text, ttl).await);
        }
        let behind = Behind(&server, &log);
        // The third record's transaction is not visible yet, and stays so for longer than a read waits.
        let third = behind.remove(at[2]).await;
        assert_eq!(texts(&store, &log, None).await, ["1", "2"]);
        assert_eq!(texts(&store, &log, Some(at[0])).await, ["2"]);
        assert_eq!(texts(&store, &log, Some(at[1])).await, Vec::<String>::new());
        assert_eq!(texts(&store, &log, Some(at[3])).await, ["5"]);
        behind.put(third).await;
        assert_eq!(texts(&store, &log, Some(at[1])).await, ["3", "4", "5"], "nothing was passed over");
    }
}

#[tokio::test]
async fn a_young_log_has_all_of_its_records() {
    let (store, server) = support::open_dynoxide().await;
    let log = Names::new().log("log");
    let first = append(&store, &log, "1", HOUR).await;
    append(&store, &log, "2", HOUR).await;
    let behind = Behind(&server, &log);
    // The first record's transaction is not visible yet: whoever began with the second would never see it.
    let hidden = behind.remove(first).await;
    assert_eq!(texts(&store, &log, None).await, Vec::<String>::new());
    behind.put(hidden).await;
    assert_eq!(texts(&store, &log, None).await, ["1", "2"]);
}

#[tokio::test]
async fn records_that_were_swept_hold_up_nobody() {
    let (store, server) = support::open_dynoxide().await;
    let log = Names::new().log("log");
    let mut at = Vec::new();
    // Written a month ago, because nothing younger can have been swept.
    let day = HOUR * 24;
    let writer =
        DynamoDb::new("onetap", "us-east-1", Credentials::new("test", "test")).endpoint(server.url());
    let writer = writer.timeout(HOUR);
    let writer: Arc<dyn Store> = Arc::new(writer.with_skew(-30 * 24 * 3_600_000));
    for text in ["1", "2", "3", "4", "5"] {
        at.push(append(&writer, &log, text, day * 60).await);
    }
    let behind = Behind(&server, &log);
    behind.remove(at[0]).await;
    assert_eq!(texts(&store, &log, None).await, ["2", "3", "4", "5"]);
    // A reader that left off at a record which is gone, and so may be those behind it.
    behind.remove(at[1]).await;
    assert_eq!(texts(&store, &log, Some(at[0])).await, ["3", "4", "5"]);

    // DynamoDB sweeps in any order, but nothing before its time.
    let mut due = behind.record(at[2]).await;
    due["ttl"] = json!({ "N": "1" });
    behind.put(due).await;
    behind.remove(at[3]).await;
    assert_eq!(texts(&store, &log, None).await, ["3", "5"]);
    assert_eq!(texts(&store, &log, Some(at[2])).await, ["5"]);
}

#[tokio::test]
async fn no_record_is_swept_before_those_ahead_of_it() {
    let (store, server) = support::open_dynoxide().await;
    let log = Names::new().log("log");
    let behind = Behind(&server, &log);
    let mut due = Vec::new();
    for ttl in [Ttl::Of(HOUR * 5), HOUR.into(), (HOUR * 9).into(), Ttl::Forever, HOUR.into()] {
        let at = append(&store, &log, "record", ttl).await;
        let due_at = behind.record(at).await.get("ttl").map(|ttl| ttl["N"].as_str().unwrap().to_owned());
        due.push(due_at.map_or(u64::MAX, |second| second.parse().unwrap()));
    }
    assert!(due.is_sorted(), "{due:?}");
    assert!(due[1] == due[0] && due[2] > due[1] && due[4] == u64::MAX, "{due:?}");
}

#[tokio::test]
async fn a_record_outlives_its_expiry_by_another_ttl_and_long_enough_for_a_month() {
    let (store, server) = support::open_dynoxide().await;
    let day = HOUR * 24;
    for (ttl, days) in [(HOUR, 7), (day, 63), (day * 7, 69), (day * 90, 180), (day * 1095, 2190)] {
        let log = Names::new().log("log");
        let behind = Behind(&server, &log);
        let at = append(&store, &log, "record", ttl).await;
        let sweep = behind.record(at).await["ttl"]["N"].as_str().unwrap().parse::<u64>().unwrap();
        let age = sweep - at.parts().0 / 1000;
        assert_eq!(age / (24 * 3600), days, "{ttl:?}: swept after {age} seconds");
    }
}

#[tokio::test]
async fn a_read_asks_once_and_three_times_past_an_earlier_life() {
    let server = Dynamo::start().await;
    create_table(&server.url(), "onetap").await;
    let proxy = Proxy::start(&server.url()).await;
    let store = support::store(&support::dynamodb(proxy.url(), PATIENT));
    let asked = |known: usize| proxy.operations().split_off(known);

    let log = Names::new().log("log");
    let short = Duration::from_millis(400);
    let known = proxy.requests();
    assert_eq!(texts(&store, &log, None).await, Vec::<String>::new());
    assert_eq!(asked(known), ["Query"], "a log that is not there");
    for _ in 0..40 {
        append(&store, &log, "old", short).await;
    }
    tokio::time::sleep(short * 2).await;
    let known = proxy.requests();
    let mut at = Vec::new();
    for text in ["1", "2", "3"] {
        at.push(append(&store, &log, text, HOUR).await);
    }
    assert_eq!(asked(known), ["BatchGetItem", "TransactWriteItems"].repeat(3));
    let known = proxy.requests();
    assert_eq!(texts(&store, &log, Some(at[0])).await, ["2", "3"]);
    assert_eq!(texts(&store, &log, Some(at[2])).await, Vec::<String>::new());
    assert_eq!(asked(known), ["Query", "Query"], "one each");
    let known = proxy.requests();
    assert_eq!(texts(&store, &log, None).await, ["1", "2", "3"]);
    assert_eq!(asked(known), ["Query"; 3], "the earlier life, the head, this life");
}

#[tokio::test]
async fn keys_that_dynamodb_leaves_unprocessed_are_asked_for_again_after_a_pause() {
    let server = Dynamo::start().await;
    create_table(&server.url(), "onetap").await;
    let proxy = Proxy::start(&server.url()).await;
    let names = Names::new();
    let (key, log) = (names.key("marker"), names.log("log"));
    let event =
        Batch::new().put(&key, Expect::Absent, "seen", HOUR).append(&log, "event", Keep::all_for(HOUR));
    let item = |name: &str| json!({ "pk": { "S": name }, "sk": { "S": "value" } });
    let unprocessed = json!({
        "Responses": {},
        "UnprocessedKeys": { "onetap": {
            "Keys": [item(key.as_str()), item(log.as_str())],
            "ConsistentRead": true,
        } },
    });
    let unprocessed = Fault::Status(200, unprocessed.to_string());

    // For ever: the call ends at its limit, having asked now and then, and knows that nothing was written.
    let store = support::store(&support::dynamodb(proxy.url(), 2_000));
    proxy.inject(Some(unprocessed.clone()));
    let error = store.commit(&event).await.expect_err("nothing was read");
    let asked = proxy.requests();
    assert!((2..200).contains(&asked), "asked {asked} times in two seconds");
    assert!(error.is_retryable() && !error.maybe_applied(), "{error:?}");
    proxy.inject(None);

    // For a while: it is all that happens.
    let store = support::store(&support::dynamodb(proxy.url(), PATIENT));
    proxy.inject_next(vec![unprocessed; 4]);
    assert!(matches!(store.commit(&event).await, Ok(Commit::Applied(_))));
    assert_eq!(texts(&store, &log, None).await, ["event"]);
}
