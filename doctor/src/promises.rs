//! The promises of the conformance suite, on the real store.

use std::panic::{AssertUnwindSafe, Location};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt};
use onetap_store::testing::conformance::{Promise, promises};
use onetap_store::{Error, Store};
use tokio::sync::{Notify, RwLock};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::recorded_store::RecordedStore;
use crate::store::{OF, REQUEST_TIMEOUT, Service};
use crate::{Finding, Status};

pub(crate) const CHECK: &str = "promises";

/// Time limit for the removal of what they wrote, at least.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Promises that are checked at the same time: most of them wait for something to expire.
const AT_ONCE: usize = 24;

/// How often a promise is checked again before it counts as broken or unknown.
const RECHECKS: usize = 2;

/// Promises that are left out, because they take a hundred calls of the store or more, or over five seconds.
const MANY_CALLS: [&str; 10] = [
    "a_cleared_log_is_empty_and_begins_anew_with_higher_positions",
    "a_recorded_edit_happens_once_whichever_replies_are_lost",
    "a_sequence_is_judged_alike_on_every_backend",
    "an_extreme_argument_never_leaves_half_a_batch",
    "no_append_is_lost_to_a_clear_that_came_before_it",
    "no_edit_is_lost_among_many_editors",
    "no_increment_is_lost_among_many_workers",
    "one_of_a_hundred_racing_claims_wins",
    "records_of_an_earlier_life_stand_in_no_readers_way",
    "what_is_read_are_the_appends_after_the_last_clear",
];

/// Promises that are left out, because they write megabytes: the memory may be needed by others.
const LARGE_VALUES: [&str; 2] = ["a_long_log_is_read_to_its_end", "a_value_over_the_limit_is_rejected"];

/// Makes the panics of promises silent: a panic is the way in which one says that it is broken, and is a finding. A task
/// of one may panic later, too. Only a program may do this, not a library.
pub(crate) fn install_panic_hook() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panic.location().is_some_and(is_of_promise) {
            hook(panic);
        }
    }));
}

fn is_of_promise(location: &Location<'_>) -> bool {
    Path::new(location.file()).parent().is_some_and(|folder| folder.ends_with("testing/conformance"))
}

/// The median of a round trip above which a store is far away.
const FAR: Duration = Duration::from_millis(100);

/// Promises that are left out where the store is far away: they take forty calls in sequence or more, or several calls
/// within a second or two.
const NEAR_ONLY: [&str; 9] = [
    "a_log_ends_after_its_last_append",
    "a_name_holds_a_value_or_a_log_and_the_other_is_an_error",
    "a_renewed_lease_lasts",
    "a_write_renews_the_life_and_a_read_does_not",
    "any_text_comes_back_as_it_was",
    "positions_increase_and_reading_on_neither_repeats_nor_skips",
    "the_name_of_a_cleared_log_is_free",
    "to_watch_and_then_read_misses_nothing",
    "what_has_no_sequence_is_older_than_any",
];

/// Wakes what checks promises when the program is to end.
static STOP: Notify = Notify::const_new();
/// Read-locked until what promises wrote is removed.
static WRITTEN: RwLock<()> = RwLock::const_new(());

/// Ends the check of promises, and waits until what they wrote is removed.
pub(crate) async fn stop() {
    STOP.notify_waiters();
    drop(WRITTEN.write().await);
}

enum Outcome {
    Kept,
    Broken(Promise),
    /// The time was up, or the store failed meanwhile.
    Unknown(Promise, Option<Error>),
}

/// Checks promises until `end`. Each ends within five seconds where a round trip is short. One that is not kept is
/// checked again by itself: on a slow network the others may have held it up.
pub(crate) async fn examine(
    store: Arc<dyn Store>,
    service: &Service,
    p50: Duration,
    end: Instant,
) -> Finding {
    let start = Instant::now();
    let _written = WRITTEN.read().await;
    let is_far = p50 > FAR;
    let stores = Mutex::default();
    let outcomes = tokio::select! {
        outcomes = check_all(store, chosen(is_far), &stores, end) => Some(outcomes),
        () = STOP.notified() => None,
    };
    let stores = stores.into_inner().unwrap_or_else(PoisonError::into_inner);
    end_writes(&stores).await;
    let written: Vec<String> = stores.iter().flat_map(|store| store.written()).collect();
    // It takes about as many requests as the promises did.
    let limit = REMOVAL_TIMEOUT.max(start.elapsed() / 4);
    let removed = timeout(limit, service.remove(&written)).await.unwrap_or(Err("no time left".to_owned()));
    let judged = match outcomes {
        Some(outcomes) => judge(&outcomes, is_far),
        None => Finding::skipped(OF, CHECK, "stopped by Ctrl-C"),
    };
    match (judged, removed) {
        (broken, _) if broken.status == Status::Wrong => broken,
        (_, Err(why)) => not_removed(&why),
        (finding, Ok(())) => finding,
    }
}

