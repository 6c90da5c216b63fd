//! Keys as registers: which calls touch which, what they were told, and in which groups they must be judged together.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::linear::{Action, Step, Stuck, Text, Told, Touch, Want, linearize};
use super::logs::Places;
use super::{Expiry, Rules, Violation};
use crate::history::event::{Answer, Call, Change, Expected, Layer};
use crate::history::history::{History, Operation};
use crate::history::publish::NEWEST_KEY_PART;

/// What an acquirer wrote who did not live to say what: it names nothing, but others may have been refused by it.
const UNSEEN: &str = "unseen token of call ";

/// How many groups without an order are reported. A search that finds none takes long, and a few show what is wrong.
const MAX_REPORTED: usize = 3;

/// A call as changes of keys, before keys and texts have numbers.
struct Draft<'a> {
    operation: usize,
    source: &'a Operation,
    changes: Vec<Change>,
    answer: Answer,
}

pub(super) fn check(
    history: &History,
    layer: Layer,
    rules: &Rules,
    places: &Places,
    violations: &mut Vec<Violation>,
) {
    let mut drafts = Vec::new();
    for (n, operation) in history.operations.iter().enumerate() {
        if operation.layer == layer {
            draft(n, operation, places, &mut drafts);
        }
    }
    // Only the store itself leaves it to its configuration; what is built on it always asks again.
    let resends = rules.resends || layer == Layer::Api;
    let mut reported = 0;
    for group in groups(drafts) {
        let mut numbers = Numbers::default();
        let mut steps = steps(&group, resends, rules, &mut numbers);
        steps.sort_by_key(|step| step.start);
        let Err(stuck) = linearize(&steps, numbers.keys.len(), rules) else { continue };
        violations.push(explain(history, layer, &steps, stuck, &numbers));
        reported += 1;
        if reported == MAX_REPORTED {
            return;
        }
    }
}

/// The changes of one call, in as many drafts as are judged apart.
fn draft<'a>(n: usize, source: &'a Operation, places: &Places, drafts: &mut Vec<Draft<'a>>) {
    let answer = source.answer.clone();
    let mut add = |changes, answer| drafts.push(Draft { operation: n, source, changes, answer });
    match (&source.call, &source.answer) {
        (_, Answer::NotSent | Answer::Rejected(_)) => {}
        (Call::Get(key), Answer::Value(_)) if !key.contains(NEWEST_KEY_PART) => {
            add(vec![Change::Check { key: key.clone(), expect: Expected::Absent }], answer);
        }
        (Call::Acquire { key, ttl }, Answer::Acquired(token)) => {
            let (key, value) = (key.clone(), Some(token.clone()));
            let put = Change::Put { key, expect: Expected::Absent, value, ttl: Some(*ttl) };
            add(vec![put], Answer::Applied(Vec::new()));
        }
        // No answer, or one that came when what it granted had lapsed, which is told as "held".
        (Call::Acquire { key, ttl }, Answer::Unknown | Answer::Nothing(_))
            if source.end.is_none_or(|end| answer == Answer::Unknown || end - source.start >= ttl * 1000) =>
        {
            let (key, value) = (key.clone(), Some(format!("{UNSEEN}{n}")));
            add(vec![Change::Put { key, expect: Expected::Absent, value, ttl: Some(*ttl) }], Answer::Unknown);
        }
        (Call::Commit(changes), _)
            if changes
                .iter()
                .any(|change| matches!(change, Change::Append { .. } | Change::Clear { .. })) =>
        {
            // The log says whether it happened and where, and it is judged there; here each key is judged by itself.
            let place = changes.iter().find_map(|change| match change {
                Change::Append { log, text } => places.get(log, text),
                _ => None,
            });
            for change in changes {
                let Some((key, _)) = change.expectation() else { continue };
                let change = match (change, place) {
                    (Change::Put { key, expect, value: None, ttl }, Some(place)) => Change::Put {
                        key: key.clone(),
                        expect: expect.clone(),
                        value: Some(place.to_owned()),
                        ttl: *ttl,
                    },
                    (change, _) => change.clone(),
                };
                match &answer {
                    Answer::Applied(_) | Answer::Unknown if place.is_some() => {
                        add(vec![change], answer.clone())
                    }
                    Answer::Refused(there) => {
                        let named: Vec<_> = there.iter().filter(|(k, _)| k == key).cloned().collect();
                        if !named.is_empty() {
                            add(vec![change], Answer::Refused(named));
                        }
                    }
                    _ => {}
                }
            }
        }
        (Call::Commit(changes), Answer::Applied(_) | Answer::Refused(_) | Answer::Unknown) => {
            add(changes.clone(), answer);
        }
        _ => {}
    }
}

