//! One caller after another.

use std::collections::{BTreeSet, HashMap, HashSet};

use onetap_idem::{ConsumeOutcome, Failure, Policy};
use onetap_store::ErrorKind;
use serde_json::value::RawValue;

use super::*;

pub async fn a_repeat_gets_the_first_result_and_runs_nothing(store: Arc<dyn Store>) {
    let (idem, key, runs) = (engine(&store, LONG), fresh("repeat"), Runs::default());
    for _ in 0..3 {
        assert_eq!(idem.execute(&key, || runs.number()).await.unwrap(), 1);
    }
    assert_eq!(runs.count(), 1);
    // Another process, which shares nothing but the store.
    assert_eq!(engine(&store, LONG).execute(&key, || runs.number()).await.unwrap(), 1);
}

async fn replays(store: &Arc<dyn Store>, json: &str) {
    let (idem, key, runs) = (engine(store, LONG), fresh("bytes"), Runs::default());
    for _ in 0..2 {
        let run = || async {
            runs.add();
            Ok::<_, Infallible>(RawValue::from_string(json.to_owned()).unwrap())
        };
        assert_eq!(idem.execute(&key, run).await.unwrap().get(), json);
    }
    assert_eq!(runs.count(), 1, "{json}");
}

pub async fn every_json_value_replays_byte_for_byte(store: Arc<dyn Store>) {
    for json in [
        r#"{"z":1,"a":{"ok":null,"err":[]},"owner":"x"}"#,
        r#"{ "spaced" : [ 1.0, 1e400, 0.1000, -0 ] }"#,
        r#""午餐 120 \u0000 \"quoted\" \n""#,
        "123456789012345678901234567890.000000001",
    ] {
        replays(&store, json).await;
    }
    // Floats are where a value that went through text and back may differ.
    let (idem, key) = (engine(&store, LONG), fresh("float"));
    for _ in 0..2 {
        let value: f64 = idem.execute(&key, || async { Ok::<_, Infallible>(0.1 + 0.2) }).await.unwrap();
        assert_eq!(value.to_bits(), (0.1f64 + 0.2).to_bits());
    }
}

pub async fn falsy_values_replay_as_themselves(store: Arc<dyn Store>) {
    for json in ["null", "false", "0", r#""""#, "{}", "[]"] {
        replays(&store, json).await;
    }
    let (idem, key, runs) = (engine(&store, LONG), fresh("none"), Runs::default());
    for _ in 0..2 {
        let run = || async {
            runs.add();
            Ok::<Option<u8>, Infallible>(None)
        };
        assert_eq!(idem.execute(&key, run).await.unwrap(), None);
    }
    assert_eq!(runs.count(), 1);
}

pub async fn a_failure_is_returned_and_not_kept(store: Arc<dyn Store>) {
    let (idem, key, runs) = (engine(&store, LONG), fresh("failure"), Runs::default());
    let failing = || async { if runs.add() == 1 { Err(Sorry) } else { Ok(7) } };
    assert!(matches!(idem.execute(&key, failing).await, Err(Error::Function(Sorry))));
    assert_eq!(record(&store, &key).await, None, "the claim is released");
    assert_eq!(idem.execute(&key, failing).await.unwrap(), 7);
    assert_eq!(idem.execute(&key, failing).await.unwrap(), 7);
    assert_eq!(runs.count(), 2);
}

pub async fn a_permanent_failure_is_kept_and_replayed(store: Arc<dyn Store>) {
    let (idem, key, runs) = (engine(&store, LONG), fresh("permanent"), Runs::default());
    for _ in 0..2 {
        let run = || async {
            runs.add();
            Err::<(), _>(Failure::Permanent(Sorry))
        };
        let ended = idem.call(&key).execute_keeping_failures(run).await;
        assert!(matches!(ended, Err(Error::Function(Sorry))));
    }
    assert_eq!(runs.count(), 1);
}

pub async fn a_passing_failure_is_not_kept_where_permanent_ones_are(store: Arc<dyn Store>) {
    let (idem, key, runs) = (engine(&store, LONG), fresh("passing"), Runs::default());
    for expected in [None, Some(2), Some(2)] {
        let run = || async {
            match runs.add() {
                1 => Err(Sorry)?,
                n => Ok::<_, Failure<Sorry>>(n),
            }
        };
        assert_eq!(
            idem.call(&key).execute_keeping_failures(run).await.ok().map(Returned::into_value),
            expected
        );
    }
    assert_eq!(runs.count(), 2);
}

