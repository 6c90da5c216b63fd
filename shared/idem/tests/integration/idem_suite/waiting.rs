//! Many callers at once, and those who wait.

use tokio::task::JoinSet;

use super::*;

/// `n` tasks, each an engine of its own, as they would be in as many processes.
pub fn callers(
    store: &Arc<dyn Store>,
    key: &str,
    n: usize,
    runs: &Runs,
    mishap: Mishap,
) -> JoinSet<Option<usize>> {
    let mut tasks = JoinSet::new();
    // A store that is busy with all of them must still answer the one that runs before its lease is over.
    let lease = if mishap == Mishap::Dies { STEADY } else { LONG };
    for _ in 0..n {
        let (idem, key, runs) = (engine(store, lease), key.to_owned(), runs.clone());
        tasks.spawn(async move {
            let dies = tokio::sync::Notify::new();
            let run = || async {
                match (runs.add(), mishap) {
                    (1, Mishap::Fails) => Err(Sorry),
                    (1, Mishap::Dies) => {
                        dies.notify_one();
                        std::future::pending().await
                    }
                    (n, _) => {
                        sleep(Duration::from_millis(20)).await;
                        Ok(n)
                    }
                }
            };
            let ended = tokio::select! {
                ended = idem.execute(&key, run) => ended,
                () = dies.notified() => panic!("killed in the middle"),
            };
            match ended {
                Ok(n) => Some(n),
                Err(Error::Function(Sorry)) => None,
                Err(error) => panic!("{error:?}"),
            }
        });
    }
    tasks
}

/// What befalls the first to run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    None,
    Fails,
    Dies,
}

/// All of `n` callers get the result of one run, but for the first one if something befalls it.
pub async fn all_get_one_result(store: Arc<dyn Store>, n: usize, mishap: Mishap) {
    let (key, runs) = (fresh("many"), Runs::default());
    let mut tasks = callers(&store, &key, n, &runs, mishap);
    let (mut results, mut failed, mut died) = (Vec::new(), 0, 0);
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(Some(result)) => results.push(result),
            Ok(None) => failed += 1,
            Err(error) => died += usize::from(error.into_panic().is::<&str>()),
        }
    }
    let last = if mishap == Mishap::None { 1 } else { 2 };
    assert_eq!(runs.count(), last, "runs");
    assert_eq!((failed, died), (usize::from(mishap == Mishap::Fails), usize::from(mishap == Mishap::Dies)));
    assert_eq!(results, vec![last; n + 1 - last]);
}

pub async fn many_callers_at_once_run_it_once(store: Arc<dyn Store>) {
    all_get_one_result(store, 100, Mishap::None).await;
}

pub async fn when_the_first_of_many_fails_one_runs_next(store: Arc<dyn Store>) {
    all_get_one_result(store, 100, Mishap::Fails).await;
}

pub async fn when_the_first_of_many_dies_one_takes_over(store: Arc<dyn Store>) {
    all_get_one_result(store, 100, Mishap::Dies).await;
}

pub async fn a_waiter_gets_the_owners_result_at_one_round_trip_a_look(store: Arc<dyn Store>) {
    let (key, runs) = (fresh("wait"), Runs::default());
    let idem = engine(&store, LONG);
    let owner = claim(&store, &idem, &key).await;
    let faulty = TestStore::counting(Arc::clone(&store));
    let waiter = over(&faulty, LONG);
    let ((), got) = tokio::join!(
        async {
            sleep(Duration::from_millis(200)).await;
            let answer = store.commit(&owner.commit_batch(&7usize)).await.unwrap();
            assert!(matches!(owner.committed(answer), onetap_idem::RecordOutcome::Recorded));
        },
        waiter.execute(&key, || runs.number()),
    );
    assert_eq!((got.unwrap(), runs.count()), (7, 0));
    // Looks at 0, 10, 30, 70, 150, 310 ms; a slow machine makes fewer.
    assert!((2..=6).contains(&faulty.calls()), "{} looks", faulty.calls());
}

pub async fn waiting_ends_at_the_limit(store: Arc<dyn Store>) {
    let (key, runs) = (fresh("limit"), Runs::default());
    let _owner = claim(&store, &engine(&store, LONG), &key).await;
    let limited = config(LONG).wait_timeout(Duration::from_millis(150));
    let started = Instant::now();
    let ended = Idempotency::with_config(Arc::clone(&store), limited).execute(&key, || runs.number()).await;
    assert!(matches!(ended, Err(Error::InProgress { left }) if left <= LONG));
    assert!(started.elapsed() >= Duration::from_millis(150));
    assert_eq!(runs.count(), 0);
}

pub async fn waiting_ends_at_the_deadline(store: Arc<dyn Store>) {
    let (key, runs) = (fresh("deadline"), Runs::default());
    let idem = engine(&store, LONG);
    let _owner = claim(&store, &idem, &key).await;
    let started = Instant::now();
    // Longer than a look takes on a slow machine.
    let call = idem.call(&key).deadline(started + Duration::from_secs(2));
    assert!(matches!(call.execute(|| runs.number()).await, Err(Error::InProgress { .. })));
    assert!(started.elapsed() >= Duration::from_secs(2));
    assert_eq!(runs.count(), 0);
}

pub async fn a_call_past_its_deadline_asks_and_runs_nothing(store: Arc<dyn Store>) {
    let faulty = TestStore::counting(store);
    let (idem, key, runs) = (over(&faulty, LONG), fresh("deadline"), Runs::default());
    let ended = idem.call(&key).deadline(Instant::now()).execute(|| runs.number()).await;
    assert!(matches!(ended, Err(Error::DeadlinePassed)));
    // An invocation that ends before an answer could be sent.
    let mut context = lambda_runtime::Context::default();
    context.deadline = 1;
    assert!(matches!(
        idem.call(&key).invocation(&context).execute(|| runs.number()).await,
        Err(Error::DeadlinePassed)
    ));
    assert_eq!((faulty.calls(), runs.count()), (0, 0));
    let made_up = lambda_runtime::Context::default();
    assert_eq!(idem.call(&key).invocation(&made_up).execute(|| runs.number()).await.unwrap().into_value(), 1);
}

pub async fn a_lease_is_no_longer_than_its_invocation(store: Arc<dyn Store>) {
    let (idem, key, runs) = (engine(&store, LONG), fresh("deadline"), Runs::default());
    // An owner that dies with its invocation, under a lease that would go on for a minute.
    let claim = idem.call(&key).invocation_end(Instant::now() + SHORT).claim().unwrap();
    let sent = Instant::now();
    let answer = store.commit(&claim.batch()).await.unwrap();
    let claimed = claim.outcome(sent, answer).unwrap();
    assert!(
        matches!(claimed, ClaimOutcome::Mine(run) | ClaimOutcome::Late(run) if run.until() <= sent + SHORT)
    );
    assert_eq!(idem.execute(&key, || runs.number()).await.unwrap(), 1);
    assert!(sent.elapsed() >= SHORT - Duration::from_millis(2));
}

pub async fn a_long_run_keeps_its_claim(store: Arc<dyn Store>) {
    let (idem, key, runs) = (engine(&store, STEADY), fresh("renewal"), Runs::default());
    let contender = engine(&store, STEADY);
    let slow = || async {
        sleep(STEADY * 2).await;
        runs.number().await
    };
    let (first, second) = tokio::join!(idem.execute(&key, slow), async {
        sleep(Duration::from_millis(100)).await;
        contender.execute(&key, || runs.number()).await
    });
    assert_eq!((first.unwrap(), second.unwrap(), runs.count()), (1, 1, 1));
}
