//! The policy that would rather not know than do it twice.

use onetap_idem::{Policy, RecordOutcome, Resolution, ResolveOutcome};
use onetap_store::testing::Fault;

use super::*;

fn careful(store: &Arc<dyn Store>, lease_ttl: Duration) -> Idempotency {
    Idempotency::with_config(Arc::clone(store), config(lease_ttl).policy(Policy::AtMostOnce))
}

/// A claim whose owner should have ended in 1970.
const VANISHED: &str = r#"{"owner":"gone","fp":"8a","until":1}"#;

/// A claim whose owner has until the year 2200.
const RUNNING: &str = r#"{"owner":"busy","until":7258118400000}"#;

pub async fn at_most_once_replays_like_any_other(store: Arc<dyn Store>) {
    let (idem, key, runs) = (careful(&store, LONG), fresh("careful"), Runs::default());
    for _ in 0..2 {
        assert_eq!(idem.execute(&key, || runs.number()).await.unwrap(), 1);
    }
    assert_eq!(runs.count(), 1);
}

pub async fn at_most_once_is_in_progress_until_its_owner_must_be_gone(store: Arc<dyn Store>) {
    let (idem, key, runs) = (careful(&store, LONG), fresh("careful"), Runs::default());
    plant(&store, &key, RUNNING).await;
    let ended = idem.call(&key).without_waiting().execute(|| runs.number()).await;
    assert!(matches!(ended, Err(Error::InProgress { left }) if left > LONG));
    assert_eq!(runs.count(), 0);
}

pub async fn at_most_once_is_unknown_when_its_owner_is_gone(store: Arc<dyn Store>) {
    let (idem, key, runs) = (careful(&store, SHORT), fresh("careful"), Runs::default());
    let owner = claim(&store, &idem, &key).await;
    // The label is by the time of day, which no test can pause.
    std::thread::sleep(LAPSED);
    sleep(LAPSED).await;
    for idem in [&idem, &engine(&store, SHORT)] {
        assert!(matches!(idem.execute(&key, || runs.number()).await, Err(Error::Unknown)));
    }
    assert_eq!(runs.count(), 0);
    // It was only slow: what nobody has settled it may still say itself.
    let answer = store.commit(&owner.commit_batch(&7usize)).await.unwrap();
    assert!(matches!(owner.committed(answer), RecordOutcome::Recorded));
    assert_eq!(idem.execute(&key, || runs.number()).await.unwrap(), 7);
}

/// When the record says that its owner must have been heard of again.
async fn until(store: &Arc<dyn Store>, key: &str) -> u64 {
    let record: serde_json::Value = serde_json::from_str(&record(store, key).await.unwrap()).unwrap();
    record["until"].as_u64().unwrap()
}

/// Returns when the record was renewed `times` more. The label is by the time of day, which no test can pause.
async fn renewed(store: &Arc<dyn Store>, key: &str, times: usize) {
    for _ in 0..times {
        let before = until(store, key).await;
        let mut looks = 0;
        while until(store, key).await <= before {
            looks += 1;
            assert!(looks < 400, "the record is not renewed");
            std::thread::sleep(Duration::from_millis(5));
            sleep(Duration::from_millis(50)).await;
        }
    }
}

pub async fn at_most_once_a_live_run_is_never_unknown_however_slow(store: Arc<dyn Store>) {
    let (idem, key, runs) = (careful(&store, STEADY), fresh("careful"), Runs::default());
    let slow = || async {
        // At a third of a lease each, this is longer than one.
        renewed(&store, &key, 4).await;
        let again = idem.call(&key).without_waiting().execute(|| runs.number()).await;
        assert!(matches!(again, Err(Error::InProgress { .. })), "{again:?}");
        let settled = idem.resolve(&key, Resolution::<()>::Forget).await.unwrap();
        assert_eq!(settled, ResolveOutcome::NotUnknown, "nobody may let a second run begin");
        runs.number().await
    };
    assert_eq!(idem.execute(&key, slow).await.unwrap(), 1);
    assert_eq!(idem.execute(&key, || runs.number()).await.unwrap(), 1);
    assert_eq!(runs.count(), 1);
}

pub async fn at_most_once_a_renewal_whose_reply_was_lost_changes_nothing(store: Arc<dyn Store>) {
    let runs = Runs::default();
    for fault in [Fault::ReplyLost, Fault::AnsweredLate(LONG)] {
        for ended in [Ok(7usize), Err(Sorry)] {
            let key = fresh("careful");
            let faulty = TestStore::first(Arc::clone(&store), vec![Fault::Pass, fault.clone()]);
            let slow = || async {
                renewed(&store, &key, 1).await;
                ended
            };
            let result = careful(&(faulty as Arc<dyn Store>), STEADY).execute(&key, slow).await;
            match ended {
                Ok(value) => assert_eq!(result.unwrap(), value),
                Err(Sorry) => assert!(matches!(result, Err(Error::Function(Sorry)))),
            }
            let again = careful(&store, LONG).execute(&key, || runs.number()).await.unwrap();
            assert_eq!(again, ended.unwrap_or(runs.count()), "kept if it is a value, let go if not");
        }
    }
    assert_eq!(runs.count(), 2);
}

pub async fn at_most_once_renews_on_after_a_lost_reply(store: Arc<dyn Store>) {
    let (key, runs) = (fresh("careful"), Runs::default());
    let faulty = TestStore::first(Arc::clone(&store), vec![Fault::Pass, Fault::ReplyLost]);
    let slow = || async {
        renewed(&store, &key, 3).await;
        runs.number().await
    };
    assert_eq!(careful(&(faulty as Arc<dyn Store>), STEADY).execute(&key, slow).await.unwrap(), 1);
}

