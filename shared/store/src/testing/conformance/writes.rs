//! Conditional writes of one key, and of several in one batch.

use std::sync::Arc;

use super::{HOUR, Kept, Names, absent_or, applied, holds, is, refused, texts, there};
use crate::{Batch, Commit, Expect, Found, Keep, Record, Store};

pub async fn what_was_never_put_is_absent(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    holds(&store, &names.key("k"), None).await?;
    ensure_eq!(store.read(&names.log("l"), None, 10).await?, Vec::<Record>::new());
    Ok(())
}

pub async fn a_put_that_expects_nothing_happens_once(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("k");
    applied(&store, Batch::new().put(&key, Expect::Absent, "first", HOUR)).await?;
    ensure_eq!(
        refused(&store, Batch::new().put(&key, Expect::Absent, "second", HOUR)).await?,
        there("first")
    );
    holds(&store, &key, Some("first")).await
}

pub async fn a_put_that_expects_a_value_happens_on_that_value_only(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("k");
    ensure_eq!(refused(&store, Batch::new().put(&key, is("old"), "new", HOUR)).await?, [None]);
    holds(&store, &key, None).await?;
    applied(&store, Batch::new().put(&key, Expect::Absent, "other", HOUR)).await?;
    ensure_eq!(refused(&store, Batch::new().put(&key, is("old"), "new", HOUR)).await?, there("other"));
    applied(&store, Batch::new().put(&key, is("other"), "new", HOUR)).await?;
    holds(&store, &key, Some("new")).await
}

pub async fn a_put_that_expects_nothing_or_a_value_happens_on_nothing_else(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("k");
    applied(&store, Batch::new().put(&key, absent_or("claim"), "claim", HOUR)).await?;
    applied(&store, Batch::new().put(&key, absent_or("claim"), "result", HOUR)).await?;
    ensure_eq!(
        refused(&store, Batch::new().put(&key, absent_or("claim"), "late", HOUR)).await?,
        there("result")
    );
    holds(&store, &key, Some("result")).await
}

pub async fn a_delete_removes_the_value_it_names_and_no_other(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("k");
    applied(&store, Batch::new().put(&key, Expect::Absent, "mine", HOUR)).await?;
    ensure_eq!(refused(&store, Batch::new().delete(&key, "yours")).await?, there("mine"));
    holds(&store, &key, Some("mine")).await?;
    applied(&store, Batch::new().delete(&key, "mine")).await?;
    holds(&store, &key, None).await
}

pub async fn a_check_changes_nothing_and_decides_the_batch(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let (guard, key) = (names.key("guard"), names.key("k"));
    ensure_eq!(refused(&store, Batch::new().check(&guard, is("up"))).await?, [None]);
    let guarded = || Batch::new().check(&guard, is("up")).put(&key, Expect::Absent, "done", HOUR);
    ensure_eq!(refused(&store, guarded()).await?, [None]);
    holds(&store, &key, None).await?;
    applied(
        &store,
        Batch::new().check(&guard, Expect::Absent).put(&names.key("j"), Expect::Absent, "", HOUR),
    )
    .await?;
    applied(&store, Batch::new().put(&guard, Expect::Absent, "up", HOUR)).await?;
    applied(&store, Batch::new().check(&guard, is("up"))).await?;
    ensure_eq!(refused(&store, Batch::new().check(&guard, Expect::Absent)).await?, there("up"));
    applied(&store, guarded()).await?;
    holds(&store, &guard, Some("up")).await
}

pub async fn a_refused_batch_changes_nothing(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let [kept, gone, new, state] = ["kept", "gone", "new", "state"].map(|name| names.key(name));
    let log = names.log("log");
    applied(&store, Batch::new().put(&kept, Expect::Absent, "1", HOUR)).await?;
    applied(&store, Batch::new().put(&gone, Expect::Absent, "1", HOUR)).await?;
    let batch = Batch::new()
        .put(&new, Expect::Absent, "1", HOUR)
        .delete(&gone, "1")
        .put_if_newer(&state, 7, r#"{"seq":7}"#, HOUR)
        .append(&log, "record", Keep::all_for(HOUR))
        .put(&kept, is("2"), "3", HOUR);
    ensure_eq!(refused(&store, batch).await?, there("1"));
    holds(&store, &new, None).await?;
    holds(&store, &gone, Some("1")).await?;
    holds(&store, &kept, Some("1")).await?;
    holds(&store, &state, None).await?;
    ensure_eq!(texts(&store, &log).await?, Vec::<String>::new());
    Ok(())
}

pub async fn a_refusal_brings_every_value_that_failed(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let [a, b, c, d, e] = ["a", "b", "c", "d", "e"].map(|name| names.key(name));
    applied(&store, Batch::new().put(&a, Expect::Absent, "one", HOUR)).await?;
    applied(&store, Batch::new().put(&c, Expect::Absent, "three", HOUR)).await?;
    applied(&store, Batch::new().put(&e, Expect::Absent, "five", HOUR)).await?;
    let batch = Batch::new()
        .put(&a, Expect::Absent, "1", HOUR)
        .put(&b, is("two"), "2", HOUR)
        .delete(&c, "drei")
        .check(&d, Expect::Absent)
        .put(&e, absent_or("five"), "5", HOUR);
    let Commit::Refused(refusal) = store.commit(&batch).await? else { broken!("applied") };
    ensure_eq!(refusal.get(&a), Some(Found::Text("one")));
    ensure_eq!(refusal.get(&b), Some(Found::Nothing));
    ensure_eq!(refusal.get(&c), Some(Found::Text("three")));
    ensure_eq!(
        [refusal.get(&d), refusal.get(&e)],
        [None; 2],
        "what was as expected is not part of a refusal"
    );
    ensure_eq!(refusal.iter().map(|(key, _)| key).collect::<Vec<_>>(), [&a, &b, &c]);
    let shown = format!("{refusal:?}");
    ensure!(!shown.contains("one") && !shown.contains(a.as_str()), "{shown}");
    Ok(())
}

pub async fn a_repeated_claim_recognises_itself(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("k");
    let claim = Batch::new().put(&key, Expect::Absent, "my token", HOUR);
    applied(&store, claim.clone()).await?;
    ensure_eq!(refused(&store, claim).await?, there("my token"));
    Ok(())
}

pub async fn a_repeated_result_recognises_itself(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let (key, log) = (names.key("k"), names.log("l"));
    applied(&store, Batch::new().put(&key, Expect::Absent, "claim", HOUR)).await?;
    let commit = Batch::new().put(&key, absent_or("claim"), "result", HOUR).append(
        &log,
        "effect",
        Keep::all_for(HOUR),
    );
    applied(&store, commit.clone()).await?;
    ensure_eq!(refused(&store, commit).await?, there("result"));
    ensure_eq!(texts(&store, &log).await?, ["effect"]);
    Ok(())
}

pub async fn a_repeated_delete_finds_nothing(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("k");
    applied(&store, Batch::new().put(&key, Expect::Absent, "mine", HOUR)).await?;
    applied(&store, Batch::new().delete(&key, "mine")).await?;
    ensure_eq!(refused(&store, Batch::new().delete(&key, "mine")).await?, [None]);
    Ok(())
}

pub async fn a_repeated_swap_is_refused(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("k");
    applied(&store, Batch::new().put(&key, Expect::Absent, "1", HOUR)).await?;
    let swap = Batch::new().put(&key, is("1"), "2", HOUR);
    applied(&store, swap.clone()).await?;
    ensure_eq!(refused(&store, swap).await?, there("2"));
    Ok(())
}
