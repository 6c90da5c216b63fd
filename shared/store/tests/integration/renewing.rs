//! A lease that is renewed while a job runs.

use std::sync::Arc;
use std::time::Duration;

use onetap_store::lease::{Acquire, AcquireOutcome, RenewOutcome};
use onetap_store::testing::{Fault, TestStore};
use onetap_store::{Batch, Commit, Key, Lease, Memory, Store};
use tokio::time::{Instant, sleep};

const TTL: Duration = Duration::from_secs(3);

async fn acquired(store: Arc<dyn Store>, key: &Key) -> Lease {
    match Acquire::new(store, key.clone()).ttl(TTL).acquire().await.unwrap() {
        AcquireOutcome::Acquired(lease) => lease,
        held => panic!("{held:?}"),
    }
}

async fn guarded_write_of(lease: &Lease, store: &dyn Store) -> Commit {
    store.commit(&lease.guard(Batch::new())).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_lease_outlives_its_ttl_while_its_job_runs_and_no_longer() {
    let (store, key) = (Arc::new(Memory::new()), Key::new("lock").unwrap());
    let mut lease = acquired(store.clone(), &key).await;
    let made = lease.while_renewing(async { sleep(10 * TTL).await }).await;
    assert_eq!(made, Ok(()));
    assert!(matches!(guarded_write_of(&lease, &*store).await, Commit::Applied(_)), "it is held");
    sleep(TTL).await;
    assert!(matches!(guarded_write_of(&lease, &*store).await, Commit::Refused(_)), "and it ends");
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_lease_another_one_has_is_dropped() {
    let (store, key) = (Arc::new(Memory::new()), Key::new("lock").unwrap());
    let mut lease = acquired(store.clone(), &key).await;
    let token = store.get(&key).await.unwrap().unwrap();
    let taken = async {
        sleep(TTL / 2).await;
        assert!(matches!(store.commit(&Batch::new().delete(&key, token)).await, Ok(Commit::Applied(_))));
        let _other = acquired(store.clone(), &key).await;
        std::future::pending().await
    };
    let made: Result<(), RenewOutcome> = lease.while_renewing(taken).await;
    assert_eq!(made, Err(RenewOutcome::Lost));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_for_a_while_ends_no_job() {
    let memory: Arc<dyn Store> = Arc::new(Memory::new());
    // The renewals that begin in the first two thirds of the lease.
    let store =
        TestStore::faulty(memory, |call| if (2..10).contains(&call) { Fault::NotSent } else { Fault::Pass });
    let mut lease = acquired(store, &Key::new("lock").unwrap()).await;
    assert_eq!(lease.while_renewing(sleep(10 * TTL)).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_job_ends_with_its_lease_where_the_store_stays_away() {
    let memory: Arc<dyn Store> = Arc::new(Memory::new());
    let store = TestStore::faulty(memory, |call| if call == 1 { Fault::Pass } else { Fault::NotSent });
    let mut lease = acquired(store.clone(), &Key::new("lock").unwrap()).await;
    let start = Instant::now();
    assert_eq!(lease.while_renewing(sleep(10 * TTL)).await, Err(RenewOutcome::Lapsed));
    assert!((TTL..2 * TTL).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert!(store.calls() < 100, "{} renewals", store.calls());
}
