//! Effects in the store, committed with their result.

use std::sync::atomic::AtomicBool;

use futures_util::future::join_all;
use onetap_idem::Policy;
use onetap_store::testing::{Fault, Gate, random};
use onetap_store::{Batch, ErrorKind, MAX_WRITES, Values};

use super::*;

/// The effect: one more, by compare-and-swap, from what a refusal brings or else from what is read.
async fn increment(
    store: &Arc<dyn Store>,
    counter: &Key,
    refusal: Values,
) -> Result<(Batch, usize), onetap_store::Error> {
    let there = match refusal.knows(counter) {
        true => refusal.get(counter).map(str::to_owned),
        false => store.get(counter).await?,
    };
    let next = there.as_deref().map_or(0, |text| text.parse().unwrap()) + 1;
    let expect = there.map_or(Expect::Absent, Expect::Is);
    Ok((Batch::new().put(counter, expect, next.to_string(), LONG), next))
}

fn counter() -> Key {
    Key::new(fresh("counter")).unwrap()
}

async fn count(store: &Arc<dyn Store>, counter: &Key) -> usize {
    store.get(counter).await.unwrap().map_or(0, |text| text.parse().unwrap())
}

pub async fn a_transaction_writes_its_effect_with_its_result(store: Arc<dyn Store>) {
    let faulty = TestStore::counting(Arc::clone(&store));
    let (idem, key, counter) = (over(&faulty, LONG), fresh("transact"), counter());
    for _ in 0..3 {
        assert_eq!(idem.transact(&key, |refusal| increment(&store, &counter, refusal)).await.unwrap(), 1);
    }
    assert_eq!(count(&store, &counter).await, 1);
    assert_eq!(faulty.calls(), 2 + 1 + 1);
}

pub async fn a_refused_transaction_is_made_anew_from_what_is_there(store: Arc<dyn Store>) {
    let (idem, key, counter, runs) = (engine(&store, LONG), fresh("transact"), counter(), Runs::default());
    let raced = |refusal: Values| {
        let (store, counter, runs) = (&store, &counter, &runs);
        async move {
            let first = refusal.is_empty();
            assert_eq!(first, runs.add() == 1);
            let made = increment(store, counter, refusal).await?;
            if first {
                // Between the read and the write, somebody else.
                let (rival, _) = increment(store, counter, Values::default()).await?;
                assert!(matches!(store.commit(&rival).await?, Commit::Applied(_)));
            }
            Ok::<_, onetap_store::Error>(made)
        }
    };
    assert_eq!(idem.transact(&key, raced).await.unwrap(), 2);
    assert_eq!((count(&store, &counter).await, runs.count()), (2, 2));
}