pub async fn a_kept_failure_is_not_run_again_by_one_who_cannot_read_it(store: Arc<dyn Store>) {
    let (idem, key, runs) = (engine(&store, LONG), fresh("kept"), Runs::default());
    let fail = || async { Err::<usize, _>(Failure::Permanent(Sorry)) };
    let _ = idem.call(&key).execute_keeping_failures(fail).await;
    let ended = idem.execute(&key, || runs.number()).await;
    let Err(Error::Store(error)) = ended else { panic!("{ended:?}") };
    assert_eq!(error.kind(), ErrorKind::Decode);
    assert!(error.to_string().contains("expected a value, or a failure of the type"), "{error}");
    assert_eq!(runs.count(), 0);
}

pub async fn consume_executes_once_and_then_says_so(store: Arc<dyn Store>) {
    let (idem, key, runs) = (engine(&store, LONG), fresh("consume"), Runs::default());
    for expected in [ConsumeOutcome::Executed, ConsumeOutcome::AlreadyDone, ConsumeOutcome::AlreadyDone] {
        let run = || async { runs.number().await.map(drop) };
        assert_eq!(idem.consume(&key, LONG, run).await.unwrap(), expected);
    }
    assert_eq!(runs.count(), 1);
    // Whatever the result was, it is done.
    let key = fresh("consume");
    idem.execute(&key, || runs.number()).await.unwrap();
    let again = || async { Ok::<_, Sorry>(()) };
    assert_eq!(idem.consume(&key, LONG, again).await.unwrap(), ConsumeOutcome::AlreadyDone);
}

pub async fn consume_does_not_wait(store: Arc<dyn Store>) {
    let (idem, key) = (engine(&store, LONG), fresh("consume"));
    let _owner = claim(&store, &idem, &key).await;
    let run = || async { Ok::<_, Sorry>(()) };
    assert_eq!(idem.consume(&key, LONG, run).await.unwrap(), ConsumeOutcome::InProgress);
    // Neither does a call that is told not to.
    let ended = idem.call(&key).without_waiting().execute(|| async { Ok::<_, Sorry>(1) }).await;
    assert!(matches!(ended, Err(Error::InProgress { .. })));
}

pub async fn consume_runs_again_what_failed(store: Arc<dyn Store>) {
    let (idem, key) = (engine(&store, LONG), fresh("consume"));
    let failed = idem.consume(&key, LONG, || async { Err(Sorry) }).await;
    assert!(matches!(failed, Err(Error::Function(Sorry))));
    assert_eq!(
        idem.consume(&key, LONG, || async { Ok::<_, Sorry>(()) }).await.unwrap(),
        ConsumeOutcome::Executed
    );
}

pub async fn a_key_has_1_to_256_bytes(store: Arc<dyn Store>) {
    let faulty = TestStore::counting(store);
    let (idem, runs) = (over(&faulty, LONG), Runs::default());
    for key in ["", &"k".repeat(257), &"鍵".repeat(86)] {
        assert!(matches!(idem.execute(key, || runs.number()).await, Err(Error::InvalidKey)));
        assert!(matches!(idem.call(key).claim(), Err(Error::InvalidKey)));
    }
    assert_eq!((faulty.calls(), runs.count()), (0, 0));
    let longest = format!("{}{}", unique_token(), "k".repeat(256 - 32));
    assert_eq!(idem.execute(&longest, || runs.number()).await.unwrap(), 1);
}

pub async fn the_same_payload_replays_and_another_is_refused(store: Arc<dyn Store>) {
    let (idem, key, runs) = (engine(&store, LONG), fresh("payload"), Runs::default());
    for _ in 0..2 {
        assert_eq!(
            idem.call(&key).fingerprint("pay 10").execute(|| runs.number()).await.unwrap().into_value(),
            1
        );
    }
    let before = record(&store, &key).await;
    let other = idem.call(&key).fingerprint("pay 20").execute(|| runs.number()).await;
    assert!(matches!(other, Err(Error::Mismatch)));
    assert_eq!(record(&store, &key).await, before, "nothing changed");
    assert_eq!(runs.count(), 1);
    // One who tells no payload has none to compare.
    assert_eq!(idem.execute(&key, || runs.number()).await.unwrap(), 1);
}

pub async fn another_payload_is_refused_while_the_first_runs(store: Arc<dyn Store>) {
    let (idem, key, runs) = (engine(&store, LONG), fresh("payload"), Runs::default());
    let first = || async {
        let during = record(&store, &key).await;
        let other = idem.call(&key).fingerprint("pay 20").execute(|| runs.number()).await;
        assert!(matches!(other, Err(Error::Mismatch)));
        assert_eq!(record(&store, &key).await, during, "nothing changed");
        runs.number().await
    };
    assert_eq!(idem.call(&key).fingerprint("pay 10").execute(first).await.unwrap().into_value(), 1);
    assert_eq!(runs.count(), 1);
}

