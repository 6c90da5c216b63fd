//! What the idempotency engine promises, each promise a function over any store.
//!
//! Nothing here needs a paused clock, and everything gains by one: leases that must lapse are short, those that
//! must not are long, and no promise rests on anything happening *within* a time.

#![allow(unreachable_pub, reason = "a module of tests")]

mod at_most_once;
mod calls;
mod edits;
mod faults;
mod owners;
mod returned;
mod transactions;
mod waiting;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onetap_idem::{ClaimOutcome, Config, Error, Idempotency, Returned, Run};
use onetap_store::lease::unique_token;
use onetap_store::testing::TestStore;
use onetap_store::{Commit, Expect, Key, Store};
use tokio::time::{Instant, sleep};

pub use at_most_once::*;
pub use calls::*;
pub use edits::*;
pub use faults::*;
pub use owners::*;
pub use returned::*;
pub use transactions::*;
pub use waiting::*;

/// One test for each promise. `$open` is an expression whose future gives a store, and what keeps its server.
#[macro_export]
macro_rules! idem_promises {
    (@each $attributes:tt $open:expr; $($promise:ident)*) => {
        $($crate::idem_promises! { @test $attributes $open; $promise })*
    };
    (@test [$($attribute:tt)*] $open:expr; $promise:ident) => {
        $($attribute)*
        async fn $promise() {
            let (store, _server) = $open.await;
            $crate::idem_suite::$promise(store).await
        }
    };
    ($attributes:tt $open:expr) => {
        $crate::idem_promises! { @each $attributes $open;
            a_repeat_gets_the_first_result_and_runs_nothing
            every_json_value_replays_byte_for_byte
            falsy_values_replay_as_themselves
            a_failure_is_returned_and_not_kept
            a_permanent_failure_is_kept_and_replayed
            a_passing_failure_is_not_kept_where_permanent_ones_are
            a_kept_failure_is_not_run_again_by_one_who_cannot_read_it
            consume_executes_once_and_then_says_so
            consume_does_not_wait
            consume_runs_again_what_failed
            a_key_has_1_to_256_bytes
            the_same_payload_replays_and_another_is_refused
            another_payload_is_refused_while_the_first_runs
            an_input_that_the_function_changes_keeps_its_fingerprint
            a_payload_that_is_a_set_is_the_same_if_it_is_sorted
            a_payloads_maps_have_no_order
            a_result_over_a_mebibyte_is_returned_and_not_kept
            a_failure_over_a_mebibyte_is_returned_and_not_kept
            a_result_of_a_mebibyte_is_kept_where_the_store_takes_it
            nested_and_parallel_calls_keep_their_own_keys_and_configurations
            a_result_of_escapes_counts_as_what_they_stand_for
            the_first_result_is_what_its_replay_will_be
            a_value_that_json_cannot_carry_is_returned_and_not_kept
            a_result_is_forgotten_after_its_life
            an_unreadable_record_stops_the_call_and_stays
            a_cached_result_costs_no_round_trip_and_still_knows_its_payload
            a_call_costs_2_round_trips_a_replay_1_and_elsewhere_1
            a_takeover_costs_2_round_trips

            the_first_call_is_executed_and_its_repeats_are_replayed
            one_that_waited_for_another_is_replayed
            a_result_from_the_cache_is_replayed
            a_takeover_is_executed
            the_function_works_on_the_payload_that_its_key_is_tied_to
            a_payload_that_is_no_json_asks_and_runs_nothing

            many_callers_at_once_run_it_once
            when_the_first_of_many_fails_one_runs_next
            when_the_first_of_many_dies_one_takes_over
            a_waiter_gets_the_owners_result_at_one_round_trip_a_look
            waiting_ends_at_the_limit
            waiting_ends_at_the_deadline
            a_call_past_its_deadline_asks_and_runs_nothing
            a_lease_is_no_longer_than_its_invocation
            a_long_run_keeps_its_claim

            a_stale_owners_success_is_refused
            a_stale_owners_failure_leaves_its_successor_alone
            a_stale_owner_is_told_with_its_value
            a_stale_owner_leaves_the_claim_of_a_running_successor_alone
            a_lapsed_lease_without_a_contender_commits
            a_lapsed_lease_whose_taker_let_go_commits
            a_second_commit_by_the_same_owner_is_harmless
            a_claim_sent_twice_recognises_itself
            an_answer_later_than_its_lease_is_no_claim
            the_steps_go_together_with_other_batches
            an_effect_key_is_the_same_in_every_retry_and_takeover

            a_lost_reply_at_any_call_changes_nothing
            two_lost_replies_in_a_row_change_nothing
            a_lost_reply_at_the_release_changes_nothing
            a_lost_reply_at_a_renewal_changes_nothing
            a_store_that_is_down_at_the_claim_runs_nothing
            a_store_that_is_down_at_the_commit_returns_the_value
            a_store_that_is_down_at_the_release_returns_the_functions_error
            a_store_that_is_down_for_a_renewal_does_not_stop_the_run
            a_call_dropped_at_any_point_holds_nobody_up_past_its_lease
            a_panic_releases_the_key_at_once
            at_most_once_the_outcome_of_a_panic_is_unknown

            a_transaction_writes_its_effect_with_its_result
            a_refused_transaction_is_made_anew_from_what_is_there
            what_an_earlier_round_had_written_is_the_result
            a_transaction_needs_no_policy
            a_transaction_that_gives_up_writes_nothing
            a_transaction_has_room_for_one_write_less_than_a_batch
            a_transaction_that_can_never_be_written_ends
            a_transaction_that_the_store_rejects_lets_go
            a_result_that_makes_its_transaction_too_large_is_not_kept
            a_transaction_that_is_too_large_without_its_result_writes_nothing
            a_transaction_overtaken_by_its_successor_writes_nothing
            a_transaction_killed_at_every_step_and_retried_has_one_effect
            a_transaction_whose_replies_get_lost_has_one_effect
            a_transaction_dropped_at_any_point_has_one_effect
            racing_transactions_of_different_keys_lose_no_effect

            a_recorded_edit_happens_once_whichever_replies_are_lost
            a_recorded_edit_of_a_run_that_was_taken_over_writes_nothing
            an_edit_with_a_record_that_loses_its_lease_frees_its_key

            at_most_once_replays_like_any_other
            at_most_once_is_in_progress_until_its_owner_must_be_gone
            at_most_once_is_unknown_when_its_owner_is_gone
            at_most_once_a_live_run_is_never_unknown_however_slow
            at_most_once_a_renewal_whose_reply_was_lost_changes_nothing
            at_most_once_renews_on_after_a_lost_reply
            at_most_once_outlives_a_result_that_is_kept_for_less_than_the_run_takes
            at_most_once_lets_go_when_the_function_fails
            at_most_once_lets_go_of_what_was_granted_too_late
            an_unknown_outcome_can_be_settled_as_done
            an_unknown_outcome_can_be_settled_as_never_done
            only_an_unknown_outcome_can_be_settled
            an_owner_that_wakes_after_its_outcome_was_settled_is_refused
            a_settlement_whose_reply_was_lost_recognises_itself
        }
    };
}

