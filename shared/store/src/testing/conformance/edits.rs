//! Edits: optimistic read-modify-write.

use std::convert::Infallible;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use super::{HOUR, Names, SHORT, applied, holds, is, texts};
use crate::edit::{Edit, Error, Values};
use crate::idem::{Claimed, Idempotency};
use crate::lease::{Acquire, Request};
use crate::testing::{Fault, Faulty, Gate};
use crate::{Batch, Expect, Keep, Key, Store};

type Made = Result<(Batch, usize), Infallible>;

/// Increments the number.
fn increment(key: &Key, there: &Values) -> Made {
    let next = there.get(key).map_or(0, |text| text.parse().unwrap()) + 1;
    Ok((Batch::new().put(key, there.expect(key), next.to_string(), HOUR), next))
}

/// Always the same value.
fn set(key: &Key, there: &Values) -> Made {
    Ok((Batch::new().put(key, there.expect(key), "7", HOUR), 7))
}

pub async fn an_edit_takes_one_read_and_one_write(store: Arc<dyn Store>) {
    let key = Names::new().key("edited");
    for n in 1..4 {
        let counted = Faulty::counting(Arc::clone(&store));
        let edited = Edit::of(&key).apply(&*counted, |there| increment(&key, there)).await;
        assert_eq!((edited, counted.calls()), (Ok(n), 2));
    }
    holds(&store, &key, Some("3")).await;
}

pub async fn an_edit_that_guesses_takes_one_write_where_nothing_is_there(store: Arc<dyn Store>) {
    let key = Names::new().key("edited");
    for n in 1..3 {
        let counted = Faulty::counting(Arc::clone(&store));
        let edit = Edit::of(&key).guessing_absent();
        let edited = edit.apply(&*counted, |there| increment(&key, there)).await;
        assert_eq!((edited, counted.calls()), (Ok(n), n));
    }
}

pub async fn an_edit_that_loses_starts_again_from_what_the_refusal_brings(store: Arc<dyn Store>) {
    let key = Names::new().key("edited");
    let gate = Gate::new();
    let held = Faulty::first(Arc::clone(&store), vec![Fault::Pass, Fault::HeldBefore(gate.clone())]);
    let rival = async {
        gate.reached().await;
        applied(&store, Batch::new().put(&key, Expect::Absent, "41", HOUR)).await;
        gate.open();
    };
    let edit = Edit::of(&key);
    let (edited, ()) = tokio::join!(edit.apply(&*held, |there| increment(&key, there)), rival);
    assert_eq!((edited, held.calls()), (Ok(42), 3));
    holds(&store, &key, Some("42")).await;
}

pub async fn no_edit_is_lost_among_many_editors(store: Arc<dyn Store>) {
    const EACH: usize = 10;
    let key = Names::new().key("edited");
    let editor = |store: Arc<dyn Store>, key: Key| async move {
        for _ in 0..EACH {
            // A refusal and a read are answers; contention that the store reports as unavailable has written nothing.
            while let Err(error) = Edit::of(&key).apply(&*store, |there| increment(&key, there)).await {
                match error {
                    Error::Unread(error) | Error::Unwritten(error) => {
                        assert!(!error.maybe_applied(), "{error}")
                    }
                    error => assert_eq!(error, Error::TooManyConflicts),
                }
            }
        }
    };
    let editors = (0..8).map(|_| tokio::spawn(editor(Arc::clone(&store), key.clone())));
    for editor in join_all(editors.collect::<Vec<_>>()).await {
        editor.unwrap();
    }
    holds(&store, &key, Some("80")).await;
}

pub async fn an_edit_of_two_keys_is_applied_to_both_or_neither(store: Arc<dyn Store>) {
    let names = Names::new();
    let (from, to) = (names.key("from"), names.key("to"));
    applied(&store, Batch::new().put(&from, Expect::Absent, "10", HOUR)).await;
    let gate = Gate::new();
    let held = Faulty::first(Arc::clone(&store), vec![Fault::Pass, Fault::HeldBefore(gate.clone())]);
    let rival = async {
        gate.reached().await;
        applied(&store, Batch::new().put(&from, is("10"), "4", HOUR)).await;
        gate.open();
    };
    // Five of what is there, or all of it.
    let transfer = |there: &Values| {
        let number = |key| there.get(key).map_or(0, |text: &str| text.parse::<u32>().unwrap());
        let moved = number(&from).min(5);
        let writes = Batch::new()
            .put(&from, there.expect(&from), (number(&from) - moved).to_string(), HOUR)
            .put(&to, there.expect(&to), (number(&to) + moved).to_string(), HOUR);
        Ok::<_, Infallible>((writes, moved))
    };
    let edit = Edit::of_all([from.clone(), to.clone()]);
    let (moved, ()) = tokio::join!(edit.apply(&*held, transfer), rival);
    assert_eq!(moved, Ok(4));
    holds(&store, &from, Some("0")).await;
    holds(&store, &to, Some("4")).await;
}

