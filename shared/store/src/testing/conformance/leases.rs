//! A lease has one holder, and the store refuses the writes of any other (fencing).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Broken, HOUR, Kept, Names, SHORT, applied, holds, in_time, refused, rejected};
use crate::lease::{Acquire, AcquireOutcome, ReleaseOutcome, RenewOutcome, SavedLease};
use crate::{Batch, Commit, Expect, Key, Lease, Store};

pub(super) async fn acquired(store: &Arc<dyn Store>, key: &Key, ttl: Duration) -> Result<Lease, Broken> {
    match Acquire::new(store.clone(), key.clone()).ttl(ttl).acquire().await? {
        AcquireOutcome::Acquired(lease) => Ok(lease),
        AcquireOutcome::Held { .. } => broken!("held"),
    }
}

async fn is_held(store: &Arc<dyn Store>, key: &Key) -> Result<bool, Broken> {
    match Lease::acquire(store.clone(), key.clone()).await? {
        AcquireOutcome::Held { .. } => Ok(true),
        AcquireOutcome::Acquired(lease) => {
            ensure_eq!(lease.release().await?, ReleaseOutcome::Released);
            Ok(false)
        }
    }
}

pub async fn a_lease_is_held_by_one_until_it_is_released(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("lock");
    let lease = acquired(&store, &key, HOUR).await?;
    ensure!(is_held(&store, &key).await?);
    ensure_eq!(lease.release().await?, ReleaseOutcome::Released);
    ensure!(!is_held(&store, &key).await?);
    Ok(())
}

pub async fn a_renewed_lease_lasts(store: Arc<dyn Store>) -> Kept {
    let observed = in_time(SHORT * 4, async || {
        let key = Names::new().key("lock");
        let mut lease = acquired(&store, &key, SHORT * 2).await?;
        let mut renewals = Vec::new();
        for _ in 0..3 {
            sleep(SHORT).await;
            renewals.push(lease.renew().await?);
        }
        let held = is_held(&store, &key).await?;
        Ok((Instant::now(), (renewals, held, lease.release().await?)))
    });
    ensure_eq!(observed.await?, (vec![RenewOutcome::Renewed; 3], true, ReleaseOutcome::Released));
    Ok(())
}

pub async fn a_lapsed_lease_is_not_revived(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("lock");
    let mut lease = acquired(&store, &key, SHORT).await?;
    sleep(SHORT * 2).await;
    ensure_eq!(lease.renew().await?, RenewOutcome::Lapsed);
    holds(&store, &key, None).await?;
    let _next = acquired(&store, &key, HOUR).await?;
    ensure_eq!(lease.renew().await?, RenewOutcome::Lost);
    Ok(())
}

pub async fn a_lease_that_moves_to_another_process_goes_on_there(store: Arc<dyn Store>) -> Kept {
    let moved = |lease: Lease| -> Result<Lease, Broken> {
        let message = serde_json::to_string(&lease.save())?;
        let saved: SavedLease = serde_json::from_str(&message)?;
        Ok(saved.restore(store.clone())?)
    };
    let key = Names::new().key("lock");
    let mut lease = moved(acquired(&store, &key, HOUR).await?)?;
    ensure_eq!(lease.renew().await?, RenewOutcome::Renewed);
    ensure!(is_held(&store, &key).await?);
    ensure_eq!(lease.release().await?, ReleaseOutcome::Released);

    // It lapses on the way: it is not revived, and does no harm to its successor.
    let mut late = moved(acquired(&store, &key, SHORT).await?)?;
    sleep(SHORT * 2).await;
    ensure_eq!(late.renew().await?, RenewOutcome::Lapsed);
    let next = acquired(&store, &key, HOUR).await?;
    ensure_eq!(late.renew().await?, RenewOutcome::Lost);
    ensure_eq!(late.release().await?, ReleaseOutcome::Outlasted);
    ensure_eq!(next.release().await?, ReleaseOutcome::Released);
    Ok(())
}

pub async fn a_release_frees_only_its_own(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("lock");
    let late = acquired(&store, &key, SHORT).await?;
    sleep(SHORT * 2).await;
    let next = acquired(&store, &key, HOUR).await?;
    ensure_eq!(late.release().await?, ReleaseOutcome::Outlasted);
    ensure!(is_held(&store, &key).await?);
    ensure_eq!(next.release().await?, ReleaseOutcome::Released);
    Ok(())
}

pub async fn a_lease_released_after_a_minimum_hold_is_free_then_and_not_before(
    store: Arc<dyn Store>,
) -> Kept {
    let key = Names::new().key("lock");
    let observed = in_time(SHORT, async || {
        let lease = acquired(&store, &key, HOUR).await?;
        let released = lease.release_after(SHORT).await?;
        let held = is_held(&store, &key).await?;
        let observed = (Instant::now(), (released, held));
        sleep(SHORT * 2).await;
        Ok(observed)
    });
    ensure_eq!(observed.await?, (ReleaseOutcome::Released, true));
    ensure!(!is_held(&store, &key).await?, "it is free long before its TTL ends");
    Ok(())
}

