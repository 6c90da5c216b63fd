//! Clients on every backend while things go wrong, and a checker that must find nothing; and the same with one fence
//! taken down, where it must find something.
//!
//! `ONETAP_SEED=… cargo test -p onetap-tests --test integration -- history:: --include-ignored` repeats a run.

use std::collections::BTreeSet;
use std::time::Duration;

use onetap_servers::heavy_test;
use onetap_tests::history::book::writes_months;
use onetap_tests::history::event::{Answer, Call, Change};
use onetap_tests::history::history::Operation;
use onetap_tests::history::operations::KINDS;
use onetap_tests::history::run::Side;
use onetap_tests::history::sabotage::Fence;
use onetap_tests::history::seed::Seed;
use onetap_tests::history::table::Table;
use onetap_tests::history::{Backend, Outcome, on_memory, on_servers};

/// Of a paused clock: it costs a second or two.
const ON_MEMORY: Duration = Duration::from_secs(30);
/// Long enough for a fault of each kind; `scripts/soak` runs for as long as one likes.
const ON_SERVERS: Duration = Duration::from_secs(12);

fn say(outcome: &Outcome) {
    let (calls, unknown) = (outcome.report.calls, outcome.report.unknown);
    eprintln!(
        "{calls} calls, {unknown} of them unknown; {} changes of ledgers",
        outcome.history.ledger_changes()
    );
}

async fn nothing_is_doubled_or_lost(backend: Backend) {
    let _heavy = heavy_test();
    let seed = Seed::from_env();
    eprintln!("ONETAP_SEED={seed}");
    let outcome = on_servers(backend, seed, ON_SERVERS).await;
    say(&outcome);
    outcome.assert_sound(300);
}

#[test]
fn nothing_is_doubled_or_lost_on_memory() {
    let first = Seed::from_env();
    for seed in first..first + 8 {
        eprintln!("ONETAP_SEED={seed}");
        let outcome = on_memory(seed, ON_MEMORY, None);
        say(&outcome);
        outcome.assert_sound(1000);
    }
}

#[test]
fn runs_on_memory_contain_every_operation() {
    let mut table = Table::default();
    // Edits and deletions within a month that were applied: whether they delete, and whether they write the list of months.
    let mut changes_of_entries = BTreeSet::new();
    for seed in 40..44 {
        let outcome = on_memory(seed, ON_MEMORY, None);
        table.add(&outcome);
        let applied = |operation: &&Operation| matches!(operation.answer, Answer::Applied(_));
        for operation in outcome.history.operations.iter().filter(applied) {
            let Call::Commit(changes) = &operation.call else { continue };
            let deletes = changes.iter().any(|change| matches!(change, Change::Delete { .. }));
            changes_of_entries.extend(writes_months(changes).map(|writes_months| (deletes, writes_months)));
        }
    }
    for kind in KINDS {
        assert!(table.confirmed(kind) > 0, "{kind}\n{}", table.operations());
    }
    assert_eq!(changes_of_entries.len(), 4, "{changes_of_entries:?}");
}

#[test]
fn a_run_on_memory_is_the_same_each_time() {
    let calls = || {
        let operations = on_memory(7, ON_MEMORY, None).history.operations;
        operations.into_iter().map(|call| (call.start, call.end, call.client)).collect::<Vec<_>>()
    };
    let (one, other) = (calls(), calls());
    assert!(one == other, "{} calls and {}", one.len(), other.len());
}

macro_rules! servers {
    ($($name:ident: $backend:ident, $needs:literal;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        #[ignore = $needs]
        async fn $name() {
            nothing_is_doubled_or_lost(Backend::$backend).await;
        }
    )*};
}

servers! {
    nothing_is_doubled_or_lost_on_redis: Redis, "needs redis-server";
    nothing_is_doubled_or_lost_on_upstash: Upstash, "needs redis-server";
    nothing_is_doubled_or_lost_on_dynamodb: DynamoDb, "takes twelve seconds";
    nothing_is_doubled_or_lost_on_dynamodb_local: DynamoDbLocal, "needs DynamoDB Local";
}

/// The seeds are fixed and memory's clock is paused: what is found once is found every time. A rare violation may need a
/// second or third run.
fn is_noticed(fence: Fence, side: Side, why: &str) {
    let mut what = Vec::new();
    let found = (20..28).any(|seed| {
        let violations = on_memory(seed, ON_MEMORY, Some((fence, side))).report.violations;
        what.extend(violations.into_iter().map(|violation| violation.what));
        what.iter().any(|what| what.contains(why))
    });
    assert!(found, "{fence:?} is down and no {why:?} was found; found: {what:#?}");
}

