//! Edits: optimistic read-modify-write.

use std::convert::Infallible;
use std::num::ParseIntError;
use std::sync::Arc;

use tokio::time::Instant;

use super::leases::acquired;
use super::{Broken, HOUR, Kept, Names, applied, ended, holds, is, texts, value};
use crate::edit::{Edit, Error, Values};
use crate::testing::{Fault, Gate, TestStore};
use crate::{Batch, Expect, Keep, Key, Store};

type Made = Result<(Batch, usize), ParseIntError>;

/// The outcome of `call`, while whose request waits at the gate `rival` happens.
async fn meanwhile<T, R>(
    gate: &Gate,
    call: impl Future<Output = T>,
    rival: impl Future<Output = Result<R, Broken>>,
) -> Result<T, Broken> {
    let call = async { Ok(call.await) };
    let rival = async {
        gate.reached().await;
        rival.await?;
        gate.open();
        Ok(())
    };
    tokio::try_join!(call, rival).map(|(outcome, ())| outcome)
}

/// Increments the number.
fn increment(key: &Key, there: &Values) -> Made {
    let next = there.get(key).map_or(Ok(0), str::parse)? + 1;
    Ok((Batch::new().put(key, there.expect(key), next.to_string(), HOUR), next))
}

/// Always the same value.
fn set(key: &Key, there: &Values) -> Made {
    Ok((Batch::new().put(key, there.expect(key), "7", HOUR), 7))
}

pub async fn an_edit_takes_one_read_and_one_write(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("edited");
    for n in 1..4 {
        let counted = TestStore::counting(Arc::clone(&store));
        let edited = Edit::of(&key).apply(&*counted, |there| increment(&key, there)).await;
        ensure_eq!((edited?, counted.calls()), (n, 2));
    }
    holds(&store, &key, Some("3")).await
}

pub async fn an_edit_that_guesses_takes_one_write_where_nothing_is_there(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("edited");
    for n in 1..3 {
        let counted = TestStore::counting(Arc::clone(&store));
        let edit = Edit::of(&key).guessing_absent();
        let edited = edit.apply(&*counted, |there| increment(&key, there)).await;
        ensure_eq!((edited?, counted.calls()), (n, n));
    }
    Ok(())
}

pub async fn an_edit_that_loses_starts_again_from_what_the_refusal_brings(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("edited");
    let gate = Gate::new();
    let held = TestStore::first(Arc::clone(&store), vec![Fault::Pass, Fault::HeldBefore(gate.clone())]);
    let rival = applied(&store, Batch::new().put(&key, Expect::Absent, "41", HOUR));
    let edit = Edit::of(&key);
    let edited = meanwhile(&gate, edit.apply(&*held, |there| increment(&key, there)), rival).await?;
    ensure_eq!((edited?, held.calls()), (42, 3));
    holds(&store, &key, Some("42")).await
}

pub async fn no_edit_is_lost_among_many_editors(store: Arc<dyn Store>) -> Kept {
    const EACH: usize = 10;
    let key = Names::new().key("edited");
    let editor = |store: Arc<dyn Store>, key: Key| async move {
        for _ in 0..EACH {
            // A refusal and a read are answers; contention that the store reports as unavailable has written nothing.
            while let Err(error) = Edit::of(&key).apply(&*store, |there| increment(&key, there)).await {
                match error {
                    Error::Unread(error) | Error::Unwritten(error) if !error.maybe_applied() => {}
                    Error::TooManyConflicts => {}
                    error => broken!("{error}"),
                }
            }
        }
        Kept::Ok(())
    };
    let editors = (0..8).map(|_| tokio::spawn(editor(Arc::clone(&store), key.clone())));
    ended(editors).await?;
    holds(&store, &key, Some("80")).await
}

pub async fn an_edit_of_two_keys_is_applied_to_both_or_neither(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let (from, to) = (names.key("from"), names.key("to"));
    applied(&store, Batch::new().put(&from, Expect::Absent, "10", HOUR)).await?;
    let gate = Gate::new();
    let held = TestStore::first(Arc::clone(&store), vec![Fault::Pass, Fault::HeldBefore(gate.clone())]);
    let rival = applied(&store, Batch::new().put(&from, is("10"), "4", HOUR));
    // Five of what is there, or all of it.
    let transfer =
        |there: &Values| {
            let number = |key| there.get(key).map_or(Ok(0), str::parse::<u32>);
            let (source, target) = (number(&from)?, number(&to)?);
            let moved = source.min(5);
            let writes = Batch::new()
                .put(&from, there.expect(&from), (source - moved).to_string(), HOUR)
                .put(&to, there.expect(&to), (target + moved).to_string(), HOUR);
            Ok::<_, ParseIntError>((writes, moved))
        };
    let edit = Edit::of_all([from.clone(), to.clone()]);
    let moved = meanwhile(&gate, edit.apply(&*held, transfer), rival).await?;
    ensure_eq!(moved?, 4);
    holds(&store, &from, Some("0")).await?;
    holds(&store, &to, Some("4")).await
}

