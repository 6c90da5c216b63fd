//! What a cleared log leaves in the table of DynamoDB, and when that is gone.

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use onetap_servers::dynamo::call;
use onetap_servers::{Dynamo, Fault, Proxy, create_table, dynamodb_local};
use onetap_store::testing::conformance::Names;
use onetap_store::{Batch, Commit, Credentials, DynamoDb, Expect, Keep, Log, Position, Store, Ttl};
use serde_json::{Value, json};
use support::PATIENT;
use tokio::sync::Semaphore;

const HOUR: Duration = Duration::from_secs(3600);

/// A table behind a proxy, with a store that goes through it and one that does not.
struct Stage {
    server: Dynamo,
    proxy: Proxy,
    store: Arc<dyn Store>,
    direct: Arc<dyn Store>,
}

impl Stage {
    async fn new(timeout_ms: u64) -> Stage {
        let server = Dynamo::start().await;
        create_table(&server.url(), "onetap").await;
        let proxy = Proxy::start(&server.url()).await;
        let store = support::store(&support::dynamodb(proxy.url(), timeout_ms));
        let direct = support::store(&support::dynamodb(server.url(), PATIENT));
        Stage { server, proxy, store, direct }
    }

    /// The next requests pass, and all after them fail.
    fn fail_after(&self, requests: usize) {
        self.proxy.inject_next(vec![Fault::Delay(Duration::ZERO); requests]);
        self.proxy.inject(Some(Fault::Status(500, "{}".to_owned())));
    }
}

async fn applied(store: &Arc<dyn Store>, batch: Batch) -> Vec<Position> {
    match store.commit(&batch).await.unwrap() {
        Commit::Applied(positions) => positions,
        answer => panic!("{batch:?} gave {answer:?}"),
    }
}

/// Appends so many records, 40 in a batch.
async fn fill(store: &Arc<dyn Store>, log: &Log, records: usize, ttl: impl Into<Ttl>) -> Vec<Position> {
    let keep = Keep::all_for(ttl);
    let mut positions = Vec::new();
    for first in (0..records).step_by(40) {
        let texts = first..records.min(first + 40);
        let batch = texts.fold(Batch::new(), |batch, n| batch.append(log, n.to_string(), keep));
        positions.extend(applied(store, batch).await);
    }
    positions
}

async fn texts(store: &Arc<dyn Store>, log: &Log) -> Vec<String> {
    store.read(log, None, 1000).await.unwrap().into_iter().map(|record| record.text).collect()
}

/// The items of a log in the table: how many records, and the head.
async fn items(url: &str, log: &Log) -> (usize, Option<Value>) {
    let input = json!({
        "TableName": "onetap",
        "ConsistentRead": true,
        "KeyConditionExpression": "pk = :log",
        "ExpressionAttributeValues": { ":log": { "S": log.as_str() } },
    });
    let (status, answer) = call(url, "Query", &input).await;
    assert_eq!(status, 200, "{answer}");
    let items = answer["Items"].as_array().unwrap();
    let (heads, records): (Vec<&Value>, Vec<&Value>) =
        items.iter().partition(|item| item["sk"]["S"] == "value");
    (records.len(), heads.first().map(|head| (*head).clone()))
}

async fn remove_head(url: &str, log: &Log) {
    let key = json!({ "pk": { "S": log.as_str() }, "sk": { "S": "value" } });
    let (status, answer) = call(url, "DeleteItem", &json!({ "TableName": "onetap", "Key": key })).await;
    assert_eq!(status, 200, "{answer}");
}

async fn nothing_is_left(store: Arc<dyn Store>, url: &str) {
    let names = Names::new();
    for (name, ttl) in [("forever", Ttl::Forever), ("hour", HOUR.into())] {
        let log = names.log(name);
        let positions = fill(&store, &log, 120, ttl).await;
        assert_eq!(items(url, &log).await.0, 120);
        applied(&store, Batch::new().clear(&log)).await;
        assert_eq!(items(url, &log).await.0, 0, "nothing stood in the way of the first");
        applied(&store, Batch::new().clear(&log)).await;
        let (records, head) = items(url, &log).await;
        assert_eq!(records, 0);
        let head = head.expect("a tombstone");
        assert_eq!(head["p"]["S"], positions[119].to_string());
        assert!(head.get("v").is_none() && head.get("ttl").is_some(), "{head}");
    }
}

#[tokio::test]
async fn nothing_is_left_of_a_cleared_log_in_the_table() {
    let (store, server) = support::open_dynoxide().await;
    nothing_is_left(store, &server.url()).await;
}

#[tokio::test]
#[ignore = "needs DynamoDB Local"]
async fn nothing_is_left_of_a_cleared_log_in_the_table_of_dynamodb_local() {
    let (store, ()) = support::open_dynamodb_local().await;
    nothing_is_left(store, &dynamodb_local()).await;
}

