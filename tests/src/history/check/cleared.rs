//! Logs that are cleared. No reading is the whole story of one, so every reading is judged by itself: what it has may be
//! there, and what it lacks may be gone.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use onetap_store::Position;

use super::Violation;
use crate::history::event::{Answer, Call, Change, Layer};
use crate::history::history::{History, Operation};

/// One batch of appends to a log.
struct Append<'a> {
    operation: &'a Operation,
    texts: Vec<&'a str>,
    /// Until when at the latest it has happened: it was acknowledged, or seen.
    by: u64,
}

/// A reading: whether it is of the whole log, and what it brought.
type Reading<'a> = (&'a Operation, bool, &'a [(String, String)]);

/// One log and all that was said of it.
#[derive(Default)]
struct Story<'a> {
    appends: Vec<Append<'a>>,
    clears: Vec<&'a Operation>,
    readings: Vec<Reading<'a>>,
    /// The positions that the appends were told.
    told: Vec<(&'a Operation, &'a str, &'a str)>,
}

/// The logs that a commit has cleared.
pub(super) fn names(history: &History) -> BTreeSet<&str> {
    let commits = history.operations.iter().filter_map(|operation| match &operation.call {
        Call::Commit(changes) => Some(changes),
        _ => None,
    });
    let cleared = commits.flatten().filter_map(|change| match change {
        Change::Clear { log } => Some(log.as_str()),
        _ => None,
    });
    cleared.collect()
}

pub(super) fn check(history: &History, violations: &mut Vec<Violation>) {
    let names = names(history);
    let mut stories: BTreeMap<&str, Story<'_>> = BTreeMap::new();
    for operation in history.operations.iter().filter(|operation| operation.layer == Layer::Store) {
        match (&operation.call, &operation.answer) {
            (Call::Commit(changes), Answer::Applied(_) | Answer::Unknown) => {
                let mut positions = match &operation.answer {
                    Answer::Applied(positions) => positions.iter(),
                    _ => [].iter(),
                };
                let mut texts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
                for change in changes {
                    match change {
                        Change::Append { log, text } => {
                            let at = positions.next();
                            if names.contains(log.as_str()) {
                                texts.entry(log).or_default().push(text);
                                let told = at.map(|at| (operation, text.as_str(), at.as_str()));
                                stories.entry(log).or_default().told.extend(told);
                            }
                        }
                        Change::Clear { log } => stories.entry(log).or_default().clears.push(operation),
                        _ => {}
                    }
                }
                for (log, texts) in texts {
                    let append = Append { operation, texts, by: operation.window().1 };
                    stories.entry(log).or_default().appends.push(append);
                }
            }
            (Call::Read { log, after, limit }, Answer::Records(records)) if names.contains(log.as_str()) => {
                let is_whole = after.is_none() && records.len() < *limit;
                let reading = (operation, is_whole, records.as_slice());
                stories.entry(log).or_default().readings.push(reading);
            }
            _ => {}
        }
    }
    for (name, mut story) in stories {
        places(name, &story, violations);
        for (reading, _, records) in &story.readings {
            for append in &mut story.appends {
                if records.iter().any(|(_, text)| append.texts.contains(&text.as_str())) {
                    append.by = append.by.min(reading.window().1);
                }
            }
        }
        order(name, &story, violations);
        for (reading, whole, records) in &story.readings {
            has_what_it_may(name, &story, reading, records, violations);
            if *whole {
                lacks_what_it_may(name, &story, reading, records, violations);
            }
        }
    }
}

