//! Whole batches, and several batches in one call.

use std::sync::Arc;
use std::time::Duration;

use super::{HOUR, Kept, Names, applied, holds, is, refused, texts, there};
use crate::{Batch, Commit, ErrorKind, Expect, Found, Keep, Key, MAX_TTL, Store, Ttl, Value, Write};

pub async fn half_a_batch_is_never_left_behind(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    // One name for a value and for a log: a backend may keep them apart or reject it, but it must not stop halfway.
    let (text, log) = (names.key("both"), names.log("both"));
    applied(&store, Batch::new().put(&text, Expect::Absent, "text", HOUR)).await?;
    let [before, gone, after] = ["before", "gone", "after"].map(|name| names.key(name));
    applied(&store, Batch::new().put(&gone, Expect::Absent, "1", HOUR)).await?;
    let batch = Batch::new()
        .put(&before, Expect::Absent, "1", HOUR)
        .delete(&gone, "1")
        .append(&names.log("good"), "record", Keep::all_for(HOUR))
        .append(&log, "record", Keep::all_for(HOUR))
        .put(&after, Expect::Absent, "1", HOUR);
    let (value, left) = match store.commit(&batch).await {
        Ok(Commit::Applied(_)) => (Some("1"), None),
        Ok(Commit::Refused(_)) => broken!("a wrong kind is no refusal"),
        Err(error) => {
            ensure!(!error.is_retryable(), "{error}");
            (None, Some("1"))
        }
    };
    holds(&store, &before, value).await?;
    holds(&store, &after, value).await?;
    ensure_eq!(texts(&store, &names.log("good")).await?.len(), usize::from(value.is_some()));
    holds(&store, &gone, left).await?;
    holds(&store, &text, Some("text")).await
}

