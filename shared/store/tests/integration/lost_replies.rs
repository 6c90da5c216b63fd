//! A reply that was lost stays lost: when the batch is sent again and that send certainly fails, the first may still
//! have landed, and the error must say so. (Whoever is told "not sent" gives a claim up that stands in the store.)

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use onetap_servers::{Fault, Proxy, Redis, TcpProxy, Upstash, create_table};
use onetap_store::lease::AcquireOutcome;
use onetap_store::testing::conformance::Names;
use onetap_store::testing::{Fault as Trouble, TestStore};
use onetap_store::{Batch, Commit, Edit, Expect, Found, Keep, Key, Lease, Memory, Store, Values, edit};
use support::PATIENT;

const HOUR: Duration = Duration::from_secs(3600);

fn claim(key: &Key) -> Batch {
    Batch::new().put(key, Expect::Absent, "mine", HOUR)
}

/// Redis behind a proxy, with a store on each of the two.
async fn behind_a_proxy() -> (Redis, TcpProxy, Arc<dyn Store>, Arc<dyn Store>) {
    let redis = Redis::start().await;
    let proxy = TcpProxy::start(redis.addr()).await;
    let direct = support::store(&support::redis(redis.url(), PATIENT));
    let store = support::store(&support::redis(proxy.url(), PATIENT));
    (redis, proxy, direct, store)
}