pub async fn an_input_that_the_function_changes_keeps_its_fingerprint(store: Arc<dyn Store>) {
    let (idem, key) = (engine(&store, LONG), fresh("input"));
    for _ in 0..2 {
        let mut input = vec![1, 2, 3];
        let call = idem.call(&key).payload(&input);
        let left = call.execute(|| async {
            input.clear();
            Ok::<_, Infallible>(input.len())
        });
        assert_eq!(left.await.unwrap().into_value(), 0);
    }
}

/// A list has an order, and JSON writes a set as a list.
pub async fn a_payload_that_is_a_set_is_the_same_if_it_is_sorted(store: Arc<dyn Store>) {
    let (idem, key, runs) = (engine(&store, LONG), fresh("set"), Runs::default());
    // Two equal sets have the same order once in 64! times.
    let set = || (0..64).collect::<HashSet<usize>>();
    for _ in 0..8 {
        let call = idem.call(&key).payload(&set().iter().collect::<BTreeSet<_>>());
        assert_eq!(call.execute(|| runs.number()).await.unwrap().into_value(), 1);
    }
    let key = fresh("unsorted set");
    assert_eq!(idem.call(&key).payload(&set()).execute(|| runs.number()).await.unwrap().into_value(), 2);
    let again = idem.call(&key).payload(&set()).execute(|| runs.number()).await;
    assert!(matches!(again, Err(Error::Mismatch)), "{again:?}");
}

pub async fn a_payloads_maps_have_no_order(store: Arc<dyn Store>) {
    let (idem, key, runs) = (engine(&store, LONG), fresh("map"), Runs::default());
    for _ in 0..8 {
        let payload: HashMap<String, usize> = (0..32).map(|n| (n.to_string(), n)).collect();
        let call = idem.call(&key).payload(&payload);
        assert_eq!(call.execute(|| runs.number()).await.unwrap().into_value(), 1);
    }
}

pub async fn a_result_over_a_mebibyte_is_returned_and_not_kept(store: Arc<dyn Store>) {
    let (idem, key, runs) = (engine(&store, LONG), fresh("large"), Runs::default());
    let run = || async {
        runs.add();
        Ok::<_, Sorry>("x".repeat(1 << 20))
    };
    assert_eq!(idem.execute(&key, run).await.unwrap().len(), 1 << 20);
    assert!(matches!(idem.execute(&key, run).await, Err(Error::NotKept)));
    assert_eq!(idem.consume(&key, LONG, || async { Err(Sorry) }).await.unwrap(), ConsumeOutcome::AlreadyDone);
    assert_eq!(runs.count(), 1);
}

pub async fn a_failure_over_a_mebibyte_is_returned_and_not_kept(store: Arc<dyn Store>) {
    let (idem, key, runs) = (engine(&store, LONG), fresh("large"), Runs::default());
    let run = || async {
        runs.add();
        Err::<(), _>(Failure::Permanent("x".repeat(1 << 20)))
    };
    let first = idem.call(&key).execute_keeping_failures(run).await;
    assert!(matches!(first, Err(Error::Function(text)) if text.len() == 1 << 20));
    assert!(matches!(idem.call(&key).execute_keeping_failures(run).await, Err(Error::NotKept)));
    assert_eq!(runs.count(), 1);
}

pub async fn a_result_of_a_mebibyte_is_kept_where_the_store_takes_it(store: Arc<dyn Store>) {
    let (idem, key, runs) = (engine(&store, LONG), fresh("large"), Runs::default());
    // Two of the bytes are its quotes.
    let run = || async {
        runs.add();
        Ok::<_, Sorry>("x".repeat((1 << 20) - 2))
    };
    assert_eq!(idem.execute(&key, run).await.unwrap().len(), (1 << 20) - 2);
    match idem.execute(&key, run).await {
        Ok(text) => assert_eq!(text.len(), (1 << 20) - 2),
        Err(error) => assert!(matches!(error, Error::NotKept) && store.max_value() <= 1 << 20),
    }
    assert_eq!(runs.count(), 1);
}