pub async fn an_edit_whose_reply_is_lost_is_unknown_unless_it_is_idempotent(store: Arc<dyn Store>) {
    let key = Names::new().key("edited");
    let lossy = || Faulty::first(Arc::clone(&store), vec![Fault::Pass, Fault::ReplyLost]);
    // A second increment would be another one, and the number that is there may be somebody else's.
    let edited = Edit::of(&key).apply(&*lossy(), |there| increment(&key, there)).await;
    assert!(matches!(edited, Err(Error::Unwritten(error)) if error.maybe_applied()));
    holds(&store, &key, Some("1")).await;

    let edited = Edit::of(&key).idempotent().apply(&*lossy(), |there| set(&key, there)).await;
    assert_eq!(edited, Ok(7));
    holds(&store, &key, Some("7")).await;
}

pub async fn an_idempotent_edit_is_made_again_over_what_came_after_a_lost_reply(store: Arc<dyn Store>) {
    let key = Names::new().key("edited");
    let gate = Gate::new();
    let faults = vec![Fault::Pass, Fault::ReplyLost, Fault::HeldBefore(gate.clone())];
    let lossy = Faulty::first(Arc::clone(&store), faults);
    let rival = async {
        gate.reached().await;
        applied(&store, Batch::new().put(&key, is("7"), "8", HOUR)).await;
        gate.open();
    };
    let edit = Edit::of(&key).idempotent();
    let (edited, ()) = tokio::join!(edit.apply(&*lossy, |there| set(&key, there)), rival);
    assert_eq!((edited, lossy.calls()), (Ok(7), 4));
    holds(&store, &key, Some("7")).await;
}

pub async fn an_edit_that_was_not_sent_says_so_at_once(store: Arc<dyn Store>) {
    let key = Names::new().key("edited");
    let lost = Faulty::first(Arc::clone(&store), vec![Fault::NotSent]);
    let edited = Edit::of(&key).idempotent().apply(&*lost, |there| set(&key, there)).await;
    assert!(matches!(edited, Err(Error::Unread(error)) if !error.maybe_applied()));
    let lost = Faulty::first(Arc::clone(&store), vec![Fault::Pass, Fault::NotSent]);
    let edited = Edit::of(&key).idempotent().apply(&*lost, |there| set(&key, there)).await;
    assert!(matches!(edited, Err(Error::Unwritten(error)) if !error.maybe_applied()));
    assert_eq!(lost.calls(), 2);
    holds(&store, &key, None).await;
}

pub async fn a_recorded_edit_happens_once_whichever_replies_are_lost(store: Arc<dyn Store>) {
    let names = Names::new();
    // The claim, the read, the write, and the repeats of each.
    for first in 1..=5 {
        for second in first..=5 {
            let (key, id) = (names.key(&format!("{first}-{second}")), format!("{names:?}{first}-{second}"));
            let lossy = Faulty::new(Arc::clone(&store), move |call| {
                if call == first || call == second { Fault::ReplyLost } else { Fault::Pass }
            });
            let lossy: Arc<dyn Store> = lossy;
            for store in [&lossy, &store, &store] {
                let idem = Idempotency::with_config(Arc::clone(store), names.idem().lease_ttl(SHORT));
                match idem.edit(&id, Edit::of(&key), |there| increment(&key, there)).await {
                    Ok(n) => assert_eq!(n, 1, "{first} {second}"),
                    // A read whose reply is lost is not read again: nothing was written, and the key is free.
                    Err(error) => assert_eq!(error.outcome(), "failed", "{first} {second}"),
                }
            }
            holds(&store, &key, Some("1")).await;
        }
    }
}

pub async fn a_recorded_edit_of_a_run_that_was_taken_over_writes_nothing(store: Arc<dyn Store>) {
    let names = Names::new();
    let (key, id) = (names.key("edited"), format!("{names:?}"));
    let engine = |ttl| Idempotency::with_config(Arc::clone(&store), names.idem().lease_ttl(ttl));
    let claim = engine(SHORT).call(&id).claim().unwrap();
    let (sent, answer) = (Instant::now(), store.commit(&claim.batch()).await.unwrap());
    let Ok(Claimed::Mine(mut run)) = claim.outcome(sent, answer) else { panic!("nobody else asked") };
    sleep(SHORT * 2).await;
    assert_eq!(engine(HOUR).edit(&id, Edit::of(&key), |there| increment(&key, there)).await.unwrap(), 1);
    let late = Edit::of(&key).record(&*store, &mut run, |there| increment(&key, there)).await;
    assert_eq!(late, Err(Error::TakenOver));
    holds(&store, &key, Some("1")).await;
}

