//! Logs that are removed, and several appends to one log.

use std::sync::Arc;

use super::{Broken, HOUR, Kept, Names, applied, ended, holds, insist, is, refused, rejected, texts};
use crate::{
    Batch, Commit, ErrorKind, Expect, Found, Keep, Key, Log, MAX_WRITES, Position, Record, Store, Ttl, Value,
};

const NOTHING: [&str; 0] = [];

fn append(log: &Log, text: &str) -> Batch {
    Batch::new().append(log, text, Keep::all_for(HOUR))
}

pub async fn a_cleared_log_is_empty_and_begins_anew_with_higher_positions(store: Arc<dyn Store>) -> Kept {
    let log = Names::new().log("log");
    let mut last = None;
    // Several lives without a pause, so that some begin in the millisecond in which the one before began.
    for life in 0..10 {
        let mut given = Vec::new();
        for n in 0..3 {
            given.extend(applied(&store, append(&log, &format!("{life}/{n}"))).await?);
        }
        ensure!(last < Some(given[0]) && given.is_sorted_by(|a, b| a < b), "{last:?}, then {given:?}");
        let all = [0, 1, 2].map(|n| format!("{life}/{n}"));
        ensure_eq!(texts(&store, &log).await?, all, "only this life");
        let resumed = store.read(&log, last, 10).await?;
        ensure_eq!(resumed.len(), 3, "who resumes after an earlier life sees all of this one");
        let middle = store.read(&log, Some(given[0]), 10).await?;
        ensure_eq!(middle.len(), 2);

        ensure_eq!(applied(&store, Batch::new().clear(&log)).await?, [], "a clear has no position");
        ensure_eq!(texts(&store, &log).await?, NOTHING);
        for after in given {
            ensure_eq!(store.read(&log, Some(after), 10).await?, Vec::<Record>::new());
            last = Some(after);
        }
    }
    Ok(())
}

pub async fn a_cleared_log_lives_as_long_as_its_next_append_says(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    for (name, first, second) in [
        ("a", Ttl::Forever, HOUR.into()),
        ("b", HOUR.into(), Ttl::Forever),
        ("c", super::SHORT.into(), Ttl::Forever),
        ("d", super::SHORT.into(), HOUR.into()),
    ] {
        let log = names.log(name);
        applied(&store, Batch::new().append(&log, "old", Keep::all_for(first))).await?;
        applied(&store, Batch::new().clear(&log)).await?;
        applied(&store, Batch::new().append(&log, "new", Keep::all_for(second))).await?;
    }
    tokio::time::sleep(super::SHORT * 2).await;
    for name in ["a", "b", "c", "d"] {
        ensure_eq!(texts(&store, &names.log(name)).await?, ["new"], "{name}");
    }
    Ok(())
}

pub async fn a_log_that_is_not_there_can_be_cleared_and_again(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let (log, key) = (names.log("log"), names.key("key"));
    applied(&store, Batch::new().clear(&log)).await?;
    applied(&store, Batch::new().clear(&log).put(&key, Expect::Absent, "1", HOUR)).await?;
    holds(&store, &key, Some("1")).await?;
    applied(&store, append(&log, "1")).await?;
    for n in 0..3 {
        let other = names.log("another that is not there");
        applied(&store, Batch::new().clear(&log).clear(&other).publish(&names.channel("c"), "gone")).await?;
        ensure_eq!(texts(&store, &log).await?, NOTHING, "{n}");
    }
    applied(&store, append(&log, "2")).await?;
    ensure_eq!(texts(&store, &log).await?, ["2"]);
    Ok(())
}

