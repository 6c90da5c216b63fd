//! The promises of a [`Store`], each a function with a sentence for a name. [`promises!`](crate::promises) makes a test
//! of every one for a backend; a backend is done when all of them pass.
//!
//! Every promise works on names of its own, so that they share one server without flushing it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are the bodies of tests")]

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use crate::lease::{Acquire, Release, Renewal, unique_token};
use crate::{
    Batch, Channel, Commit, Error, Expect, Keep, Key, Lease, Log, MAX_NAME, MAX_TTL, MAX_WRITES, Mismatch,
    Record, Store, Ttl, Value,
};

/// Makes a test of every promise. The first argument is the test's attributes, the second an expression for a future
/// of the store and of whatever must outlive it.
#[macro_export]
macro_rules! promises {
    (@each $attributes:tt $open:expr; $($promise:ident)*) => {
        $($crate::promises! { @test $attributes $open; $promise })*
    };
    (@test [$($attribute:tt)*] $open:expr; $promise:ident) => {
        $($attribute)*
        async fn $promise() {
            let (store, _server) = $open.await;
            $crate::testing::conformance::$promise(store).await
        }
    };
    ($attributes:tt $open:expr) => {
        $crate::promises! { @each $attributes $open;
            what_was_never_put_is_absent
            a_put_that_expects_nothing_happens_once
            a_put_that_expects_a_value_happens_on_that_value_only
            a_put_that_expects_nothing_or_a_value_happens_on_nothing_else
            a_delete_removes_the_value_it_names_and_no_other
            a_check_changes_nothing_and_decides_the_batch
            a_refused_batch_changes_nothing
            a_refusal_brings_every_value_that_failed
            a_repeated_claim_recognises_itself
            a_repeated_result_recognises_itself
            a_repeated_delete_finds_nothing
            a_repeated_swap_is_refused
            an_expired_key_is_absent_to_every_operation
            a_write_renews_the_life_and_a_read_does_not
            a_refused_write_does_not_renew_the_life
            what_is_put_for_ever_outlives_the_end_it_had
            a_lease_is_held_by_one_until_it_is_released
            a_renewed_lease_lasts
            a_lapsed_lease_is_not_revived
            a_release_frees_only_its_own
            a_lost_lease_can_neither_commit_nor_release
            a_guard_joins_a_write_to_the_same_key
            no_increment_is_lost_among_many_workers
            one_of_a_hundred_racing_claims_wins
            any_text_comes_back_as_it_was
            a_value_of_300_kb_comes_back
            keys_with_any_characters_are_distinct
            a_key_must_have_1_to_2048_bytes
            a_batch_that_names_a_key_twice_is_rejected
            a_batch_that_cannot_be_meant_is_rejected
            a_value_over_the_limit_is_rejected
            an_append_and_its_marker_happen_together_or_not_at_all
            a_marker_holds_the_position_of_its_record
            positions_increase_and_reading_on_neither_repeats_nor_skips
            a_reader_that_resumes_sees_every_concurrent_append_once
            a_long_log_is_read_to_its_end
            a_log_ends_after_its_last_append
            a_log_that_ended_begins_anew_with_higher_positions
            a_log_keeps_its_newest_records
            a_newer_sequence_replaces_and_an_older_never_does
            an_older_sequence_does_not_hold_up_the_rest
            what_has_no_sequence_is_older_than_any
            racing_sequences_end_with_the_highest
            a_watcher_hears_every_publish
            to_watch_and_then_read_misses_nothing
            half_a_batch_is_never_left_behind
            batches_of_one_call_stand_alone
            batches_that_share_a_key_are_applied_in_order
            nothing_to_write_is_applied
        }
    };
}

const HOUR: Duration = Duration::from_secs(3600);
/// A life short enough to wait for, and long enough for a few round trips to a busy server.
const SHORT: Duration = Duration::from_millis(400);

/// Names that no other test has.
#[derive(Clone, Debug)]
pub struct Names(String);

impl Default for Names {
    fn default() -> Names {
        Names(format!("test:{}:", unique_token()))
    }
}

impl Names {
    /// New ones.
    pub fn new() -> Names {
        Names::default()
    }

    /// A key.
    pub fn key(&self, name: &str) -> Key {
        Key::new(format!("{}{name}", self.0)).unwrap()
    }

    /// A log.
    pub fn log(&self, name: &str) -> Log {
        Log::new(format!("{}{name}", self.0)).unwrap()
    }

    /// A channel.
    pub fn channel(&self, name: &str) -> Channel {
        Channel::new(format!("{}{name}", self.0)).unwrap()
    }
}

fn is(text: &str) -> Expect {
    Expect::Is(text.to_owned())
}

fn absent_or(text: &str) -> Expect {
    Expect::AbsentOr(text.to_owned())
}

async fn applied(store: &Arc<dyn Store>, batch: Batch) {
    let answer = store.commit(&batch).await.unwrap();
    assert!(matches!(answer, Commit::Applied(_)), "{batch:?} gave {answer:?}");
}

