//! Lost replies, a store that is down, calls that are dropped, functions that panic.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::join_all;
use onetap_store::testing::Fault;

use super::*;

/// `fault` at these calls, none at others.
fn at(store: &Arc<dyn Store>, calls: impl IntoIterator<Item = usize>, fault: Fault) -> Arc<TestStore> {
    let calls: Vec<usize> = calls.into_iter().collect();
    TestStore::faulty(
        Arc::clone(store),
        move |call| if calls.contains(&call) { fault.clone() } else { Fault::Pass },
    )
}

/// From this call on.
fn from(store: &Arc<dyn Store>, first: usize, fault: Fault) -> Arc<TestStore> {
    TestStore::faulty(Arc::clone(store), move |call| if call >= first { fault.clone() } else { Fault::Pass })
}

pub async fn a_lost_reply_at_any_call_changes_nothing(store: Arc<dyn Store>) {
    for call in 1..=2 {
        let (faulty, key, runs) = (at(&store, [call], Fault::ReplyLost), fresh("lost"), Runs::default());
        assert_eq!(over(&faulty, LONG).execute(&key, || runs.number()).await.unwrap(), 1);
        assert_eq!(engine(&store, LONG).execute(&key, || runs.number()).await.unwrap(), 1);
        assert_eq!((faulty.calls(), runs.count()), (3, 1));
    }
}

pub async fn two_lost_replies_in_a_row_change_nothing(store: Arc<dyn Store>) {
    let mixed = |faults: Vec<Fault>| TestStore::first(Arc::clone(&store), faults);
    for faulty in [
        mixed(vec![Fault::ReplyLost, Fault::ReplyLost]),
        mixed(vec![Fault::ReplyLost, Fault::NotSent]),
        mixed(vec![Fault::Pass, Fault::ReplyLost, Fault::ReplyLost]),
        mixed(vec![Fault::Pass, Fault::NotSent, Fault::ReplyLost]),
    ] {
        let (key, runs) = (fresh("lost"), Runs::default());
        assert_eq!(over(&faulty, LONG).execute(&key, || runs.number()).await.unwrap(), 1);
        assert_eq!(engine(&store, LONG).execute(&key, || runs.number()).await.unwrap(), 1);
        assert_eq!((faulty.calls(), runs.count()), (4, 1));
    }
}

pub async fn a_lost_reply_at_the_release_changes_nothing(store: Arc<dyn Store>) {
    let (faulty, key) = (at(&store, [2], Fault::ReplyLost), fresh("lost"));
    let failed = over(&faulty, LONG).execute(&key, || async { Err::<(), _>(Sorry) }).await;
    assert!(matches!(failed, Err(Error::Function(Sorry))));
    assert_eq!(record(&store, &key).await, None);
}

pub async fn a_lost_reply_at_a_renewal_changes_nothing(store: Arc<dyn Store>) {
    let (faulty, key, runs) = (at(&store, [2], Fault::ReplyLost), fresh("lost"), Runs::default());
    let (idem, contender) = (over(&faulty, STEADY), engine(&store, STEADY));
    let slow = || async {
        sleep(STEADY * 2).await;
        runs.number().await
    };
    let (first, second) = tokio::join!(idem.execute(&key, slow), async {
        sleep(SHORT).await;
        contender.execute(&key, || runs.number()).await
    });
    assert_eq!((first.unwrap(), second.unwrap(), runs.count()), (1, 1, 1));
}

pub async fn a_store_that_is_down_at_the_claim_runs_nothing(store: Arc<dyn Store>) {
    let (faulty, key, runs) = (from(&store, 1, Fault::NotSent), fresh("down"), Runs::default());
    let ended = over(&faulty, LONG).execute(&key, || runs.number()).await;
    assert!(matches!(ended, Err(Error::Store(error)) if !error.maybe_applied()));
    assert_eq!((faulty.calls(), runs.count()), (1, 0), "what was not sent is told at once");

    let faulty = from(&store, 1, Fault::ReplyLost);
    let ended = over(&faulty, LONG).execute(&key, || runs.number()).await;
    assert!(matches!(ended, Err(Error::Store(error)) if error.maybe_applied()));
    assert_eq!(runs.count(), 0);
    assert!(faulty.calls() <= 5, "trying is bounded");

    // And by the deadline.
    let (faulty, key) = (from(&store, 1, Fault::ReplyLost), fresh("down"));
    let call = over(&faulty, LONG).call(&key).deadline(Instant::now() + Duration::from_millis(15));
    assert!(matches!(call.execute(|| runs.number()).await, Err(Error::Store(_) | Error::DeadlinePassed)));
    assert!(faulty.calls() <= 1);
}

