//! Only the current owner stores a result or lets go: the steps by hand.

use std::collections::HashSet;

use onetap_idem::RecordOutcome;
use onetap_store::Batch;
use onetap_store::testing::Fault;

use super::*;

async fn commit(store: &Arc<dyn Store>, run: &Run, value: &str) -> RecordOutcome {
    run.committed(store.commit(&run.commit_batch(&value)).await.unwrap())
}

async fn replayed(store: &Arc<dyn Store>, key: &str) -> String {
    engine(store, LONG).execute(key, || async { Err(Sorry) }).await.unwrap()
}

pub async fn a_stale_owners_success_is_refused(store: Arc<dyn Store>) {
    let key = fresh("stale");
    let stale = claim(&store, &engine(&store, SHORT), &key).await;
    sleep(LAPSED).await;
    let current = claim(&store, &engine(&store, LONG), &key).await;
    assert!(matches!(commit(&store, &stale, "stale").await, RecordOutcome::Lost), "while the successor runs");
    assert!(matches!(commit(&store, &current, "current").await, RecordOutcome::Recorded));
    assert!(
        matches!(commit(&store, &stale, "stale").await, RecordOutcome::Lost),
        "when the successor is done"
    );
    assert_eq!(replayed(&store, &key).await, "current");
}

pub async fn a_stale_owners_failure_leaves_its_successor_alone(store: Arc<dyn Store>) {
    let key = fresh("stale");
    let stale = claim(&store, &engine(&store, SHORT), &key).await;
    sleep(LAPSED).await;
    let current = claim(&store, &engine(&store, LONG), &key).await;
    let running = record(&store, &key).await;
    let _ = store.commit(&stale.abandon_batch()).await.unwrap();
    assert!(matches!(
        stale.committed(store.commit(&stale.fail_batch(&Sorry)).await.unwrap()),
        RecordOutcome::Lost
    ));
    assert_eq!(record(&store, &key).await, running);
    assert!(matches!(commit(&store, &current, "current").await, RecordOutcome::Recorded));
    let _ = store.commit(&stale.abandon_batch()).await.unwrap();
    assert_eq!(replayed(&store, &key).await, "current");
}

/// A whole call whose renewals do not get through, overtaken by `successor` while it runs.
async fn overtaken(
    store: &Arc<dyn Store>,
    key: &str,
    ended: Result<String, Sorry>,
    successor: impl Future<Output = ()>,
) -> Result<String, Error<String, Sorry>> {
    let cut_off = TestStore::faulty(Arc::clone(store), |call| {
        if (2..=20).contains(&call) { Fault::NotSent } else { Fault::Pass }
    });
    let slow = || async {
        sleep(LAPSED).await;
        successor.await;
        // Long enough for the renewal to get through again, and to find out.
        while cut_off.calls() <= 20 {
            let _ = cut_off.get(&Key::new("anything").unwrap()).await;
        }
        ended
    };
    over(&cut_off, SHORT).execute(key, slow).await
}

pub async fn a_stale_owner_is_told_with_its_value(store: Arc<dyn Store>) {
    let succeed = async |key: &str| {
        let successor = || async { Ok::<_, Sorry>("successor".to_owned()) };
        assert_eq!(engine(&store, LONG).execute(key, successor).await.unwrap(), "successor");
    };
    let key = fresh("stale");
    let ended = overtaken(&store, &key, Ok("stale".to_owned()), succeed(&key)).await;
    assert!(matches!(ended, Err(Error::LostLease { value }) if value == "stale"));
    assert_eq!(replayed(&store, &key).await, "successor");

    let key = fresh("stale");
    let ended = overtaken(&store, &key, Err(Sorry), succeed(&key)).await;
    assert!(matches!(ended, Err(Error::Function(Sorry))), "its own error stays primary");
    assert_eq!(replayed(&store, &key).await, "successor");
}

pub async fn a_stale_owner_leaves_the_claim_of_a_running_successor_alone(store: Arc<dyn Store>) {
    for ended in [Ok("stale".to_owned()), Err(Sorry)] {
        let key = fresh("stale");
        let mut running = None;
        let take_over = async {
            let _successor = claim(&store, &engine(&store, LONG), &key).await;
            running = record(&store, &key).await;
        };
        let failed = ended.is_err();
        match overtaken(&store, &key, ended, take_over).await {
            Err(Error::LostLease { value }) => assert_eq!(value, "stale"),
            Err(Error::Function(Sorry)) => assert!(failed),
            other => panic!("{other:?}"),
        }
        assert!(running.is_some());
        assert_eq!(record(&store, &key).await, running);
    }
}

pub async fn a_lapsed_lease_without_a_contender_commits(store: Arc<dyn Store>) {
    let key = fresh("lapsed");
    let lapsed = claim(&store, &engine(&store, SHORT), &key).await;
    sleep(LAPSED).await;
    assert_eq!(record(&store, &key).await, None);
    assert!(matches!(commit(&store, &lapsed, "late").await, RecordOutcome::Recorded));
    assert_eq!(replayed(&store, &key).await, "late");
}

pub async fn a_lapsed_lease_whose_taker_let_go_commits(store: Arc<dyn Store>) {
    let key = fresh("lapsed");
    let lapsed = claim(&store, &engine(&store, SHORT), &key).await;
    sleep(LAPSED).await;
    let taker = engine(&store, LONG).execute(&key, || async { Err::<(), _>(Sorry) }).await;
    assert!(matches!(taker, Err(Error::Function(Sorry))));
    assert!(matches!(commit(&store, &lapsed, "late").await, RecordOutcome::Recorded));
    assert_eq!(replayed(&store, &key).await, "late");
}

