//! Keys that only `put_if_newer` writes: their sequence number never falls, and nothing newer is lost.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Rules, Violation};
use crate::history::event::{Answer, Call, Change, Layer};
use crate::history::history::{History, Operation};
use crate::history::publish::NEWEST_KEY_PART;

/// One key and all that was said of it.
#[derive(Default)]
struct Story<'a> {
    /// Each write that may have happened, with its sequence number and its text.
    writes: Vec<(&'a Operation, u64, &'a str)>,
    /// Each reading, with the text that was there.
    readings: Vec<(&'a Operation, Option<&'a str>)>,
}

pub(super) fn check(history: &History, rules: &Rules, violations: &mut Vec<Violation>) {
    let mut stories: BTreeMap<&str, Story<'_>> = BTreeMap::new();
    for operation in history.operations.iter().filter(|operation| operation.layer == Layer::Store) {
        match (&operation.call, &operation.answer) {
            (Call::Commit(changes), answer) if may_have_happened(answer, rules) => {
                for change in changes {
                    if let Change::Newest { key, seq, value } = change {
                        stories.entry(key).or_default().writes.push((operation, *seq, value));
                    }
                }
            }
            (Call::Get(key), Answer::Value(there)) if key.contains(NEWEST_KEY_PART) => {
                stories.entry(key).or_default().readings.push((operation, there.as_deref()));
            }
            _ => {}
        }
    }
    for (key, story) in stories {
        story.check(key, violations);
    }
}

/// A batch that was sent twice may be refused by its own first send.
fn may_have_happened(answer: &Answer, rules: &Rules) -> bool {
    match answer {
        Answer::Applied(_) | Answer::Unknown => true,
        Answer::Refused(_) => rules.resends,
        _ => false,
    }
}

fn seq(text: &str) -> Option<u64> {
    serde_json::from_str::<Value>(text).ok()?.get("seq")?.as_u64()
}

impl Story<'_> {
    fn check(&self, key: &str, violations: &mut Vec<Violation>) {
        let mut texts: BTreeMap<u64, (&Operation, &str)> = BTreeMap::new();
        for (reading, text) in &self.readings {
            let there = text.and_then(seq);
            let by = self.writes.iter().find(|(_, _, value)| Some(*value) == *text);
            if text.is_some() && by.is_none_or(|(write, _, _)| write.start > reading.window().1) {
                let what = format!("{key} holds {text:?}, and nobody can have put it there");
                violations.push(Violation::new(what, [*reading]));
            }
            // What was acknowledged, or seen, before this reading began.
            let acknowledged =
                self.writes.iter().filter(|(write, _, _)| matches!(write.answer, Answer::Applied(_)));
            let seen =
                self.readings.iter().filter_map(|(before, text)| Some((*before, (*text).and_then(seq)?)));
            for (before, newer) in acknowledged.map(|(write, newer, _)| (*write, *newer)).chain(seen) {
                if before.window().1 < reading.start && there < Some(newer) {
                    let what = format!("{key} had the number {newer}, and then holds an older {text:?}");
                    violations.push(Violation::new(what, [before, *reading]));
                }
            }
            if let (Some(there), Some(text)) = (there, text) {
                let (first, same) = *texts.entry(there).or_insert((reading, text));
                if same != *text {
                    let what = format!("{key} holds two texts with the number {there}");
                    violations.push(Violation::new(what, [first, *reading]));
                }
            }
        }
    }
}