pub async fn an_edit_under_a_lost_lease_writes_nothing(store: Arc<dyn Store>) {
    let names = Names::new();
    let (key, lock) = (names.key("edited"), names.key("lock"));
    let Acquire::Acquired(lease) = Request::new(&store, lock.clone()).ttl(HOUR).acquire().await.unwrap()
    else {
        panic!("nobody else asked")
    };
    let edit = || Edit::of(&key).guarded_by(&lease);
    assert_eq!(edit().apply(&*store, |there| increment(&key, there)).await, Ok(1));
    let token = store.get(&lock).await.unwrap().unwrap();
    applied(&store, Batch::new().put(&lock, is(&token), "another holder", HOUR)).await;
    assert_eq!(edit().apply(&*store, |there| increment(&key, there)).await, Err(Error::LeaseLost));
    holds(&store, &key, Some("1")).await;
}

pub async fn an_edit_after_its_deadline_makes_no_call(store: Arc<dyn Store>) {
    let key = Names::new().key("edited");
    let counted = Faulty::counting(Arc::clone(&store));
    let edit = Edit::of(&key).deadline(Some(Instant::now()));
    let edited = edit.apply(&*counted, |there| increment(&key, there)).await;
    assert!(matches!(edited, Err(Error::Unread(error)) if !error.maybe_applied()));
    assert_eq!(counted.calls(), 0);
}

pub async fn an_edit_whose_step_gives_up_writes_nothing(store: Arc<dyn Store>) {
    let key = Names::new().key("edited");
    let counted = Faulty::counting(Arc::clone(&store));
    let edited = Edit::of(&key).apply(&*counted, |_| Err::<(Batch, ()), _>("sold out")).await;
    assert_eq!((edited, counted.calls()), (Err(Error::Step("sold out")), 1));
}

pub async fn a_lost_request_is_not_taken_for_a_write(store: Arc<dyn Store>) {
    let names = Names::new();
    let (key, log) = (names.key("edited"), names.log("appended"));
    applied(&store, Batch::new().put(&key, Expect::Absent, "7", HOUR)).await;
    // The request is lost on its way, and nobody can know: the value that the edit would write is there already.
    let lossy = Faulty::first(Arc::clone(&store), vec![Fault::Pass, Fault::RequestLost]);
    let step = |there: &Values| {
        let writes = Batch::new().put(&key, there.expect(&key), "7", HOUR);
        Ok::<_, Infallible>((writes.append(&log, "record", Keep::all_for(HOUR)), ()))
    };
    assert_eq!(Edit::of(&key).idempotent().apply(&*lossy, step).await, Ok(()));
    assert_eq!(texts(&store, &log).await, ["record"]);
}

pub async fn an_edit_is_confirmed_only_if_all_that_it_wrote_is_there(store: Arc<dyn Store>) {
    let names = Names::new();
    let (key, log, other) = (names.key("edited"), names.log("appended"), names.log("cleared"));
    let record = |log, text: &str| Batch::new().append(log, text, Keep::all_for(HOUR));
    applied(&store, record(&log, "another's").and(record(&other, "old"))).await;
    // The request is lost on its way, and another writer puts the same value.
    let gate = Gate::new();
    let faults = vec![Fault::Pass, Fault::RequestLost, Fault::HeldBefore(gate.clone())];
    let lossy = Faulty::first(Arc::clone(&store), faults);
    let rival = async {
        gate.reached().await;
        applied(&store, Batch::new().put(&key, Expect::Absent, "7", HOUR)).await;
        gate.open();
    };
    let step = |there: &Values| {
        let writes = record(&log, "mine").and(record(&log, "mine too")).clear(&other);
        Ok::<_, Infallible>((writes.put(&key, there.expect(&key), "7", HOUR), ()))
    };
    let edit = Edit::of(&key).idempotent();
    let (edited, ()) = tokio::join!(edit.apply(&*lossy, step), rival);
    assert_eq!(edited, Ok(()));
    assert_eq!(texts(&store, &log).await, ["another's", "mine", "mine too"]);
    assert_eq!(texts(&store, &other).await, [""; 0]);

    // All of it is there: it is not written again.
    let lossy = Faulty::first(Arc::clone(&store), vec![Fault::Pass, Fault::ReplyLost]);
    let step = |there: &Values| {
        let writes = record(&log, "last").clear(&other);
        Ok::<_, Infallible>((writes.put(&key, there.expect(&key), "8", HOUR), ()))
    };
    assert_eq!(Edit::of(&key).idempotent().apply(&*lossy, step).await, Ok(()));
    assert_eq!(texts(&store, &log).await, ["another's", "mine", "mine too", "last"]);
}

