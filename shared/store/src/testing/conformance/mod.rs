//! The conformance suite: the promises of a [`Store`], each a function whose name is a sentence.
//! [`promises!`](crate::promises) makes a test of each for a backend; a backend is complete when all of them pass.
//!
//! Every promise uses its own names, so that all of them can share one server without flushing it.
#![allow(missing_docs, reason = "the names are the sentences")]

#[macro_use]
mod broken;

mod batches;
mod channels;
mod clears;
mod edits;
mod existing;
mod leases;
mod lives;
mod logs;
mod races;
mod sequences;
mod values;
mod writes;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{LocalBoxFuture, join_all};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::lease::unique_token;
use crate::{Batch, Channel, Commit, Error, Expect, Key, Log, Position, Store, Write};

pub use batches::*;
pub use broken::{Broken, Kept};
pub use channels::*;
pub use clears::*;
pub use edits::*;
pub use existing::*;
pub use leases::*;
pub use lives::*;
pub use logs::*;
pub use races::*;
pub use sequences::*;
pub use values::*;
pub use writes::*;

/// Makes a test of every promise. The first argument is the test's attributes, the second an expression for a future
/// of the store and of whatever must outlive it.
#[macro_export]
macro_rules! promises {
    (@each $attributes:tt $open:expr; $($promise:ident $(: $cost:ident)?)*) => {
        $($crate::promises! { @test $attributes $open; $promise })*
    };
    (@test [$($attribute:tt)*] $open:expr; $promise:ident) => {
        $($attribute)*
        async fn $promise() -> $crate::testing::conformance::Kept {
            let (store, _server) = $open.await;
            $crate::testing::conformance::$promise(store).await
        }
    };
    (@list; $($promise:ident $(: $cost:ident)?)*) => {
        vec![$(Promise {
            name: stringify!($promise),
            cost: [$(Cost::$cost,)? Cost::Seconds][0],
            check: |store| Box::pin($promise(store)),
        }),*]
    };
    ($attributes:tt $open:expr) => { $crate::promises! { @all @each $attributes $open } };
    (@all $($use:tt)*) => {
        $crate::promises! { $($use)*;
            what_was_never_put_is_absent
            connecting_ahead_changes_nothing_however_often_it_is_done
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
            a_write_renews_the_life_and_a_read_does_not: ShortRoundTrips
            a_refused_write_does_not_renew_the_life
            what_is_put_for_ever_outlives_the_end_it_had
            a_lease_is_held_by_one_until_it_is_released
            a_renewed_lease_lasts: ShortRoundTrips
            a_lapsed_lease_is_not_revived
            a_lease_that_moves_to_another_process_goes_on_there
            a_release_frees_only_its_own
            a_lease_released_after_a_minimum_hold_is_free_then_and_not_before
            a_minimum_hold_that_is_over_frees_the_lease_at_once
            a_minimum_hold_does_not_outlast_the_ttl
            a_release_after_a_minimum_hold_can_be_repeated
            a_release_after_a_minimum_hold_leaves_a_lapsed_lease_and_its_successor_alone
            a_lost_lease_can_neither_commit_nor_release
            a_guard_joins_a_write_to_the_same_key
            an_edit_takes_one_read_and_one_write
            an_edit_that_guesses_takes_one_write_where_nothing_is_there
            an_edit_that_loses_starts_again_from_what_the_refusal_brings
            no_edit_is_lost_among_many_editors: ManyCalls
            an_edit_of_two_keys_is_applied_to_both_or_neither
            an_edit_whose_reply_is_lost_is_unknown_unless_it_is_idempotent
            an_idempotent_edit_is_made_again_over_what_came_after_a_lost_reply
            an_edit_that_was_not_sent_says_so_at_once
            an_edit_under_a_lost_lease_writes_nothing
            an_edit_after_its_deadline_makes_no_call
            an_edit_whose_step_gives_up_writes_nothing
            a_lost_request_is_not_taken_for_a_write
            an_edit_is_confirmed_only_if_all_that_it_wrote_is_there
            an_edit_that_ends_after_a_lost_reply_does_not_say_that_nothing_was_written
            a_removal_is_known_by_its_record_after_a_lost_reply
            a_held_lease_outlives_a_lost_request
            no_increment_is_lost_among_many_workers: ManyCalls
            one_of_a_hundred_racing_claims_wins: ManyCalls
            any_text_comes_back_as_it_was: ShortRoundTrips
            a_value_of_300_kb_comes_back
            several_keys_are_read_in_their_order
            a_read_among_the_requests_of_a_round_brings_what_is_there_in_its_turn
            keys_with_any_characters_are_distinct
            a_key_must_have_1_to_2048_bytes
            batches_that_are_joined_keep_the_positions_of_their_own_appends
            a_batch_that_names_a_key_twice_is_rejected
            a_batch_that_cannot_be_meant_is_rejected
            a_value_over_the_limit_is_rejected: LargeValues
            an_append_and_its_marker_happen_together_or_not_at_all
            a_marker_holds_the_position_of_its_record
            positions_increase_and_reading_on_neither_repeats_nor_skips: ShortRoundTrips
            a_reader_that_resumes_sees_every_concurrent_append_once
            a_long_log_is_read_to_its_end: LargeValues
            a_log_ends_after_its_last_append: ShortRoundTrips
            a_log_that_ended_begins_anew_with_higher_positions
            records_of_an_earlier_life_stand_in_no_readers_way: ManyCalls
            a_name_holds_a_value_or_a_log_and_the_other_is_an_error: ShortRoundTrips
            a_log_keeps_its_newest_records
            a_log_is_read_from_any_position_and_to_any_limit
            a_cleared_log_is_empty_and_begins_anew_with_higher_positions: ManyCalls
            a_cleared_log_lives_as_long_as_its_next_append_says
            a_log_that_is_not_there_can_be_cleared_and_again
            a_clear_and_the_rest_of_its_batch_happen_together_or_not_at_all
            a_text_cannot_be_cleared_and_the_batch_writes_nothing
            the_name_of_a_cleared_log_is_free: ShortRoundTrips
            what_is_read_are_the_appends_after_the_last_clear: ManyCalls
            no_append_is_lost_to_a_clear_that_came_before_it: ManyCalls
            several_appends_to_one_log_keep_their_order
            a_batch_has_up_to_fifty_writes
            an_append_to_an_existing_log_adds_to_its_records
            an_append_to_an_existing_log_leaves_its_ttl_as_it_is
            an_append_to_a_log_that_must_exist_is_refused_where_there_is_none
            an_append_to_a_text_that_is_no_log_writes_nothing
            a_batch_that_fails_at_one_log_trims_no_other
            a_newer_sequence_replaces_and_an_older_never_does
            an_older_sequence_does_not_hold_up_the_rest
            what_has_no_sequence_is_older_than_any: ShortRoundTrips
            a_state_begins_with_its_sequence
            a_sequence_is_judged_alike_on_every_backend: ManyCalls
            racing_sequences_end_with_the_highest
            a_watcher_hears_every_publish
            to_watch_and_then_read_misses_nothing: ShortRoundTrips
            half_a_batch_is_never_left_behind
            an_extreme_argument_never_leaves_half_a_batch: ManyCalls
            batches_of_one_call_stand_alone
            batches_that_share_a_key_are_applied_in_order
            a_batch_that_is_likely_is_answered_like_any_other
            nothing_to_write_is_applied
        }
    };
}

