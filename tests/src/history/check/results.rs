//! Results: one for each key, and what they add up to.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Rules, Violation};
use crate::history::client::{CAS_KEY_PART, RECORD_PREFIX};
use crate::history::event::{Answer, Call, Change, Expected, Layer};
use crate::history::history::{History, Operation};

pub(super) fn check(history: &History, rules: &Rules, violations: &mut Vec<Violation>) {
    let mut results: BTreeMap<&str, Vec<(&Operation, &str)>> = BTreeMap::new();
    let mut runs: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    let mut counters: BTreeMap<&str, HashSet<&str>> = BTreeMap::new();
    let mut last: HashMap<&str, (&Operation, Option<&str>)> = HashMap::new();
    for operation in &history.operations {
        match (&operation.call, &operation.answer) {
            (Call::Execute { key, counter }, answer) => {
                if let Answer::Result(result) = answer {
                    results.entry(key).or_default().push((operation, result));
                }
                if let Some(counter) = counter {
                    counters.entry(counter).or_default().insert(key);
                }
            }
            (Call::Run(key), _) => runs.entry(key).or_default().push(operation),
            (Call::Get(key), Answer::Value(value)) => {
                last.insert(key, (operation, value.as_deref()));
            }
            _ => {}
        }
    }
    for (key, results) in &results {
        if results.iter().any(|(_, result)| *result != results[0].1) {
            let calls = results.iter().map(|(operation, _)| *operation);
            violations.push(Violation::new(format!("{key} has more than one result"), calls));
        }
    }
    for (key, runs) in runs.into_iter().filter(|(_, runs)| runs.len() > 1) {
        violations.push(Violation::new(format!("{key} may run once at most, and ran more often"), runs));
    }
    for (counter, keys) in counters {
        count(counter, &keys, &results, &last, violations);
    }
    sums(history, rules, &last, violations);
}

/// A counter that goes up with each result stands at the number of results, and gave each of them another number.
fn count(
    counter: &str,
    keys: &HashSet<&str>,
    results: &BTreeMap<&str, Vec<(&Operation, &str)>>,
    last: &HashMap<&str, (&Operation, Option<&str>)>,
    violations: &mut Vec<Violation>,
) {
    let told = keys.iter().filter_map(|key| results.get(key)?.first());
    let mut numbers = HashMap::new();
    for (operation, result) in told {
        if let Some(other) = numbers.insert(number(Some(result)), *operation) {
            let what = format!("two results have moved {counter} to the same number");
            violations.push(Violation::new(what, [other, operation]));
        }
    }
    let Some((look, value)) = last.get(counter) else { return };
    let recorded = |key: &&&str| {
        let record = last.get(format!("{RECORD_PREFIX}{key}").as_str()).and_then(|(_, value)| *value);
        record.is_some_and(is_result)
    };
    let recorded = keys.iter().filter(recorded).count();
    if number(*value) != recorded as u64 {
        let what = format!("{counter} stands at {value:?}, and {recorded} results have moved it");
        violations.push(Violation::new(what, [*look]));
    }
}

/// Whether a record holds a result, not a claim.
pub(super) fn is_result(record: &str) -> bool {
    let record = serde_json::from_str::<serde_json::Value>(record);
    record.is_ok_and(|record| record.get("ok").is_some())
}

/// Increments by compare and swap add up: to no less than were acknowledged, and to no more than may have happened.
fn sums(
    history: &History,
    rules: &Rules,
    last: &HashMap<&str, (&Operation, Option<&str>)>,
    violations: &mut Vec<Violation>,
) {
    let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for operation in history.operations.iter().filter(|operation| operation.layer == Layer::Store) {
        let Call::Commit(changes) = &operation.call else { continue };
        let [Change::Put { key, .. }] = changes.as_slice() else { continue };
        if key.contains(CAS_KEY_PART) {
            let (certain, unknown) = sums.entry(key).or_default();
            match operation.answer {
                Answer::Applied(_) => *certain += 1,
                Answer::Unknown => *unknown += 1,
                // The first swap expects nothing, so that it may be sent twice, and be refused by itself or by
                // those who built on it.
                Answer::Refused(_) if rules.resends && expects_nothing(changes) => *unknown += 1,
                _ => {}
            }
        }
    }
    for (key, (certain, unknown)) in sums {
        let Some((look, value)) = last.get(key) else { continue };
        if !(certain..=certain + unknown).contains(&number(*value)) {
            let what =
                format!("{key} stands at {value:?} after {certain} increments and {unknown} unknown ones");
            violations.push(Violation::new(what, [*look]));
        }
    }
}

fn expects_nothing(changes: &[Change]) -> bool {
    matches!(changes, [Change::Put { expect: Expected::Absent, .. }])
}

/// The number that a counter's text begins with; none is zero.
pub(in crate::history) fn number(text: Option<&str>) -> u64 {
    text.and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or(0)
}