pub async fn an_edit_whose_reply_is_lost_is_unknown_unless_it_is_idempotent(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("edited");
    let lossy = || TestStore::first(Arc::clone(&store), vec![Fault::Pass, Fault::ReplyLost]);
    // A second increment would be another one, and the number that is there may be somebody else's.
    let edited = Edit::of(&key).apply(&*lossy(), |there| increment(&key, there)).await;
    ensure!(matches!(edited, Err(Error::Unwritten(error)) if error.maybe_applied()));
    holds(&store, &key, Some("1")).await?;

    let edited = Edit::of(&key).idempotent().apply(&*lossy(), |there| set(&key, there)).await;
    ensure_eq!(edited?, 7);
    holds(&store, &key, Some("7")).await
}

pub async fn an_idempotent_edit_is_made_again_over_what_came_after_a_lost_reply(
    store: Arc<dyn Store>,
) -> Kept {
    let key = Names::new().key("edited");
    let gate = Gate::new();
    let faults = vec![Fault::Pass, Fault::ReplyLost, Fault::HeldBefore(gate.clone())];
    let lossy = TestStore::first(Arc::clone(&store), faults);
    let rival = applied(&store, Batch::new().put(&key, is("7"), "8", HOUR));
    let edit = Edit::of(&key).idempotent();
    let edited = meanwhile(&gate, edit.apply(&*lossy, |there| set(&key, there)), rival).await?;
    ensure_eq!((edited?, lossy.calls()), (7, 4));
    holds(&store, &key, Some("7")).await
}

pub async fn an_edit_that_was_not_sent_says_so_at_once(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("edited");
    let lost = TestStore::first(Arc::clone(&store), vec![Fault::NotSent]);
    let edited = Edit::of(&key).idempotent().apply(&*lost, |there| set(&key, there)).await;
    ensure!(matches!(edited, Err(Error::Unread(error)) if !error.maybe_applied()));
    let lost = TestStore::first(Arc::clone(&store), vec![Fault::Pass, Fault::NotSent]);
    let edited = Edit::of(&key).idempotent().apply(&*lost, |there| set(&key, there)).await;
    ensure!(matches!(edited, Err(Error::Unwritten(error)) if !error.maybe_applied()));
    ensure_eq!(lost.calls(), 2);
    holds(&store, &key, None).await
}

pub async fn an_edit_under_a_lost_lease_writes_nothing(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let (key, lock) = (names.key("edited"), names.key("lock"));
    let lease = acquired(&store, &lock, HOUR).await?;
    let edit = || Edit::of(&key).guarded_by(&lease);
    ensure_eq!(edit().apply(&*store, |there| increment(&key, there)).await?, 1);
    let token = value(&store, &lock).await?;
    applied(&store, Batch::new().put(&lock, is(&token), "another holder", HOUR)).await?;
    ensure!(matches!(edit().apply(&*store, |there| increment(&key, there)).await, Err(Error::LeaseLost)));
    holds(&store, &key, Some("1")).await
}

pub async fn an_edit_after_its_deadline_makes_no_call(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("edited");
    let counted = TestStore::counting(Arc::clone(&store));
    let edit = Edit::of(&key).deadline(Some(Instant::now()));
    let edited = edit.apply(&*counted, |there| increment(&key, there)).await;
    ensure!(matches!(edited, Err(Error::Unread(error)) if !error.maybe_applied()));
    ensure_eq!(counted.calls(), 0);
    Ok(())
}

pub async fn an_edit_whose_step_gives_up_writes_nothing(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("edited");
    let counted = TestStore::counting(Arc::clone(&store));
    let edited = Edit::of(&key).apply(&*counted, |_| Err::<(Batch, ()), _>("sold out")).await;
    ensure!(matches!(edited, Err(Error::Step("sold out"))));
    ensure_eq!(counted.calls(), 1);
    Ok(())
}

pub async fn a_lost_request_is_not_taken_for_a_write(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let (key, log) = (names.key("edited"), names.log("appended"));
    applied(&store, Batch::new().put(&key, Expect::Absent, "7", HOUR)).await?;
    // The request is lost on its way, and nobody can know: the value that the edit would write is there already.
    let lossy = TestStore::first(Arc::clone(&store), vec![Fault::Pass, Fault::RequestLost]);
    let step = |there: &Values| {
        let writes = Batch::new().put(&key, there.expect(&key), "7", HOUR);
        Ok::<_, Infallible>((writes.append(&log, "record", Keep::all_for(HOUR)), ()))
    };
    Edit::of(&key).idempotent().apply(&*lossy, step).await?;
    ensure_eq!(texts(&store, &log).await?, ["record"]);
    Ok(())
}