pub async fn what_an_earlier_round_had_written_is_the_result(store: Arc<dyn Store>) {
    let (idem, key, counter) = (engine(&store, LONG), fresh("transact"), counter());
    let mine = Key::new(format!("idem:{key}")).unwrap();
    let work = |refusal: Values| {
        let (store, counter, mine) = (&store, &counter, &mine);
        async move {
            if !refusal.is_empty() {
                // A copy of the first round's batch lands only now.
                let claim = store.get(mine).await?.unwrap();
                let result = claim.replace('}', r#","ok":"first"}"#);
                let _ = store.commit(&Batch::new().put(mine, Expect::Is(claim), result, LONG)).await?;
                return Ok((Batch::new(), "second".to_owned()));
            }
            Ok::<_, onetap_store::Error>((
                Batch::new().check(counter, Expect::Is("never".into())),
                "first".to_owned(),
            ))
        }
    };
    assert_eq!(idem.transact(&key, work).await.unwrap(), "first");
    assert_eq!(idem.transact(&key, work).await.unwrap(), "first");
}

pub async fn a_transaction_needs_no_policy(store: Arc<dyn Store>) {
    let (key, counter) = (fresh("transact"), counter());
    let careful = config(SHORT).policy(Policy::AtMostOnce);
    let gate = Gate::new();
    let held = TestStore::first(Arc::clone(&store), vec![Fault::HeldAfter(gate.clone())]);
    let held = Idempotency::with_config(held, careful.clone());
    tokio::select! {
        _ = held.transact(&key, |refusal| increment(&store, &counter, refusal)) => panic!("it is held"),
        () = gate.reached() => {}
    }
    // Under the policy's own rule this would be unknown for ever. Here it is known: without a record, no effect.
    let work = |refusal| increment(&store, &counter, refusal);
    assert_eq!(Idempotency::with_config(Arc::clone(&store), careful).transact(&key, work).await.unwrap(), 1);
}

pub async fn a_transaction_that_gives_up_writes_nothing(store: Arc<dyn Store>) {
    let (idem, key, counter) = (engine(&store, LONG), fresh("transact"), counter());
    let ended = idem.transact(&key, |_| async { Err::<(Batch, ()), _>(Sorry) }).await;
    assert!(matches!(ended, Err(Error::Function(Sorry))));
    // On its second round, too.
    let mut rounds = 0;
    let stubborn = |refusal: Values| {
        rounds += 1;
        let counter = counter.clone();
        async move {
            match refusal.is_empty() {
                true => Ok((Batch::new().put(&counter, Expect::Is("never".into()), "1", LONG), ())),
                false => Err(Sorry),
            }
        }
    };
    assert!(matches!(idem.transact(&key, stubborn).await, Err(Error::Function(Sorry))));
    assert_eq!((rounds, count(&store, &counter).await, record(&store, &key).await), (2, 0, None));
}

pub async fn a_transaction_that_can_never_be_written_ends(store: Arc<dyn Store>) {
    let (idem, key, counter) = (engine(&store, LONG), fresh("transact"), counter());
    let hopeless = |_| {
        let batch = Batch::new().put(&counter, Expect::Is("never".into()), "1", LONG);
        async { Ok::<_, Sorry>((batch, ())) }
    };
    assert!(matches!(idem.transact(&key, hopeless).await, Err(Error::Store(error)) if error.is_retryable()));
    assert_eq!(record(&store, &key).await, None);
}

pub async fn a_transaction_has_room_for_one_write_less_than_a_batch(store: Arc<dyn Store>) {
    let idem = engine(&store, LONG);
    let write = |count: usize| {
        let keys = (0..count).map(|_| counter());
        let batch = keys.fold(Batch::new(), |batch, key| batch.put(&key, Expect::Absent, "1", LONG));
        let idem = &idem;
        async move {
            idem.transact(&fresh("transact"), |_| std::future::ready(Ok::<_, Sorry>((batch.clone(), ()))))
                .await
        }
    };
    assert_eq!(MAX_WRITES, 50);
    assert!(write(49).await.is_ok());
    assert!(matches!(write(50).await, Err(Error::Store(error)) if !error.is_retryable()));
}

pub async fn a_transaction_that_the_store_rejects_lets_go(store: Arc<dyn Store>) {
    let (idem, key) = (engine(&store, LONG), fresh("transact"));
    let mine = Key::new(format!("idem:{key}")).unwrap();
    let greedy = |_| {
        let batch = Batch::new().put(&mine, Expect::Absent, "its own record", LONG);
        async { Ok::<_, Sorry>((batch, ())) }
    };
    let ended = idem.transact(&key, greedy).await;
    assert!(matches!(&ended, Err(Error::Store(error)) if error.kind() == ErrorKind::Rejected), "{ended:?}");
    assert_eq!(record(&store, &key).await, None);
}

pub async fn a_result_that_makes_its_transaction_too_large_is_not_kept(store: Arc<dyn Store>) {
    let idem = engine(&store, LONG);
    let result = "r".repeat(store.max_value().min(1 << 20) - 4096);
    let mut pushed_over = 0;
    // What DynamoDB takes in one transaction, and Upstash in one request; the others have no such limit.
    for whole in [4 << 20, 10_000_000] {
        let (key, runs) = (fresh("transact"), Runs::default());
        let effect: Vec<Key> = (0..11).map(|_| Key::new(fresh("effect")).unwrap()).collect();
        let text = "e".repeat((whole - result.len() / 2) / effect.len());
        if text.len() > store.max_value() {
            continue;
        }
        let work = |_| {
            runs.add();
            let writes = |batch: Batch, key| batch.put(key, Expect::Absent, text.as_str(), LONG);
            let made = (effect.iter().fold(Batch::new(), writes), result.clone());
            async { Ok::<_, Sorry>(made) }
        };
        assert!(idem.transact(&key, work).await.unwrap() == result, "{whole}");
        match idem.transact(&key, work).await {
            Ok(replayed) => assert!(replayed == result, "{whole}"),
            Err(Error::NotKept) => pushed_over += 1,
            Err(error) => panic!("{whole}: {error:?}"),
        }
        assert_eq!(runs.count(), 1, "{whole}");
        for key in &effect {
            assert!(store.get(key).await.unwrap().as_deref() == Some(&text), "{whole}");
        }
    }
    assert_eq!(pushed_over, usize::from(limits_batches(&store)), "{store:?}");
}

/// Whether the store limits a batch besides its values.
fn limits_batches(store: &Arc<dyn Store>) -> bool {
    ["DynamoDb", "Rest"].iter().any(|name| format!("{store:?}").contains(name))
}

pub async fn a_transaction_that_is_too_large_without_its_result_writes_nothing(store: Arc<dyn Store>) {
    let (idem, key) = (engine(&store, LONG), fresh("transact"));
    let effect: Vec<Key> = (0..24).map(|_| Key::new(fresh("effect")).unwrap()).collect();
    let text = "e".repeat(store.max_value().min(500_000));
    let work = |_| {
        let writes = |batch: Batch, key| batch.put(key, Expect::Absent, text.as_str(), LONG);
        let made = (effect.iter().fold(Batch::new(), writes), ());
        async { Ok::<_, Sorry>(made) }
    };
    match idem.transact(&key, work).await {
        Ok(()) => assert!(!limits_batches(&store), "{store:?}"),
        Err(Error::Store(error)) if error.kind() == ErrorKind::TooLarge => {
            for key in &effect {
                assert_eq!(store.get(key).await.unwrap(), None);
            }
            assert_eq!(record(&store, &key).await, None, "and the key is free");
        }
        Err(error) => panic!("{error:?}"),
    }
}

pub async fn a_transaction_overtaken_by_its_successor_writes_nothing(store: Arc<dyn Store>) {
    let (key, counter) = (fresh("transact"), counter());
    // Cut off from the store while it works, so that its claim lapses: not at the claim, which may take long.
    let working = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&working);
    let cut_off = TestStore::faulty(Arc::clone(&store), move |_| {
        if seen.load(Ordering::SeqCst) { Fault::NotSent } else { Fault::Pass }
    });
    let slow = |refusal| {
        let (store, key, counter, working) = (&store, &key, &counter, &working);
        async move {
            working.store(true, Ordering::SeqCst);
            sleep(LAPSED).await;
            let successor =
                engine(store, LONG).transact(key, |refusal| increment(store, counter, refusal)).await;
            assert_eq!(successor.unwrap(), 1);
            let made = increment(store, counter, refusal).await;
            working.store(false, Ordering::SeqCst);
            made
        }
    };
    let ended = over(&cut_off, SHORT).transact(&key, slow).await;
    assert!(matches!(ended, Err(Error::LostLease { .. })), "{ended:?}");
    assert_eq!(count(&store, &counter).await, 1);
}

