//! Logs that are not cleared: the last reading is the order in which everything happened, and all else must agree with it.

use std::collections::{BTreeMap, HashMap, HashSet};

use onetap_store::Position;

use super::{Rules, Violation};
use crate::history::event::{Answer, Call, Change, Layer};
use crate::history::history::{History, Operation};

/// Where each record stands, by log and text.
#[derive(Debug, Default)]
pub(super) struct Places(HashMap<String, HashMap<String, String>>);

impl Places {
    pub(super) fn get(&self, log: &str, text: &str) -> Option<&str> {
        self.0.get(log)?.get(text).map(String::as_str)
    }
}

/// A reading: after which position, what it brought, and how much that was at most.
#[derive(Clone, Copy)]
struct Reading<'a> {
    operation: &'a Operation,
    after: Option<&'a str>,
    records: &'a [(String, String)],
    limit: usize,
}

impl Reading<'_> {
    /// Whether there may be more.
    fn is_full(&self) -> bool {
        self.records.len() >= self.limit
    }
}

/// One log and all that was said of it.
#[derive(Default)]
struct Story<'a> {
    /// Each append with its text, and the marker that was to hold its position.
    appends: Vec<(&'a Operation, &'a str, Option<&'a str>)>,
    readings: Vec<Reading<'a>>,
    published: Vec<(&'a Operation, &'a str, &'a str)>,
}

pub(super) fn check(history: &History, rules: &Rules, violations: &mut Vec<Violation>) -> Places {
    let cleared = super::cleared::names(history);
    let mut stories: BTreeMap<&str, Story<'_>> = BTreeMap::new();
    let mut values: HashMap<&str, (&Operation, Option<&str>)> = HashMap::new();
    for operation in &history.operations {
        match (operation.layer, &operation.call, &operation.answer) {
            (Layer::Store, Call::Commit(changes), _) => {
                let marker = changes.iter().find_map(|change| match change {
                    Change::Put { key, value: None, .. } => Some(key.as_str()),
                    _ => None,
                });
                for change in changes {
                    if let Change::Append { log, text } = change {
                        stories.entry(log).or_default().appends.push((operation, text, marker));
                    }
                }
            }
            (_, Call::Read { log, after, limit }, Answer::Records(records)) => {
                let reading = Reading { operation, after: after.as_deref(), records, limit: *limit };
                stories.entry(log).or_default().readings.push(reading);
            }
            (_, Call::Publish { marker, log }, Answer::Result(position)) => {
                stories.entry(log).or_default().published.push((operation, marker, position));
            }
            (_, Call::Get(key), Answer::Value(value)) => {
                values.insert(key, (operation, value.as_deref()));
            }
            _ => {}
        }
    }
    let mut places = Places::default();
    for (name, story) in stories.into_iter().filter(|(name, _)| !cleared.contains(name)) {
        let whole = story.readings.iter().filter(|reading| reading.after.is_none() && !reading.is_full());
        let Some(last) = whole.max_by_key(|reading| reading.operation.start) else {
            let appends = story.appends.iter().map(|(operation, _, _)| *operation);
            violations.push(Violation::new(format!("the log {name} was never read to its end"), appends));
            continue;
        };
        let log = last.records;
        order(name, last.operation, log, violations);
        let windows = appends(name, &story, log, rules, violations);
        readings(name, &story, log, &windows, violations);
        markers(name, &story, log, &values, violations);
        let by_text = log.iter().map(|(position, text)| (text.clone(), position.clone())).collect();
        places.0.insert(name.to_owned(), by_text);
    }
    places
}

fn parsed(position: &str) -> Option<Position> {
    position.parse().ok()
}

/// Positions rise, and nothing is there twice.
fn order(name: &str, reading: &Operation, log: &[(String, String)], violations: &mut Vec<Violation>) {
    let rising = log.windows(2).all(
        |pair| matches!((parsed(&pair[0].0), parsed(&pair[1].0)), (Some(one), Some(next)) if one < next),
    );
    if !rising {
        violations.push(Violation::new(format!("the positions of {name} do not rise"), [reading]));
    }
    let mut texts = HashSet::new();
    for (_, text) in log {
        if !texts.insert(text) {
            violations.push(Violation::new(format!("{text:?} is in {name} twice"), [reading]));
        }
    }
}

/// Since when a text may have been there, since when it certainly was, and who put it there.
type Windows<'a> = HashMap<&'a str, (u64, u64, &'a Operation)>;

/// What was acknowledged is there, what was not done is not, and who came first stands first.
fn appends<'a>(
    name: &str,
    story: &Story<'a>,
    log: &[(String, String)],
    rules: &Rules,
    violations: &mut Vec<Violation>,
) -> Windows<'a> {
    let there: HashMap<&str, &str> = log.iter().map(|(at, text)| (text.as_str(), at.as_str())).collect();
    let mut windows = Windows::new();
    for (operation, text, _) in &story.appends {
        let place = there.get(text).copied();
        let certain = match &operation.answer {
            Answer::Applied(positions) => {
                if place.is_none() || !positions.iter().any(|position| Some(position.as_str()) == place) {
                    let what =
                        format!("{text:?} was acknowledged, and is not in {name} where it was said to be");
                    violations.push(Violation::new(what, [*operation]));
                }
                true
            }
            Answer::Unknown => false,
            // Sent twice, by the store or by its caller, and told of the first.
            Answer::Refused(found) if found.iter().any(|(_, at)| at.is_some() && at.as_deref() == place) => {
                if !rules.resends && !windows.contains_key(text) {
                    continue;
                }
                true
            }
            _ => continue,
        };
        let end = operation.end.filter(|_| certain).unwrap_or(u64::MAX);
        let window = windows.entry(text).or_insert((operation.start, end, operation));
        *window = (window.0.min(operation.start), window.1.min(end), window.2);
    }
    let mut latest_start: Option<(u64, &Operation)> = None;
    for (_, text) in log {
        let Some((start, end, operation)) = windows.get(text.as_str()).copied() else {
            let by = story.appends.iter().filter(|(_, by, _)| by == text).map(|(operation, _, _)| *operation);
            let what = format!("{text:?} is in {name}, and nobody can have put it there");
            violations.push(Violation::new(what, by));
            continue;
        };
        if let Some((before, ahead)) = latest_start
            && end < before
        {
            let what = format!("{text:?} was in {name} before another began, and stands behind it");
            violations.push(Violation::new(what, [operation, ahead]));
        }
        if latest_start.is_none_or(|(before, _)| before < start) {
            latest_start = Some((start, operation));
        }
    }
    windows
}