/// A lease that is meant to lapse: nobody may need it to last.
pub const SHORT: Duration = Duration::from_millis(400);

/// Surely after it has.
pub const LAPSED: Duration = Duration::from_millis(600);

/// A lease that is renewed in time, even where ten tests share a processor.
pub const STEADY: Duration = Duration::from_millis(1500);

/// A lease that does not end here.
pub const LONG: Duration = Duration::from_secs(60);

/// An error of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Sorry;

/// A key that no other test has: servers may be shared.
pub fn fresh(name: &str) -> String {
    format!("{name}:{}", unique_token())
}

pub fn config(lease_ttl: Duration) -> Config {
    Config::default().lease_ttl(lease_ttl).wait_interval(Duration::from_millis(10))
}

pub fn engine(store: &Arc<dyn Store>, lease_ttl: Duration) -> Idempotency {
    Idempotency::with_config(Arc::clone(store), config(lease_ttl))
}

/// An engine whose calls to the store are counted, or meet faults.
pub fn over(faulty: &Arc<TestStore>, lease_ttl: Duration) -> Idempotency {
    Idempotency::with_config(Arc::clone(faulty) as Arc<dyn Store>, config(lease_ttl))
}

/// How often a function ran.
#[derive(Clone, Default)]
pub struct Runs(Arc<AtomicUsize>);

impl Runs {
    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// One more, and which it is.
    pub fn add(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// A function that returns the number of its run.
    pub async fn number(&self) -> Result<usize, Sorry> {
        Ok(self.add())
    }
}

/// What stands under a key's record.
pub async fn record(store: &Arc<dyn Store>, key: &str) -> Option<String> {
    store.get(&Key::new(format!("idem:{key}")).unwrap()).await.unwrap()
}

/// Puts `text` there by hand.
pub async fn plant(store: &Arc<dyn Store>, key: &str, text: &str) {
    let record = Key::new(format!("idem:{key}")).unwrap();
    let batch = onetap_store::Batch::new().put(&record, Expect::Absent, text, LONG);
    assert!(matches!(store.commit(&batch).await.unwrap(), Commit::Applied(_)));
}

/// Claims `key`, for a test that wants to be an owner by hand.
pub async fn claim(store: &Arc<dyn Store>, idem: &Idempotency, key: &str) -> Run {
    let claim = idem.call(key).claim().unwrap();
    let sent = Instant::now();
    match claim.clone().outcome(sent, store.commit(&claim.batch()).await.unwrap()).unwrap() {
        // By hand it is taken even where it comes late.
        ClaimOutcome::Mine(run) | ClaimOutcome::Late(run) => run,
        other => panic!("not claimed: {other:?}"),
    }
}