/// Drafts whose keys are tied together by a call, directly or by way of others.
fn groups(drafts: Vec<Draft<'_>>) -> Vec<Vec<Draft<'_>>> {
    fn root<'a>(parents: &HashMap<&'a str, &'a str>, mut key: &'a str) -> &'a str {
        while let Some(parent) = parents.get(key).filter(|parent| **parent != key) {
            key = parent;
        }
        key
    }
    let keys = |draft: &Draft<'_>| -> Vec<String> {
        draft.changes.iter().filter_map(|change| Some(change.expectation()?.0.to_owned())).collect()
    };
    let named: Vec<Vec<String>> = drafts.iter().map(keys).collect();
    let mut parents: HashMap<&str, &str> = HashMap::new();
    for keys in &named {
        let Some(first) = keys.first().map(|key| root(&parents, key)) else { continue };
        for key in keys {
            let other = root(&parents, key);
            parents.insert(other, first);
        }
    }
    let mut groups: BTreeMap<&str, Vec<Draft<'_>>> = BTreeMap::new();
    for (draft, keys) in drafts.into_iter().zip(&named) {
        if let Some(key) = keys.first() {
            groups.entry(root(&parents, key)).or_default().push(draft);
        }
    }
    groups.into_values().collect()
}

/// Keys and texts by number.
#[derive(Default)]
struct Numbers {
    keys: Vec<String>,
    key_numbers: HashMap<String, usize>,
    texts: HashMap<String, Text>,
}

impl Numbers {
    fn key(&mut self, key: &str) -> usize {
        let next = self.keys.len();
        let number = *self.key_numbers.entry(key.to_owned()).or_insert(next);
        if number == next {
            self.keys.push(key.to_owned());
        }
        number
    }

    fn text(&mut self, text: &str) -> Text {
        let next = Text::try_from(self.texts.len()).unwrap_or(Text::MAX);
        *self.texts.entry(text.to_owned()).or_insert(next)
    }
}