#[tokio::test]
async fn a_clear_asks_for_no_more_than_it_needs() {
    let stage = Stage::new(PATIENT).await;
    let names = Names::new();
    let (log, key) = (names.log("log"), names.key("key"));
    let asked = |known: usize| stage.proxy.operations().split_off(known);
    fill(&stage.direct, &log, 30, HOUR).await;
    for operations in [
        // The head, the tombstone; the keys of the records, and two times up to 25 of them.
        vec!["BatchGetItem", "PutItem", "Query", "BatchWriteItem", "BatchWriteItem"],
        // The tombstone, and that nothing is left.
        vec!["BatchGetItem", "Query"],
    ] {
        let known = stage.proxy.requests();
        applied(&stage.store, Batch::new().clear(&log)).await;
        assert_eq!(asked(known), operations);
    }
    let known = stage.proxy.requests();
    applied(&stage.store, Batch::new().clear(&log).put(&key, Expect::Absent, "1", HOUR)).await;
    assert_eq!(asked(known), ["BatchGetItem", "Query", "TransactWriteItems"]);
    let (_, query) = stage.proxy.calls().into_iter().rfind(|(name, _)| name == "Query").unwrap();
    assert_eq!(query["ProjectionExpression"], "pk, sk", "no record is read to be deleted");
    // A refusal deletes nothing and needs no look.
    let known = stage.proxy.requests();
    let refused = stage.store.commit(&Batch::new().clear(&log).check(&key, Expect::Absent)).await;
    assert!(matches!(refused, Ok(Commit::Refused(_))), "{refused:?}");
    assert_eq!(asked(known), ["BatchGetItem"]);
}

#[tokio::test]
async fn leftovers_of_a_clear_are_never_seen_and_go_with_the_next() {
    let stage = Stage::new(PATIENT).await;
    let log = Names::new().log("log");
    let url = stage.server.url();
    let old = fill(&stage.direct, &log, 120, Ttl::Forever).await;
    // The head, the tombstone, the keys and two of five deletions.
    stage.fail_after(5);
    applied(&stage.store, Batch::new().clear(&log)).await;
    stage.proxy.inject(None);
    // A deletion that was given up may still arrive, but not the one that failed too often.
    let left = items(&url, &log).await.0;
    assert!((20..=70).contains(&left), "{left}");
    assert_eq!(texts(&stage.store, &log).await, Vec::<String>::new());
    assert_eq!(stage.store.read(&log, Some(old[3]), 10).await.unwrap(), Vec::new());

    // A new life, in which the old records are still in the table: to delete them after the append fails too.
    stage.fail_after(2);
    let new = fill(&stage.store, &log, 3, HOUR).await;
    stage.proxy.inject(None);
    assert!(new[0] > old[119]);
    for limit in [1, 2, 3, 100] {
        for after in [None, Some(old[0]), Some(old[119])] {
            let read = stage.store.read(&log, after, limit).await.unwrap();
            assert_eq!(read.iter().map(|record| record.position).collect::<Vec<_>>(), new[..limit.min(3)]);
        }
    }
    // The clear of the new life takes them with it; and when that is interrupted too, the next one does.
    stage.fail_after(2);
    applied(&stage.store, Batch::new().clear(&log)).await;
    stage.proxy.inject(None);
    let left = items(&url, &log).await.0;
    assert!((23..=73).contains(&left), "{left}");
    applied(&stage.store, Batch::new().clear(&log)).await;
    assert_eq!(items(&url, &log).await.0, 0);
}

#[tokio::test]
async fn the_first_append_after_a_clear_deletes_what_the_clear_has_left() {
    let stage = Stage::new(PATIENT).await;
    let log = Names::new().log("log");
    let url = stage.server.url();
    fill(&stage.direct, &log, 60, Ttl::Forever).await;
    stage.fail_after(2);
    applied(&stage.store, Batch::new().clear(&log)).await;
    stage.proxy.inject(None);
    assert_eq!(items(&url, &log).await.0, 60);
    fill(&stage.store, &log, 2, HOUR).await;
    assert_eq!(items(&url, &log).await.0, 2);
    // And only the first: the log lives.
    let known = stage.proxy.requests();
    fill(&stage.store, &log, 1, HOUR).await;
    assert_eq!(stage.proxy.operations().split_off(known), ["BatchGetItem", "TransactWriteItems"]);
}