pub async fn at_most_once_outlives_a_result_that_is_kept_for_less_than_the_run_takes(store: Arc<dyn Store>) {
    let (idem, key, runs) = (careful(&store, STEADY), fresh("careful"), Runs::default());
    let slow = || async {
        sleep(STEADY).await;
        let again = idem.call(&key).without_waiting().execute(|| runs.number()).await;
        assert!(matches!(again, Err(Error::InProgress { .. } | Error::Unknown)), "{again:?}");
        runs.number().await
    };
    assert_eq!(idem.call(&key).ttl(SHORT).execute(slow).await.unwrap().into_value(), 1);
    assert_eq!(runs.count(), 1);
}

pub async fn at_most_once_lets_go_when_the_function_fails(store: Arc<dyn Store>) {
    let (idem, key, runs) = (careful(&store, LONG), fresh("careful"), Runs::default());
    let failed = idem.execute(&key, || async { Err::<usize, _>(Sorry) }).await;
    assert!(matches!(failed, Err(Error::Function(Sorry))));
    assert_eq!(idem.execute(&key, || runs.number()).await.unwrap(), 1);
}

pub async fn at_most_once_lets_go_of_what_was_granted_too_late(store: Arc<dyn Store>) {
    let (key, runs) = (fresh("careful"), Runs::default());
    let frozen = TestStore::first(Arc::clone(&store), vec![Fault::AnsweredLate(LAPSED)]);
    let ended = careful(&(frozen as Arc<dyn Store>), SHORT).execute(&key, || runs.number()).await;
    assert_eq!(ended.unwrap(), 1, "and asks anew: nothing has run, so nothing is unknown");
}

pub async fn an_unknown_outcome_can_be_settled_as_done(store: Arc<dyn Store>) {
    let (idem, key, runs) = (careful(&store, LONG), fresh("careful"), Runs::default());
    plant(&store, &key, VANISHED).await;
    assert!(matches!(idem.execute(&key, || runs.number()).await, Err(Error::Unknown)));
    assert_eq!(idem.resolve(&key, Resolution::Done(5usize)).await.unwrap(), ResolveOutcome::Settled);
    assert_eq!(idem.execute(&key, || runs.number()).await.unwrap(), 5);
    let other = idem.call(&key).fingerprint("another payload").execute(|| runs.number()).await;
    assert!(matches!(other, Err(Error::Mismatch)), "it is still the first caller's payload");
    assert_eq!(runs.count(), 0);
}

pub async fn an_unknown_outcome_can_be_settled_as_never_done(store: Arc<dyn Store>) {
    let (idem, key, runs) = (careful(&store, LONG), fresh("careful"), Runs::default());
    plant(&store, &key, VANISHED).await;
    assert_eq!(idem.resolve(&key, Resolution::<()>::Forget).await.unwrap(), ResolveOutcome::Settled);
    assert_eq!(idem.execute(&key, || runs.number()).await.unwrap(), 1);
}

pub async fn only_an_unknown_outcome_can_be_settled(store: Arc<dyn Store>) {
    let idem = careful(&store, LONG);
    for text in [None, Some(RUNNING), Some(r#"{"owner":"a"}"#), Some(r#"{"owner":"a","ok":null}"#)] {
        let key = fresh("careful");
        if let Some(text) = text {
            plant(&store, &key, text).await;
        }
        assert_eq!(idem.resolve(&key, Resolution::Done(1)).await.unwrap(), ResolveOutcome::NotUnknown);
        assert_eq!(idem.resolve(&key, Resolution::<()>::Forget).await.unwrap(), ResolveOutcome::NotUnknown);
        assert_eq!(record(&store, &key).await.as_deref(), text);
    }
}

pub async fn an_owner_that_wakes_after_its_outcome_was_settled_is_refused(store: Arc<dyn Store>) {
    let idem = careful(&store, Duration::from_millis(1));
    let wakes = async |resolution: Resolution<usize>| {
        let key = fresh("careful");
        let claim = idem.call(&key).claim().unwrap();
        // Believed in from later on, so that a slow machine is not too late for its millisecond.
        let answer = store.commit(&claim.batch()).await.unwrap();
        let claimed = claim.outcome(Instant::now() + LONG, answer).unwrap();
        let ClaimOutcome::Mine(owner) = claimed else { panic!("{claimed:?}") };
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(idem.resolve(&key, resolution).await.unwrap(), ResolveOutcome::Settled);
        let answer = store.commit(&owner.commit_batch(&7usize)).await.unwrap();
        assert!(matches!(owner.committed(answer), RecordOutcome::Lost));
        record(&store, &key).await
    };
    assert!(wakes(Resolution::Done(5)).await.unwrap().contains(r#""ok":5"#));
    assert_eq!(wakes(Resolution::Forget).await, None);
}

pub async fn a_settlement_whose_reply_was_lost_recognises_itself(store: Arc<dyn Store>) {
    for resolution in [Resolution::Done(5), Resolution::Forget] {
        let key = fresh("careful");
        plant(&store, &key, VANISHED).await;
        let faulty = TestStore::first(Arc::clone(&store), vec![Fault::Pass, Fault::ReplyLost]);
        assert_eq!(over(&faulty, LONG).resolve(&key, resolution).await.unwrap(), ResolveOutcome::Settled);
    }
}
