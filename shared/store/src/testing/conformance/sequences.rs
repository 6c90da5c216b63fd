//! States that only move up.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::sleep;

use super::{HOUR, Names, SHORT, applied, holds, insist, texts};
use crate::{Batch, Expect, Keep, Key, Log, Store};

fn state(seq: u64) -> String {
    format!(r#"{{"job_id":"job-1","seq":{seq},"data":{{"seq":99}}}}"#)
}

pub async fn a_newer_sequence_replaces_and_an_older_never_does(store: Arc<dyn Store>) {
    let key = Names::new().key("state");
    for (seq, highest) in [(20, 20), (10, 20), (20, 20), (21, 21), (9, 21), (100, 100), (51, 100)] {
        applied(&store, Batch::new().put_if_newer(&key, seq, state(seq), HOUR)).await;
        holds(&store, &key, Some(&state(highest))).await;
    }
    let same = r#"{"seq":100,"data":"another"}"#;
    applied(&store, Batch::new().put_if_newer(&key, 100, same, HOUR)).await;
    holds(&store, &key, Some(&state(100))).await;
    let short = Names::new().key("state");
    applied(&store, Batch::new().put_if_newer(&short, 5, state(5), SHORT)).await;
    applied(&store, Batch::new().put_if_newer(&short, 4, state(4), HOUR)).await;
    sleep(SHORT * 2).await;
    holds(&store, &short, None).await;
}

pub async fn an_older_sequence_does_not_hold_up_the_rest(store: Arc<dyn Store>) {
    let names = Names::new();
    let (key, marker, log) = (names.key("state"), names.key("marker"), names.log("log"));
    applied(&store, Batch::new().put_if_newer(&key, 20, state(20), HOUR)).await;
    let batch = Batch::new()
        .put(&marker, Expect::Absent, "1", HOUR)
        .append(&log, "late", Keep::all_for(HOUR))
        .put_if_newer(&key, 10, state(10), HOUR);
    applied(&store, batch).await;
    holds(&store, &key, Some(&state(20))).await;
    holds(&store, &marker, Some("1")).await;
    assert_eq!(texts(&store, &log).await, ["late"]);
}

pub async fn what_has_no_sequence_is_older_than_any(store: Arc<dyn Store>) {
    let names = Names::new();
    for (n, foreign) in
        ["", "1", "not json", "[]", "{}", "[7]", r#"{"seq":"9"}"#, r#"{"seq":-1}"#, r#"{"seq":9.5}"#]
            .iter()
            .enumerate()
    {
        let key = names.key(&n.to_string());
        applied(&store, Batch::new().put(&key, Expect::Absent, *foreign, HOUR)).await;
        applied(&store, Batch::new().put_if_newer(&key, 0, state(0), HOUR)).await;
        holds(&store, &key, Some(&state(0))).await;
    }
    // One that somebody else wrote counts by the number in it, however it is written.
    for foreign in [r#"{"stage": "rule", "seq": 21}"#, r#" {"seq": 21.0}"#, r#"{"seq": 2.1e1}"#] {
        let key = names.key(foreign);
        applied(&store, Batch::new().put(&key, Expect::Absent, foreign, HOUR)).await;
        applied(&store, Batch::new().put_if_newer(&key, 20, state(20), HOUR)).await;
        holds(&store, &key, Some(foreign)).await;
    }
}

pub async fn racing_sequences_end_with_the_highest(store: Arc<dyn Store>) {
    let names = Names::new();
    let (key, log) = (names.key("state"), names.log("log"));
    let write = |n: u64, store: Arc<dyn Store>, key: Key, log: Log| async move {
        let seq = n * 7 % 20;
        insist(&store, || {
            Batch::new().put_if_newer(&key, seq, state(seq), HOUR).append(
                &log,
                seq.to_string(),
                Keep::all_for(HOUR),
            )
        })
        .await;
    };
    let writes = (0..20).map(|n| tokio::spawn(write(n, Arc::clone(&store), key.clone(), log.clone())));
    join_all(writes.collect::<Vec<_>>()).await.into_iter().for_each(Result::unwrap);
    holds(&store, &key, Some(&state(19))).await;
    assert_eq!(texts(&store, &log).await.len(), 20);
}
