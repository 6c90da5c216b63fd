//! A run is told from a replay, and a function works on the payload of its key.

use std::collections::HashMap;

use onetap_idem::Failure;
use onetap_store::testing::{Fault, Gate};
use onetap_store::{Batch, Edit};

use super::*;

pub async fn the_first_call_is_executed_and_its_repeats_are_replayed(store: Arc<dyn Store>) {
    let idem = engine(&store, LONG);
    let [executed, kept, transacted, edited] = [(); 4].map(|()| fresh("returned"));
    let counter = Key::new(fresh("counter")).unwrap();
    for returned in [Returned::Executed, Returned::Replayed, Returned::Replayed] {
        let got = idem.call(&executed).execute(|| async { Ok::<_, Sorry>(7) }).await;
        assert_eq!(got.unwrap(), returned(7));
        let permanent = || async { Ok::<_, Failure<Sorry>>(7) };
        assert_eq!(idem.call(&kept).execute_keeping_failures(permanent).await.unwrap(), returned(7));
        let writes = |_| async { Ok::<_, Sorry>((Batch::new(), 7)) };
        assert_eq!(idem.call(&transacted).transact(writes).await.unwrap(), returned(7));
        let edit = idem.call(&edited).edit(Edit::of(&counter), |there| {
            Ok::<_, Sorry>((Batch::new().put(&counter, there.expect(&counter), "7", LONG), 7))
        });
        assert_eq!(edit.await.unwrap(), returned(7));
    }
}

pub async fn one_that_waited_for_another_is_replayed(store: Arc<dyn Store>) {
    let (key, gate) = (fresh("waited"), Gate::default());
    // The waiter's first look meets the claim, and is answered before the function ends.
    let faulty = TestStore::first(Arc::clone(&store), vec![Fault::HeldAfter(gate.clone())]);
    let (idem, waiter) = (engine(&store, LONG), over(&faulty, LONG));
    let (begin, begun) = tokio::sync::oneshot::channel();
    let slow = || async {
        begin.send(()).unwrap();
        gate.reached().await;
        gate.open();
        Ok::<_, Sorry>(7)
    };
    let (first, second) = tokio::join!(idem.call(&key).execute(slow), async {
        begun.await.unwrap();
        waiter.call(&key).execute(|| async { Ok::<_, Sorry>(8) }).await
    });
    assert_eq!((first.unwrap(), second.unwrap()), (Returned::Executed(7), Returned::Replayed(7)));
    assert!(faulty.calls() > 1, "it has waited");
}

pub async fn a_result_from_the_cache_is_replayed(store: Arc<dyn Store>) {
    let (key, faulty) = (fresh("cached"), TestStore::counting(Arc::clone(&store)));
    let cached = config(LONG).cache_size(1);
    let idem = Idempotency::with_config(Arc::clone(&faulty) as Arc<dyn Store>, cached);
    let call = || idem.call(&key).execute(|| async { Ok::<_, Sorry>(7) });
    assert_eq!(call().await.unwrap(), Returned::Executed(7));
    let asked = faulty.calls();
    assert_eq!(call().await.unwrap(), Returned::Replayed(7));
    assert_eq!(faulty.calls(), asked);
}

pub async fn a_takeover_is_executed(store: Arc<dyn Store>) {
    let (key, idem) = (fresh("takeover"), engine(&store, SHORT));
    let _gone = claim(&store, &idem, &key).await;
    let taker = idem.call(&key).execute(|| async { Ok::<_, Sorry>(7) });
    assert_eq!(taker.await.unwrap(), Returned::Executed(7));
}

pub async fn the_function_works_on_the_payload_that_its_key_is_tied_to(store: Arc<dyn Store>) {
    let (key, idem) = (fresh("payload"), engine(&store, LONG));
    let double = |n: &usize| {
        let n = *n;
        async move { Ok::<_, Sorry>(n * 2) }
    };
    assert_eq!(idem.execute_with(&key, &21, double).await.unwrap(), 42);
    assert_eq!(idem.call(&key).execute_with(&21, double).await.unwrap(), Returned::Replayed(42));
    assert!(matches!(idem.execute_with(&key, &22, double).await, Err(Error::Mismatch)));
    // A payload that is borrowed for as long as the function runs, and is no `Sized` one.
    let length = async |words: &[String]| Ok::<_, Sorry>(words.concat().len());
    let words = ["a".to_owned(), "b".to_owned()];
    assert_eq!(idem.execute_with(&fresh("payload"), &words[..], length).await.unwrap(), 2);
}

pub async fn a_payload_that_is_no_json_asks_and_runs_nothing(store: Arc<dyn Store>) {
    let (faulty, runs) = (TestStore::counting(Arc::clone(&store)), Runs::default());
    let idem = over(&faulty, LONG);
    // The names of JSON's members are texts.
    let payload = HashMap::from([((1, 2), 3)]);
    // One `?` for everything that can go wrong.
    let call = async || -> Result<usize, Error<usize, Sorry>> {
        Ok(idem.call("key").execute_with(&payload, |_| runs.number()).await?.into_value())
    };
    assert!(matches!(call().await, Err(Error::InvalidPayload)));
    assert!(matches!(idem.call("key").payload(&payload).claim(), Err(Error::InvalidPayload)));
    assert_eq!((faulty.calls(), runs.count()), (0, 0));
}
