//! Which records of a batch run one after another.

use std::collections::{BTreeMap, HashMap};

use super::order::RecordState;
use super::record::{Record, State};

/// Records that run one after another, in the order of the batch, each with its place in the batch.
pub(super) type Lane<'a, T> = Vec<(usize, &'a mut Record<T>)>;

/// Finds the records that have the key (and the payload, where keys are tied to one) of an earlier record.
pub(super) fn find_repeats<T>(records: &mut [Record<T>]) {
    let mut first: HashMap<(String, Option<String>), usize> = HashMap::new();
    for (n, record) in records.iter_mut().enumerate() {
        if let State::Waiting(named) = &record.state {
            let earlier = *first.entry((named.key.clone(), named.payload.clone())).or_insert(n);
            if earlier < n {
                record.state = State::Repeats(earlier);
            }
        }
    }
}

/// The records as lanes: those of a FIFO group are in one lane, and a repeat is in that of the record it repeats. Lanes run
/// concurrently.
pub(super) fn lanes<T>(records: &mut [Record<T>]) -> Vec<Lane<'_, T>> {
    let mut lane_of: Vec<usize> = (0..records.len()).collect();
    let mut last_of_group: HashMap<&str, usize> = HashMap::new();
    for (n, record) in records.iter().enumerate() {
        let before = record.group.as_deref().and_then(|group| last_of_group.insert(group, n));
        let repeated = match record.state {
            State::Repeats(first) => Some(first),
            _ => None,
        };
        for earlier in [before, repeated].into_iter().flatten() {
            let (mine, theirs) = (lane_of[n], lane_of[earlier]);
            lane_of.iter_mut().filter(|lane| **lane == mine).for_each(|lane| *lane = theirs);
        }
    }
    let mut lanes: BTreeMap<usize, Lane<'_, T>> = BTreeMap::new();
    for (lane, numbered) in lane_of.into_iter().zip(records.iter_mut().enumerate()) {
        lanes.entry(lane).or_default().push(numbered);
    }
    lanes.into_values().collect()
}

/// Whether a record of the same group among those before it holds it back.
pub(super) fn is_held_back<'a, T: 'a>(
    record: &Record<T>,
    mut before: impl Iterator<Item = &'a Record<T>>,
) -> bool {
    record.group.is_some()
        && before.any(|earlier| earlier.group == record.group && earlier.state.holds_back(earlier.deliveries))
}