pub async fn a_minimum_hold_that_is_over_frees_the_lease_at_once(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("lock");
    for min_hold in [Duration::ZERO, SHORT] {
        let lease = acquired(&store, &key, HOUR).await?;
        sleep(min_hold).await;
        ensure_eq!(lease.release_after(min_hold).await?, ReleaseOutcome::Released);
        holds(&store, &key, None).await?;
    }
    Ok(())
}

pub async fn a_minimum_hold_does_not_outlast_the_ttl(store: Arc<dyn Store>) -> Kept {
    for min_hold in [HOUR, Duration::MAX] {
        let observed = in_time(SHORT, async || {
            let key = Names::new().key("lock");
            let lease = acquired(&store, &key, SHORT).await?;
            let (release, last_look) = (lease.release_after(min_hold).await?, Instant::now());
            sleep(SHORT * 2).await;
            Ok((last_look, (release, store.get(&key).await?)))
        });
        ensure_eq!(observed.await?, (ReleaseOutcome::Released, None));
    }
    Ok(())
}

pub async fn a_release_after_a_minimum_hold_can_be_repeated(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("lock");
    let observed = in_time(SHORT, async || {
        let lease = acquired(&store, &key, HOUR).await?;
        let batch = lease.release_batch_after(SHORT);
        // The reply to the first was lost.
        let first = lease.released(store.commit(&batch).await?);
        let again = store.commit(&batch).await?;
        let last_look = Instant::now();
        sleep(SHORT * 2).await;
        Ok((last_look, (first, again, batch)))
    });
    let (first, again, batch) = observed.await?;
    ensure_eq!(first, ReleaseOutcome::Released);
    ensure!(matches!(again, Commit::Applied(_)), "{again:?}");
    ensure_eq!(refused(&store, batch).await?, [None], "a repeat after its end does not revive it");
    Ok(())
}

pub async fn a_release_after_a_minimum_hold_leaves_a_lapsed_lease_and_its_successor_alone(
    store: Arc<dyn Store>,
) -> Kept {
    let key = Names::new().key("lock");
    let observed = in_time(SHORT, async || {
        let (lapsed, outlasted) = (Names::new().key("lock"), &key);
        let leases = (acquired(&store, &lapsed, SHORT).await?, acquired(&store, outlasted, SHORT).await?);
        // The batches are made while the leases are held, and are a second late.
        let batches = (leases.0.release_batch_after(HOUR), leases.1.release_batch_after(HOUR));
        let made = Instant::now();
        sleep(SHORT * 2).await;
        let next = acquired(&store, outlasted, HOUR).await?;
        let lapsed = leases.0.released(store.commit(&batches.0).await?);
        let outlasted = leases.1.released(store.commit(&batches.1).await?);
        Ok((made, (lapsed, outlasted, next.release().await?)))
    });
    ensure_eq!(
        observed.await?,
        (ReleaseOutcome::Released, ReleaseOutcome::Outlasted, ReleaseOutcome::Released)
    );
    Ok(())
}

pub async fn a_lost_lease_can_neither_commit_nor_release(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let (lock, key) = (names.key("lock"), names.key("k"));
    let write = || Batch::new().put(&key, Expect::Absent, "mine", HOUR);
    let late = acquired(&store, &lock, SHORT).await?;
    sleep(SHORT * 2).await;
    ensure_eq!(refused(&store, late.guard(write())).await?, [None], "lapsed");
    let next = acquired(&store, &lock, HOUR).await?;
    ensure_eq!(refused(&store, late.guard(write())).await?.len(), 1, "taken over");
    ensure_eq!(late.release().await?, ReleaseOutcome::Outlasted);
    holds(&store, &key, None).await?;
    applied(&store, next.guard(write())).await?;
    holds(&store, &key, Some("mine")).await
}

pub async fn a_guard_joins_a_write_to_the_same_key(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let (lock, key) = (names.key("lock"), names.key("k"));
    let lease = acquired(&store, &lock, HOUR).await?;
    // Write and release in one: the lease's own key is in the batch already.
    let last = lease.guard(lease.release_batch().put(&key, Expect::Absent, "done", HOUR));
    applied(&store, last.clone()).await?;
    ensure!(!is_held(&store, &lock).await?);
    ensure_eq!(refused(&store, last).await?, [None, Some("done".to_owned())]);
    let error = rejected(&store, lease.guard(Batch::new().put(&lock, Expect::Absent, "x", HOUR))).await?;
    ensure!(error.to_string().contains("once"), "a batch that contradicts its guard: {error}");
    Ok(())
}