/// Where a process dies.
#[derive(Clone, Copy, Debug)]
enum Step {
    BeforeTheClaim,
    AfterTheClaim,
    InTheFunction,
    BeforeTheCommit,
    AfterTheCommit,
}

const STEPS: [Step; 5] = [
    Step::BeforeTheClaim,
    Step::AfterTheClaim,
    Step::InTheFunction,
    Step::BeforeTheCommit,
    Step::AfterTheCommit,
];

/// One attempt that dies at `step`, or ends before it comes there.
async fn killed_at(step: Step, store: &Arc<dyn Store>, key: &str, counter: &Key) -> Option<usize> {
    let gate = Gate::new();
    let faults = match step {
        Step::BeforeTheClaim => vec![Fault::HeldBefore(gate.clone())],
        Step::AfterTheClaim => vec![Fault::HeldAfter(gate.clone())],
        Step::InTheFunction => vec![],
        Step::BeforeTheCommit => vec![Fault::Pass, Fault::HeldBefore(gate.clone())],
        Step::AfterTheCommit => vec![Fault::Pass, Fault::HeldAfter(gate.clone())],
    };
    let faulty = TestStore::first(Arc::clone(store), faults);
    let idem = over(&faulty, SHORT);
    let inside = TestStore::first(Arc::clone(store), vec![Fault::HeldBefore(gate.clone())]);
    let work = |refusal| {
        let inside: Arc<dyn Store> = match step {
            Step::InTheFunction => Arc::clone(&inside) as Arc<dyn Store>,
            _ => Arc::clone(store),
        };
        async move { increment(&inside, counter, refusal).await }
    };
    tokio::select! {
        ended = idem.transact(key, work) => Some(ended.unwrap()),
        () = gate.reached() => None,
    }
}

