//! `put_if_newer`: a sequence number never decreases.

use std::sync::Arc;

use tokio::time::sleep;

use super::{HOUR, Kept, Names, SHORT, applied, ended, holds, insist, texts, value};
use crate::{Batch, Commit, Expect, Keep, Key, Log, Store, seq_of};

fn state(seq: u64) -> String {
    format!(r#"{{"seq":{seq},"job_id":"job-1","data":{{"seq":99}}}}"#)
}

pub async fn a_state_begins_with_its_sequence(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("state");
    let given = r#"{"stage":"rule", "amount":1.10, "data":{"seq":99}, "seq":20}"#;
    applied(&store, Batch::new().put_if_newer(&key, 20, given, HOUR)).await?;
    holds(&store, &key, Some(r#"{"seq":20,"amount":1.10,"data":{"seq":99},"stage":"rule"}"#)).await?;
    applied(&store, Batch::new().put_if_newer(&key, 19, state(19), HOUR)).await?;
    ensure_eq!(seq_of(&value(&store, &key).await?), Some(20));
    Ok(())
}

pub async fn a_newer_sequence_replaces_and_an_older_never_does(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("state");
    for (seq, highest) in [(20, 20), (10, 20), (20, 20), (21, 21), (9, 21), (100, 100), (51, 100)] {
        applied(&store, Batch::new().put_if_newer(&key, seq, state(seq), HOUR)).await?;
        holds(&store, &key, Some(&state(highest))).await?;
    }
    let same = r#"{"seq":100,"data":"another"}"#;
    applied(&store, Batch::new().put_if_newer(&key, 100, same, HOUR)).await?;
    holds(&store, &key, Some(&state(100))).await?;
    let short = Names::new().key("state");
    applied(&store, Batch::new().put_if_newer(&short, 5, state(5), SHORT)).await?;
    applied(&store, Batch::new().put_if_newer(&short, 4, state(4), HOUR)).await?;
    sleep(SHORT * 2).await;
    holds(&store, &short, None).await
}

pub async fn an_older_sequence_does_not_hold_up_the_rest(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let (key, marker, log) = (names.key("state"), names.key("marker"), names.log("log"));
    applied(&store, Batch::new().put_if_newer(&key, 20, state(20), HOUR)).await?;
    let batch = Batch::new()
        .put(&marker, Expect::Absent, "1", HOUR)
        .append(&log, "late", Keep::all_for(HOUR))
        .put_if_newer(&key, 10, state(10), HOUR);
    applied(&store, batch).await?;
    holds(&store, &key, Some(&state(20))).await?;
    holds(&store, &marker, Some("1")).await?;
    ensure_eq!(texts(&store, &log).await?, ["late"]);
    Ok(())
}

pub async fn what_has_no_sequence_is_older_than_any(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    for (n, foreign) in
        ["", "1", "not json", "[]", "{}", "[7]", r#"{"seq":"9"}"#, r#"{"seq":-1}"#, r#"{"seq":9.5}"#]
            .iter()
            .enumerate()
    {
        let key = names.key(&n.to_string());
        applied(&store, Batch::new().put(&key, Expect::Absent, *foreign, HOUR)).await?;
        applied(&store, Batch::new().put_if_newer(&key, 0, state(0), HOUR)).await?;
        holds(&store, &key, Some(&state(0))).await?;
    }
    // One that somebody else wrote counts by the number in it, however it is written.
    for foreign in [r#"{"stage": "rule", "seq": 21}"#, r#" {"seq": 21.0}"#, r#"{"seq": 2.1e1}"#] {
        let key = names.key(foreign);
        applied(&store, Batch::new().put(&key, Expect::Absent, foreign, HOUR)).await?;
        applied(&store, Batch::new().put_if_newer(&key, 20, state(20), HOUR)).await?;
        holds(&store, &key, Some(foreign)).await?;
    }
    Ok(())
}

/// Foreign JSON that parsers disagree about: whatever its number is, it is the same on every backend, that of
/// [`seq_of`].
pub async fn a_sequence_is_judged_alike_on_every_backend(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let deep = format!(r#"{{"data":{}{},"seq":30}}"#, "[".repeat(1500), "]".repeat(1500));
    let foreign = [
        r#"{"data":"\ud83d","seq":30}"#,
        r#"{"seq":30,"data":"\ud83d"}"#,
        &deep,
        r#"{"seq":30,"seq":5}"#,
        r#"{"seq":5,"seq":30}"#,
        r#"{"a":1,"seq":30,"seq":5}"#,
        r#"{"a":1,"seq":5,"seq":30}"#,
        r#"{"seq":0x1e}"#,
        r#"{"seq":030}"#,
        r#"{"seq": 030, "a":1}"#,
        r#"{"seq":+30}"#,
        r#"{"seq":30}"#,
        r#"{"seq":30,"#,
        r#"{"seq":30}}"#,
        r#"{"seq":30 }"#,
        r#"{"seq":30.0}"#,
        r#"{"seq":3e1}"#,
        r#"{"seq":"30"}"#,
        r#"{"seq":nan}"#,
        r#"{"seq":Infinity}"#,
        r#"{"seq":-0}"#,
        r#"{"\u0073eq":30}"#,
        r#"{"data":{"seq":99},"seq":5}"#,
        r#"{"data":"\"seq\":99","seq":5}"#,
        "{\"data\":\"tab\there\",\"seq\":30}",
        "\u{feff}{\"seq\":30}",
        "\n{\"seq\":30}",
        "{\"seq\":30,\0",
        r#"[{"seq":30}]"#,
        r#"{"seq":9007199254740992}"#,
        r#"{"seq":9007199254740993}"#,
        r#"{"seq":9007199254740992,"a":1}"#,
        r#"{"seq":18446744073709551616}"#,
        r#"{"seq":100000000000000000000000000000000000000000,"a":1}"#,
    ];
    for (n, text) in foreign.iter().enumerate() {
        for seq in [4, 5, 20, 30, 31, 1 << 53] {
            let key = names.key(&format!("{n} {seq}"));
            applied(&store, Batch::new().put(&key, Expect::Absent, *text, HOUR)).await?;
            applied(&store, Batch::new().put_if_newer(&key, seq, state(seq), HOUR)).await?;
            let newer = seq_of(text).is_none_or(|there| there < seq);
            let expected = if newer { state(seq) } else { (*text).to_owned() };
            holds(&store, &key, Some(&expected)).await?;
        }
    }
    // It never goes backwards: neither in one batch with another key, nor in one call with other batches.
    let keys = ["a", "b", "c"].map(|name| names.key(name));
    for key in &keys {
        applied(&store, Batch::new().put(key, Expect::Absent, foreign[0], HOUR)).await?;
    }
    let both = Batch::new()
        .put_if_newer(&keys[0], 20, state(20), HOUR)
        .put_if_newer(&keys[1], 40, state(40), HOUR)
        .append(&names.log("both"), "both", Keep::all_for(HOUR));
    applied(&store, both).await?;
    let calls = [29, 31, 28].map(|seq| {
        Batch::new().put_if_newer(&keys[2], seq, state(seq), HOUR).append(
            &names.log("calls"),
            seq.to_string(),
            Keep::all_for(HOUR),
        )
    });
    for answer in store.commit_each(&calls).await {
        ensure!(matches!(answer, Ok(Commit::Applied(_))), "{answer:?}");
    }
    holds(&store, &keys[0], Some(foreign[0])).await?;
    holds(&store, &keys[1], Some(&state(40))).await?;
    holds(&store, &keys[2], Some(&state(31))).await?;
    ensure_eq!(texts(&store, &names.log("both")).await?, ["both"]);
    ensure_eq!(texts(&store, &names.log("calls")).await?, ["29", "31", "28"]);
    Ok(())
}

pub async fn racing_sequences_end_with_the_highest(store: Arc<dyn Store>) -> Kept {
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
        .await
    };
    let writes = (0..20).map(|n| tokio::spawn(write(n, Arc::clone(&store), key.clone(), log.clone())));
    ended(writes).await?;
    holds(&store, &key, Some(&state(19))).await?;
    ensure_eq!(texts(&store, &log).await?.len(), 20);
    Ok(())
}