pub async fn a_clear_and_the_rest_of_its_batch_happen_together_or_not_at_all(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let [one, two, other] = ["one", "two", "other"].map(|name| names.log(name));
    let [gone, kept, new] = ["gone", "kept", "new"].map(|name| names.key(name));
    for log in [&one, &two] {
        applied(&store, append(log, "record")).await?;
    }
    for key in [&gone, &kept] {
        applied(&store, Batch::new().put(key, Expect::Absent, "there", HOUR)).await?;
    }
    let erase = |expected: &str| {
        Batch::new()
            .clear(&one)
            .put(&new, Expect::Absent, Value::PositionOf(0), HOUR)
            .delete(&gone, "there")
            .append(&other, "erased", Keep::all_for(HOUR))
            .check(&kept, is(expected))
            .clear(&two)
    };
    ensure_eq!(refused(&store, erase("changed")).await?, super::there("there"));
    for log in [&one, &two] {
        ensure_eq!(texts(&store, log).await?, ["record"], "a refused batch clears nothing");
    }
    ensure_eq!(texts(&store, &other).await?, NOTHING);
    holds(&store, &gone, Some("there")).await?;

    let position = applied(&store, erase("there")).await?;
    for log in [&one, &two] {
        ensure_eq!(texts(&store, log).await?, NOTHING);
    }
    ensure_eq!(texts(&store, &other).await?, ["erased"]);
    holds(&store, &gone, None).await?;
    holds(&store, &new, Some(&position[0].to_string())).await?;
    // Repeated, as after a lost reply: what came in between stays.
    applied(&store, append(&one, "later")).await?;
    refused(&store, erase("there")).await?;
    ensure_eq!(texts(&store, &one).await?, ["later"]);
    Ok(())
}

pub async fn a_text_cannot_be_cleared_and_the_batch_writes_nothing(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let (key, log) = (names.key("text"), names.log("text"));
    let (other, filled) = (names.key("other"), names.log("filled"));
    applied(&store, Batch::new().put(&key, Expect::Absent, "text", HOUR)).await?;
    applied(&store, append(&filled, "record")).await?;
    let alone = Batch::new().clear(&log);
    let first = alone.clone().put(&other, Expect::Absent, "1", HOUR).clear(&filled);
    let last = Batch::new().clear(&filled).put(&other, Expect::Absent, "1", HOUR).and(alone.clone());
    for batch in [alone, first, last] {
        let error = rejected(&store, batch).await?;
        ensure!(error.kind() == ErrorKind::Decode, "{error:?}");
    }
    holds(&store, &key, Some("text")).await?;
    holds(&store, &other, None).await?;
    ensure_eq!(texts(&store, &filled).await?, ["record"]);
    Ok(())
}