/// A text has one position and a position one text, whoever tells of it, and a reading is in order.
fn places(name: &str, story: &Story<'_>, violations: &mut Vec<Violation>) {
    let (mut positions, mut texts) = (HashMap::new(), HashMap::new());
    let readings = story.readings.iter().flat_map(|(reading, _, records)| {
        records.iter().map(move |(at, text)| (*reading, text.as_str(), at.as_str()))
    });
    for (operation, text, at) in story.told.iter().copied().chain(readings) {
        let (first, there) = *positions.entry(text).or_insert((operation, at));
        let (other, same) = *texts.entry(at).or_insert((operation, text));
        if there != at || same != text {
            let what = format!("{text:?} is in {name} at {at}, and elsewhere, or not alone");
            violations.push(Violation::new(what, [first, other, operation]));
        }
    }
    for (reading, _, records) in &story.readings {
        let at = |record: &(String, String)| record.0.parse::<Position>().ok();
        if !records.is_sorted_by(|one, next| at(one) < at(next)) {
            violations.push(Violation::new(format!("the positions of {name} do not rise"), [*reading]));
        }
    }
}

/// An append that ended before another began has the smaller position, also if the log was cleared in between.
fn order(name: &str, story: &Story<'_>, violations: &mut Vec<Violation>) {
    let mut known: BTreeMap<Position, &Append<'_>> = BTreeMap::new();
    let readings = story.readings.iter().flat_map(|(_, _, records)| records.iter());
    let read = readings.map(|(at, text)| (text.as_str(), at.as_str()));
    for (text, at) in story.told.iter().map(|(_, text, at)| (*text, *at)).chain(read) {
        let append = story.appends.iter().find(|append| append.texts.contains(&text));
        if let (Some(append), Ok(at)) = (append, at.parse()) {
            known.insert(at, append);
        }
    }
    let mut latest: Option<&Append<'_>> = None;
    for append in known.into_values() {
        if let Some(ahead) = latest
            && append.by < ahead.operation.start
        {
            let what = format!("{:?} was in {name} before another began, and stands behind it", append.texts);
            violations.push(Violation::new(what, [append.operation, ahead.operation]));
        }
        if latest.is_none_or(|ahead| ahead.operation.start < append.operation.start) {
            latest = Some(append);
        }
    }
}

/// Somebody has appended every record, and nobody has cleared the log since.
fn has_what_it_may(
    name: &str,
    story: &Story<'_>,
    reading: &Operation,
    records: &[(String, String)],
    violations: &mut Vec<Violation>,
) {
    for (_, text) in records {
        let by = story.appends.iter().find(|append| append.texts.contains(&text.as_str()));
        let Some(append) = by.filter(|append| append.operation.start <= reading.window().1) else {
            let what = format!("{text:?} is in {name}, and nobody can have put it there");
            violations
                .push(Violation::new(what, by.map(|append| append.operation).into_iter().chain([reading])));
            continue;
        };
        let gone = |clear: &&&Operation| append.by < clear.start && clear.window().1 < reading.start;
        if let Some(clear) = story.clears.iter().find(gone) {
            let what = format!("{text:?} is in {name} after it was cleared");
            violations.push(Violation::new(what, [append.operation, *clear, reading]));
        }
    }
}

/// What was there before the reading is in it, unless somebody may have cleared the log; and of a batch all or nothing.
fn lacks_what_it_may(
    name: &str,
    story: &Story<'_>,
    reading: &Operation,
    records: &[(String, String)],
    violations: &mut Vec<Violation>,
) {
    let texts: Vec<&str> = records.iter().map(|(_, text)| text.as_str()).collect();
    for append in &story.appends {
        let first = texts.iter().position(|text| append.texts.contains(text));
        match first {
            Some(first) if !texts[first..].starts_with(&append.texts) => {
                let what = format!("a reading of {name} has {:?} in part, or not together", append.texts);
                violations.push(Violation::new(what, [append.operation, reading]));
            }
            None if append.by < reading.start => {
                let may_be_gone = |clear: &&Operation| {
                    clear.start <= reading.window().1 && clear.window().1 >= append.operation.start
                };
                if !story.clears.iter().any(may_be_gone) {
                    let what =
                        format!("{:?} was in {name}, and a later reading does not have it", append.texts);
                    violations.push(Violation::new(what, [append.operation, reading]));
                }
            }
            _ => {}
        }
    }
}