/// Checks these, each on a store of its own, so that a failure of the service is known to be in its promise.
async fn check_all(
    store: Arc<dyn Store>,
    chosen: Vec<Promise>,
    stores: &Mutex<Vec<Arc<RecordedStore>>>,
    end: Instant,
) -> Vec<Outcome> {
    let recorded = || {
        let recorded = Arc::new(RecordedStore::new(Arc::clone(&store)));
        stores.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&recorded));
        recorded
    };
    // The last third is for the second checks: one that waits for what never comes takes all the time that it is given.
    let start = Instant::now();
    let first_end = start + (end - start) * 2 / 3;
    let mut outcomes: Vec<Outcome> = stream::iter(chosen)
        .map(|promise| check(promise, recorded(), first_end))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    outcomes.sort_by_key(|outcome| !matches!(outcome, Outcome::Broken(_)));
    for outcome in &mut outcomes {
        for _ in 0..RECHECKS {
            let (Outcome::Broken(promise) | Outcome::Unknown(promise, _)) = outcome else { break };
            *outcome = check(*promise, recorded(), end).await;
        }
    }
    outcomes
}

fn chosen(is_far: bool) -> Vec<Promise> {
    let left_out = |name| {
        MANY_CALLS.contains(&name) || LARGE_VALUES.contains(&name) || (is_far && NEAR_ONLY.contains(&name))
    };
    promises().into_iter().filter(|promise| !left_out(promise.name)).collect()
}

/// Lets no further call through, and waits for the writes that are under way.
async fn end_writes(stores: &[Arc<RecordedStore>]) {
    stores.iter().for_each(|store| store.close());
    let end = Instant::now() + REQUEST_TIMEOUT;
    while stores.iter().any(|store| store.is_writing()) && Instant::now() < end {
        sleep(Duration::from_millis(20)).await;
    }
}

async fn check(promise: Promise, store: Arc<RecordedStore>, end: Instant) -> Outcome {
    if Instant::now() >= end {
        return Outcome::Unknown(promise, None);
    }
    let kept = AssertUnwindSafe((promise.check)(Arc::clone(&store) as Arc<dyn Store>)).catch_unwind();
    let ended = timeout_at(end, kept).await;
    // One that was given up may have tasks that go on.
    store.close();
    match (ended, store.failure()) {
        (Ok(Ok(())), _) => Outcome::Kept,
        (Ok(Err(_)), None) => Outcome::Broken(promise),
        (Ok(Err(_)) | Err(_), failure) => Outcome::Unknown(promise, failure),
    }
}

fn judge(outcomes: &[Outcome], is_far: bool) -> Finding {
    let all = outcomes.len();
    let broken: Vec<String> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::Broken(promise) => Some(promise.name.replace('_', " ")),
            Outcome::Kept | Outcome::Unknown(..) => None,
        })
        .collect();
    let unknown: Vec<Option<&Error>> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::Unknown(_, failure) => Some(failure.as_ref()),
            Outcome::Kept | Outcome::Broken(_) => None,
        })
        .collect();
    if !broken.is_empty() {
        let seen = format!("{} of {all} are broken: {}", broken.len(), broken.join("; "));
        return Finding::wrong(
            OF,
            CHECK,
            seen,
            "Use another server or service: with this one duplicates can get through.",
        );
    }
    if !unknown.is_empty() {
        let failure = unknown.iter().find_map(|failure| *failure).map(ToString::to_string);
        let kept = all - unknown.len();
        let why = failure.as_ref().map_or(" in time".to_owned(), |failure| format!(": {failure}"));
        let seen = format!("{kept} of {all} are kept; {} could not be checked{why}", unknown.len());
        let remedy = if failure.is_some_and(|failure| failure.contains("OOM")) {
            "Give the server more memory, or remove what is not needed any more."
        } else {
            "Run the doctor nearer to the store, with `--seconds 120`, or when the store has less to do."
        };
        return Finding::warning(OF, CHECK, seen, remedy);
    }
    let mut seen = format!("all {all} that were checked are kept");
    if is_far {
        seen += &format!(
            "; {} that need a store nearer than {} ms were left out",
            NEAR_ONLY.len(),
            FAR.as_millis()
        );
    }
    Finding::ok(OF, CHECK, seen)
}

fn not_removed(why: &str) -> Finding {
    let seen = format!("what was written could not be removed: {why}");
    Finding::warning(
        OF,
        CHECK,
        seen,
        "Remove what begins with `test:`; most of it ends by itself within an hour.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_in_the_suite() {
        for name in MANY_CALLS.iter().chain(&LARGE_VALUES).chain(&NEAR_ONLY) {
            assert!(promises().iter().any(|promise| promise.name == *name), "{name}");
        }
    }

    #[test]
    fn a_panic_of_another_check_is_not_a_promises() {
        assert!(!is_of_promise(Location::caller()));
    }

    #[test]
    fn what_a_far_store_leaves_out_is_counted() {
        assert_eq!(chosen(true).len() + NEAR_ONLY.len(), chosen(false).len());
        let seen = judge(&[Outcome::Kept], true).seen;
        assert_eq!(
            seen,
            "all 1 that were checked are kept; 9 that need a store nearer than 100 ms were left out"
        );
    }

    #[test]
    fn a_broken_promise_is_named() {
        let promise = Promise { name: "a_refused_batch_changes_nothing", check: |_| Box::pin(async {}) };
        let finding =
            judge(&[Outcome::Kept, Outcome::Broken(promise), Outcome::Unknown(promise, None)], false);
        assert_eq!(finding.status, Status::Wrong);
        assert_eq!(finding.seen, "1 of 3 are broken: a refused batch changes nothing");
        let finding = judge(&[Outcome::Kept, Outcome::Unknown(promise, None)], false);
        assert_eq!(finding.status, Status::Warning);
        assert_eq!(finding.seen, "1 of 2 are kept; 1 could not be checked in time");
    }
}