#[tokio::test]
async fn a_second_clear_that_cannot_delete_what_is_left_writes_nothing() {
    let stage = Stage::new(5_000).await;
    let names = Names::new();
    let (log, key) = (names.log("log"), names.key("key"));
    fill(&stage.direct, &log, 60, HOUR).await;
    stage.fail_after(2);
    applied(&stage.store, Batch::new().clear(&log)).await;
    let again = Batch::new().clear(&log).put(&key, Expect::Absent, "erased", HOUR);
    let url = stage.server.url();
    let requests: Vec<Value> = (0..25)
        .map(|n| json!({ "DeleteRequest": { "Key": { "pk": { "S": "p" }, "sk": { "S": n.to_string() } } } }))
        .collect();
    let unprocessed = json!({ "UnprocessedItems": { "onetap": requests } }).to_string();
    for fault in [Fault::Status(500, "{}".to_owned()), Fault::Hang, Fault::Status(200, unprocessed)] {
        // The head and the keys.
        stage.proxy.inject_next(vec![Fault::Delay(Duration::ZERO); 2]);
        stage.proxy.inject(Some(fault));
        let (answer, took) = support::timed(stage.store.commit(&again)).await;
        let error = answer.unwrap_err();
        assert!(error.is_retryable() && !error.maybe_applied(), "{error:?}");
        assert!(took < Duration::from_secs(60), "{took:?}");
        assert_eq!(stage.direct.get(&key).await.unwrap(), None);
        assert_eq!(items(&url, &log).await.0, 60);
    }
    stage.proxy.inject(None);
    applied(&stage.store, again).await;
    assert_eq!(items(&url, &log).await.0, 0);
}

