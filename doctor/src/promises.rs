//! The promises of the conformance suite, on the real store.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use onetap_store::testing::conformance::{Cost, Promise, promises};
use onetap_store::{Error, Store};
use tokio::sync::{Notify, RwLock};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::store::{OF, REQUEST_TIMEOUT, Service};
use crate::store_record::StoreRecord;
use crate::{Finding, Status};

pub(crate) const CHECK: &str = "promises";

/// Time limit for the removal of what they wrote, at least.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Promises that are checked at the same time: most of them wait for something to expire.
const AT_ONCE: usize = 24;

/// How often a promise is checked again before it counts as broken or unknown.
const RECHECKS: usize = 2;

/// The median of a round trip above which a store is far away.
const FAR: Duration = Duration::from_millis(100);

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
    let records = Mutex::default();
    let outcomes = tokio::select! {
        outcomes = check_all(store, chosen(is_far), &records, end) => Some(outcomes),
        () = STOP.notified() => None,
    };
    let records = records.into_inner().unwrap_or_else(PoisonError::into_inner);
    end_writes(&records).await;
    let written: Vec<String> = records.iter().flat_map(|record| record.written()).collect();
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
    records: &Mutex<Vec<Arc<StoreRecord>>>,
    end: Instant,
) -> Vec<Outcome> {
    let check = |promise, end| {
        let record = Arc::<StoreRecord>::default();
        records.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&record));
        check(promise, Arc::clone(&store), record, end)
    };
    // The last third is for the second checks: one that waits for what never comes takes all the time that it is given.
    let start = Instant::now();
    let first_end = start + (end - start) * 2 / 3;
    let mut outcomes: Vec<Outcome> = stream::iter(chosen)
        .map(|promise| check(promise, first_end))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    outcomes.sort_by_key(|outcome| !matches!(outcome, Outcome::Broken(_)));
    for outcome in &mut outcomes {
        for _ in 0..RECHECKS {
            let (Outcome::Broken(promise) | Outcome::Unknown(promise, _)) = outcome else { break };
            *outcome = check(*promise, end).await;
        }
    }
    outcomes
}

/// Many calls would take too long, and large values need memory that others may need.
fn chosen(is_far: bool) -> Vec<Promise> {
    let all = promises().into_iter();
    all.filter(|promise| match promise.cost {
        Cost::Seconds => true,
        Cost::ShortRoundTrips => !is_far,
        Cost::ManyCalls | Cost::LargeValues => false,
    })
    .collect()
}

/// Lets no further call through, and waits for the writes that are under way.
async fn end_writes(records: &[Arc<StoreRecord>]) {
    records.iter().for_each(|record| record.close());
    let end = Instant::now() + REQUEST_TIMEOUT;
    while records.iter().any(|record| record.is_writing()) && Instant::now() < end {
        sleep(Duration::from_millis(20)).await;
    }
}

async fn check(promise: Promise, store: Arc<dyn Store>, record: Arc<StoreRecord>, end: Instant) -> Outcome {
    if Instant::now() >= end {
        return Outcome::Unknown(promise, None);
    }
    let ended = timeout_at(end, (promise.check)(record.of(store))).await;
    // One that was given up may have tasks that go on.
    record.close();
    match (ended, record.failure()) {
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
            chosen(false).len() - chosen(true).len(),
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
    fn what_a_far_store_leaves_out_is_counted() {
        let seen = judge(&[Outcome::Kept], true).seen;
        assert_eq!(
            seen,
            "all 1 that were checked are kept; 9 that need a store nearer than 100 ms were left out"
        );
    }

    #[test]
    fn a_broken_promise_is_named() {
        let promise = Promise {
            name: "a_refused_batch_changes_nothing",
            cost: Cost::Seconds,
            check: |_| Box::pin(async { Ok(()) }),
        };
        let finding =
            judge(&[Outcome::Kept, Outcome::Broken(promise), Outcome::Unknown(promise, None)], false);
        assert_eq!(finding.status, Status::Wrong);
        assert_eq!(finding.seen, "1 of 3 are broken: a refused batch changes nothing");
        let finding = judge(&[Outcome::Kept, Outcome::Unknown(promise, None)], false);
        assert_eq!(finding.status, Status::Warning);
        assert_eq!(finding.seen, "1 of 2 are kept; 1 could not be checked in time");
    }
}