pub async fn a_transaction_killed_at_every_step_and_retried_has_one_effect(store: Arc<dyn Store>) {
    for hundred in 0..5 {
        join_all((0..100).map(|n| {
            let (store, trial) = (&store, hundred * 100 + n);
            async move {
                let (key, counter) = (fresh("killed"), counter());
                let (first, second) = (STEPS[trial % 5], STEPS[trial / 5 % 5]);
                for step in [first, second] {
                    let ended = killed_at(step, store, &key, &counter).await;
                    assert!(ended.is_none_or(|value| value == 1), "{first:?}, {second:?}");
                }
                let work = |refusal| increment(store, &counter, refusal);
                let value = engine(store, SHORT).transact(&key, work).await.unwrap();
                assert_eq!((value, count(store, &counter).await), (1, 1), "{first:?}, {second:?}");
            }
        }))
        .await;
    }
}

pub async fn a_transaction_whose_replies_get_lost_has_one_effect(store: Arc<dyn Store>) {
    let counter = counter();
    for round in 1..=40usize {
        // One call in three goes wrong, another way in every round, never five in a row.
        let faulty = TestStore::faulty(Arc::clone(&store), move |call| {
            match random::Random::new((round * 100 + call) as u64).below(6) {
                0 if call < 5 => Fault::ReplyLost,
                1 if (2..5).contains(&call) => Fault::NotSent,
                _ => Fault::Pass,
            }
        });
        let work = |refusal| increment(&store, &counter, refusal);
        let value = over(&faulty, LONG).transact(&fresh("lost"), work).await.unwrap();
        assert_eq!((value, count(&store, &counter).await), (round, round));
    }
}

pub async fn a_transaction_dropped_at_any_point_has_one_effect(store: Arc<dyn Store>) {
    let trials = (0..16).flat_map(|polls| stopping(&store).map(|faulty| (polls, faulty)));
    join_all(trials.map(|(polls, faulty)| {
        let store = &store;
        async move {
            let (key, counter) = (fresh("dropped"), counter());
            let idem = over(&faulty, SHORT);
            let _ = dropped_after(polls, idem.transact(&key, |refusal| increment(store, &counter, refusal)))
                .await;
            let work = |refusal| increment(store, &counter, refusal);
            assert_eq!(engine(store, SHORT).transact(&key, work).await.unwrap(), 1);
            assert_eq!(count(store, &counter).await, 1, "{polls} polls");
        }
    }))
    .await;
}

pub async fn racing_transactions_of_different_keys_lose_no_effect(store: Arc<dyn Store>) {
    let counter = counter();
    join_all((0..4).map(|_| {
        let (store, counter) = (&store, &counter);
        async move {
            for _ in 0..5 {
                let work = |refusal| increment(store, counter, refusal);
                engine(store, LONG).transact(&fresh("race"), work).await.unwrap();
            }
        }
    }))
    .await;
    assert_eq!(count(&store, &counter).await, 20);
}