#[tokio::test]
async fn what_a_clear_cannot_delete_in_time_does_not_make_it_fail() {
    let stage = Stage::new(10_000).await;
    let names = Names::new();
    for (n, fault) in [Fault::Hang, Fault::Close, Fault::Html].into_iter().enumerate() {
        let log = names.log(&n.to_string());
        fill(&stage.direct, &log, 30, HOUR).await;
        stage.proxy.inject_next(vec![Fault::Delay(Duration::ZERO); 2]);
        stage.proxy.inject(Some(fault));
        let batches = [Batch::new().clear(&log)];
        let (answers, took) = support::timed(stage.store.commit_each(&batches)).await;
        assert!(matches!(answers[..], [Ok(Commit::Applied(_))]), "{answers:?}");
        assert!(took < Duration::from_secs(60), "{took:?}");
        stage.proxy.inject(None);
        assert_eq!(texts(&stage.store, &log).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn items_that_dynamodb_leaves_unprocessed_are_deleted_again() {
    let stage = Stage::new(PATIENT).await;
    let log = Names::new().log("log");
    let positions = fill(&stage.direct, &log, 10, HOUR).await;
    let requests: Vec<Value> = positions[4..]
        .iter()
        .map(|position| {
            let (epoch, n) = position.parts();
            let key = json!({ "pk": { "S": log.as_str() }, "sk": { "S": format!("{epoch:020}-{n:020}") } });
            json!({ "DeleteRequest": { "Key": key } })
        })
        .collect();
    let unprocessed = json!({ "UnprocessedItems": { "onetap": requests } }).to_string();
    let mut faults = vec![Fault::Delay(Duration::ZERO); 3];
    faults.extend(vec![Fault::Status(200, unprocessed); 3]);
    stage.proxy.inject_next(faults);
    applied(&stage.store, Batch::new().clear(&log)).await;
    assert_eq!(stage.proxy.operations().iter().filter(|name| *name == "BatchWriteItem").count(), 4);
    assert_eq!(items(&stage.server.url(), &log).await.0, 4, "those that the server says it has deleted");
}

#[tokio::test]
async fn records_without_a_head_are_deleted_and_their_positions_not_used_again() {
    let (store, server) = support::open_dynoxide().await;
    let (names, url) = (Names::new(), server.url());
    let other = names.key("other");
    for together in [false, true] {
        let log = names.log(&together.to_string());
        let old = fill(&store, &log, 60, Ttl::Forever).await;
        // DynamoDB has swept the tombstone before all records were deleted.
        remove_head(&url, &log).await;
        assert_eq!(texts(&store, &log).await, Vec::<String>::new());
        let clear = Batch::new().clear(&log);
        let clear = if together { clear.put(&other, Expect::Absent, "1", HOUR) } else { clear };
        applied(&store, clear).await;
        assert_eq!(items(&url, &log).await.0, 0);
        let new = fill(&store, &log, 2, HOUR).await;
        assert!(new[0] > old[59]);
        assert_eq!(texts(&store, &log).await, ["0", "1"]);
    }
}

#[tokio::test]
async fn the_head_of_a_log_that_expired_is_swept_as_soon_as_that_of_a_cleared_one() {
    let (store, server) = support::open_dynoxide().await;
    let log = Names::new().log("log");
    let writer = skewed(&server, -2000 * 24 * 3_600_000);
    fill(&writer, &log, 3, HOUR * 24 * 1095).await;
    let sweep = async || {
        let (_, head) = items(&server.url(), &log).await;
        head.unwrap()["ttl"]["N"].as_str().unwrap().parse::<u64>().unwrap()
    };
    let before = sweep().await;
    assert_eq!(texts(&store, &log).await, Vec::<String>::new(), "it has expired");
    applied(&store, Batch::new().clear(&log)).await;
    assert!(before - sweep().await > 100 * 24 * 3600);
    assert_eq!(items(&server.url(), &log).await.0, 0);
}

fn skewed(server: &Dynamo, millis: i64) -> Arc<dyn Store> {
    let store = DynamoDb::new("onetap", "us-east-1", Credentials::new("test", "test"));
    Arc::new(store.endpoint(server.url()).timeout(HOUR).with_skew(millis))
}

#[tokio::test]
async fn a_cleared_log_is_gone_for_every_clock() {
    let (store, server) = support::open_dynoxide().await;
    let clocks = [-3_600_000, 0, 3_600_000].map(|millis| skewed(&server, millis));
    let names = Names::new();
    for n in 0..27 {
        let [first, second, third] = [n / 9, n / 3 % 3, n % 3].map(|clock| &clocks[clock]);
        let log = names.log(&n.to_string());
        let old = fill(first, &log, 3, Ttl::Forever).await;
        applied(second, Batch::new().clear(&log)).await;
        for reader in &clocks {
            assert_eq!(texts(reader, &log).await, Vec::<String>::new(), "{n}");
        }
        let new = fill(third, &log, 2, HOUR * 3).await;
        assert!(new[0] > old[2], "{n}");
        assert_eq!(texts(&store, &log).await, ["0", "1"], "{n}");
        applied(first, Batch::new().clear(&log)).await;
        assert_eq!(texts(third, &log).await, Vec::<String>::new(), "{n}");
    }
}

/// An append that has read the head, and is held until the log has begun and was cleared, must not begin a life below the
/// positions of that one: its record would be deleted with the others.
#[tokio::test]
async fn an_append_that_saw_no_log_is_not_lost_to_a_clear_of_a_later_one() {
    for ended_before in [false, true] {
        let stage = Stage::new(PATIENT).await;
        let log = Names::new().log("log");
        if ended_before {
            fill(&stage.direct, &log, 3, HOUR).await;
            applied(&stage.direct, Batch::new().clear(&log)).await;
        }
        let gate = Arc::new(Semaphore::new(0));
        stage.proxy.inject_next(vec![Fault::Delay(Duration::ZERO), Fault::Held(Arc::clone(&gate))]);
        let late = tokio::spawn({
            let (store, log) = (Arc::clone(&stage.store), log.clone());
            async move { applied(&store, Batch::new().append(&log, "late", Keep::all_for(HOUR))).await }
        });
        while stage.proxy.requests() < 2 {
            tokio::task::yield_now().await;
        }
        // The clock moves on, so that this life begins above the position that the other one has chosen.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let between = fill(&stage.direct, &log, 30, HOUR).await;
        applied(&stage.direct, Batch::new().clear(&log)).await;
        gate.add_permits(1);
        let late = late.await.unwrap();
        assert!(late[0] > between[29], "{late:?} after {between:?}");
        assert_eq!(texts(&stage.direct, &log).await, ["late"]);
    }
}

/// The same for a clear: one that saw no log does not tell that there is none when there is one.
#[tokio::test]
async fn a_clear_that_saw_no_log_clears_the_one_that_has_begun_since() {
    let stage = Stage::new(PATIENT).await;
    let names = Names::new();
    let (log, key) = (names.log("log"), names.key("key"));
    let gate = Arc::new(Semaphore::new(0));
    // The heads, what is left, the transaction.
    let pass = Fault::Delay(Duration::ZERO);
    stage.proxy.inject_next(vec![pass.clone(), pass, Fault::Held(Arc::clone(&gate))]);
    let late = tokio::spawn({
        let (store, log, key) = (Arc::clone(&stage.store), log.clone(), key.clone());
        async move { applied(&store, Batch::new().clear(&log).put(&key, Expect::Absent, "1", HOUR)).await }
    });
    while stage.proxy.requests() < 3 {
        tokio::task::yield_now().await;
    }
    fill(&stage.direct, &log, 30, HOUR).await;
    gate.add_permits(1);
    late.await.unwrap();
    assert_eq!(texts(&stage.direct, &log).await, Vec::<String>::new());
    assert_eq!(items(&stage.server.url(), &log).await.0, 0);
    assert_eq!(stage.direct.get(&key).await.unwrap().as_deref(), Some("1"));
}