pub async fn a_result_of_escapes_counts_as_what_they_stand_for(store: Arc<dyn Store>) {
    // JSON writes a quote as two bytes and a control character as six.
    for (text, written) in [("\"", 2), ("\u{1}", 6), ("\\", 2), ("錢", 3)] {
        let (idem, key, runs) = (engine(&store, LONG), fresh("escapes"), Runs::default());
        let value = text.repeat(900_000 / text.len());
        let run = || async {
            runs.add();
            Ok::<_, Sorry>(value.clone())
        };
        assert!(idem.execute(&key, run).await.unwrap() == value);
        match idem.execute(&key, run).await {
            Ok(again) => assert!(again == value),
            Err(error) => assert!(
                matches!(error, Error::NotKept) && store.max_value() <= 900_000 / text.len() * written + 200,
                "{error:?} for {text:?}"
            ),
        }
        assert_eq!(runs.count(), 1);
    }
    // What is over a mebibyte as it is stays too large, however it is written.
    let (idem, key) = (engine(&store, LONG), fresh("escapes"));
    let run = || async { Ok::<_, Sorry>("\"".repeat(1 << 20)) };
    assert_eq!(idem.execute(&key, run).await.unwrap().len(), 1 << 20);
    assert!(matches!(idem.execute(&key, run).await, Err(Error::NotKept)));
}

/// Has more to say than its JSON does.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Lossy {
    nested: Option<Option<u8>>,
    #[serde(skip)]
    skipped: u8,
}

pub async fn the_first_result_is_what_its_replay_will_be(store: Arc<dyn Store>) {
    let idem = engine(&store, LONG);
    let given = Lossy { nested: Some(None), skipped: 7 };
    let carried = Lossy { nested: None, skipped: 0 };
    let (executed, transacted, failed) = (fresh("same"), fresh("same"), fresh("same"));
    for _ in 0..2 {
        let value = idem.execute(&executed, || async { Ok::<_, Sorry>(Some(None::<u8>)) }).await.unwrap();
        assert_eq!(value, None, "JSON has one null: the first caller is told what the second will be");
        let writes = |_| async { Ok::<_, Sorry>((onetap_store::Batch::new(), given)) };
        assert_eq!(idem.transact(&transacted, writes).await.unwrap(), carried);
        let fail = || async { Err::<(), _>(Failure::Permanent(given)) };
        let error = idem.call(&failed).execute_keeping_failures(fail).await;
        assert!(matches!(error, Err(Error::Function(error)) if error == carried));
    }
    // What was not kept has no replay, and stays what it is.
    let fail = || async { Err::<(), _>(Failure::Transient(given)) };
    let error = idem.call(&fresh("same")).execute_keeping_failures(fail).await;
    assert!(matches!(error, Err(Error::Function(error)) if error == given));
}

pub async fn a_value_that_json_cannot_carry_is_returned_and_not_kept(store: Arc<dyn Store>) {
    let (idem, key, runs) = (engine(&store, LONG), fresh("nan"), Runs::default());
    let run = || async {
        runs.add();
        Ok::<_, Sorry>(f64::NAN)
    };
    assert!(idem.execute(&key, run).await.unwrap().is_nan());
    assert!(matches!(idem.execute(&key, run).await, Err(Error::NotKept)));
    assert_eq!(runs.count(), 1);
}