/// Every reading is a part of the whole, without a hole, as long as it must be and no longer than it can.
fn readings(
    name: &str,
    story: &Story<'_>,
    log: &[(String, String)],
    windows: &Windows<'_>,
    violations: &mut Vec<Violation>,
) {
    for page @ Reading { operation: reading, after, records, limit } in story.readings.iter().copied() {
        let after = after.and_then(parsed);
        let from = log.iter().position(|(at, _)| after.is_none_or(|after| parsed(at) > Some(after)));
        let rest = from.map_or(&[][..], |from| &log[from..]);
        if records.len() > limit || !rest.starts_with(records) {
            let what =
                format!("a reading of {name} is not what stands there: a record is missing or out of place");
            violations.push(Violation::new(what, [reading]));
            continue;
        }
        let window = |text: &str| windows.get(text).map_or((0, u64::MAX), |(start, end, _)| (*start, *end));
        let missed = rest[records.len()..].iter().find(|(_, text)| window(text).1 < reading.start);
        if let Some((_, text)) = missed.filter(|_| !page.is_full()) {
            let what = format!("{text:?} was in {name}, and a later reading does not have it");
            violations.push(Violation::new(what, [reading]));
        }
        let early = records.iter().find(|(_, text)| reading.end.is_some_and(|end| window(text).0 > end));
        if let Some((_, text)) = early {
            let what = format!("{text:?} was read from {name} before anybody began to append it");
            violations.push(Violation::new(what, [reading]));
        }
    }
}

/// A marker has one record and holds its position, and that is what its publishers were told.
fn markers(
    name: &str,
    story: &Story<'_>,
    log: &[(String, String)],
    values: &HashMap<&str, (&Operation, Option<&str>)>,
    violations: &mut Vec<Violation>,
) {
    let mut markers: BTreeMap<&str, HashSet<&str>> = BTreeMap::new();
    for (_, text, marker) in &story.appends {
        if let Some(marker) = marker {
            markers.entry(marker).or_default().insert(text);
        }
    }
    for (marker, texts) in &markers {
        let records: Vec<&str> =
            log.iter().filter(|(_, text)| texts.contains(text.as_str())).map(|(at, _)| at.as_str()).collect();
        let by = || story.appends.iter().filter(|append| append.2 == Some(marker)).map(|append| append.0);
        if records.len() > 1 {
            let what = format!("the marker {marker} has {} records in {name}", records.len());
            violations.push(Violation::new(what, by()));
        }
        if let Some((look, value)) = values.get(marker)
            && *value != records.first().copied()
        {
            let what =
                format!("the marker {marker} holds {value:?}, and its records in {name} are {records:?}");
            violations.push(Violation::new(what, by().chain([*look])));
        }
        for (operation, _, position) in story.published.iter().filter(|(_, by, _)| by == marker) {
            if !records.contains(position) {
                let what = format!("{marker} was published at {position}, and {name} has it at {records:?}");
                violations.push(Violation::new(what, [*operation]));
            }
        }
    }
}
