//! Whole batches, and several in one call.

use std::sync::Arc;
use std::time::Duration;

use super::{HOUR, Names, applied, holds, is, texts};
use crate::{Batch, Commit, Error, Expect, Keep, Store};

pub async fn half_a_batch_is_never_left_behind(store: Arc<dyn Store>) {
    let names = Names::new();
    // One name for a value and for a log: a backend may keep them apart or reject it, but it must not stop halfway.
    let (text, log) = (names.key("both"), names.log("both"));
    applied(&store, Batch::new().put(&text, Expect::Absent, "text", HOUR)).await;
    let [before, gone, after] = ["before", "gone", "after"].map(|name| names.key(name));
    applied(&store, Batch::new().put(&gone, Expect::Absent, "1", HOUR)).await;
    let batch = Batch::new()
        .put(&before, Expect::Absent, "1", HOUR)
        .delete(&gone, "1")
        .append(&names.log("good"), "record", Keep::all_for(HOUR))
        .append(&log, "record", Keep::all_for(HOUR))
        .put(&after, Expect::Absent, "1", HOUR);
    let (value, left) = match store.commit(&batch).await {
        Ok(Commit::Applied(_)) => (Some("1"), None),
        Ok(Commit::Refused(_)) => panic!("a wrong kind is no refusal"),
        Err(error) => {
            assert!(!error.is_retryable(), "{error}");
            (None, Some("1"))
        }
    };
    holds(&store, &before, value).await;
    holds(&store, &after, value).await;
    assert_eq!(texts(&store, &names.log("good")).await.len(), usize::from(value.is_some()));
    holds(&store, &gone, left).await;
    holds(&store, &text, Some("text")).await;
}

pub async fn batches_of_one_call_stand_alone(store: Arc<dyn Store>) {
    let names = Names::new();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| names.key(name));
    applied(&store, Batch::new().put(&b, Expect::Absent, "held", HOUR)).await;
    let batches = [
        Batch::new().put(&a, Expect::Absent, "1", HOUR),
        Batch::new().put(&b, Expect::Absent, "2", HOUR),
        Batch::new().put(&c, Expect::Absent, "3", Duration::ZERO),
        Batch::new().put(&d, Expect::Absent, "4", HOUR).append(&names.log("l"), "4", Keep::all_for(HOUR)),
    ];
    let answers = store.commit_each(&batches).await;
    assert!(matches!(&answers[0], Ok(Commit::Applied(_))), "{answers:?}");
    assert!(
        matches!(&answers[1], Ok(Commit::Refused(refusal)) if refusal[0].there.as_deref() == Some("held")),
        "{answers:?}"
    );
    assert!(matches!(&answers[2], Err(Error::Rejected { .. })), "{answers:?}");
    assert!(matches!(&answers[3], Ok(Commit::Applied(positions)) if positions.len() == 1), "{answers:?}");
    assert_eq!(answers.len(), 4);
    holds(&store, &c, None).await;
    assert!(store.commit_each(&[]).await.is_empty());
}

pub async fn batches_that_share_a_key_are_applied_in_order(store: Arc<dyn Store>) {
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
        assert!(matches!(answer, Ok(Commit::Applied(_))), "{answer:?}");
    }
    holds(&store, &key, Some("9")).await;
    assert_eq!(texts(&store, &log).await, (0..10).map(|n| n.to_string()).collect::<Vec<_>>());
}

pub async fn nothing_to_write_is_applied(store: Arc<dyn Store>) {
    applied(&store, Batch::new()).await;
}