const NO_ORDER: &str = "not linearizable, as the store was asked";
const NOT_MEANT: &str = "not linearizable, as the callers meant it";

#[test]
fn every_fence_is_taken_down_and_the_page_says_how_often() {
    for fence in Fence::ALL {
        assert!(TAKEN_DOWN.contains(&fence), "{fence:?}");
    }
    let page = include_str!("../../../docs/guarantees.md");
    let times = format!("it finds what that lets in, {} times over", TAKEN_DOWN.len());
    assert!(page.contains(&times), "docs/guarantees.md does not say {times:?}");
}

macro_rules! fences {
    ($($name:ident: $fence:ident, $side:ident, $why:expr;)*) => {$(
        #[test]
        fn $name() {
            is_noticed(Fence::$fence, Side::$side, $why);
        }
    )*
        /// The fence of each of these tests.
        const TAKEN_DOWN: &[Fence] = &[$(Fence::$fence),*];
    };
}

fences! {
    a_store_that_ignores_guards_is_noticed: Guard, Store, NO_ORDER;
    a_store_that_swaps_blindly_is_noticed: Swap, Store, NO_ORDER;
    a_store_that_grants_what_is_held_is_noticed: Claim, Store, NO_ORDER;
    a_store_that_lets_anybody_release_is_noticed: Release, Store, NO_ORDER;
    a_store_that_revives_leases_is_noticed: Renewal, Store, NO_ORDER;
    a_store_that_lets_stale_owners_record_is_noticed: Result, Store, NO_ORDER;
    a_store_that_writes_markers_apart_is_noticed: Marker, Store, "records";
    a_store_that_keeps_half_a_batch_is_noticed: Atomicity, Store, NO_ORDER;
    a_store_that_calls_unknown_not_sent_is_noticed: Honesty, Store, NO_ORDER;
    a_store_that_resends_appends_without_their_marker_is_noticed: Resend, Store, "twice";
    a_store_that_resends_swaps_is_noticed: ResentSwap, Store, NO_ORDER;
    a_store_that_takes_no_for_yes_is_noticed: Refusal, Store, NO_ORDER;
    a_store_whose_leases_are_short_is_noticed: ShortLife, Store, NO_ORDER;
    a_store_whose_leases_are_long_is_noticed: LongLife, Store, NO_ORDER;
    a_store_that_reads_what_was_is_noticed: FreshReads, Store, NO_ORDER;
    a_store_that_does_not_clear_is_noticed: Clear, Store, "after it was cleared";
    a_store_that_tears_appends_apart_is_noticed: Appends, Store, "in part";
    a_store_that_keeps_an_older_state_is_noticed: Newest, Store, "and then holds an older";
    a_store_that_leaves_records_out_of_its_pages_is_noticed: Page, Store, "a record is missing";
    a_store_that_swaps_the_answers_of_a_round_is_noticed: Round, Store, NO_ORDER;
    a_lease_that_forgets_its_guard_is_noticed: Guard, Caller, NOT_MEANT;
    a_lease_that_takes_what_is_held_is_noticed: Claim, Caller, NOT_MEANT;
    a_lease_that_releases_anothers_is_noticed: Release, Caller, NOT_MEANT;
    a_stale_owner_that_records_its_result_is_noticed: Result, Caller, "more than one result";
    a_round_that_swaps_its_tickets_is_noticed: Round, Caller, NOT_MEANT;
    a_publisher_that_marks_apart_is_noticed: Marker, Caller, "twice";
    a_publisher_that_resends_without_its_marker_is_noticed: Resend, Caller, "twice";
    a_consumer_that_claims_what_is_recorded_is_noticed: Claim, Caller, "handled again after";
    a_consumer_that_runs_twice_what_may_run_once_is_noticed: Claim, Caller, "again without a failure";
    a_consumer_that_forgets_the_order_of_groups_is_noticed: GroupOrder, Caller, "was handled before";
    a_consumer_that_acknowledges_what_failed_is_noticed: PartialFailures, Caller, "nobody has done it";
    a_ledger_whose_records_precede_their_commit_is_noticed: EarlyRecords, Store, "in the ledger";
    a_ledger_whose_records_follow_their_commit_is_noticed: LateRecords, Store, "is not there";
    a_ledger_that_forgets_records_is_noticed: ForgottenRecords, Store, "is not there";
    a_function_that_records_apart_from_its_marker_is_noticed: EarlyRecords, Caller, "in the ledger";
    a_function_that_forgets_records_is_noticed: ForgottenRecords, Caller, "is not there";
    an_erasure_that_clears_nothing_is_noticed: Clear, Store, "was erased and is there";
}