pub async fn a_second_commit_by_the_same_owner_is_harmless(store: Arc<dyn Store>) {
    let key = fresh("twice");
    let run = claim(&store, &engine(&store, LONG), &key).await;
    for _ in 0..3 {
        assert!(matches!(commit(&store, &run, "once").await, RecordOutcome::Recorded));
    }
    let _ = store.commit(&run.abandon_batch()).await.unwrap();
    assert_eq!(replayed(&store, &key).await, "once");
}

pub async fn a_claim_sent_twice_recognises_itself(store: Arc<dyn Store>) {
    let (idem, key) = (engine(&store, LONG), fresh("twice"));
    let claim = idem.call(&key).fingerprint("payload").claim().unwrap();
    for _ in 0..2 {
        let sent = Instant::now();
        let answer = store.commit(&claim.batch()).await.unwrap();
        assert!(matches!(claim.clone().outcome(sent, answer).unwrap(), ClaimOutcome::Mine(_)));
    }
    let other = idem.call(&key).claim().unwrap();
    let answer = store.commit(&other.batch()).await.unwrap();
    assert!(matches!(other.outcome(Instant::now(), answer).unwrap(), ClaimOutcome::InProgress { .. }));
}

pub async fn an_answer_later_than_its_lease_is_no_claim(store: Arc<dyn Store>) {
    // The steps by hand: it says so.
    let (idem, key) = (engine(&store, SHORT), fresh("late"));
    let claim = idem.call(&key).claim().unwrap();
    let sent = Instant::now();
    let answer = store.commit(&claim.batch()).await.unwrap();
    sleep(LAPSED).await;
    assert!(matches!(claim.outcome(sent, answer).unwrap(), ClaimOutcome::Late(_)));

    // A whole call, frozen on the way back from its claim, while another ran.
    let (key, runs) = (fresh("late"), Runs::default());
    let frozen = TestStore::first(Arc::clone(&store), vec![Fault::AnsweredLate(LAPSED * 2)]);
    let frozen = over(&frozen, SHORT);
    let (thawed, other) = tokio::join!(frozen.execute(&key, || runs.number()), async {
        sleep(LAPSED).await;
        engine(&store, LONG).execute(&key, || runs.number()).await
    });
    assert_eq!((thawed.unwrap(), other.unwrap(), runs.count()), (1, 1, 1));
}

pub async fn the_steps_go_together_with_other_batches(store: Arc<dyn Store>) {
    let (idem, name) = (engine(&store, LONG), fresh("webhook"));
    let (lock, effect) =
        (Key::new(format!("lock:{name}")).unwrap(), Key::new(format!("effect:{name}")).unwrap());
    let locking = || Batch::new().put(&lock, Expect::Absent, "locked", LONG);

    // Before the work: claim and lock in one call, each judged by itself.
    let claim = idem.call(&name).claim().unwrap();
    let sent = Instant::now();
    let mut answers = store.commit_each(&[claim.batch(), locking()]).await.into_iter();
    let claimed = claim.outcome(sent, answers.next().unwrap().unwrap()).unwrap();
    let ClaimOutcome::Mine(run) = claimed else { panic!("{claimed:?}") };
    assert!(matches!(answers.next().unwrap().unwrap(), Commit::Applied(_)));

    // After it: the effect with its record, and the lock's release.
    let writes = Batch::new().put(&effect, Expect::Absent, "done", LONG);
    let batches = [writes.and(run.commit_batch(&"value")), Batch::new().delete(&lock, "locked")];
    let mut answers = store.commit_each(&batches).await.into_iter();
    assert!(matches!(run.committed(answers.next().unwrap().unwrap()), RecordOutcome::Recorded));
    assert!(matches!(answers.next().unwrap().unwrap(), Commit::Applied(_)));

    // The reply was lost: the same again.
    let answer = store.commit(&batches[0]).await.unwrap();
    assert!(matches!(run.committed(answer), RecordOutcome::Recorded));

    // A duplicate: done, whatever the lock says.
    let claim = idem.call(&name).claim().unwrap();
    let mut answers = store.commit_each(&[claim.batch(), locking()]).await.into_iter();
    let claimed = claim.outcome(Instant::now(), answers.next().unwrap().unwrap()).unwrap();
    assert!(matches!(claimed, ClaimOutcome::Done(done) if done.value::<String>().unwrap() == "value"));

    // Writes that are refused leave the record unwritten, and say why.
    let other = fresh("webhook");
    let run = super::claim(&store, &idem, &other).await;
    let writes = Batch::new().put(&effect, Expect::Absent, "again", LONG);
    match run.committed(store.commit(&writes.and(run.commit_batch(&"value"))).await.unwrap()) {
        RecordOutcome::Refused(refusal) => {
            assert_eq!(refusal.get(&effect), Some(onetap_store::Found::Text("done")))
        }
        other => panic!("{other:?}"),
    }
}

pub async fn an_effect_key_is_the_same_in_every_retry_and_takeover(store: Arc<dyn Store>) {
    let key = fresh("effect");
    let mut sent = HashSet::new();
    // The first fails after its effect, the second dies after it, the third succeeds.
    let call = engine(&store, SHORT).call(&key);
    let effects = call.effect_keys();
    let failed = call.execute(|| async {
        sent.insert(effects.key("charge"));
        Err::<(), _>(Sorry)
    });
    assert!(matches!(failed.await, Err(Error::Function(Sorry))));
    sent.insert(claim(&store, &engine(&store, SHORT), &key).await.effect_keys().key("charge"));
    let call = engine(&store, LONG).call(&key);
    let effects = call.effect_keys();
    let new = call.execute(|| async { Ok::<_, Sorry>(sent.insert(effects.key("charge"))) });
    assert!(!new.await.unwrap().into_value());
    assert_eq!(sent.len(), 1);
    assert!(!sent.contains(&effects.key("mail")));
}