pub async fn a_store_that_is_down_at_the_commit_returns_the_value(store: Arc<dyn Store>) {
    let (faulty, key, runs) = (from(&store, 2, Fault::NotSent), fresh("down"), Runs::default());
    match over(&faulty, LONG).execute(&key, || runs.number()).await {
        Err(Error::Unrecorded { value, error }) => assert_eq!((value, error.maybe_applied()), (1, false)),
        other => panic!("{other:?}"),
    }
    let claim = record(&store, &key).await.unwrap();
    assert!(!claim.contains("ok"), "the claim stays");
    assert!(faulty.calls() <= 6, "trying is bounded");

    // A send that did not leave does not make up for one that may have landed.
    let faults = |call| match call {
        1 => Fault::Pass,
        2 => Fault::ReplyLost,
        _ => Fault::NotSent,
    };
    let (faulty, key) = (TestStore::faulty(Arc::clone(&store), faults), fresh("down"));
    let ended = over(&faulty, LONG).execute(&key, || async { Ok::<_, Sorry>(0) }).await;
    assert!(matches!(ended, Err(Error::Unrecorded { error, .. }) if error.maybe_applied()));

    // It may have landed, for all we know; in truth it has.
    let (faulty, key) = (from(&store, 2, Fault::ReplyLost), fresh("down"));
    match over(&faulty, LONG).execute(&key, || runs.number()).await {
        Err(Error::Unrecorded { value, error }) => assert_eq!((value, error.maybe_applied()), (2, true)),
        other => panic!("{other:?}"),
    }
    assert_eq!(engine(&store, LONG).execute(&key, || runs.number()).await.unwrap(), 2);
}

pub async fn a_store_that_is_down_at_the_release_returns_the_functions_error(store: Arc<dyn Store>) {
    let (faulty, key, runs) = (from(&store, 2, Fault::NotSent), fresh("down"), Runs::default());
    let failed = over(&faulty, SHORT).execute(&key, || async { Err::<usize, _>(Sorry) }).await;
    assert!(matches!(failed, Err(Error::Function(Sorry))));
    assert_eq!(engine(&store, SHORT).execute(&key, || runs.number()).await.unwrap(), 1, "after the lease");
}

pub async fn a_store_that_is_down_for_a_renewal_does_not_stop_the_run(store: Arc<dyn Store>) {
    let (faulty, key, runs) = (at(&store, [2], Fault::NotSent), fresh("down"), Runs::default());
    let (idem, contender) = (over(&faulty, STEADY), engine(&store, STEADY));
    let slow = || async {
        sleep(STEADY * 2).await;
        runs.number().await
    };
    let (first, second) = tokio::join!(idem.execute(&key, slow), async {
        sleep(SHORT).await;
        contender.execute(&key, || runs.number()).await
    });
    assert_eq!((first.unwrap(), second.unwrap(), runs.count()), (1, 1, 1));

    // Down for longer than the lease: the run goes on, and commits because nobody came.
    let (faulty, key, runs) = (at(&store, 2..=7, Fault::NotSent), fresh("down"), Runs::default());
    let slow = || async {
        sleep(SHORT * 4).await;
        assert_eq!(record(&store, &key).await, None, "what has lapsed is not revived");
        runs.number().await
    };
    assert_eq!(over(&faulty, SHORT).execute(&key, slow).await.unwrap(), 1);
    assert_eq!(engine(&store, SHORT).execute(&key, || runs.number()).await.unwrap(), 1);
}

/// A future that is polled so often at most: `None` stands where it would have been dropped.
pub struct Dropped<F> {
    future: Option<Pin<Box<F>>>,
    polls: usize,
}

