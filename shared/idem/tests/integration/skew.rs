//! Clocks that are wrong. On DynamoDB the caller's clock judges expiry: with two of them a lease apart two may hold a
//! lease and run at once, but only one of them commits.

use std::sync::Arc;
use std::time::Duration;

use onetap_idem::{ClaimOutcome, Config, Idempotency, RecordOutcome, Run};
use onetap_servers::{Dynamo, create_table};
use onetap_store::lease::{Acquire, AcquireOutcome};
use onetap_store::testing::conformance::Names;
use onetap_store::{Batch, Commit, Credentials, DynamoDb, Expect, Store};
use tokio::time::Instant;

const LEASE: Duration = Duration::from_secs(30);

/// The same table, seen by two whose clocks are so far apart.
async fn two_clocks(millis: i64) -> (Dynamo, Arc<dyn Store>, Arc<dyn Store>) {
    let server = Dynamo::start().await;
    create_table(&server.url(), "onetap").await;
    let open = |skew: i64| -> Arc<dyn Store> {
        let store = DynamoDb::new("onetap", "us-east-1", Credentials::new("test", "test"));
        Arc::new(store.endpoint(server.url()).timeout(Duration::from_secs(10)).with_skew(skew))
    };
    let (one, other) = (open(0), open(millis));
    (server, one, other)
}

async fn claim(store: &Arc<dyn Store>, key: &str) -> Run {
    let idem = Idempotency::with_config(Arc::clone(store), Config::default().lease_ttl(LEASE));
    let claim = idem.call(key).claim().unwrap();
    let sent = Instant::now();
    let answer = store.commit(&claim.batch()).await.unwrap();
    match claim.outcome(sent, answer).unwrap() {
        ClaimOutcome::Mine(run) => run,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn two_clocks_a_lease_apart_give_one_committed_result() {
    let (_server, slow, fast) = two_clocks(LEASE.as_millis() as i64 + 1).await;
    for (n, fast_first) in [true, false].into_iter().enumerate() {
        let key = format!("key {n}");
        let first = claim(&slow, &key).await;
        // To the clock that is ahead the lease is over, and it takes over: two run at once.
        let second = claim(&fast, &key).await;
        let commit = async |store: &Arc<dyn Store>, run: &Run, value: &str| {
            run.committed(store.commit(&run.commit_batch(&value)).await.unwrap())
        };
        let (stale, current) = if fast_first {
            let current = commit(&fast, &second, "second").await;
            (commit(&slow, &first, "first").await, current)
        } else {
            let stale = commit(&slow, &first, "first").await;
            (stale, commit(&fast, &second, "second").await)
        };
        assert!(matches!(stale, RecordOutcome::Lost), "the stale owner: {stale:?}");
        assert!(matches!(current, RecordOutcome::Recorded), "its successor: {current:?}");
        for store in [&slow, &fast] {
            let idem = Idempotency::new(Arc::clone(store));
            let result = idem.execute(&key, || async { Err::<String, &str>("it ran again") }).await;
            assert_eq!(result.unwrap(), "second");
        }
    }
}

#[tokio::test]
async fn two_clocks_a_lease_apart_may_hold_one_lock_and_only_one_writes_under_it() {
    let (_server, slow, fast) = two_clocks(LEASE.as_millis() as i64 + 1).await;
    let names = Names::new();
    let (lock, key) = (names.key("lock"), names.key("k"));
    let take = async |store: &Arc<dyn Store>| match Acquire::new(store.clone(), lock.clone())
        .ttl(LEASE)
        .acquire()
        .await
        .unwrap()
    {
        AcquireOutcome::Acquired(lease) => lease,
        AcquireOutcome::Held { .. } => panic!("held"),
    };
    let (first, second) = (take(&slow).await, take(&fast).await);
    let write = |text: &str| Batch::new().put(&key, Expect::Absent, text, LEASE);
    let refused = slow.commit(&first.guard(write("first"))).await.unwrap();
    assert!(matches!(refused, Commit::Refused(_)), "the store itself fences the one that was taken over");
    let applied = fast.commit(&second.guard(write("second"))).await.unwrap();
    assert!(matches!(applied, Commit::Applied(_)));
}