/// Waits until the write to `key` is applied.
async fn applied(store: &Arc<dyn Store>, key: &Key) {
    while store.get(key).await.unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_lost_reply_and_then_no_connection_is_unknown_on_redis() {
    let (_redis, proxy, direct, store) = behind_a_proxy().await;
    let names = Names::new();
    // A plain command and a script: they are sent by different ways.
    for batch in [claim(&names.key("a")), claim(&names.key("b")).check(&names.key("c"), Expect::Absent)] {
        let (key, _) =
            batch.expectations().next().map(|(key, expect)| (key.clone(), expect.clone())).unwrap();
        assert_eq!(store.get(&names.key("warm")).await.unwrap(), None);
        proxy.stall(true);
        let sending = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.commit(&batch).await }
        });
        applied(&direct, &key).await;
        proxy.refuse(true);
        proxy.cut();
        let error = sending.await.unwrap().expect_err("nobody is there");
        assert!(error.maybe_applied(), "{error:?}");
        proxy.refuse(false);
        proxy.stall(false);
    }
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_lost_reply_and_then_a_changed_password_is_unknown_on_redis() {
    let redis = Redis::start().await;
    let proxy = TcpProxy::start(redis.addr()).await;
    let store = support::store(&support::redis(proxy.url(), PATIENT));
    let direct = redis::Client::open(redis.url()).unwrap();
    let mut direct = direct.get_multiplexed_async_connection().await.unwrap();
    let key = Names::new().key("a");
    assert_eq!(store.get(&key).await.unwrap(), None);
    proxy.stall(true);
    let sending = tokio::spawn({
        let (store, batch) = (Arc::clone(&store), claim(&key));
        async move { store.commit(&batch).await }
    });
    while redis::cmd("EXISTS").arg(key.as_str()).query_async::<u8>(&mut direct).await.unwrap() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    redis::cmd("CONFIG").arg(&["SET", "requirepass", "changed"]).exec_async(&mut direct).await.unwrap();
    proxy.cut();
    proxy.stall(false);
    let error = sending.await.unwrap().expect_err("the password is another");
    assert!(error.maybe_applied(), "{error:?}");
    // Who was never heard is refused for good, and knows that nothing happened.
    let error = store.commit(&claim(&key)).await.expect_err("the password is another");
    assert!(!error.maybe_applied() && !error.is_retryable(), "{error:?}");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_lost_reply_and_then_too_many_requests_is_unknown_on_upstash() {
    let redis = Redis::start().await;
    let gateway = Upstash::start(&redis.url()).await;
    let store = support::store(&support::upstash(gateway.url(), gateway.token(), PATIENT));
    let key = Names::new().key("k");
    gateway.inject_next(vec![Fault::DropReply, Fault::Status(429, "slow down".to_owned())]);
    let error = store.commit(&claim(&key)).await.expect_err("the second answer is none");
    assert!(error.maybe_applied(), "{error:?}");
    assert_eq!(store.get(&key).await.unwrap().as_deref(), Some("mine"), "it had landed");
}

#[tokio::test]
async fn a_lost_reply_and_then_a_sure_failure_is_unknown_on_dynamodb() {
    let server = onetap_servers::Dynamo::start().await;
    create_table(&server.url(), "onetap").await;
    let proxy = Proxy::start(&server.url()).await;
    let store = support::store(&support::dynamodb(proxy.url(), 600));
    let names = Names::new();
    let fault = |kind: &str| {
        let body = format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{kind}","message":"no"}}"#);
        Fault::Status(400, body)
    };
    let throttled = names.key("throttled");
    proxy.inject_next(vec![Fault::DropReply, fault("ThrottlingException")]);
    let error = store.commit(&claim(&throttled)).await.expect_err("the second answer is none");
    assert!(error.maybe_applied(), "{error:?}");
    assert_eq!(store.get(&throttled).await.unwrap().as_deref(), Some("mine"), "it had landed");

    // Contention is no answer either: what is tried again after it, until the time is up, was sent before.
    let contended = names.key("contended");
    proxy.inject_next(vec![Fault::DropReply]);
    proxy.inject(Some(fault("TransactionConflictException")));
    let error = store.commit(&claim(&contended)).await.expect_err("a conflict that never ends");
    assert!(error.maybe_applied(), "{error:?}");
    proxy.inject(None);
    assert_eq!(store.get(&contended).await.unwrap().as_deref(), Some("mine"), "it had landed");
}

#[tokio::test]
async fn a_lease_whose_reply_was_lost_and_that_cannot_ask_again_may_be_held() {
    let memory: Arc<dyn Store> = Arc::new(Memory::new());
    let key = Names::new().key("lock");
    let lost = || vec![Trouble::ReplyLost, Trouble::NotSent];
    let store: Arc<dyn Store> = TestStore::first(Arc::clone(&memory), lost());
    let error = Lease::acquire(store.clone(), key.clone()).await.expect_err("no answer");
    assert!(error.maybe_applied(), "{error:?}");
    assert!(memory.get(&key).await.unwrap().is_some(), "it is held");
}

#[tokio::test]
async fn a_release_whose_reply_was_lost_and_that_cannot_ask_again_may_have_freed_it() {
    let memory: Arc<dyn Store> = Arc::new(Memory::new());
    let key = Names::new().key("lock");
    let lost = vec![Trouble::Pass, Trouble::ReplyLost, Trouble::NotSent];
    let store: Arc<dyn Store> = TestStore::first(Arc::clone(&memory), lost);
    let Ok(AcquireOutcome::Acquired(lease)) = Lease::acquire(store.clone(), key.clone()).await else {
        panic!("nobody holds it");
    };
    let error = lease.release().await.expect_err("no answer");
    assert!(error.maybe_applied(), "{error:?}");
    assert_eq!(memory.get(&key).await.unwrap(), None, "it is free");
}

/// An increment that guesses that nothing is there. No backend may send it again by itself: the refusal would bring its own
/// value, which is also another first increment's.
async fn increment(store: &Arc<dyn Store>, key: &Key) -> Result<u32, edit::Error<std::num::ParseIntError>> {
    let step = |there: &Values| {
        let next = there.get(key).unwrap_or("0").parse::<u32>()? + 1;
        Ok((Batch::new().put(key, there.expect(key), next.to_string(), HOUR), next))
    };
    Edit::of(key).guessing_absent().apply(&**store, step).await
}

fn is_unknown<E>(ended: &Result<u32, edit::Error<E>>) -> bool {
    matches!(ended, Err(edit::Error::Unwritten(error)) if error.maybe_applied())
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn an_increment_whose_connection_breaks_is_made_once_on_redis() {
    let (_redis, proxy, direct, store) = behind_a_proxy().await;
    let names = Names::new();
    let key = names.key("count");
    assert_eq!(store.get(&names.key("warm")).await.unwrap(), None);
    proxy.stall(true);
    let sending = tokio::spawn({
        let (store, key) = (Arc::clone(&store), key.clone());
        async move { increment(&store, &key).await }
    });
    applied(&direct, &key).await;
    proxy.cut();
    proxy.stall(false);
    let ended = sending.await.unwrap();
    assert!(is_unknown(&ended), "{ended:?}");
    assert_eq!(direct.get(&key).await.unwrap().as_deref(), Some("1"));
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn an_increment_whose_connection_breaks_is_made_once_on_upstash() {
    let redis = Redis::start().await;
    let gateway = Upstash::start(&redis.url()).await;
    let store = support::store(&support::upstash(gateway.url(), gateway.token(), PATIENT));
    let key = Names::new().key("count");
    gateway.inject_next(vec![Fault::DropReply]);
    let ended = increment(&store, &key).await;
    assert!(is_unknown(&ended), "{ended:?}");
    assert_eq!(store.get(&key).await.unwrap().as_deref(), Some("1"));
}

#[tokio::test]
async fn an_increment_whose_connection_breaks_is_made_once_on_dynamodb() {
    let server = onetap_servers::Dynamo::start().await;
    create_table(&server.url(), "onetap").await;
    let proxy = Proxy::start(&server.url()).await;
    let store = support::store(&support::dynamodb(proxy.url(), 600));
    let key = Names::new().key("count");
    proxy.inject_next(vec![Fault::DropReply]);
    let ended = increment(&store, &key).await;
    assert!(is_unknown(&ended), "{ended:?}");
    assert_eq!(store.get(&key).await.unwrap().as_deref(), Some("1"));
}

/// A clear is sent once, because a record may be appended between two sends. With a marker in its batch it is sent again, and
/// the marker tells that it was done.
async fn a_clear_is_sent_again_with_a_marker_only(
    store: Arc<dyn Store>,
    lose_reply: impl Fn(),
    writes: impl Fn() -> usize,
) {
    let names = Names::new();
    let (log, marker) = (names.log("log"), names.key("marker"));
    let append = Batch::new().append(&log, "record", Keep::all_for(HOUR));
    for (batch, sent) in [
        (Batch::new().clear(&log), 1),
        (Batch::new().clear(&log).put(&marker, Expect::Absent, "mine", HOUR), 2),
    ] {
        assert!(matches!(store.commit(&append).await, Ok(Commit::Applied(_))));
        let before = writes();
        lose_reply();
        let answer = store.commit(&batch).await;
        match sent {
            1 => assert!(answer.is_err_and(|error| error.maybe_applied())),
            _ => match answer.unwrap() {
                Commit::Refused(refusal) => assert_eq!(refusal.get(&marker), Some(Found::Text("mine"))),
                Commit::Applied(_) => panic!("applied twice"),
            },
        }
        assert_eq!(writes() - before, sent);
        assert!(store.read(&log, None, 10).await.unwrap().is_empty());
    }
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_clear_is_sent_again_with_a_marker_only_on_upstash() {
    let redis = Redis::start().await;
    let gateway = Upstash::start(&redis.url()).await;
    let store = support::store(&support::upstash(gateway.url(), gateway.token(), PATIENT));
    let lose_reply = || gateway.inject_next(vec![Fault::DropReply]);
    a_clear_is_sent_again_with_a_marker_only(store, lose_reply, || gateway.requests()).await;
}

#[tokio::test]
async fn a_clear_is_sent_again_with_a_marker_only_on_dynamodb() {
    let server = onetap_servers::Dynamo::start().await;
    create_table(&server.url(), "onetap").await;
    let proxy = Proxy::start(&server.url()).await;
    let store = support::store(&support::dynamodb(proxy.url(), PATIENT));
    // The head is read first.
    let lose_reply = || proxy.inject_next(vec![Fault::Delay(Duration::ZERO), Fault::DropReply]);
    let writes = || {
        let operations = proxy.operations();
        operations.iter().filter(|name| ["PutItem", "TransactWriteItems"].contains(&name.as_str())).count()
    };
    a_clear_is_sent_again_with_a_marker_only(store, lose_reply, writes).await;
}