/// At once: no backend may keep what is left of a log in the way of a value.
pub async fn the_name_of_a_cleared_log_is_free(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let claim = |key: &Key| Batch::new().put(key, Expect::Absent, "value", HOUR);
    let writes: [fn(&Key) -> Batch; 4] = [
        |key| Batch::new().put(key, Expect::Absent, "value", HOUR),
        |key| Batch::new().put(key, Expect::AbsentOr("value".into()), "value", HOUR),
        |key| Batch::new().put_if_newer(key, 1, r#"{"seq":1}"#, HOUR),
        |key| Batch::new().check(key, Expect::Absent),
    ];
    for (n, write) in writes.into_iter().enumerate() {
        for together in [false, true] {
            let name = format!("{n} {together}");
            let (key, log) = (names.key(&name), names.log(&name));
            applied(&store, append(&log, "record")).await?;
            applied(&store, Batch::new().clear(&log)).await?;
            holds(&store, &key, None).await?;
            let other = names.key(&format!("{name} other"));
            ensure_eq!(refused(&store, Batch::new().check(&key, is("value"))).await?, [None]);
            applied(&store, if together { write(&key).and(claim(&other)) } else { write(&key) }).await?;
            // And back again.
            if let Some(there) = store.get(&key).await? {
                ensure!(
                    store.read(&log, None, 10).await.is_err_and(|error| error.kind() == ErrorKind::Decode)
                );
                applied(&store, Batch::new().delete(&key, there)).await?;
            }
            applied(&store, append(&log, "record")).await?;
            ensure_eq!(texts(&store, &log).await?, ["record"]);
        }
    }
    Ok(())
}

/// A writer appends its numbers in order and another clears, at the same time. Every append and every clear tells the others
/// nothing but its own answer: what is read in the end must be the appends after the last clear, and a reader meanwhile
/// sees no number twice or out of order.
pub async fn what_is_read_are_the_appends_after_the_last_clear(store: Arc<dyn Store>) -> Kept {
    const WRITERS: usize = 3;
    const EACH: usize = 12;
    const CLEARS: usize = 6;
    let names = Names::new();
    let log = names.log("log");
    // Each batch puts a value into a key that all share: that orders the batches, and the value names the one before.
    let order = names.key("order");
    let step = |store: Arc<dyn Store>, order: Key, name: String, batch: Batch| async move {
        let mut before = store.get(&order).await?;
        loop {
            let expect = before.clone().map_or(Expect::Absent, Expect::Is);
            match store.commit(&batch.clone().put(&order, expect, name.as_str(), HOUR)).await {
                Ok(Commit::Applied(_)) => return Ok::<_, Broken>((before, name)),
                Ok(Commit::Refused(refusal)) => {
                    before = refusal.get(&order).and_then(Found::text).map(str::to_owned);
                }
                Err(error) => ensure!(error.is_retryable() && !error.maybe_applied(), "{error}"),
            }
        }
    };
    // Commits these one after the other.
    let writer = |batches: Vec<(String, Batch)>| {
        let (store, order) = (Arc::clone(&store), order.clone());
        tokio::spawn(async move {
            let mut links = Vec::new();
            for (name, batch) in batches {
                links.push(step(Arc::clone(&store), order.clone(), name, batch).await?);
            }
            Ok(links)
        })
    };
    let numbered = |w, n| (format!("{w}/{n}"), append(&log, &format!("{w}/{n}")));
    let mut tasks: Vec<_> =
        (0..WRITERS).map(|w| writer((0..EACH).map(|n| numbered(w, n)).collect())).collect();
    tasks.push(writer((0..CLEARS).map(|n| (format!("clear {n}"), Batch::new().clear(&log))).collect()));
    let (mut read, mut done): (Vec<Record>, bool) = (Vec::new(), false);
    while !done {
        done = tasks.iter().all(|task| task.is_finished());
        let after = read.last().map(|record| record.position);
        read.extend(store.read(&log, after, 5).await?);
        tokio::task::yield_now().await;
    }
    let links: Vec<(Option<String>, String)> = ended(tasks).await?.into_iter().flatten().collect();
    ensure_eq!(links.len(), WRITERS * EACH + CLEARS);
    // Follow the links from the first batch to the last.
    let mut expected: Vec<String> = Vec::new();
    let mut all: Vec<String> = Vec::new();
    let mut at = None;
    while let Some((_, next)) = links.iter().find(|(before, _)| *before == at) {
        if next.starts_with("clear") {
            expected.clear();
        } else {
            expected.push(next.clone());
            all.push(next.clone());
        }
        at = Some(next.clone());
    }
    ensure_eq!(all.len(), WRITERS * EACH, "each batch follows another one");
    ensure_eq!(texts(&store, &log).await?, expected);
    ensure!(read.is_sorted_by(|a, b| a.position < b.position));
    let mut order = all.iter();
    for record in read {
        ensure!(order.any(|text| *text == record.text), "{} was read twice or out of order", record.text);
    }
    Ok(())
}

/// The same without a common key, so that a clear and an append meet in the log alone.
pub async fn no_append_is_lost_to_a_clear_that_came_before_it(store: Arc<dyn Store>) -> Kept {
    const ROUNDS: usize = 15;
    let names = Names::new();
    for round in 0..ROUNDS {
        let log = names.log(&round.to_string());
        applied(&store, append(&log, "old")).await?;
        let clear = insist(&store, || Batch::new().clear(&log));
        let new = [0, 1].map(|n| {
            let (log, store) = (&log, &store);
            async move { insist(store, || append(log, &n.to_string())).await }
        });
        let [first, second] = new;
        tokio::try_join!(first, clear, second)?;
        let left = texts(&store, &log).await?;
        ensure!(!left.contains(&"old".to_owned()), "round {round}: {left:?}");
        // After the clear is answered nothing more goes: what is appended now stays, behind what is there.
        insist(&store, || append(&log, "last")).await?;
        let mut expected = left;
        expected.push("last".to_owned());
        ensure_eq!(texts(&store, &log).await?, expected, "round {round}");
    }
    Ok(())
}

pub async fn several_appends_to_one_log_keep_their_order(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let (log, other) = (names.log("log"), names.log("other"));
    let mut all: Vec<Position> = Vec::new();
    for n in 0..3 {
        let markers = ["a", "b", "c", "d"].map(|name| names.key(&format!("{name}{n}")));
        let batch = append(&log, "1")
            .append(&other, "x", Keep::about(1000))
            .append(&log, "2", Keep::all_for(HOUR))
            .put(&markers[0], Expect::Absent, Value::PositionOf(0), HOUR)
            .put(&markers[1], Expect::Absent, Value::PositionOf(1), HOUR)
            .put(&markers[2], Expect::Absent, Value::PositionOf(2), HOUR)
            .append(&log, "3", Keep::all_for(HOUR))
            .put(&markers[3], Expect::Absent, Value::PositionOf(3), HOUR);
        let given = applied(&store, batch).await?;
        for (marker, position) in markers.iter().zip(&given) {
            holds(&store, marker, Some(&position.to_string())).await?;
        }
        all.extend([given[0], given[2], given[3]]);
        let last = store.read(&other, None, 10).await?.last().map(|record| record.position);
        ensure_eq!(last, Some(given[1]));
    }
    let records = store.read(&log, None, 100).await?;
    ensure_eq!(records.iter().map(|record| record.position).collect::<Vec<_>>(), all);
    ensure!(all.is_sorted_by(|a, b| a < b), "{all:?}");
    let texts: Vec<&str> = records.iter().map(|record| record.text.as_str()).collect();
    ensure_eq!(texts, ["1", "2", "3"].repeat(3));
    for (n, after) in all.iter().enumerate() {
        ensure_eq!(store.read(&log, Some(*after), 100).await?, records[n + 1..]);
    }
    Ok(())
}

pub async fn a_batch_has_up_to_fifty_writes(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let one = names.log("one");
    type Writes<'a> = &'a dyn Fn(Batch, usize) -> Batch;
    let cases: [(&str, Writes<'_>); 4] = [
        ("put", &|batch, n| batch.put(&names.key(&format!("k{n}")), Expect::Absent, n.to_string(), HOUR)),
        ("a log each", &|batch, n| batch.append(&names.log(&format!("l{n}")), "1", Keep::all_for(HOUR))),
        ("one log", &|batch, n| batch.append(&one, n.to_string(), Keep::all_for(HOUR))),
        ("clear", &|batch, n| batch.clear(&names.log(&format!("l{n}")))),
    ];
    ensure_eq!(MAX_WRITES, 50);
    for (name, write) in cases {
        let error = rejected(&store, (0..51).fold(Batch::new(), write)).await?;
        ensure!(error.to_string().contains("51 writes"), "{name}: {error}");
        applied(&store, (0..50).fold(Batch::new(), write)).await?;
    }
    ensure_eq!(texts(&store, &one).await?, (0..50).map(|n| n.to_string()).collect::<Vec<_>>());
    for n in [0, 49] {
        holds(&store, &names.key(&format!("k{n}")), Some(&n.to_string())).await?;
        ensure_eq!(texts(&store, &names.log(&format!("l{n}"))).await?, NOTHING);
    }
    Ok(())
}