pub async fn an_edit_that_ends_after_a_lost_reply_does_not_say_that_nothing_was_written(
    store: Arc<dyn Store>,
) {
    for under_a_lease in [false, true] {
        let names = Names::new();
        let (key, log, lock) = (names.key("edited"), names.log("records"), names.key("lock"));
        let Acquire::Acquired(lease) = Request::new(&store, lock.clone()).ttl(HOUR).acquire().await.unwrap()
        else {
            panic!("nobody else asked")
        };
        let token = store.get(&lock).await.unwrap().unwrap();
        let gate = Gate::new();
        let faults = vec![Fault::Pass, Fault::ReplyLost, Fault::HeldBefore(gate.clone())];
        let lossy = Faulty::first(Arc::clone(&store), faults);
        // Once it is written, another writer replaces the value, and the lease is another's.
        let rival = async {
            gate.reached().await;
            let replaced = Batch::new().put(&key, is("7"), "8", HOUR);
            applied(&store, replaced.put(&lock, is(&token), "another holder", HOUR)).await;
            gate.open();
        };
        let step = |there: &Values| match there.get(&key) {
            Some("8") if !under_a_lease => Err("taken"),
            _ => {
                let writes = Batch::new().put(&key, there.expect(&key), "7", HOUR);
                Ok((writes.append(&log, "record", Keep::all_for(HOUR)), ()))
            }
        };
        let edit = Edit::of(&key).idempotent();
        let edit = if under_a_lease { edit.guarded_by(&lease) } else { edit };
        let (edited, ()) = tokio::join!(edit.apply(&*lossy, step), rival);
        assert_eq!(texts(&store, &log).await, ["record"], "it was written");
        match edited {
            Err(Error::Unwritten(error)) => assert!(error.maybe_applied(), "{error:?}"),
            ended => panic!("{ended:?}"),
        }
    }
}

pub async fn a_removal_is_known_by_its_record_after_a_lost_reply(store: Arc<dyn Store>) {
    for (fault, answer, record) in
        [(Fault::ReplyLost, "removed", "mine"), (Fault::RequestLost, "gone", "another's")]
    {
        let names = Names::new();
        let (key, log) = (names.key("removed"), names.log("records"));
        applied(&store, Batch::new().put(&key, Expect::Absent, "old", HOUR)).await;
        let removal =
            |record: &str| Batch::new().delete(&key, "old").append(&log, record, Keep::all_for(HOUR));
        let gate = Gate::new();
        let faults = vec![Fault::Pass, fault, Fault::HeldBefore(gate.clone())];
        let lossy = Faulty::first(Arc::clone(&store), faults);
        let rival = async {
            gate.reached().await;
            let _ = store.commit(&removal("another's")).await.unwrap();
            gate.open();
        };
        let step = |there: &Values| {
            Ok::<_, Infallible>(match there.get(&key) {
                Some(_) => (removal("mine"), "removed"),
                None => (Batch::new(), "gone"),
            })
        };
        let edit = Edit::of(&key).idempotent();
        let (edited, ()) = tokio::join!(edit.apply(&*lossy, step), rival);
        assert_eq!(edited, Ok(answer));
        assert_eq!(texts(&store, &log).await, [record]);
    }
}

pub async fn a_held_lease_outlives_a_lost_request(store: Arc<dyn Store>) {
    let names = Names::new();
    let key = names.key("edited");
    let Acquire::Acquired(lease) = Request::new(&store, names.key("lock")).ttl(HOUR).acquire().await.unwrap()
    else {
        panic!("nobody else asked")
    };
    let lossy = Faulty::first(Arc::clone(&store), vec![Fault::Pass, Fault::RequestLost]);
    let edit = Edit::of(&key).idempotent().guarded_by(&lease);
    assert_eq!(edit.apply(&*lossy, |there| set(&key, there)).await, Ok(7));
    holds(&store, &key, Some("7")).await;
}

pub async fn an_edit_with_a_record_that_loses_its_lease_frees_its_key(store: Arc<dyn Store>) {
    let names = Names::new();
    let (key, lock, id) = (names.key("edited"), names.key("lock"), format!("{names:?}"));
    let Acquire::Acquired(lease) = Request::new(&store, lock.clone()).ttl(HOUR).acquire().await.unwrap()
    else {
        panic!("nobody else asked")
    };
    let token = store.get(&lock).await.unwrap().unwrap();
    applied(&store, Batch::new().put(&lock, is(&token), "another holder", HOUR)).await;
    let idem = Idempotency::with_config(Arc::clone(&store), names.idem());
    let guarded = Edit::of(&key).guarded_by(&lease);
    let ended = idem.edit(&id, guarded, |there| increment(&key, there)).await;
    assert!(matches!(ended, Err(crate::idem::Error::Function(Error::LeaseLost))), "{ended:?}");
    assert_eq!(idem.edit(&id, Edit::of(&key), |there| increment(&key, there)).await.unwrap(), 1);
}
