//! What goes over the wire: round trips and commands, counted at the server.

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use onetap_servers::{Dynamo, Proxy, Redis, Upstash, create_table};
use onetap_store::lease::AcquireOutcome;
use onetap_store::testing::conformance::Names;
use onetap_store::{Batch, Commit, Error, ErrorKind, Expect, Keep, Lease, Store, Value};
use support::PATIENT;

const HOUR: Duration = Duration::from_secs(3600);

/// What the event bus writes for one event.
fn event(names: &Names, job: usize, seq: u64) -> Batch {
    let json = format!(r#"{{"job_id":"{job}","seq":{seq}}}"#);
    Batch::new()
        .put(&names.key(&format!("router:{job}:{seq}")), Expect::Absent, "1", HOUR)
        .put(&names.key(&format!("published:{job}:{seq}")), Expect::Absent, Value::PositionOf(0), HOUR)
        .append(&names.log(&format!("job:{job}")), json.as_str(), Keep::all_for(HOUR))
        .put_if_newer(&names.key(&format!("state:{job}")), seq, json.as_str(), HOUR)
        .publish(&names.channel(&format!("job:{job}")), json.as_str())
}

async fn lock_and_release(store: &Arc<dyn Store>, names: &Names) {
    let AcquireOutcome::Acquired(lease) = Lease::acquire(store.clone(), names.key("lock")).await.unwrap()
    else {
        panic!("held");
    };
    assert!(matches!(
        Lease::acquire(store.clone(), names.key("lock")).await,
        Ok(AcquireOutcome::Held { .. })
    ));
    let _ = lease.release().await.unwrap();
}

fn all_applied(answers: Vec<Result<Commit, Error>>) {
    for answer in answers {
        assert!(matches!(answer, Ok(Commit::Applied(_))), "{answer:?}");
    }
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn every_call_is_one_request_to_upstash() {
    let redis = Redis::start().await;
    let gateway = Upstash::start(&redis.url()).await;
    let store = support::store(&support::upstash(gateway.url(), gateway.token(), PATIENT));
    let names = Names::new();
    let mut before = 0;
    let mut since = || {
        let now = gateway.requests();
        let requests = now - before;
        before = now;
        requests
    };
    lock_and_release(&store, &names).await;
    assert_eq!(since(), 3, "taken, held and released are one request each, from the very first");
    store.get(&names.key("k")).await.unwrap();
    assert_eq!(since(), 1, "get");
    let events: Vec<Batch> = (0..10).map(|n| event(&names, n / 3, 10 + n as u64)).collect();
    all_applied(store.commit_each(&events).await);
    assert_eq!(since(), 1, "a batch of ten events");
    store.read(&names.log("job:0"), None, 10).await.unwrap();
    assert_eq!(since(), 1, "read");
    let fresh = support::store(&support::upstash(gateway.url(), gateway.token(), PATIENT));
    let events: Vec<Batch> = (0..10).map(|n| event(&names, 9, 10 + n as u64)).collect();
    all_applied(fresh.commit_each(&events).await);
    assert_eq!(since(), 1, "a batch of ten events, from the very first");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_request_over_8_mb_is_split_and_one_over_10_mb_is_too_large() {
    let redis = Redis::start().await;
    let gateway = Upstash::start(&redis.url()).await;
    let store = support::store(&support::upstash(gateway.url(), gateway.token(), PATIENT));
    let names = Names::new();
    let megabyte = "x".repeat(1_000_000);
    let batches: Vec<Batch> = (0..20)
        .map(|n| Batch::new().put(&names.key(&n.to_string()), Expect::Absent, megabyte.as_str(), HOUR))
        .collect();
    all_applied(store.commit_each(&batches).await);
    assert_eq!(gateway.requests(), 3, "7 + 7 + 6");
    // Control characters take six bytes each in JSON.
    let swollen = "\u{1}".repeat(2_000_000);
    let error =
        store.commit(&Batch::new().put(&names.key("k"), Expect::Absent, swollen, HOUR)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.to_string().ends_with("its limit of 10000000"), "{error}");
    assert_eq!(gateway.requests(), 3, "nothing was sent");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_forgotten_script_is_sent_again() {
    let redis = Redis::start().await;
    let gateway = Upstash::start(&redis.url()).await;
    let stores = [
        support::store(&support::upstash(gateway.url(), gateway.token(), PATIENT)),
        support::store(&support::redis(redis.url(), PATIENT)),
    ];
    for store in stores {
        let names = Names::new();
        all_applied(store.commit_each(&[event(&names, 1, 10)]).await);
        flush_scripts(&redis).await;
        all_applied(vec![store.commit(&event(&names, 1, 11)).await]);
        flush_scripts(&redis).await;
        let events: Vec<Batch> = (12..20).map(|seq| event(&names, 1, seq)).collect();
        all_applied(store.commit_each(&events).await);
        assert_eq!(store.read(&names.log("job:1"), None, 100).await.unwrap().len(), 10);
    }
}

async fn flush_scripts(redis: &Redis) {
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut connection).await.unwrap();
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_server_that_forbids_publish_in_scripts_is_rung_apart() {
    let redis = Redis::start().await;
    let gateway = Upstash::start(&redis.url()).await;
    gateway.refuse_publish_in_scripts(true);
    let store = support::store(&support::upstash(gateway.url(), gateway.token(), PATIENT));
    let names = Names::new();
    let mut rings = store.watch(&names.channel("job:1")).await.unwrap();
    for seq in 10..13 {
        all_applied(vec![store.commit(&event(&names, 1, seq)).await]);
        tokio::time::timeout(Duration::from_secs(60), rings.next()).await.unwrap().unwrap().unwrap();
    }
    assert!(
        matches!(store.commit(&event(&names, 1, 12)).await, Ok(Commit::Refused(_))),
        "done is still done"
    );
    assert_eq!(store.read(&names.log("job:1"), None, 100).await.unwrap().len(), 3);
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_claim_on_redis_is_one_plain_command_and_the_rest_one_script_call() {
    let redis = Redis::start().await;
    let store = support::store(&support::redis(redis.url(), PATIENT));
    let names = Names::new();
    let mut monitor = redis.monitor().await;
    lock_and_release(&store, &names).await;
    assert_eq!(monitor.top_level_commands().await, ["SET", "SET", "EVAL"], "the text goes along once");
    store.get(&names.key("k")).await.unwrap();
    assert_eq!(monitor.top_level_commands().await, ["GET"]);
    all_applied(vec![store.commit(&event(&names, 1, 10)).await]);
    assert_eq!(monitor.top_level_commands().await, ["EVALSHA"]);
    all_applied(store.commit_each(&[event(&names, 1, 11), event(&names, 2, 10)]).await);
    assert_eq!(monitor.top_level_commands().await, ["EVALSHA", "EVALSHA"]);
    store.read(&names.log("job:1"), None, 10).await.unwrap();
    assert_eq!(monitor.top_level_commands().await, ["XRANGE"]);
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_key_of_another_type_stops_the_script_before_it_writes() {
    let redis = Redis::start().await;
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let store = support::store(&support::redis(redis.url(), PATIENT));
    let names = Names::new();
    let [list, first] = ["list", "first"].map(|name| names.key(name));
    let log = names.log("list");
    redis::cmd("RPUSH").arg(list.as_str()).arg("item").exec_async(&mut connection).await.unwrap();
    let first_put = || Batch::new().put(&first, Expect::Absent, "1", HOUR);
    let batches = [
        first_put().put(&list, Expect::Absent, "1", HOUR),
        first_put().put_if_newer(&list, 1, r#"{"seq":1}"#, HOUR),
        first_put().append(&log, "record", Keep::all_for(HOUR)),
        first_put().delete(&list, "item"),
        first_put().check(&list, Expect::Absent),
    ];
    for batch in batches {
        let error = store.commit(&batch).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Decode && error.to_string().contains(": WRONGTYPE"), "{error:?}");
        assert_eq!(store.get(&first).await.unwrap(), None, "{batch:?} left half of itself behind");
    }
    let kept: Vec<String> =
        redis::cmd("LRANGE").arg(list.as_str()).arg(0).arg(-1).query_async(&mut connection).await.unwrap();
    assert_eq!(kept, ["item"]);
}

#[tokio::test]
async fn dynamodb_needs_one_write_for_one_key_and_a_read_more_for_an_event() {
    let server = Dynamo::start().await;
    create_table(&server.url(), "onetap").await;
    let proxy = Proxy::start(&server.url()).await;
    let store = support::store(&support::dynamodb(proxy.url(), PATIENT));
    let names = Names::new();
    let mut seen = 0;
    let mut since = || {
        let operations = proxy.operations()[seen..].to_vec();
        seen += operations.len();
        operations
    };
    lock_and_release(&store, &names).await;
    assert_eq!(since(), ["PutItem", "PutItem", "DeleteItem"]);
    store.get(&names.key("k")).await.unwrap();
    assert_eq!(since(), ["GetItem"]);
    let swap = Batch::new().put(&names.key("a"), Expect::Absent, "1", HOUR).put(
        &names.key("b"),
        Expect::Absent,
        "1",
        HOUR,
    );
    all_applied(vec![store.commit(&swap).await]);
    assert_eq!(since(), ["TransactWriteItems"]);
    all_applied(vec![store.commit(&event(&names, 1, 10)).await]);
    assert_eq!(since(), ["BatchGetItem", "TransactWriteItems"]);
    assert!(matches!(store.commit(&event(&names, 1, 10)).await, Ok(Commit::Refused(_))));
    assert_eq!(since(), ["BatchGetItem"], "a duplicate is seen by the read");
    store.read(&names.log("job:1"), None, 10).await.unwrap();
    assert_eq!(since(), ["Query"]);
}
