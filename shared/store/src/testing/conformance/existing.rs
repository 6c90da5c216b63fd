//! Appends to logs that must exist.

use std::sync::Arc;

use tokio::time::{Instant, sleep};

use super::{Broken, HOUR, Kept, Names, SHORT, applied, holds, in_time, is, refused, rejected, texts, there};
use crate::{Batch, Commit, ErrorKind, Expect, Found, Keep, Key, Store, Ttl, Value};

/// The logs that a refusal names, all of which are absent.
async fn missing(store: &Arc<dyn Store>, batch: Batch) -> Result<Vec<Key>, Broken> {
    match store.commit(&batch).await? {
        Commit::Refused(refusal) => {
            ensure!(refusal.iter().all(|(_, found)| found == Found::Nothing), "{refusal:?}");
            Ok(refusal.into_iter().map(|(key, _)| key).collect())
        }
        answer => broken!("{batch:?} gave {answer:?}"),
    }
}

pub async fn an_append_to_an_existing_log_adds_to_its_records(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let (log, other, marker) = (names.log("log"), names.log("other"), names.key("marker"));
    applied(&store, Batch::new().append(&log, "1", Keep::all_for(HOUR))).await?;
    let batch = Batch::new()
        .append(&other, "a", Keep::about(9))
        .append_to_existing(&log, "2")
        .put(&marker, Expect::Absent, Value::PositionOf(2), HOUR)
        .append_to_existing(&log, "3");
    let positions = applied(&store, batch).await?;
    ensure_eq!(
        (texts(&store, &log).await?.join(" "), texts(&store, &other).await?.join(" ")),
        ("1 2 3".into(), "a".into())
    );
    let records = store.read(&log, None, 10).await?;
    ensure_eq!([records[1].position, records[2].position], [positions[1], positions[2]]);
    ensure!(records.is_sorted_by(|a, b| a.position < b.position));
    holds(&store, &marker, Some(&positions[2].to_string())).await
}

pub async fn an_append_to_an_existing_log_leaves_its_ttl_as_it_is(store: Arc<dyn Store>) -> Kept {
    let lived = in_time(SHORT * 3, async || {
        let names = Names::new();
        let [brief, long, endless] = ["brief", "long", "endless"].map(|name| names.log(name));
        for (log, ttl) in [(&brief, Ttl::Of(SHORT * 2)), (&long, HOUR.into()), (&endless, Ttl::Forever)] {
            applied(&store, Batch::new().append(log, "1", Keep::all_for(ttl))).await?;
        }
        sleep(SHORT).await;
        for log in [&brief, &long, &endless] {
            applied(&store, Batch::new().append_to_existing(log, "2")).await?;
        }
        let asked = Instant::now();
        sleep(SHORT + SHORT / 2).await;
        let lived = [&brief, &long, &endless].map(|log| texts(&store, log));
        let [brief, long, endless] = lived;
        Ok((asked, [brief.await?.len(), long.await?.len(), endless.await?.len()]))
    });
    ensure_eq!(lived.await?, [0, 2, 2]);
    Ok(())
}

pub async fn an_append_to_a_log_that_must_exist_is_refused_where_there_is_none(
    store: Arc<dyn Store>,
) -> Kept {
    let names = Names::new();
    let [absent, expired, cleared, there_is] =
        ["absent", "expired", "cleared", "there is"].map(|name| names.log(name));
    let (key, other) = (names.key("key"), names.log("other"));
    applied(&store, Batch::new().append(&expired, "1", Keep::all_for(SHORT))).await?;
    sleep(SHORT * 2).await;
    for log in [&cleared, &there_is] {
        applied(&store, Batch::new().append(log, "1", Keep::all_for(HOUR))).await?;
    }
    // At once: nothing that a clear may leave behind takes a record.
    applied(&store, Batch::new().clear(&cleared)).await?;
    for log in [&cleared, &absent, &expired] {
        let batch = Batch::new()
            .put(&key, Expect::Absent, "new", HOUR)
            .append(&other, "new", Keep::about(9))
            .append_to_existing(&there_is, "new")
            .append_to_existing(log, "new");
        ensure_eq!(missing(&store, batch).await?, [Key::from(log)]);
        holds(&store, &key, None).await?;
        ensure_eq!(texts(&store, &there_is).await?, ["1"], "a refused batch changes nothing");
        ensure!(texts(&store, &other).await?.is_empty() && texts(&store, log).await?.is_empty());
    }
    let both = Batch::new().append_to_existing(&absent, "1").append_to_existing(&cleared, "1");
    ensure_eq!(missing(&store, both.clone()).await?, [Key::from(&absent), Key::from(&cleared)]);
    // A key whose expectation fails is named before any log.
    applied(&store, Batch::new().put(&key, Expect::Absent, "there", HOUR)).await?;
    ensure_eq!(refused(&store, both.clone().check(&key, Expect::Absent)).await?, there("there"));
    // Begun anew, it exists again.
    for log in [&absent, &cleared] {
        applied(&store, Batch::new().append(log, "0", Keep::all_for(HOUR))).await?;
    }
    applied(&store, both.check(&key, is("there"))).await?;
    for log in [&absent, &cleared] {
        ensure_eq!(texts(&store, log).await?, ["0", "1"]);
    }
    Ok(())
}

pub async fn a_batch_that_fails_at_one_log_trims_no_other(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let (key, text, log, other) =
        (names.key("text"), names.log("text"), names.log("log"), names.log("other"));
    applied(&store, Batch::new().put(&key, Expect::Absent, "text", HOUR)).await?;
    // More than Redis keeps in one node of a stream: it trims whole nodes.
    for _ in 0..5 {
        let batch = Batch::new();
        let fill = (0..50).fold(batch, |batch, n| batch.append(&log, n.to_string(), Keep::all_for(HOUR)));
        applied(&store, fill).await?;
    }
    let trim = || Keep::about(1);
    for wrong in [
        Batch::new().append(&log, "new", trim()).append(&text, "new", Keep::all_for(HOUR)),
        Batch::new().append(&log, "new", trim()).append(&text, "new", trim()),
        Batch::new().append(&text, "new", trim()).append(&other, "new", trim()).append(&log, "new", trim()),
    ] {
        let error = rejected(&store, wrong).await?;
        ensure!(error.kind() == ErrorKind::Decode, "{error:?}");
        ensure_eq!(store.read(&log, None, 1000).await?.len(), 250, "half of a batch");
        ensure!(texts(&store, &other).await?.is_empty(), "half of a batch");
    }
    Ok(())
}

pub async fn an_append_to_a_text_that_is_no_log_writes_nothing(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let (key, log, good) = (names.key("text"), names.log("text"), names.log("good"));
    applied(
        &store,
        Batch::new().put(&key, Expect::Absent, "text", HOUR).append(&good, "1", Keep::all_for(HOUR)),
    )
    .await?;
    for wrong in [
        Batch::new().append_to_existing(&good, "2").append_to_existing(&log, "1"),
        Batch::new().append_to_existing(&good, "2").append(&log, "1", Keep::all_for(HOUR)),
    ] {
        let error = rejected(&store, wrong).await?;
        ensure!(error.kind() == ErrorKind::Decode, "{error:?}");
        ensure_eq!(texts(&store, &good).await?, ["1"], "half of a batch");
        holds(&store, &key, Some("text")).await?;
    }
    Ok(())
}