pub async fn an_edit_is_confirmed_only_if_all_that_it_wrote_is_there(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let (key, log, other) = (names.key("edited"), names.log("appended"), names.log("cleared"));
    let record = |log, text: &str| Batch::new().append(log, text, Keep::all_for(HOUR));
    applied(&store, record(&log, "another's").and(record(&other, "old"))).await?;
    // The request is lost on its way, and another writer puts the same value.
    let gate = Gate::new();
    let faults = vec![Fault::Pass, Fault::RequestLost, Fault::HeldBefore(gate.clone())];
    let lossy = TestStore::first(Arc::clone(&store), faults);
    let rival = applied(&store, Batch::new().put(&key, Expect::Absent, "7", HOUR));
    let step = |there: &Values| {
        let writes = record(&log, "mine").and(record(&log, "mine too")).clear(&other);
        Ok::<_, Infallible>((writes.put(&key, there.expect(&key), "7", HOUR), ()))
    };
    let edit = Edit::of(&key).idempotent();
    let edited = meanwhile(&gate, edit.apply(&*lossy, step), rival).await?;
    edited?;
    ensure_eq!(texts(&store, &log).await?, ["another's", "mine", "mine too"]);
    ensure_eq!(texts(&store, &other).await?, [""; 0]);

    // All of it is there: it is not written again.
    let lossy = TestStore::first(Arc::clone(&store), vec![Fault::Pass, Fault::ReplyLost]);
    let step = |there: &Values| {
        let writes = record(&log, "last").clear(&other);
        Ok::<_, Infallible>((writes.put(&key, there.expect(&key), "8", HOUR), ()))
    };
    Edit::of(&key).idempotent().apply(&*lossy, step).await?;
    ensure_eq!(texts(&store, &log).await?, ["another's", "mine", "mine too", "last"]);
    Ok(())
}

pub async fn an_edit_that_ends_after_a_lost_reply_does_not_say_that_nothing_was_written(
    store: Arc<dyn Store>,
) -> Kept {
    for under_a_lease in [false, true] {
        let names = Names::new();
        let (key, log, lock) = (names.key("edited"), names.log("records"), names.key("lock"));
        let lease = acquired(&store, &lock, HOUR).await?;
        let token = value(&store, &lock).await?;
        let gate = Gate::new();
        let faults = vec![Fault::Pass, Fault::ReplyLost, Fault::HeldBefore(gate.clone())];
        let lossy = TestStore::first(Arc::clone(&store), faults);
        // Once it is written, another writer replaces the value, and the lease is another's.
        let replaced = Batch::new().put(&key, is("7"), "8", HOUR);
        let rival = applied(&store, replaced.put(&lock, is(&token), "another holder", HOUR));
        let step = |there: &Values| match there.get(&key) {
            Some("8") if !under_a_lease => Err("taken"),
            _ => {
                let writes = Batch::new().put(&key, there.expect(&key), "7", HOUR);
                Ok((writes.append(&log, "record", Keep::all_for(HOUR)), ()))
            }
        };
        let edit = Edit::of(&key).idempotent();
        let edit = if under_a_lease { edit.guarded_by(&lease) } else { edit };
        let edited = meanwhile(&gate, edit.apply(&*lossy, step), rival).await?;
        ensure_eq!(texts(&store, &log).await?, ["record"], "it was written");
        match edited {
            Err(Error::Unwritten(error)) => ensure!(error.maybe_applied(), "{error:?}"),
            ended => broken!("{ended:?}"),
        }
    }
    Ok(())
}

pub async fn a_removal_is_known_by_its_record_after_a_lost_reply(store: Arc<dyn Store>) -> Kept {
    for (fault, answer, record) in
        [(Fault::ReplyLost, "removed", "mine"), (Fault::RequestLost, "gone", "another's")]
    {
        let names = Names::new();
        let (key, log) = (names.key("removed"), names.log("records"));
        applied(&store, Batch::new().put(&key, Expect::Absent, "old", HOUR)).await?;
        let removal =
            |record: &str| Batch::new().delete(&key, "old").append(&log, record, Keep::all_for(HOUR));
        let gate = Gate::new();
        let faults = vec![Fault::Pass, fault, Fault::HeldBefore(gate.clone())];
        let lossy = TestStore::first(Arc::clone(&store), faults);
        let rival = async { Ok(store.commit(&removal("another's")).await?) };
        let step = |there: &Values| {
            Ok::<_, Infallible>(match there.get(&key) {
                Some(_) => (removal("mine"), "removed"),
                None => (Batch::new(), "gone"),
            })
        };
        let edit = Edit::of(&key).idempotent();
        let edited = meanwhile(&gate, edit.apply(&*lossy, step), rival).await?;
        ensure_eq!(edited?, answer);
        ensure_eq!(texts(&store, &log).await?, [record]);
    }
    Ok(())
}

pub async fn a_held_lease_outlives_a_lost_request(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let key = names.key("edited");
    let lease = acquired(&store, &names.key("lock"), HOUR).await?;
    let lossy = TestStore::first(Arc::clone(&store), vec![Fault::Pass, Fault::RequestLost]);
    let edit = Edit::of(&key).idempotent().guarded_by(&lease);
    ensure_eq!(edit.apply(&*lossy, |there| set(&key, there)).await?, 7);
    holds(&store, &key, Some("7")).await
}
