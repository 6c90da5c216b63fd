//! The engine's promises on the store in this process, whose clock can be paused, and what only that can show.

use crate::idem_suite;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use idem_suite::{LONG, Mishap, Runs, Sorry, all_get_one_result, claim, engine, fresh, over, record};
use onetap_idem::{
    Call, Claim, ClaimOutcome, Config, Error, Idempotency, Policy, RecordOutcome, Resolution, Run,
};
use onetap_store::Variables;
use onetap_store::testing::{Answer, Fault, Gate, TestStore};
use onetap_store::{Batch, Commit, Key, Memory, Refusal, Store};
use tokio::time::{Instant, sleep};

crate::idem_promises! { [#[tokio::test(start_paused = true)]] async { (memory(), ()) } }

fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new())
}

#[tokio::test]
async fn a_thousand_callers_at_once_run_it_once() {
    all_get_one_result(memory(), 1000, Mishap::None).await;
}

#[tokio::test]
async fn when_the_first_of_a_thousand_fails_one_runs_next() {
    all_get_one_result(memory(), 1000, Mishap::Fails).await;
}

#[tokio::test]
async fn when_the_first_of_a_thousand_dies_one_takes_over() {
    all_get_one_result(memory(), 1000, Mishap::Dies).await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_looks_after_50_ms_doubling_to_500() {
    let store = memory();
    let _owner = claim(&store, &engine(&store, LONG), "key").await;
    let counting = TestStore::counting(Arc::clone(&store));
    let idem = Idempotency::new(Arc::clone(&counting) as Arc<dyn Store>);
    // At 0, 50, 150, 350, 750, 1250, 1750 and 2250 ms; the deadline is no time to claim anything.
    let call = idem.call("key").deadline(Instant::now() + Duration::from_millis(2500));
    let started = Instant::now();
    assert!(matches!(call.execute(|| async { Ok::<_, Sorry>(1) }).await, Err(Error::InProgress { .. })));
    assert_eq!((counting.calls(), started.elapsed()), (8, Duration::from_millis(2500)));
}

/// Work that always has something to read, as that of a fast connection: it ends its turns only because tokio makes it.
pub(crate) async fn busy(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        tokio::task::consume_budget().await;
    }
}

#[tokio::test]
async fn work_that_is_never_idle_does_not_keep_its_claim_from_being_renewed() {
    let counting = TestStore::counting(memory());
    let lease = Duration::from_millis(300);
    let work = || async {
        busy(lease * 4).await;
        Ok::<_, Sorry>(())
    };
    over(&counting, lease).execute("key", work).await.unwrap();
    assert!(counting.calls() > 2, "the claim and the result only");
}