impl<F: Future> Future for Dropped<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        let Some(left) = self.polls.checked_sub(1) else {
            self.future = None;
            return Poll::Ready(None);
        };
        self.polls = left;
        match &mut self.future {
            Some(future) => future.as_mut().poll(context).map(Some),
            None => Poll::Ready(None),
        }
    }
}

/// `future`, dropped when it has been polled `polls` times without ending.
pub fn dropped_after<F: Future>(polls: usize, future: F) -> Dropped<F> {
    Dropped { future: Some(Box::pin(future)), polls }
}

/// Stores that stop before every call and after every call: every point at which a call can be dropped.
pub fn stopping(store: &Arc<dyn Store>) -> [Arc<TestStore>; 2] {
    let moment = Duration::from_millis(1);
    [Fault::SentLate(moment), Fault::AnsweredLate(moment)]
        .map(|fault| TestStore::faulty(Arc::clone(store), move |_| fault.clone()))
}

pub async fn a_call_dropped_at_any_point_holds_nobody_up_past_its_lease(store: Arc<dyn Store>) {
    let trials = (0..16).flat_map(|polls| stopping(&store).map(|faulty| (polls, faulty)));
    let ended = join_all(trials.map(|(polls, faulty)| {
        let store = &store;
        async move {
            let (key, runs) = (fresh("dropped"), Runs::default());
            let idem = over(&faulty, SHORT);
            let first = idem.execute(&key, || async {
                tokio::task::yield_now().await;
                runs.number().await
            });
            let first = dropped_after(polls, first).await.map(Result::unwrap);
            let before = runs.count();
            let second = engine(store, SHORT).execute(&key, || runs.number()).await.unwrap();
            assert_eq!(second, engine(store, SHORT).execute(&key, || runs.number()).await.unwrap());
            // Run again at most once, and only if nobody had been told of the first.
            assert!(runs.count() <= before + 1 && second == runs.count(), "{polls} polls");
            assert!(first.is_none_or(|first| first == second));
            first.is_some()
        }
    }))
    .await;
    assert!(
        ended.iter().any(|ended| *ended) && ended.iter().any(|ended| !ended),
        "from not begun to not dropped"
    );
}

/// As a panic unwinds, without the backtrace.
fn panics() -> ! {
    std::panic::resume_unwind(Box::new("in the function"))
}

/// Whether `call` ends with a panic.
async fn unwinds<T>(call: impl Future<Output = T>) -> bool {
    std::panic::AssertUnwindSafe(call).catch_unwind().await.is_err()
}

pub async fn a_panic_releases_the_key_at_once(store: Arc<dyn Store>) {
    let (idem, runs) = (engine(&store, LONG), Runs::default());
    let keys = ["executed", "consumed", "edited", "transacted"].map(fresh);
    let [executed, consumed, edited, transacted] = &keys;
    assert!(unwinds(idem.execute::<usize, Sorry, _, _>(executed, || async { panics() })).await);
    assert!(unwinds(idem.consume::<Sorry, _, _>(consumed, LONG, || async { panics() })).await);
    let there = Key::new(fresh("edit")).unwrap();
    let step = |_: &onetap_store::Values| -> Result<(onetap_store::Batch, ()), Sorry> { panics() };
    assert!(unwinds(idem.edit(edited, onetap_store::Edit::of(&there), step)).await);
    let transaction = |_| async { panics() };
    assert!(unwinds(idem.transact::<usize, Sorry, _, _>(transacted, transaction)).await);
    for (n, key) in keys.iter().enumerate() {
        assert_eq!(record(&store, key).await, None, "{key}");
        assert_eq!(idem.execute(key, || runs.number()).await.unwrap(), n + 1);
    }
}

pub async fn at_most_once_the_outcome_of_a_panic_is_unknown(store: Arc<dyn Store>) {
    let config = config(SHORT).policy(onetap_idem::Policy::AtMostOnce);
    let (idem, key) = (Idempotency::with_config(Arc::clone(&store), config), fresh("panic"));
    assert!(unwinds(idem.execute::<usize, Sorry, _, _>(&key, || async { panics() })).await);
    assert!(record(&store, &key).await.is_some(), "nobody knows whether it took effect");
    let runs = Runs::default();
    assert!(matches!(idem.execute(&key, || runs.number()).await, Err(Error::Unknown)));
    assert_eq!(runs.count(), 0);
}