/// Every argument at its extremes: a batch is taken whole or rejected whole, and by the same rule everywhere.
pub async fn an_extreme_argument_never_leaves_half_a_batch(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let (log, value, channel) = (names.log("extreme log"), names.key("extreme key"), names.channel("c"));
    let odd =
        ["\0", "\n", "\r\n", "-", "+", "*", "0", "{", "}", "%s", "'", "\"", "\u{10ffff}", &"n".repeat(1500)];
    let keep = |about| Keep { about: Some(about), ttl: HOUR.into() };
    let mut taken: Vec<Batch> =
        [0, 1, 1 << 31, 1 << 53, (1 << 53) + 1, i64::MAX as usize, 1 << 63, usize::MAX]
            .map(|about| Batch::new().append(&log, "record", keep(about)))
            .into();
    let lives = [Duration::from_millis(100), Duration::new(100, 999_999_999), MAX_TTL];
    taken.extend(lives.map(|life| Batch::new().append(&log, "record", Keep::all_for(life))));
    taken.extend(lives.map(|life| Batch::new().put(&value, Expect::Absent, "v", life)));
    taken.extend(lives.map(|life| Batch::new().put_if_newer(&value, 1, r#"{"seq":1}"#, life)));
    taken.push(Batch::new().put(&value, Expect::Absent, "", Ttl::Forever).append(&log, "", Keep::about(1)));
    taken.push(Batch::new().publish(&channel, "").publish(&channel, "\0"));
    taken.extend(
        [0, 1 << 31, 1 << 53]
            .map(|seq: u64| Batch::new().put_if_newer(&value, seq, format!(r#"{{"seq":{seq}}}"#), HOUR)),
    );
    taken.extend(odd.iter().map(|name| {
        Batch::new()
            .put(&names.key(&format!("key {name}")), Expect::Absent, *name, HOUR)
            .append(&names.log(&format!("log {name}")), *name, Keep::all_for(HOUR))
            .publish(&names.channel(name), *name)
    }));
    let mut rejected = vec![
        Batch::new().put(&value, Expect::Absent, Value::PositionOf(usize::MAX), HOUR),
        Batch::new().put(&value, Expect::Absent, "x".repeat(store.max_value() + 1), HOUR),
        Batch::new().publish(&channel, "x".repeat(store.max_value() + 1)),
        Batch::new().append(&log, "x".repeat(store.max_value() + 1), Keep::all_for(HOUR)),
        Batch::new().delete(&value, "x".repeat(store.max_value() + 1)),
    ];
    rejected.extend(
        [(1 << 53) + 1, u64::MAX]
            .map(|seq: u64| Batch::new().put_if_newer(&value, seq, format!(r#"{{"seq":{seq}}}"#), HOUR)),
    );
    let lives =
        [Duration::ZERO, Duration::from_nanos(999_999), MAX_TTL + Duration::from_millis(1), Duration::MAX];
    rejected.extend(lives.map(|life| Batch::new().append(&log, "record", Keep::all_for(life))));
    rejected.extend(lives.map(|life| Batch::new().put(&value, Expect::Absent, "v", life)));

    for (whole, batch) in
        taken.into_iter().map(|batch| (true, batch)).chain(rejected.into_iter().map(|b| (false, b)))
    {
        // The extreme comes last: all that could be done before it would be done.
        let names = Names::new();
        let (marker, first) = (names.key("marker"), names.log("first"));
        let shown = format!("{batch:?}");
        let batch = Batch::new()
            .put(&marker, Expect::Absent, "1", HOUR)
            .append(&first, "1", Keep::all_for(HOUR))
            .and(batch);
        match store.commit(&batch).await {
            Ok(Commit::Applied(positions)) if whole => {
                let appends = batch.writes().iter().filter(|w| matches!(w, Write::Append { .. })).count();
                ensure_eq!(positions.len(), appends, "{shown}");
            }
            Err(error) if !whole => ensure!(!error.is_retryable(), "{shown}: {error}"),
            answer => broken!("{shown} gave {answer:?}"),
        }
        holds(&store, &marker, whole.then_some("1")).await?;
        ensure_eq!(texts(&store, &first).await?.len(), usize::from(whole), "{shown}");
        // For the next. What lives for a tenth of a second may have ended by itself meanwhile.
        if let Some(there) = store.get(&value).await? {
            let deleted = store.commit(&Batch::new().delete(&value, there)).await?;
            let is_gone = store.get(&value).await?.is_none();
            ensure!(is_gone, "{shown}: {deleted:?}");
        }
    }
    for name in odd {
        holds(&store, &names.key(&format!("key {name}")), Some(name)).await?;
        ensure_eq!(texts(&store, &names.log(&format!("log {name}"))).await?, [name]);
    }
    Ok(())
}

pub async fn batches_of_one_call_stand_alone(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| names.key(name));
    applied(&store, Batch::new().put(&b, Expect::Absent, "held", HOUR)).await?;
    let batches = [
        Batch::new().put(&a, Expect::Absent, "1", HOUR),
        Batch::new().put(&b, Expect::Absent, "2", HOUR),
        Batch::new().put(&c, Expect::Absent, "3", Duration::ZERO),
        Batch::new().put(&d, Expect::Absent, "4", HOUR).append(&names.log("l"), "4", Keep::all_for(HOUR)),
    ];
    let answers = store.commit_each(&batches).await;
    ensure_eq!(answers.len(), 4);
    ensure!(matches!(&answers[0], Ok(Commit::Applied(_))), "{answers:?}");
    ensure!(
        matches!(&answers[1], Ok(Commit::Refused(refusal)) if refusal.get(&b) == Some(Found::Text("held"))),
        "{answers:?}"
    );
    ensure!(answers[2].as_ref().is_err_and(|error| error.kind() == ErrorKind::Rejected), "{answers:?}");
    ensure!(matches!(&answers[3], Ok(Commit::Applied(positions)) if positions.len() == 1), "{answers:?}");
    holds(&store, &c, None).await?;
    ensure!(store.commit_each(&[]).await.is_empty());
    Ok(())
}

pub async fn batches_that_share_a_key_are_applied_in_order(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let (key, log) = (names.key("k"), names.log("l"));
    let batches: Vec<Batch> = (0..10)
        .map(|n: u32| {
            let expect = if n == 0 { Expect::Absent } else { is(&(n - 1).to_string()) };
            let other = names.key(&format!("other {n}"));
            Batch::new().put(&key, expect, n.to_string(), HOUR).put(&other, Expect::Absent, "", HOUR).append(
                &log,
                n.to_string(),
                Keep::all_for(HOUR),
            )
        })
        .collect();
    for answer in store.commit_each(&batches).await {
        ensure!(matches!(answer, Ok(Commit::Applied(_))), "{answer:?}");
    }
    holds(&store, &key, Some("9")).await?;
    ensure_eq!(texts(&store, &log).await?, (0..10).map(|n| n.to_string()).collect::<Vec<_>>());
    Ok(())
}

pub async fn a_batch_that_is_likely_is_answered_like_any_other(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let [held, cleared, one, two] = ["held", "cleared", "one", "two"].map(|name| names.key(name));
    let [log, emptied] = ["log", "cleared"].map(|name| names.log(name));
    applied(
        &store,
        Batch::new().put(&held, Expect::Absent, "held", HOUR).append(&log, "1", Keep::all_for(HOUR)),
    )
    .await?;
    applied(&store, Batch::new().append(&emptied, "1", Keep::all_for(HOUR))).await?;
    applied(&store, Batch::new().clear(&emptied)).await?;
    let put = |key: &Key, text: &str| Batch::new().put(key, Expect::Absent, text, HOUR).likely();
    let batches = [
        put(&one, "1"),
        Batch::new().put(&one, is("1"), "2", HOUR),
        put(&held, "2"),
        put(&Key::from(&log), "3"),
        put(&cleared, "4"),
        put(&two, "5"),
        put(&two, "6"),
        Batch::new().put(&two, is("5"), "7", HOUR).put(&held, is("held"), "8", HOUR).likely(),
        Batch::new().put(&names.key("never"), Expect::Absent, "9", Duration::ZERO).likely(),
    ];
    let answers = store.commit_each(&batches).await;
    let was_applied =
        answers.iter().map(|answer| matches!(answer, Ok(Commit::Applied(_)))).collect::<Vec<_>>();
    ensure_eq!(was_applied, [true, true, false, false, true, true, false, true, false], "{answers:?}");
    for (refused, key, by) in [(2, &held, "held"), (6, &two, "5")] {
        ensure!(
            matches!(&answers[refused], Ok(Commit::Refused(refusal)) if refusal.get(key) == Some(Found::Text(by))),
            "{answers:?}"
        );
    }
    ensure!(answers[3].as_ref().is_err_and(|error| error.kind() == ErrorKind::Decode), "{answers:?}");
    ensure!(answers[8].as_ref().is_err_and(|error| error.kind() == ErrorKind::Rejected), "{answers:?}");
    for (key, text) in [(&one, "2"), (&held, "8"), (&cleared, "4"), (&two, "7")] {
        holds(&store, key, Some(text)).await?;
    }
    for batch in [put(&held, "9"), put(&held, "8")] {
        ensure_eq!(refused(&store, batch).await?, there("8"));
    }
    Ok(())
}

pub async fn nothing_to_write_is_applied(store: Arc<dyn Store>) -> Kept {
    applied(&store, Batch::new()).await?;
    Ok(())
}

pub async fn batches_that_are_joined_keep_the_positions_of_their_own_appends(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let (log, other, keep) = (names.log("log"), names.log("other"), Keep::all_for(HOUR));
    let marked = |marker: &Key, log, text: &str| {
        Batch::new().put(marker, Expect::Absent, Value::PositionOf(0), HOUR).append(log, text, keep)
    };
    let markers = ["a", "b", "c"].map(|name| names.key(name));
    let [a, b, c] = &markers;
    let joined = marked(a, &log, "1").append(&log, "2", keep);
    let joined = joined.and(marked(b, &other, "3")).and(marked(c, &log, "4"));
    let positions = applied(&store, joined).await?;
    for (marker, n) in [(a, 0), (b, 2), (c, 3)] {
        holds(&store, marker, Some(&positions[n].to_string())).await?;
    }
    Ok(())
}