#[tokio::test(start_paused = true)]
async fn the_longest_times_are_as_good_as_for_ever() {
    let store = memory();
    let ever = Duration::MAX;
    let config = Config::default().result_ttl(ever).lease_ttl(ever).wait_timeout(ever).wait_interval(ever);
    let idem = Idempotency::with_config(Arc::clone(&store), config);
    assert_eq!(idem.execute("other", || async { Ok::<_, Sorry>(1) }).await.unwrap(), 1);
    let _owner = claim(&store, &engine(&store, LONG), "key").await;
    let call = idem.call("key").deadline(Instant::now() + LONG / 2);
    assert!(matches!(call.execute(|| async { Ok::<_, Sorry>(1) }).await, Err(Error::InProgress { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_renewed_every_third_of_its_lease() {
    let counting = TestStore::counting(memory());
    let idem = over(&counting, Duration::from_secs(30));
    let slow = async |seconds| {
        sleep(Duration::from_secs(seconds)).await;
        Ok::<_, Sorry>(())
    };
    idem.execute("nine", || slow(9)).await.unwrap();
    assert_eq!(counting.calls(), 2, "a short run is not renewed");
    idem.execute("hundred", || slow(101)).await.unwrap();
    assert_eq!(counting.calls(), 4 + 10, "at 10, 20, … 100 s");
    // A lease that reaches the end of its invocation has nothing to gain.
    let call = idem.call("end").invocation_end(Instant::now() + Duration::from_secs(29));
    call.execute(|| slow(28)).await.unwrap();
    assert_eq!(counting.calls(), 4 + 10 + 2);
    // One that will is cut to it: renewed at 10 s for 24 s, and not again.
    let call = idem.call("cut").invocation_end(Instant::now() + Duration::from_secs(34));
    call.execute(|| slow(33)).await.unwrap();
    assert_eq!(counting.calls(), 4 + 10 + 2 + 3);
}

#[tokio::test(start_paused = true)]
async fn on_a_server_a_live_run_keeps_its_claim_past_its_deadline() {
    for policy in [Policy::AtLeastOnce, Policy::AtMostOnce] {
        let (idem, runs) = (engine(&memory(), LONG), Runs::default());
        let work = || async {
            sleep(LONG * 3).await;
            runs.number().await
        };
        let call = || idem.call("key").policy(policy);
        let run = call().deadline(Instant::now() + Duration::from_secs(1)).execute(work);
        let duplicate = async {
            sleep(Duration::from_millis(100)).await;
            call().execute(|| runs.number()).await.unwrap().into_value()
        };
        let (run, duplicate) = tokio::join!(run, duplicate);
        assert_eq!((run.unwrap().into_value(), duplicate, runs.count()), (1, 1, 1), "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_live_run_keeps_its_claim_until_its_invocation_ends() {
    for policy in [Policy::AtLeastOnce, Policy::AtMostOnce] {
        let (idem, runs) = (engine(&memory(), LONG), Runs::default());
        // It ends after the deadline of its calls, and before its invocation.
        let work = || async {
            sleep(Duration::from_millis(1250)).await;
            runs.number().await
        };
        let call = || idem.call("key").policy(policy);
        let invocation = |call: Call, millis: u64| {
            let end = Instant::now() + Duration::from_millis(millis);
            call.deadline(end - Duration::from_millis(300)).invocation_end(end)
        };
        let run = invocation(call(), 1300).execute(work);
        let duplicate = async {
            sleep(Duration::from_millis(100)).await;
            invocation(call(), 3000).execute(|| runs.number()).await.unwrap().into_value()
        };
        let (run, duplicate) = tokio::join!(run, duplicate);
        assert_eq!((run.unwrap().into_value(), duplicate, runs.count()), (1, 1, 1), "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_let_go_between_the_deadline_and_the_end_of_the_invocation() {
    let (idem, runs) = (engine(&memory(), LONG), Runs::default());
    let fails = || async {
        sleep(Duration::from_millis(1100)).await;
        Err::<usize, _>(Sorry)
    };
    let start = Instant::now();
    let call = idem.call("key").deadline(start + Duration::from_secs(1)).invocation_end(start + LONG);
    assert!(matches!(call.execute(fails).await, Err(Error::Function(Sorry))));
    let next = idem.call("key").without_waiting().execute(|| runs.number()).await;
    assert_eq!(next.unwrap().into_value(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_ends_with_the_call() {
    let counting = TestStore::counting(memory());
    let idem = over(&counting, Duration::from_secs(30));
    let endless = idem.execute("key", std::future::pending::<Result<(), Sorry>>);
    assert!(tokio::time::timeout(Duration::from_secs(25), endless).await.is_err());
    assert_eq!(counting.calls(), 3);
    sleep(Duration::from_secs(300)).await;
    assert_eq!(counting.calls(), 3, "nothing was left behind");
}

/// A store whose calls from this one on never come back.
fn hanging_from(first: usize) -> Arc<TestStore> {
    let gate = Gate::new();
    TestStore::faulty(memory(), move |call| match call {
        call if call < first => Fault::Pass,
        _ => Fault::HeldAfter(gate.clone()),
    })
}

#[tokio::test(start_paused = true)]
async fn at_most_once_a_claim_that_the_deadline_cut_off_leaves_its_key_free() {
    let (store, runs) = (memory(), Runs::default());
    // The claim lands, and its answer comes when the caller has gone.
    let slow = TestStore::first(Arc::clone(&store), vec![Fault::AnsweredLate(LONG)]);
    let call = |idem: &Idempotency| idem.call("key").policy(Policy::AtMostOnce);
    let soon = Instant::now() + Duration::from_millis(500);
    let ended = call(&over(&slow, LONG)).deadline(soon).execute(|| runs.number()).await;
    assert!(matches!(ended, Err(Error::Store(error)) if error.maybe_applied()));
    assert_eq!(runs.count(), 0);
    tokio::time::sleep(LONG * 2).await;
    assert_eq!(
        call(&engine(&store, LONG)).execute(|| runs.number()).await.unwrap().into_value(),
        1,
        "nothing had run"
    );
}

#[tokio::test(start_paused = true)]
async fn no_call_to_the_store_outlasts_the_deadline() {
    let (limit, started) = (Duration::from_millis(500), Instant::now());
    let soon = |idem: &Idempotency| idem.call("key").deadline(Instant::now() + limit);
    let elapsed = async |call: &mut (dyn Future<Output = ()> + Unpin)| {
        let started = Instant::now();
        let ended = tokio::time::timeout(LONG, call).await;
        ended.expect("the deadline ends the call");
        started.elapsed()
    };

    // The claim: nothing was run.
    let (idem, runs) = (over(&hanging_from(1), LONG), Runs::default());
    let mut call = Box::pin(async {
        let ended = soon(&idem).execute(|| runs.number()).await;
        assert!(matches!(ended, Err(Error::Store(error)) if error.maybe_applied()));
    });
    assert!(elapsed(&mut call).await <= limit + Duration::from_millis(10));
    drop(call);
    assert_eq!(runs.count(), 0);

    // The commit: the value comes back, and it may have been recorded.
    for policy in [Policy::AtLeastOnce, Policy::AtMostOnce] {
        let idem = over(&hanging_from(2), LONG);
        let mut call = Box::pin(async {
            let ended = soon(&idem).policy(policy).execute(|| async { Ok::<_, Sorry>(7) }).await;
            assert!(
                matches!(ended, Err(Error::Unrecorded { value: 7, error }) if error.maybe_applied()),
                "the effect took place"
            );
        });
        assert!(elapsed(&mut call).await <= limit + Duration::from_millis(10));
    }

    // The commit of a transaction: all of it or nothing.
    let idem = over(&hanging_from(2), LONG);
    let mut call = Box::pin(async {
        let ended = soon(&idem).transact(|_| async { Ok::<_, Sorry>((Batch::new(), 7)) }).await;
        assert!(matches!(ended, Err(Error::Store(error)) if error.maybe_applied()));
    });
    assert!(elapsed(&mut call).await <= limit + Duration::from_millis(10));

    // The release: the function's own error.
    let idem = over(&hanging_from(2), LONG);
    let mut call = Box::pin(async {
        let ended = soon(&idem).execute(|| async { Err::<(), _>(Sorry) }).await;
        assert!(matches!(ended, Err(Error::Function(Sorry))));
    });
    assert!(elapsed(&mut call).await <= limit + Duration::from_millis(10));

    // A look at somebody else's run: it was in progress.
    let gate = Gate::new();
    let faulty = TestStore::faulty(memory(), move |call| match call {
        1 | 2 => Fault::Pass,
        _ => Fault::HeldBefore(gate.clone()),
    });
    let idem = over(&faulty, LONG);
    let _owner = claim(&(faulty.clone() as Arc<dyn Store>), &idem, "key").await;
    let mut call = Box::pin(async {
        let ended = soon(&idem).execute(|| runs.number()).await;
        assert!(matches!(ended, Err(Error::InProgress { .. })), "{ended:?}");
    });
    assert!(elapsed(&mut call).await <= limit + Duration::from_millis(10));

    // A run that outlasts its deadline still tries to record what it did, but not for long.
    let idem = over(&hanging_from(2), LONG);
    let mut call = Box::pin(async {
        let late = || async {
            sleep(limit * 2).await;
            Ok::<_, Sorry>(7)
        };
        let ended = soon(&idem).execute(late).await;
        assert!(matches!(ended, Err(Error::Unrecorded { value: 7, .. })));
    });
    assert!(elapsed(&mut call).await <= limit * 3 + Duration::from_millis(10));
    assert!(started.elapsed() < LONG);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_outlasts_its_deadline_is_still_recorded() {
    let slow_store = TestStore::faulty(memory(), |_| Fault::AnsweredLate(Duration::from_millis(100)));
    let (idem, limit) = (over(&slow_store, LONG), Duration::from_millis(500));
    let late = || async {
        sleep(limit).await;
        Ok::<_, Sorry>(7)
    };
    let call = idem.call("key").deadline(Instant::now() + limit);
    assert_eq!(call.execute(late).await.unwrap().into_value(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_hides_the_record_after_a_lost_reply_is_looked_into() {
    // The batch has landed, its reply is lost, and the repeat is told only of the other write: as DynamoDB may.
    let (counter, mut rounds) = (Key::new("counter").unwrap(), 0);
    let lossy = TestStore::first(forgetful(), vec![Fault::Pass, Fault::ReplyLost]);
    let work = |_| {
        rounds += 1;
        let batch = Batch::new().put(&counter, onetap_store::Expect::Absent, "1", LONG);
        async { Ok::<_, Sorry>((batch, "done".to_owned())) }
    };
    assert_eq!(over(&lossy, LONG).transact("key", work).await.unwrap(), "done");
    assert_eq!(rounds, 1);
}

/// Names only the first of what refused a batch.
fn forgetful() -> Arc<dyn Store> {
    let forget = |commit| match commit {
        Ok(Commit::Refused(refusal)) => Ok(Commit::Refused(Refusal::new(refusal.into_iter().take(1)))),
        other => other,
    };
    TestStore::scripted(memory(), move |call| async move {
        match call.send().await {
            Answer::Commits(commits) => Answer::Commits(commits.into_iter().map(forget).collect()),
            answer => answer,
        }
    })
}

/// What two owners and a clock can do to one key, in every order of five steps. Expiry comes whenever it likes:
/// clocks one lease apart, or more, are among the orders.
#[tokio::test]
async fn in_any_order_of_steps_and_expiries_one_owner_commits() {
    let steps = 7usize;
    for order in 0..steps.pow(5) {
        let store = memory();
        let idem = engine(&store, LONG);
        let mut owners = [Owner::default(), Owner::default()];
        let mut recorded: Option<(usize, String)> = None;
        for digit in 0..5 {
            let step = order / steps.pow(digit) % steps;
            let owner = step / 3;
            match (step, step % 3) {
                (6, _) => expire(&store).await,
                (_, 0) => owners[owner].claim(&store, &idem).await,
                (_, 1) => {
                    if owners[owner].commit(&store, owner).await {
                        let now = record(&store, "key").await.unwrap();
                        let (first, text) = recorded.get_or_insert((owner, now.clone()));
                        assert_eq!((*first, &*text), (owner, &now), "two results in order {order}");
                    }
                }
                _ => owners[owner].abandon(&store).await,
            }
            if let Some((_, text)) = &recorded {
                assert_eq!(
                    record(&store, "key").await.as_ref(),
                    Some(text),
                    "a result went away in order {order}"
                );
            }
        }
    }
}

#[derive(Default)]
struct Owner {
    claim: Option<Claim>,
    run: Option<Run>,
}

impl Owner {
    /// Asks, or asks again: a repeat of the claim that it has.
    async fn claim(&mut self, store: &Arc<dyn Store>, idem: &Idempotency) {
        let claim = self.claim.get_or_insert_with(|| idem.call("key").claim().unwrap());
        let answer = store.commit(&claim.batch()).await.unwrap();
        if let ClaimOutcome::Mine(run) = claim.clone().outcome(Instant::now(), answer).unwrap() {
            self.run = Some(run);
        }
    }

    async fn commit(&mut self, store: &Arc<dyn Store>, value: usize) -> bool {
        let Some(run) = &self.run else { return false };
        matches!(
            run.committed(store.commit(&run.commit_batch(&value)).await.unwrap()),
            RecordOutcome::Recorded
        )
    }

    async fn abandon(&mut self, store: &Arc<dyn Store>) {
        let Some(run) = &self.run else { return };
        let _ = store.commit(&run.abandon_batch()).await.unwrap();
    }
}

async fn expire(store: &Arc<dyn Store>) {
    let key = Key::new("idem:key").unwrap();
    if let Some(claim) = store.get(&key).await.unwrap().filter(|text| !text.contains("ok")) {
        let _ = store.commit(&Batch::new().delete(&key, claim)).await.unwrap();
    }
}

#[test]
fn calls_can_be_spawned() {
    fn spawnable<T: Send>(_: T) {}
    let (idem, counter) = (engine(&memory(), LONG), Key::new("counter").unwrap());
    let writes =
        |_| async { Ok::<_, Sorry>((Batch::new().check(&counter, onetap_store::Expect::Absent), 1)) };
    spawnable(idem.execute("key", || async { Ok::<_, Sorry>(1) }));
    spawnable(idem.consume("key", LONG, || async { Ok::<_, Sorry>(()) }));
    spawnable(idem.transact("key", writes));
    spawnable(idem.resolve("key", Resolution::Done(1)));
}

#[tokio::test]
async fn records_are_the_json_that_the_docs_show() {
    let (store, runs) = (memory(), Runs::default());
    let idem = engine(&store, LONG);
    let held = idem.call("key").fingerprint("payload");
    let value = held.execute(|| async {
        let claim: serde_json::Value = serde_json::from_str(&record(&store, "key").await.unwrap()).unwrap();
        assert_eq!(claim["owner"].as_str().unwrap().len(), 32);
        assert_eq!(claim["fp"].as_str().unwrap(), "239f59ed55e737c77147cf55ad0c1b03");
        assert_eq!(claim.as_object().unwrap().len(), 2);
        runs.number().await
    });
    assert_eq!(value.await.unwrap().into_value(), 1);
    let result = record(&store, "key").await.unwrap();
    assert!(
        result.starts_with(r#"{"owner":""#)
            && result.ends_with(r#"","fp":"239f59ed55e737c77147cf55ad0c1b03","ok":1}"#)
    );
}

#[tokio::test]
async fn no_error_and_no_debug_shows_a_key_a_payload_or_a_value() {
    let (store, secret) = (memory(), fresh("SECRET"));
    let idem = engine(&store, LONG);
    let call = idem.call(&secret).fingerprint(&secret);
    let claim = call.claim().unwrap();
    let answer = store.commit(&claim.batch()).await.unwrap();
    let run = claim.clone().outcome(Instant::now(), answer).unwrap();
    let mut shown = format!("{idem:?} {call:?} {claim:?} {run:?} {:?}", Resolution::Done(&secret));
    let errors: Vec<Error<String, Infallible>> = vec![
        Error::InvalidKey,
        Error::Mismatch,
        Error::LostLease { value: secret.clone() },
        Error::Unrecorded { value: secret.clone(), error: onetap_store::Error::too_large(2, 1) },
    ];
    for error in errors {
        shown += &format!(" {error} {error:?}");
    }
    let ClaimOutcome::Mine(run) = run else { panic!("not claimed") };
    let _ = store.commit(&run.commit_batch(&secret)).await.unwrap();
    let claim = idem.call(&secret).claim().unwrap();
    let answer = store.commit(&claim.batch()).await.unwrap();
    let ClaimOutcome::Done(done) = claim.outcome(Instant::now(), answer).unwrap() else { panic!("not done") };
    shown += &format!(" {done:?} {:?}", done.value::<u8>().unwrap_err());
    assert!(!shown.contains("SECRET"), "{shown}");
}

#[test]
fn the_configuration_has_the_documented_defaults_and_names_what_is_wrong() {
    let read = |set: &[(&str, &str)]| {
        let set: Vec<(String, String)> = set.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        Config::from_variables(&Variables::from_lookup(move |name| {
            set.iter().find(|(variable, _)| variable == name).map(|(_, value)| value.clone())
        }))
    };
    assert_eq!(read(&[]).unwrap(), Config::default());
    let all = read(&[
        ("IDEM_PREFIX", "once:"),
        ("IDEM_DEFAULT_TTL_SECONDS", "60"),
        ("IDEM_LOCK_TTL_SECONDS", "5"),
        ("IDEM_WAIT_TIMEOUT_MS", "1500"),
        ("IDEM_WAIT_INTERVAL_MS", "20"),
    ]);
    let expected = Config::default()
        .prefix("once:")
        .result_ttl(Duration::from_secs(60))
        .lease_ttl(Duration::from_secs(5))
        .wait_timeout(Duration::from_millis(1500))
        .wait_interval(Duration::from_millis(20));
    assert_eq!(all.unwrap(), expected);
    for (variable, value) in [
        ("IDEM_PREFIX", "x".repeat(2000).as_str()),
        ("IDEM_DEFAULT_TTL_SECONDS", "0"),
        ("IDEM_DEFAULT_TTL_SECONDS", "99999999999"),
        ("IDEM_LOCK_TTL_SECONDS", "soon"),
        ("IDEM_WAIT_TIMEOUT_MS", "-1"),
        ("IDEM_WAIT_INTERVAL_MS", "0"),
    ] {
        assert_eq!(read(&[(variable, value)]).unwrap_err().variable(), variable);
    }
}
