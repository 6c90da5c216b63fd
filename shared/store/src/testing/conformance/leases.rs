//! A lease has one holder, and the store refuses the writes of any other (fencing).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{HOUR, Names, SHORT, applied, holds, in_time, refused, rejected};
use crate::lease::{Acquire, Release, Renewal};
use crate::{Batch, Expect, Key, Lease, Store};

async fn acquired(store: &Arc<dyn Store>, key: &Key, ttl: Duration) -> Lease {
    match Lease::acquire(store, key.clone(), ttl).await.unwrap() {
        Acquire::Acquired(lease) => lease,
        Acquire::Held => panic!("held"),
    }
}

async fn is_held(store: &Arc<dyn Store>, key: &Key) -> bool {
    match Lease::acquire(store, key.clone(), HOUR).await.unwrap() {
        Acquire::Held => true,
        Acquire::Acquired(lease) => {
            assert_eq!(lease.release().await.unwrap(), Release::Released);
            false
        }
    }
}

pub async fn a_lease_is_held_by_one_until_it_is_released(store: Arc<dyn Store>) {
    let key = Names::new().key("lock");
    let lease = acquired(&store, &key, HOUR).await;
    assert!(is_held(&store, &key).await);
    assert_eq!(lease.release().await.unwrap(), Release::Released);
    assert!(!is_held(&store, &key).await);
}

pub async fn a_renewed_lease_lasts(store: Arc<dyn Store>) {
    let observed = in_time(SHORT * 4, async || {
        let key = Names::new().key("lock");
        let mut lease = acquired(&store, &key, SHORT * 2).await;
        let mut renewals = Vec::new();
        for _ in 0..3 {
            sleep(SHORT).await;
            renewals.push(lease.renew().await.unwrap());
        }
        let held = is_held(&store, &key).await;
        (Instant::now(), (renewals, held, lease.release().await.unwrap()))
    });
    assert_eq!(observed.await, (vec![Renewal::Renewed; 3], true, Release::Released));
}

pub async fn a_lapsed_lease_is_not_revived(store: Arc<dyn Store>) {
    let key = Names::new().key("lock");
    let mut lease = acquired(&store, &key, SHORT).await;
    sleep(SHORT * 2).await;
    assert_eq!(lease.renew().await.unwrap(), Renewal::Lapsed);
    holds(&store, &key, None).await;
    let _next = acquired(&store, &key, HOUR).await;
    assert_eq!(lease.renew().await.unwrap(), Renewal::Lost);
}

pub async fn a_release_frees_only_its_own(store: Arc<dyn Store>) {
    let key = Names::new().key("lock");
    let late = acquired(&store, &key, SHORT).await;
    sleep(SHORT * 2).await;
    let next = acquired(&store, &key, HOUR).await;
    assert_eq!(late.release().await.unwrap(), Release::Outlasted);
    assert!(is_held(&store, &key).await);
    assert_eq!(next.release().await.unwrap(), Release::Released);
}

pub async fn a_lost_lease_can_neither_commit_nor_release(store: Arc<dyn Store>) {
    let names = Names::new();
    let (lock, key) = (names.key("lock"), names.key("k"));
    let write = || Batch::new().put(&key, Expect::Absent, "mine", HOUR);
    let late = acquired(&store, &lock, SHORT).await;
    sleep(SHORT * 2).await;
    assert_eq!(refused(&store, late.guard(write())).await, [None], "lapsed");
    let next = acquired(&store, &lock, HOUR).await;
    assert_eq!(refused(&store, late.guard(write())).await.len(), 1, "taken over");
    assert_eq!(late.release().await.unwrap(), Release::Outlasted);
    holds(&store, &key, None).await;
    applied(&store, next.guard(write())).await;
    holds(&store, &key, Some("mine")).await;
}

pub async fn a_guard_joins_a_write_to_the_same_key(store: Arc<dyn Store>) {
    let names = Names::new();
    let (lock, key) = (names.key("lock"), names.key("k"));
    let lease = acquired(&store, &lock, HOUR).await;
    // Write and release in one: the lease's own key is in the batch already.
    let last = lease.guard(lease.release_batch().put(&key, Expect::Absent, "done", HOUR));
    applied(&store, last.clone()).await;
    assert!(!is_held(&store, &lock).await);
    assert_eq!(refused(&store, last).await, [None, Some("done".to_owned())]);
    let error = rejected(&store, lease.guard(Batch::new().put(&lock, Expect::Absent, "x", HOUR))).await;
    assert!(error.to_string().contains("once"), "a batch that contradicts its guard: {error}");
}