/// A promise, for a program that checks a store outside of a test.
#[derive(Clone, Copy)]
pub struct Promise {
    /// The sentence, with `_` between the words.
    pub name: &'static str,
    /// What its check costs.
    pub cost: Cost,
    /// Checks it.
    pub check: fn(Arc<dyn Store>) -> LocalBoxFuture<'static, Kept>,
}

/// What the check of a promise costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// It ends within seconds.
    Seconds,
    /// It ends within seconds if a round trip is short: it takes forty calls in sequence or more, or several calls within a second
    /// or two.
    ShortRoundTrips,
    /// It takes a hundred calls or more, or over five seconds.
    ManyCalls,
    /// It writes megabytes.
    LargeValues,
}

impl fmt::Debug for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Promise").field(&self.name).finish()
    }
}

/// All promises. They write under names that begin with `test:` and are used once; what they write is left behind.
pub fn promises() -> Vec<Promise> {
    crate::promises! { @all @list }
}

const HOUR: Duration = Duration::from_secs(3600);
/// A life short enough to wait for, and long enough for a few round trips to a busy server.
const SHORT: Duration = Duration::from_secs(1);

/// What `attempt` observes, if it came to its last look within `limit`; else another attempt, because the machine was too busy
/// for this one to show anything. A failure after `limit` shows nothing either.
async fn in_time<T>(
    limit: Duration,
    attempt: impl AsyncFn() -> Result<(Instant, T), Broken>,
) -> Result<T, Broken> {
    for _ in 0..30 {
        let start = Instant::now();
        match attempt().await {
            Ok((last_look, observed)) if last_look - start < limit => return Ok(observed),
            Err(broken) if start.elapsed() < limit => return Err(broken),
            Ok(_) | Err(_) => {}
        }
    }
    broken!("in thirty attempts none took less than {limit:?}")
}