fn steps(group: &[Draft<'_>], resends: bool, rules: &Rules, numbers: &mut Numbers) -> Vec<Step> {
    let observed = observed(group);
    let mut steps = Vec::new();
    for draft in group {
        let touches: Vec<Touch> = draft.changes.iter().filter_map(|change| touch(change, numbers)).collect();
        let (start, end) = draft.source.window();
        let end = if draft.answer == Answer::Unknown { u64::MAX } else { end };
        // Where the store keeps the time, a caller's clock is nobody's business.
        let skew = if rules.expiry == Expiry::Store { 0 } else { draft.source.skew };
        let told = match &draft.answer {
            Answer::Value(there) => Told::There(there.as_ref().map(|text| numbers.text(text))),
            Answer::Applied(_) => Told::Applied,
            Answer::Refused(there) => Told::Refused {
                there: there
                    .iter()
                    .map(|(key, there)| (numbers.key(key), there.as_ref().map(|text| numbers.text(text))))
                    .collect(),
                all: !there.is_empty() && rules.expiry == Expiry::Store,
            },
            _ => Told::Maybe,
        };
        let step = |told, end, touches: &[Touch]| Step {
            operation: draft.operation,
            start,
            end,
            skew,
            touches: touches.to_vec(),
            told,
        };
        let read = matches!(told, Told::There(_));
        if resends && !read && is_repeatable(&draft.changes) && matters(&draft.changes, &observed) {
            steps.push(step(Told::Maybe, u64::MAX, &touches));
        }
        if told != Told::Maybe || matters(&draft.changes, &observed) {
            steps.push(step(told, end, &touches));
        }
    }
    steps
}

fn touch(change: &Change, numbers: &mut Numbers) -> Option<Touch> {
    let (key, expect) = change.expectation()?;
    let key = numbers.key(key);
    let expect = match expect {
        Expected::Absent => Want::Absent,
        Expected::Is(text) => Want::Is(numbers.text(text)),
        Expected::AbsentOr(text) => Want::AbsentOr(numbers.text(text)),
    };
    let action = match change {
        Change::Put { value, ttl, .. } => {
            Action::Put(numbers.text(value.as_deref().unwrap_or("")), ttl.map(|ms| ms * 1000))
        }
        Change::Delete { .. } => Action::Delete,
        Change::Check { .. } | Change::Newest { .. } | Change::Append { .. } | Change::Clear { .. } => {
            Action::None
        }
    };
    Some(Touch { key, expect, action })
}

/// Every key and text that anybody was told of, or built on.
fn observed<'a>(group: &'a [Draft<'_>]) -> HashSet<(&'a str, &'a str)> {
    let mut observed = HashSet::new();
    for draft in group {
        let key = draft.changes.first().and_then(|change| change.expectation()).map(|(key, _)| key);
        match &draft.answer {
            Answer::Value(Some(text)) => observed.extend(key.map(|key| (key, text.as_str()))),
            Answer::Refused(there) => {
                observed.extend(there.iter().filter_map(|(key, text)| Some((key.as_str(), text.as_deref()?))))
            }
            _ => {}
        }
        for (key, expect) in draft.changes.iter().filter_map(Change::expectation) {
            if let Expected::Is(text) | Expected::AbsentOr(text) = expect {
                observed.insert((key, text));
            }
        }
    }
    observed
}

/// Whether it can make a difference that an unknown call happened. One that only writes what nobody ever saw cannot:
/// it could be left out of any order in which it is. An unseen token can: whoever was refused by it was not told so.
fn matters(changes: &[Change], observed: &HashSet<(&str, &str)>) -> bool {
    changes.iter().any(|change| match change {
        Change::Put { key, value, .. } => {
            let text = value.as_deref().unwrap_or("");
            text.starts_with(UNSEEN) || observed.contains(&(key.as_str(), text))
        }
        Change::Delete { .. } => true,
        Change::Check { .. } | Change::Newest { .. } | Change::Append { .. } | Change::Clear { .. } => false,
    })
}

/// As [`onetap_store::Batch::is_repeatable`] has it. (A delete without a marker is here the release of a lease, for which
/// *gone* is success.)
fn is_repeatable(changes: &[Change]) -> bool {
    let marked = |change: &Change| match change {
        Change::Put { expect: Expected::Absent, .. } => true,
        Change::Put { expect: Expected::AbsentOr(old), value, .. } => value.as_ref() != Some(old),
        _ => false,
    };
    let harmless = |change: &Change| match change {
        Change::Put { expect: Expected::Is(old), value, .. } => value.as_ref() == Some(old),
        Change::Append { .. } | Change::Clear { .. } => false,
        Change::Put { .. } | Change::Check { .. } | Change::Delete { .. } | Change::Newest { .. } => true,
    };
    changes.iter().any(marked) || changes.iter().all(harmless)
}

fn explain(history: &History, layer: Layer, steps: &[Step], stuck: Stuck, numbers: &Numbers) -> Violation {
    let names = numbers.keys.join(", ");
    let asked = match layer {
        Layer::Store => "as the store was asked",
        Layer::Api => "as the callers meant it",
    };
    let operation = |step: usize| &history.operations[steps[step].operation];
    match stuck {
        Stuck::TooLong => Violation::new(
            format!("undecided: no order was found in time for {names}, {asked}"),
            steps.iter().map(|step| &history.operations[step.operation]),
        ),
        Stuck::Impossible { order, next } => {
            let stuck = next.into_iter().filter(|step| steps[*step].told != Told::Maybe);
            let recent = order.iter().rev().take(12).rev().copied();
            let mut violation = Violation::new(
                format!(
                    "not linearizable, {asked}: {names}; after the first {} of these calls the last {} cannot follow",
                    order.len().min(12),
                    stuck.clone().count()
                ),
                recent.chain(stuck).map(operation),
            );
            violation.calls.dedup();
            violation
        }
    }
}