/// The values a refusal brings, in the order of the batch.
async fn refused(store: &Arc<dyn Store>, batch: Batch) -> Vec<Option<String>> {
    match store.commit(&batch).await.unwrap() {
        Commit::Refused(refusal) => refusal.into_iter().map(|mismatch| mismatch.there).collect(),
        answer => panic!("{batch:?} gave {answer:?}"),
    }
}

async fn rejected(store: &Arc<dyn Store>, batch: Batch) -> Error {
    let error = store.commit(&batch).await.unwrap_err();
    assert!(!error.is_retryable(), "{error}");
    error
}

async fn holds(store: &Arc<dyn Store>, key: &Key, text: Option<&str>) {
    assert_eq!(store.get(key).await.unwrap().as_deref(), text);
}

fn there(text: &str) -> Vec<Option<String>> {
    vec![Some(text.to_owned())]
}

async fn texts(store: &Arc<dyn Store>, log: &Log) -> Vec<String> {
    store.read(log, None, 10_000).await.unwrap().into_iter().map(|record| record.text).collect()
}

/// Tries again and again, as a worker does whose swap was lost to another, until the batch is applied.
async fn insist(store: &Arc<dyn Store>, batch: impl Fn() -> Batch) {
    loop {
        match store.commit(&batch()).await {
            Ok(Commit::Applied(_)) => return,
            Ok(Commit::Refused(_)) => panic!("refused"),
            Err(error) if error.is_retryable() && !error.maybe_applied() => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[allow(missing_docs, reason = "the names are the sentences")]
mod all {
    use super::*;

    pub async fn what_was_never_put_is_absent(store: Arc<dyn Store>) {
        let names = Names::new();
        holds(&store, &names.key("k"), None).await;
        assert_eq!(store.read(&names.log("l"), None, 10).await.unwrap(), Vec::<Record>::new());
    }

    pub async fn a_put_that_expects_nothing_happens_once(store: Arc<dyn Store>) {
        let key = Names::new().key("k");
        applied(&store, Batch::new().put(&key, Expect::Absent, "first", HOUR)).await;
        assert_eq!(
            refused(&store, Batch::new().put(&key, Expect::Absent, "second", HOUR)).await,
            there("first")
        );
        holds(&store, &key, Some("first")).await;
    }

    pub async fn a_put_that_expects_a_value_happens_on_that_value_only(store: Arc<dyn Store>) {
        let key = Names::new().key("k");
        assert_eq!(refused(&store, Batch::new().put(&key, is("old"), "new", HOUR)).await, [None]);
        holds(&store, &key, None).await;
        applied(&store, Batch::new().put(&key, Expect::Absent, "other", HOUR)).await;
        assert_eq!(refused(&store, Batch::new().put(&key, is("old"), "new", HOUR)).await, there("other"));
        applied(&store, Batch::new().put(&key, is("other"), "new", HOUR)).await;
        holds(&store, &key, Some("new")).await;
    }

    pub async fn a_put_that_expects_nothing_or_a_value_happens_on_nothing_else(store: Arc<dyn Store>) {
        let key = Names::new().key("k");
        applied(&store, Batch::new().put(&key, absent_or("claim"), "claim", HOUR)).await;
        applied(&store, Batch::new().put(&key, absent_or("claim"), "result", HOUR)).await;
        assert_eq!(
            refused(&store, Batch::new().put(&key, absent_or("claim"), "late", HOUR)).await,
            there("result")
        );
        holds(&store, &key, Some("result")).await;
    }

    pub async fn a_delete_removes_the_value_it_names_and_no_other(store: Arc<dyn Store>) {
        let key = Names::new().key("k");
        applied(&store, Batch::new().put(&key, Expect::Absent, "mine", HOUR)).await;
        assert_eq!(refused(&store, Batch::new().delete(&key, "yours")).await, there("mine"));
        holds(&store, &key, Some("mine")).await;
        applied(&store, Batch::new().delete(&key, "mine")).await;
        holds(&store, &key, None).await;
    }

    pub async fn a_check_changes_nothing_and_decides_the_batch(store: Arc<dyn Store>) {
        let names = Names::new();
        let (guard, key) = (names.key("guard"), names.key("k"));
        assert_eq!(refused(&store, Batch::new().check(&guard, is("up"))).await, [None]);
        let guarded = || Batch::new().check(&guard, is("up")).put(&key, Expect::Absent, "done", HOUR);
        assert_eq!(refused(&store, guarded()).await, [None]);
        holds(&store, &key, None).await;
        applied(
            &store,
            Batch::new().check(&guard, Expect::Absent).put(&names.key("j"), Expect::Absent, "", HOUR),
        )
        .await;
        applied(&store, Batch::new().put(&guard, Expect::Absent, "up", HOUR)).await;
        applied(&store, Batch::new().check(&guard, is("up"))).await;
        assert_eq!(refused(&store, Batch::new().check(&guard, Expect::Absent)).await, there("up"));
        applied(&store, guarded()).await;
        holds(&store, &guard, Some("up")).await;
    }

    pub async fn a_refused_batch_changes_nothing(store: Arc<dyn Store>) {
        let names = Names::new();
        let [kept, gone, new, state] = ["kept", "gone", "new", "state"].map(|name| names.key(name));
        let log = names.log("log");
        applied(&store, Batch::new().put(&kept, Expect::Absent, "1", HOUR)).await;
        applied(&store, Batch::new().put(&gone, Expect::Absent, "1", HOUR)).await;
        let batch = Batch::new()
            .put(&new, Expect::Absent, "1", HOUR)
            .delete(&gone, "1")
            .put_if_newer(&state, 7, r#"{"seq":7}"#, HOUR)
            .append(&log, "record", Keep::all_for(HOUR))
            .put(&kept, is("2"), "3", HOUR);
        assert_eq!(refused(&store, batch).await, there("1"));
        holds(&store, &new, None).await;
        holds(&store, &gone, Some("1")).await;
        holds(&store, &kept, Some("1")).await;
        holds(&store, &state, None).await;
        assert_eq!(texts(&store, &log).await, Vec::<String>::new());
    }

    pub async fn a_refusal_brings_every_value_that_failed(store: Arc<dyn Store>) {
        let names = Names::new();
        let [a, b, c, d, e] = ["a", "b", "c", "d", "e"].map(|name| names.key(name));
        applied(&store, Batch::new().put(&a, Expect::Absent, "one", HOUR)).await;
        applied(&store, Batch::new().put(&c, Expect::Absent, "three", HOUR)).await;
        applied(&store, Batch::new().put(&e, Expect::Absent, "five", HOUR)).await;
        let batch = Batch::new()
            .put(&a, Expect::Absent, "1", HOUR)
            .put(&b, is("two"), "2", HOUR)
            .delete(&c, "drei")
            .check(&d, Expect::Absent)
            .put(&e, absent_or("five"), "5", HOUR);
        let Commit::Refused(refusal) = store.commit(&batch).await.unwrap() else { panic!("applied") };
        let told = |key: &Key| Mismatch::find(&refusal, key).map(|mismatch| mismatch.there.as_deref());
        assert_eq!(told(&a), Some(Some("one")));
        assert_eq!(told(&b), Some(None));
        assert_eq!(told(&c), Some(Some("three")));
        assert_eq!((told(&d), told(&e)), (None, None), "what was as expected is not part of a refusal");
    }

    pub async fn a_repeated_claim_recognises_itself(store: Arc<dyn Store>) {
        let key = Names::new().key("k");
        let claim = Batch::new().put(&key, Expect::Absent, "my token", HOUR);
        applied(&store, claim.clone()).await;
        assert_eq!(refused(&store, claim).await, there("my token"));
    }

    pub async fn a_repeated_result_recognises_itself(store: Arc<dyn Store>) {
        let names = Names::new();
        let (key, log) = (names.key("k"), names.log("l"));
        applied(&store, Batch::new().put(&key, Expect::Absent, "claim", HOUR)).await;
        let commit = Batch::new().put(&key, absent_or("claim"), "result", HOUR).append(
            &log,
            "effect",
            Keep::all_for(HOUR),
        );
        applied(&store, commit.clone()).await;
        assert_eq!(refused(&store, commit).await, there("result"));
        assert_eq!(texts(&store, &log).await, ["effect"]);
    }

    pub async fn a_repeated_delete_finds_nothing(store: Arc<dyn Store>) {
        let key = Names::new().key("k");
        applied(&store, Batch::new().put(&key, Expect::Absent, "mine", HOUR)).await;
        applied(&store, Batch::new().delete(&key, "mine")).await;
        assert_eq!(refused(&store, Batch::new().delete(&key, "mine")).await, [None]);
    }

    pub async fn a_repeated_swap_is_refused(store: Arc<dyn Store>) {
        let key = Names::new().key("k");
        applied(&store, Batch::new().put(&key, Expect::Absent, "1", HOUR)).await;
        let swap = Batch::new().put(&key, is("1"), "2", HOUR);
        applied(&store, swap.clone()).await;
        assert_eq!(refused(&store, swap).await, there("2"));
    }

    pub async fn an_expired_key_is_absent_to_every_operation(store: Arc<dyn Store>) {
        let names = Names::new();
        let keys: Vec<Key> = (0..9).map(|n| names.key(&n.to_string())).collect();
        for key in &keys {
            applied(&store, Batch::new().put(key, Expect::Absent, r#"{"seq":9}"#, SHORT)).await;
        }
        sleep(SHORT * 2).await;
        let old = r#"{"seq":9}"#;
        holds(&store, &keys[0], None).await;
        applied(&store, Batch::new().put(&keys[1], Expect::Absent, "new", HOUR)).await;
        assert_eq!(refused(&store, Batch::new().put(&keys[2], is(old), "new", HOUR)).await, [None]);
        applied(&store, Batch::new().put(&keys[3], absent_or("other"), "new", HOUR)).await;
        assert_eq!(refused(&store, Batch::new().delete(&keys[4], old)).await, [None]);
        assert_eq!(refused(&store, Batch::new().check(&keys[5], is(old))).await, [None]);
        applied(&store, Batch::new().check(&keys[6], Expect::Absent)).await;
        applied(&store, Batch::new().put_if_newer(&keys[7], 1, r#"{"seq":1}"#, HOUR)).await;
        holds(&store, &keys[7], Some(r#"{"seq":1}"#)).await;
        // And in a batch of several, where another mechanism may judge.
        let both = Batch::new().check(&keys[6], Expect::Absent).put(&keys[8], Expect::Absent, "new", HOUR);
        applied(&store, both).await;
        let neither = Batch::new().check(&keys[5], is(old)).delete(&keys[4], old);
        assert_eq!(refused(&store, neither).await, [None, None]);
    }

    pub async fn a_write_renews_the_life_and_a_read_does_not(store: Arc<dyn Store>) {
        let names = Names::new();
        let (written, read) = (names.key("written"), names.key("read"));
        let put = |key: &Key, expect| Batch::new().put(key, expect, "v", SHORT * 2);
        applied(&store, put(&written, Expect::Absent)).await;
        applied(&store, put(&read, Expect::Absent)).await;
        sleep(SHORT).await;
        holds(&store, &read, Some("v")).await;
        applied(&store, Batch::new().check(&read, is("v"))).await;
        applied(&store, put(&written, is("v"))).await;
        sleep(SHORT + SHORT / 2).await;
        holds(&store, &written, Some("v")).await;
        holds(&store, &read, None).await;
    }

    pub async fn a_refused_write_does_not_renew_the_life(store: Arc<dyn Store>) {
        let key = Names::new().key("k");
        applied(&store, Batch::new().put(&key, Expect::Absent, "v", SHORT)).await;
        assert_eq!(refused(&store, Batch::new().put(&key, Expect::Absent, "w", HOUR)).await, there("v"));
        sleep(SHORT * 2).await;
        holds(&store, &key, None).await;
    }

    pub async fn what_is_put_for_ever_outlives_the_end_it_had(store: Arc<dyn Store>) {
        let key = Names::new().key("k");
        applied(&store, Batch::new().put(&key, Expect::Absent, "v", SHORT)).await;
        applied(&store, Batch::new().put(&key, is("v"), "w", Ttl::Forever)).await;
        sleep(SHORT * 2).await;
        holds(&store, &key, Some("w")).await;
    }

    async fn acquired(store: &Arc<dyn Store>, key: &Key, ttl: Duration) -> Lease {
        match Lease::acquire(store, key.clone(), ttl).await.unwrap() {
            Acquire::Acquired(lease) => lease,
            Acquire::Held => panic!("held"),
        }
    }

    async fn is_held(store: &Arc<dyn Store>, key: &Key) -> bool {
        match Lease::acquire(store, key.clone(), HOUR).await.unwrap() {
            Acquire::Held => true,
            Acquire::Acquired(lease) => {
                assert_eq!(lease.release().await.unwrap(), Release::Released);
                false
            }
        }
    }

    pub async fn a_lease_is_held_by_one_until_it_is_released(store: Arc<dyn Store>) {
        let key = Names::new().key("lock");
        let lease = acquired(&store, &key, HOUR).await;
        assert!(is_held(&store, &key).await);
        assert_eq!(lease.release().await.unwrap(), Release::Released);
        assert!(!is_held(&store, &key).await);
    }

    pub async fn a_renewed_lease_lasts(store: Arc<dyn Store>) {
        let key = Names::new().key("lock");
        let mut lease = acquired(&store, &key, SHORT * 2).await;
        for _ in 0..3 {
            sleep(SHORT).await;
            assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed);
        }
        assert!(is_held(&store, &key).await);
        assert_eq!(lease.release().await.unwrap(), Release::Released);
    }

    pub async fn a_lapsed_lease_is_not_revived(store: Arc<dyn Store>) {
        let key = Names::new().key("lock");
        let mut lease = acquired(&store, &key, SHORT).await;
        sleep(SHORT * 2).await;
        assert_eq!(lease.renew().await.unwrap(), Renewal::Lapsed);
        holds(&store, &key, None).await;
        let _next = acquired(&store, &key, HOUR).await;
        assert_eq!(lease.renew().await.unwrap(), Renewal::Lost);
    }

    pub async fn a_release_frees_only_its_own(store: Arc<dyn Store>) {
        let key = Names::new().key("lock");
        let late = acquired(&store, &key, SHORT).await;
        sleep(SHORT * 2).await;
        let next = acquired(&store, &key, HOUR).await;
        assert_eq!(late.release().await.unwrap(), Release::Outlasted);
        assert!(is_held(&store, &key).await);
        assert_eq!(next.release().await.unwrap(), Release::Released);
    }

    pub async fn a_lost_lease_can_neither_commit_nor_release(store: Arc<dyn Store>) {
        let names = Names::new();
        let (lock, key) = (names.key("lock"), names.key("k"));
        let write = || Batch::new().put(&key, Expect::Absent, "mine", HOUR);
        let late = acquired(&store, &lock, SHORT).await;
        sleep(SHORT * 2).await;
        assert_eq!(refused(&store, late.guard(write())).await, [None], "lapsed");
        let next = acquired(&store, &lock, HOUR).await;
        assert_eq!(refused(&store, late.guard(write())).await.len(), 1, "taken over");
        assert_eq!(late.release().await.unwrap(), Release::Outlasted);
        holds(&store, &key, None).await;
        applied(&store, next.guard(write())).await;
        holds(&store, &key, Some("mine")).await;
    }

    pub async fn a_guard_joins_a_write_to_the_same_key(store: Arc<dyn Store>) {
        let names = Names::new();
        let (lock, key) = (names.key("lock"), names.key("k"));
        let lease = acquired(&store, &lock, HOUR).await;
        // Write and release in one: the lease's own key is in the batch already.
        let last = lease.guard(lease.release_batch().put(&key, Expect::Absent, "done", HOUR));
        applied(&store, last.clone()).await;
        assert!(!is_held(&store, &lock).await);
        assert_eq!(refused(&store, last).await, [None, Some("done".to_owned())]);
        let error = rejected(&store, lease.guard(Batch::new().put(&lock, Expect::Absent, "x", HOUR))).await;
        assert!(error.to_string().contains("once"), "a batch that contradicts its guard: {error}");
    }

    pub async fn no_increment_is_lost_among_many_workers(store: Arc<dyn Store>) {
        const WORKERS: usize = 8;
        const EACH: usize = 25;
        let key = Names::new().key("counter");
        applied(&store, Batch::new().put(&key, Expect::Absent, "0", HOUR)).await;
        let worker = |store: Arc<dyn Store>, key: Key| async move {
            let mut base = "0".to_owned();
            for _ in 0..EACH {
                loop {
                    let next = (base.parse::<usize>().unwrap() + 1).to_string();
                    let swap = Batch::new().put(&key, is(&base), next.as_str(), HOUR);
                    match store.commit(&swap).await {
                        Ok(Commit::Applied(_)) => {
                            base = next;
                            break;
                        }
                        Ok(Commit::Refused(refusal)) => base = refusal[0].there.clone().unwrap(),
                        Err(error) => assert!(!error.maybe_applied() && error.is_retryable(), "{error}"),
                    }
                }
            }
        };
        let workers = (0..WORKERS).map(|_| tokio::spawn(worker(Arc::clone(&store), key.clone())));
        for worker in workers.collect::<Vec<_>>() {
            worker.await.unwrap();
        }
        holds(&store, &key, Some(&(WORKERS * EACH).to_string())).await;
    }

    pub async fn one_of_a_hundred_racing_claims_wins(store: Arc<dyn Store>) {
        let key = Names::new().key("claim");
        let claim = |n: usize, store: Arc<dyn Store>, key: Key| async move {
            let token = format!("claim {n}");
            match store.commit(&Batch::new().put(&key, Expect::Absent, token.as_str(), HOUR)).await.unwrap() {
                Commit::Applied(_) => (true, token),
                Commit::Refused(refusal) => (false, refusal[0].there.clone().unwrap()),
            }
        };
        let claims: Vec<_> =
            (0..100).map(|n| tokio::spawn(claim(n, Arc::clone(&store), key.clone()))).collect();
        let answers: Vec<(bool, String)> = join_all(claims).await.into_iter().map(Result::unwrap).collect();
        let winners: Vec<&String> = answers.iter().filter(|(won, _)| *won).map(|(_, token)| token).collect();
        assert_eq!(winners.len(), 1);
        assert!(answers.iter().all(|(_, token)| token == winners[0]), "every loser is told the winner");
        holds(&store, &key, Some(winners[0])).await;
    }

    pub async fn any_text_comes_back_as_it_was(store: Arc<dyn Store>) {
        let names = Names::new();
        let every: String = ('\u{1}'..'\u{800}').chain(['\u{0}', '\u{fffd}', '\u{10ffff}']).collect();
        let values = [
            "",
            " ",
            "⏳ 正在為您查詢天氣，請稍候...",
            "👩‍👩‍👧‍👦",
            "\"\\/\r\n\t\u{0}",
            "null",
            "false",
            "0",
            "{}",
            "[1]",
            &every,
        ];
        for (n, value) in values.into_iter().enumerate() {
            let (key, log) = (names.key(&n.to_string()), names.log(&format!("log {n}")));
            applied(&store, Batch::new().put(&key, Expect::Absent, value, HOUR)).await;
            holds(&store, &key, Some(value)).await;
            assert_eq!(refused(&store, Batch::new().put(&key, is("other"), "x", HOUR)).await, there(value));
            // An empty value is there too, also to the mechanism that judges several keys.
            let free = names.key("free");
            let claim = Batch::new().check(&free, Expect::Absent).put(&key, Expect::Absent, "x", HOUR);
            assert_eq!(refused(&store, claim).await, there(value));
            applied(&store, Batch::new().check(&key, is(value)).append(&log, value, Keep::all_for(HOUR)))
                .await;
            assert_eq!(texts(&store, &log).await, [value]);
            applied(&store, Batch::new().delete(&key, value)).await;
        }
    }

    pub async fn a_value_of_300_kb_comes_back(store: Arc<dyn Store>) {
        let key = Names::new().key("large");
        let large = "天氣 weather ".repeat(20_000);
        assert!(large.len() >= 300_000);
        applied(&store, Batch::new().put(&key, Expect::Absent, large.as_str(), HOUR)).await;
        assert!(store.get(&key).await.unwrap().as_deref() == Some(&large));
        applied(&store, Batch::new().put(&key, is(&large), "small", HOUR)).await;
    }

    pub async fn keys_with_any_characters_are_distinct(store: Arc<dyn Store>) {
        let names = Names::new();
        let long = "長".repeat(600);
        let keys = [
            "a", "a:", "a:b", "a b", "a\tb", "a\nb", "a\"b", "a'b", "a\\b", "a{b}", "a*", "天氣", "🌦️",
            "%20", "A", &long,
        ];
        for (n, name) in keys.iter().enumerate() {
            let batch = Batch::new().put(&names.key(name), Expect::Absent, n.to_string(), HOUR);
            applied(&store, batch).await;
        }
        for (n, name) in keys.iter().enumerate() {
            holds(&store, &names.key(name), Some(&n.to_string())).await;
        }
    }

    pub async fn a_key_must_have_1_to_2048_bytes(store: Arc<dyn Store>) {
        assert!(Key::new("").unwrap_err().to_string().contains("a key must not be empty"));
        let error = Key::new("k".repeat(MAX_NAME + 1)).unwrap_err();
        assert!(error.to_string().contains("a key of 2049 bytes is over the limit of 2048"), "{error}");
        assert!(Log::new("").unwrap_err().to_string().contains("a log's name must not be empty"));
        assert!(Channel::new("").unwrap_err().to_string().contains("a channel's name must not be empty"));
        let longest = Key::new(format!("{:x<MAX_NAME$}", Names::new().0)).unwrap();
        applied(&store, Batch::new().put(&longest, Expect::Absent, "v", HOUR)).await;
        holds(&store, &longest, Some("v")).await;
        applied(&store, Batch::new().delete(&longest, "v")).await;
    }

    pub async fn a_batch_that_names_a_key_twice_is_rejected(store: Arc<dyn Store>) {
        let names = Names::new();
        let (key, log) = (names.key("k"), names.log("l"));
        let twice = Batch::new().put(&key, Expect::Absent, "1", HOUR).put(&key, is("1"), "2", HOUR);
        assert!(rejected(&store, twice).await.to_string().contains("each key and log once"));
        holds(&store, &key, None).await;
        let keep = Keep::all_for(HOUR);
        rejected(&store, Batch::new().append(&log, "1", keep).append(&log, "2", keep)).await;
        assert_eq!(texts(&store, &log).await, Vec::<String>::new());
    }

    pub async fn a_batch_that_cannot_be_meant_is_rejected(store: Arc<dyn Store>) {
        let names = Names::new();
        let key = names.key("k");
        let cases = [
            (Batch::new().put(&key, Expect::Absent, "v", Duration::ZERO), "TTL must be at least 1 ms"),
            (Batch::new().put(&key, Expect::Absent, "v", MAX_TTL * 2), "TTL must be at most"),
            (
                Batch::new().append(&names.log("l"), "v", Keep::all_for(Duration::ZERO)),
                "TTL must be at least 1 ms",
            ),
            (Batch::new().put(&key, Expect::Absent, Value::PositionOf(0), HOUR), "append 0, of 0"),
            (Batch::new().put_if_newer(&key, 3, r#"{"seq":4}"#, HOUR), "`seq`"),
            (Batch::new().put_if_newer(&key, 3, "no json", HOUR), "`seq`"),
        ];
        for (batch, problem) in cases {
            let error = rejected(&store, batch).await;
            assert!(error.to_string().contains(problem), "{error}");
        }
        let many = |count: usize| {
            (0..count).fold(Batch::new(), |batch, n| batch.check(&names.key(&n.to_string()), Expect::Absent))
        };
        assert!(rejected(&store, many(MAX_WRITES + 1)).await.to_string().contains("26 writes"));
        applied(&store, many(MAX_WRITES)).await;
    }

    pub async fn a_value_over_the_limit_is_rejected(store: Arc<dyn Store>) {
        let key = Names::new().key("k");
        let over = "x".repeat(store.max_value() + 1);
        let error = rejected(&store, Batch::new().put(&key, Expect::Absent, over.as_str(), HOUR)).await;
        assert_eq!(error, Error::TooLarge { size: over.len(), limit: store.max_value() });
        holds(&store, &key, None).await;
        let most = &over[1..];
        applied(&store, Batch::new().put(&key, Expect::Absent, most, HOUR)).await;
        assert!(store.get(&key).await.unwrap().as_deref() == Some(most));
        applied(&store, Batch::new().delete(&key, most)).await;
    }

    pub async fn an_append_and_its_marker_happen_together_or_not_at_all(store: Arc<dyn Store>) {
        let names = Names::new();
        let (marker, other, log) = (names.key("seen:1"), names.key("seen:2"), names.log("log"));
        let event = |marker: &Key| {
            Batch::new().put(marker, Expect::Absent, Value::PositionOf(0), HOUR).append(
                &log,
                "event",
                Keep::all_for(HOUR),
            )
        };
        applied(&store, event(&marker)).await;
        let first = store.get(&marker).await.unwrap();
        assert_eq!(refused(&store, event(&marker)).await, [first]);
        assert_eq!(texts(&store, &log).await.len(), 1);
        applied(&store, event(&other)).await;
        assert_eq!(texts(&store, &log).await.len(), 2);
    }

    pub async fn a_marker_holds_the_position_of_its_record(store: Arc<dyn Store>) {
        let names = Names::new();
        let (first, second) = (names.log("first"), names.log("second"));
        applied(&store, Batch::new().append(&second, "earlier", Keep::all_for(HOUR))).await;
        let batch = Batch::new()
            .append(&first, "one", Keep::all_for(HOUR))
            .put(&names.key("of the second"), Expect::Absent, Value::PositionOf(1), HOUR)
            .append(&second, "two", Keep::about(1000))
            .put(&names.key("of the first"), Expect::Absent, Value::PositionOf(0), HOUR);
        let Commit::Applied(positions) = store.commit(&batch).await.unwrap() else { panic!("refused") };
        let last = |records: Vec<Record>| records.last().map(|record| record.position).unwrap();
        assert_eq!(last(store.read(&first, None, 10).await.unwrap()), positions[0]);
        assert_eq!(last(store.read(&second, None, 10).await.unwrap()), positions[1]);
        holds(&store, &names.key("of the first"), Some(&positions[0].to_string())).await;
        holds(&store, &names.key("of the second"), Some(&positions[1].to_string())).await;
    }

    pub async fn positions_increase_and_reading_on_neither_repeats_nor_skips(store: Arc<dyn Store>) {
        let log = Names::new().log("log");
        let mut positions = Vec::new();
        for n in 0..25 {
            let batch = Batch::new().append(&log, n.to_string(), Keep::all_for(HOUR));
            let Commit::Applied(given) = store.commit(&batch).await.unwrap() else { panic!("refused") };
            positions.extend(given);
        }
        assert!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
        for page in [1, 7, 25, 100] {
            let mut read: Vec<Record> = Vec::new();
            loop {
                let after = read.last().map(|record| record.position);
                let more = store.read(&log, after, page).await.unwrap();
                assert!(more.len() <= page);
                if more.is_empty() {
                    break;
                }
                read.extend(more);
            }
            assert_eq!(read.iter().map(|record| record.position).collect::<Vec<_>>(), positions);
            assert!(read.iter().enumerate().all(|(n, record)| record.text == n.to_string()));
        }
        assert_eq!(store.read(&log, Some(positions[9]), 3).await.unwrap()[0].position, positions[10]);
        assert_eq!(store.read(&log, None, 0).await.unwrap(), Vec::<Record>::new());
    }

    pub async fn a_reader_that_resumes_sees_every_concurrent_append_once(store: Arc<dyn Store>) {
        const WRITERS: usize = 4;
        const EACH: usize = 15;
        let log = Names::new().log("log");
        let writer = |w: usize, store: Arc<dyn Store>, log: Log| async move {
            for n in 0..EACH {
                insist(&store, || Batch::new().append(&log, format!("{w}/{n}"), Keep::all_for(HOUR))).await;
            }
        };
        let writers: Vec<_> =
            (0..WRITERS).map(|w| tokio::spawn(writer(w, Arc::clone(&store), log.clone()))).collect();
        let mut read: Vec<Record> = Vec::new();
        let all = async {
            while read.len() < WRITERS * EACH {
                let after = read.last().map(|record| record.position);
                read.extend(store.read(&log, after, 5).await.unwrap());
                sleep(Duration::from_millis(1)).await;
            }
        };
        let in_time = timeout(Duration::from_secs(30), all).await;
        join_all(writers).await.into_iter().for_each(Result::unwrap);
        assert!(in_time.is_ok(), "the reader missed {} records", WRITERS * EACH - read.len());
        for w in 0..WRITERS {
            let own: Vec<&str> = read.iter().filter_map(|r| r.text.strip_prefix(&format!("{w}/"))).collect();
            assert_eq!(own, (0..EACH).map(|n| n.to_string()).collect::<Vec<_>>(), "in each writer's order");
        }
        assert_eq!(store.read(&log, None, 1000).await.unwrap(), read);
    }

    pub async fn a_long_log_is_read_to_its_end(store: Arc<dyn Store>) {
        let log = Names::new().log("log");
        for n in 0..30 {
            let text = format!("{n:03}{}", "x".repeat(100_000));
            applied(&store, Batch::new().append(&log, text, Keep::all_for(HOUR))).await;
        }
        let records = store.read(&log, None, 1000).await.unwrap();
        assert_eq!(records.len(), 30);
        assert!(records.iter().enumerate().all(|(n, record)| record.text.starts_with(&format!("{n:03}x"))));
        assert_eq!(store.read(&log, Some(records[3].position), 20).await.unwrap(), records[4..24]);
    }

    pub async fn a_log_ends_after_its_last_append(store: Arc<dyn Store>) {
        let (log, lasting) = (Names::new().log("log"), Names::new().log("lasting"));
        applied(&store, Batch::new().append(&lasting, "1", Keep::all_for(SHORT))).await;
        applied(&store, Batch::new().append(&lasting, "2", Keep::all_for(Ttl::Forever))).await;
        applied(&store, Batch::new().append(&log, "1", Keep::all_for(SHORT * 2))).await;
        sleep(SHORT).await;
        applied(&store, Batch::new().append(&log, "2", Keep::all_for(SHORT * 2))).await;
        sleep(SHORT + SHORT / 2).await;
        assert_eq!(texts(&store, &log).await, ["1", "2"], "the last append gave the whole log its life");
        assert_eq!(texts(&store, &lasting).await, ["1", "2"], "also one without an end");
        sleep(SHORT).await;
        assert_eq!(texts(&store, &log).await, Vec::<String>::new());
    }

    pub async fn a_log_that_ended_begins_anew_with_higher_positions(store: Arc<dyn Store>) {
        let log = Names::new().log("log");
        let append = |text: &'static str, ttl: Ttl| {
            let batch = Batch::new().append(&log, text, Keep::all_for(ttl));
            let store = Arc::clone(&store);
            async move {
                match store.commit(&batch).await.unwrap() {
                    Commit::Applied(positions) => positions[0],
                    Commit::Refused(_) => panic!("refused"),
                }
            }
        };
        append("1", SHORT.into()).await;
        let old = append("2", SHORT.into()).await;
        sleep(SHORT * 2).await;
        let new = append("3", Ttl::Forever).await;
        assert!(new > old);
        assert_eq!(texts(&store, &log).await, ["3"]);
        assert_eq!(store.read(&log, Some(old), 10).await.unwrap().len(), 1, "who resumes sees the new life");
        sleep(SHORT * 2).await;
        assert_eq!(texts(&store, &log).await, ["3"], "and it lives for ever");
    }

    pub async fn a_log_keeps_its_newest_records(store: Arc<dyn Store>) {
        let log = Names::new().log("log");
        for n in 0..30 {
            applied(&store, Batch::new().append(&log, n.to_string(), Keep::about(10))).await;
        }
        let texts = texts(&store, &log).await;
        assert!(texts.len() >= 10, "a backend may keep more, never fewer");
        let newest: Vec<String> = (30 - texts.len()..30).map(|n| n.to_string()).collect();
        assert_eq!(texts, newest);
    }

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

    pub async fn a_watcher_hears_every_publish(store: Arc<dyn Store>) {
        let names = Names::new();
        let channel = names.channel("頻道, with:comma");
        let mut rings = store.watch(&channel).await.unwrap();
        let mut others = store.watch(&channel).await.unwrap();
        for n in 0..5 {
            applied(&store, Batch::new().publish(&channel, format!("message {n}\nsecond line"))).await;
            let ring = timeout(Duration::from_secs(5), rings.next()).await;
            assert!(matches!(ring, Ok(Some(Ok(())))), "ring {n}: {ring:?}");
            assert!(matches!(timeout(Duration::from_secs(5), others.next()).await, Ok(Some(Ok(())))));
        }
    }

    pub async fn to_watch_and_then_read_misses_nothing(store: Arc<dyn Store>) {
        const COUNT: usize = 40;
        let names = Names::new();
        let (log, channel) = (names.log("log"), names.channel("log"));
        let writer = {
            let (store, log, channel) = (Arc::clone(&store), log.clone(), channel.clone());
            tokio::spawn(async move {
                for n in 0..COUNT {
                    let batch =
                        Batch::new().append(&log, n.to_string(), Keep::all_for(HOUR)).publish(&channel, "");
                    applied(&store, batch).await;
                }
            })
        };
        let mut rings = store.watch(&channel).await.unwrap();
        let mut read: Vec<Record> = Vec::new();
        let all = async {
            loop {
                let after = read.last().map(|record| record.position);
                read.extend(store.read(&log, after, 100).await.unwrap());
                if read.len() == COUNT {
                    break;
                }
                rings.next().await.unwrap().unwrap();
            }
        };
        assert!(timeout(Duration::from_secs(30), all).await.is_ok(), "{} of {COUNT}", read.len());
        assert!(read.iter().enumerate().all(|(n, record)| record.text == n.to_string()));
        writer.await.unwrap();
    }

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
                Batch::new()
                    .put(&key, expect, n.to_string(), HOUR)
                    .put(&other, Expect::Absent, "", HOUR)
                    .append(&log, n.to_string(), Keep::all_for(HOUR))
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
}

pub use all::*;

#[cfg(test)]
mod tests {
    #[test]
    fn every_promise_is_in_the_list() {
        let source = include_str!("conformance.rs");
        let list = &source[source.find("{ @each").unwrap()..source.find("const HOUR").unwrap()];
        let promises: Vec<&str> = source
            .lines()
            .filter_map(|line| line.strip_prefix("    pub async fn ")?.split('(').next())
            .collect();
        assert!(promises.len() > 40);
        for promise in promises {
            assert!(list.contains(&format!("{promise}\n")), "{promise} is tested nowhere");
        }
    }
}