/// Names that no other test has.
#[derive(Clone, Debug)]
pub struct Names(String);

impl Default for Names {
    fn default() -> Names {
        Names(format!("test:{}:", unique_token()))
    }
}

#[allow(clippy::unwrap_used, reason = "the names are short")]
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

/// Commits the batch: the positions of its appends.
async fn applied(store: &Arc<dyn Store>, batch: Batch) -> Result<Vec<Position>, Broken> {
    let appends = batch.writes().iter().filter(|write| matches!(write, Write::Append { .. })).count();
    match store.commit(&batch).await? {
        Commit::Applied(positions) if positions.len() == appends => Ok(positions),
        answer => broken!("{batch:?} gave {answer:?}"),
    }
}

/// The stored values in a refusal, in the order of the batch.
async fn refused(store: &Arc<dyn Store>, batch: Batch) -> Result<Vec<Option<String>>, Broken> {
    match store.commit(&batch).await? {
        Commit::Refused(refusal) => Ok(refusal.into_iter().map(|(_, there)| there).collect()),
        answer => broken!("{batch:?} gave {answer:?}"),
    }
}

async fn rejected(store: &Arc<dyn Store>, batch: Batch) -> Result<Error, Broken> {
    match store.commit(&batch).await {
        Err(error) if !error.is_retryable() => Ok(error),
        answer => broken!("{batch:?} gave {answer:?}"),
    }
}

async fn holds(store: &Arc<dyn Store>, key: &Key, text: Option<&str>) -> Kept {
    ensure_eq!(store.get(key).await?.as_deref(), text);
    Ok(())
}

/// The value of a key that must have one.
async fn value(store: &Arc<dyn Store>, key: &Key) -> Result<String, Broken> {
    match store.get(key).await? {
        Some(value) => Ok(value),
        None => broken!("{key:?} holds nothing"),
    }
}

fn there(text: &str) -> Vec<Option<String>> {
    vec![Some(text.to_owned())]
}

async fn texts(store: &Arc<dyn Store>, log: &Log) -> Result<Vec<String>, Broken> {
    Ok(store.read(log, None, 10_000).await?.into_iter().map(|record| record.text).collect())
}

/// Retries after every conflict, as a worker does, until the batch is applied.
async fn insist(store: &Arc<dyn Store>, batch: impl Fn() -> Batch) -> Kept {
    loop {
        match store.commit(&batch()).await {
            Ok(Commit::Applied(_)) => return Ok(()),
            Ok(Commit::Refused(_)) => broken!("refused"),
            Err(error) if error.is_retryable() && !error.maybe_applied() => {}
            Err(error) => broken!("{error}"),
        }
    }
}

/// What the tasks end with, all of them.
async fn ended<T>(tasks: impl IntoIterator<Item = JoinHandle<Result<T, Broken>>>) -> Result<Vec<T>, Broken> {
    join_all(tasks).await.into_iter().map(|ended| ended?).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::testing::{Answer, TestStore};
    use crate::{Commit, Memory};

    #[tokio::test]
    async fn a_store_that_breaks_a_promise_is_found_out_with_what_it_answered() {
        let careless = TestStore::scripted(Arc::new(Memory::new()), |call| async move {
            match call.send().await {
                Answer::Commits(commits) if matches!(commits[..], [Ok(Commit::Refused(_))]) => {
                    Answer::Commits(vec![Ok(Commit::Applied(Vec::new()))])
                }
                answer => answer,
            }
        });
        let broken = super::a_repeated_swap_is_refused(careless).await.err().map(|broken| broken.to_string());
        assert!(
            broken.is_some_and(|broken| broken.contains("gave Applied([]) (") && broken.contains(".rs:"))
        );
    }

    #[test]
    fn every_promise_is_in_the_list() {
        let list: Vec<&str> = super::promises().iter().map(|promise| promise.name).collect();
        let subjects = [
            include_str!("batches.rs"),
            include_str!("channels.rs"),
            include_str!("clears.rs"),
            include_str!("edits.rs"),
            include_str!("existing.rs"),
            include_str!("leases.rs"),
            include_str!("lives.rs"),
            include_str!("logs.rs"),
            include_str!("races.rs"),
            include_str!("sequences.rs"),
            include_str!("values.rs"),
            include_str!("writes.rs"),
        ];
        let promises: Vec<&str> = subjects
            .iter()
            .flat_map(|subject| subject.lines())
            .filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next())
            .collect();
        assert!(promises.len() > 40);
        for promise in promises {
            assert!(list.contains(&promise), "{promise} is tested nowhere");
        }
    }
}