pub async fn nested_and_parallel_calls_keep_their_own_keys_and_configurations(store: Arc<dyn Store>) {
    let (outer, inner) = (fresh("outer"), fresh("inner"));
    let one = engine(&store, LONG);
    let two = Idempotency::with_config(
        Arc::clone(&store),
        config(LONG).prefix("other:").policy(Policy::AtMostOnce),
    );
    for _ in 0..2 {
        let nested = || async {
            let (a, b) = tokio::join!(
                one.execute(&inner, || async { Ok::<_, Sorry>("inner".to_owned()) }),
                two.execute(&inner, || async { Ok::<_, Sorry>("other".to_owned()) }),
            );
            Ok::<_, Sorry>(format!("{} and {}", a.unwrap(), b.unwrap()))
        };
        assert_eq!(one.execute(&outer, nested).await.unwrap(), "inner and other");
    }
    assert!(record(&store, &inner).await.unwrap().contains(r#""ok":"inner""#));
    let other = store.get(&Key::new(format!("other:{inner}")).unwrap()).await.unwrap().unwrap();
    assert!(other.contains(r#""ok":"other""#));
}

pub async fn a_result_is_forgotten_after_its_life(store: Arc<dyn Store>) {
    let (idem, key, runs) = (engine(&store, LONG), fresh("life"), Runs::default());
    assert_eq!(idem.call(&key).ttl(SHORT).execute(|| runs.number()).await.unwrap().into_value(), 1);
    sleep(LAPSED).await;
    assert_eq!(idem.execute(&key, || runs.number()).await.unwrap(), 2);
}

pub async fn an_unreadable_record_stops_the_call_and_stays(store: Arc<dyn Store>) {
    let runs = Runs::default();
    for text in ["1", "", "{}", r#"{"owner":"a","ok":1,"err":2}"#, r#"{"owner":"a","kept":true}"#] {
        // An empty value cannot be kept everywhere.
        let text = if text.is_empty() { "not JSON" } else { text };
        let (idem, key) = (engine(&store, LONG), fresh("unreadable"));
        plant(&store, &key, text).await;
        let ended = idem.execute(&key, || runs.number()).await;
        assert!(
            matches!(&ended, Err(Error::Store(error)) if error.kind() == ErrorKind::Decode),
            "{text}: {ended:?}"
        );
        assert_eq!(record(&store, &key).await.as_deref(), Some(text));
    }
    // A result of another type is one, too.
    let (idem, key) = (engine(&store, LONG), fresh("unreadable"));
    plant(&store, &key, r#"{"owner":"a","ok":"text","since":"a newer version"}"#).await;
    let ended = idem.execute(&key, || runs.number()).await;
    assert!(matches!(&ended, Err(Error::Store(error)) if error.kind() == ErrorKind::Decode));
    assert_eq!(runs.count(), 0);
}

pub async fn a_cached_result_costs_no_round_trip_and_still_knows_its_payload(store: Arc<dyn Store>) {
    let faulty = TestStore::counting(Arc::clone(&store));
    let cached = config(LONG).cache_size(2);
    let (idem, runs) =
        (Idempotency::with_config(Arc::clone(&faulty) as Arc<dyn Store>, cached), Runs::default());
    let keys: Vec<String> = (0..3).map(|_| fresh("cache")).collect();
    let call = |n: usize, payload: &str| idem.call(&keys[n]).fingerprint(payload).ttl(LONG);

    assert_eq!(call(0, "a").execute(|| runs.number()).await.unwrap().into_value(), 1);
    assert_eq!(faulty.calls(), 2);
    assert_eq!(call(0, "a").execute(|| runs.number()).await.unwrap().into_value(), 1);
    assert!(matches!(call(0, "b").execute(|| runs.number()).await, Err(Error::Mismatch)));
    assert_eq!(faulty.calls(), 2, "no further call");

    // Bounded: the third pushes out the first, which the store still has.
    assert_eq!(call(1, "a").execute(|| runs.number()).await.unwrap().into_value(), 2);
    assert_eq!(call(2, "a").execute(|| runs.number()).await.unwrap().into_value(), 3);
    assert_eq!(faulty.calls(), 6);
    assert_eq!(call(2, "a").execute(|| runs.number()).await.unwrap().into_value(), 3);
    assert_eq!(call(0, "a").execute(|| runs.number()).await.unwrap().into_value(), 1);
    assert_eq!(faulty.calls(), 7);

    // It forgets when the store does.
    let key = fresh("cache");
    assert_eq!(idem.call(&key).ttl(SHORT).execute(|| runs.number()).await.unwrap().into_value(), 4);
    sleep(LAPSED).await;
    assert_eq!(idem.call(&key).execute(|| runs.number()).await.unwrap().into_value(), 5);
}

pub async fn a_call_costs_2_round_trips_a_replay_1_and_elsewhere_1(store: Arc<dyn Store>) {
    let faulty = TestStore::counting(Arc::clone(&store));
    let (idem, key, runs) = (over(&faulty, LONG), fresh("budget"), Runs::default());
    idem.execute(&key, || runs.number()).await.unwrap();
    assert_eq!(faulty.calls(), 2, "first");
    idem.execute(&key, || runs.number()).await.unwrap();
    assert_eq!(faulty.calls(), 3, "replay");

    let key = fresh("budget");
    let _owner = claim(&store, &engine(&store, LONG), &key).await;
    assert_eq!(idem.consume(&key, LONG, || async { Err(Sorry) }).await.unwrap(), ConsumeOutcome::InProgress);
    assert_eq!(faulty.calls(), 4, "running elsewhere");

    let key = fresh("budget");
    assert!(idem.execute(&key, || async { Err::<u8, _>(Sorry) }).await.is_err());
    assert_eq!(faulty.calls(), 6, "failure");
}

pub async fn a_takeover_costs_2_round_trips(store: Arc<dyn Store>) {
    let (key, runs) = (fresh("takeover"), Runs::default());
    let _owner = claim(&store, &engine(&store, SHORT), &key).await;
    sleep(LAPSED).await;
    let faulty = TestStore::counting(store);
    over(&faulty, LONG).execute(&key, || runs.number()).await.unwrap();
    assert_eq!((faulty.calls(), runs.count()), (2, 1));
}
