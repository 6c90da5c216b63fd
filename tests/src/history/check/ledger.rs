//! Ledgers: at the end each month is folded, and held against what the clients were told.
//!
//! Calls with the same key are one *intent*: it has happened once, at the latest when the first of them was told so. A call
//! without a key is an intent of its own, and one that is sent again after a lost reply may happen again before its end; its
//! first request also later, after an erasure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use onetap_ledger::{Entry, Field, Month, Months, Statement};

use super::Violation;
use crate::history::book::{Asked, Told};
use crate::history::event::{Answer, Call, Change};
use crate::history::history::{History, Operation};

/// Whether a name belongs to a ledger, or to the idempotency record of a call for one.
pub(super) fn is_ledgers(name: &str) -> bool {
    name.starts_with("user:") || name.contains(crate::history::book::BOOK_KEY_PART)
}

/// The history without what was asked of the store for ledgers.
pub(super) fn without_ledgers(history: &History) -> History {
    let is_others = |operation: &&Operation| match &operation.call {
        Call::Get(name) | Call::Read { log: name, .. } => !is_ledgers(name),
        Call::Commit(changes) => !changes.iter().any(|change| match change {
            Change::Check { key, .. }
            | Change::Put { key, .. }
            | Change::Delete { key, .. }
            | Change::Newest { key, .. } => is_ledgers(key),
            Change::Append { log, .. } | Change::Clear { log } => is_ledgers(log),
        }),
        _ => true,
    };
    let operations = history.operations.iter().filter(is_others).cloned().collect();
    History { operations, faults: history.faults.clone() }
}

/// What somebody wanted, from its first call on.
struct Intent<'a> {
    calls: Vec<&'a Operation>,
    asked: &'a Asked,
    /// What the first to be told was told.
    told: Option<Told>,
    start: u64,
    /// When it had certainly happened; never, if nobody was told.
    end: u64,
}

impl Intent<'_> {
    /// Whether this certainly was over before the other began.
    fn precedes(&self, other: &Intent<'_>) -> bool {
        self.end < other.start
    }

    /// Whether it was sent under a key, so that the store has a record of it.
    fn is_keyed(&self) -> bool {
        self.calls.iter().any(|call| matches!(&call.call, Call::Ledger { key: Some(_), .. }))
    }

    /// Whether its first request may arrive after an erasure, and then finds nothing, as before it: a PUT without a key.
    fn may_be_late(&self) -> bool {
        matches!(self.asked, Asked::Put { .. }) && !self.is_keyed()
    }

    /// The item of the entry that was changed or deleted.
    fn target(&self) -> Option<String> {
        let told = self.told.as_ref()?;
        item(told.entries.last().or(told.before.as_ref())?)
    }

    fn items(&self) -> Vec<&str> {
        match self.asked {
            Asked::Note(items) => items.iter().map(String::as_str).collect(),
            Asked::Put { item, .. } => vec![item],
            _ => Vec::new(),
        }
    }
}

fn item(entry: &str) -> Option<String> {
    Entry::read(entry)?.get(Field::Item)
}

/// One user's ledger: what was wanted, and what is left.
#[derive(Default)]
struct Ledger<'a> {
    intents: Vec<Intent<'a>>,
    /// By item; more than one if something is wrong.
    entries: BTreeMap<String, Vec<(Month, Entry)>>,
    with_records: BTreeSet<Month>,
    listed: BTreeSet<Month>,
}

pub(super) fn check(history: &History, violations: &mut Vec<Violation>) {
    let mut ledgers: BTreeMap<&str, Ledger<'_>> = BTreeMap::new();
    let mut by_key: HashMap<&str, (&str, usize)> = HashMap::new();
    let mut logs: BTreeMap<&str, &[(String, String)]> = BTreeMap::new();
    let mut lists: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    for operation in &history.operations {
        match (&operation.call, &operation.answer) {
            (Call::Ledger { user, asked, key }, answer) => {
                if *answer == Answer::NotSent {
                    continue;
                }
                let intents = &mut ledgers.entry(user).or_default().intents;
                let n = match key.as_deref().and_then(|key| by_key.get(key)) {
                    Some((_, n)) => *n,
                    None => {
                        let (calls, start) = (Vec::new(), operation.start);
                        intents.push(Intent { calls, asked, told: None, start, end: u64::MAX });
                        intents.len() - 1
                    }
                };
                if let Some(key) = key {
                    by_key.insert(key, (user, n));
                }
                add(&mut intents[n], operation, violations);
            }
            (Call::Read { log, after: None, .. }, Answer::Records(records)) => _ = logs.insert(log, records),
            (Call::Get(key), Answer::Value(value)) => _ = lists.insert(key, value.as_deref()),
            _ => {}
        }
    }
    for (user, mut ledger) in ledgers {
        let name = format!("user:{user}:ledger");
        let list = Months::read(lists.get(name.as_str()).copied().flatten());
        ledger.listed = list.latest_first().collect();
        for (log, records) in &logs {
            let month = log.strip_prefix(&name).and_then(|rest| Month::parse(rest.strip_prefix(':')?));
            let Some(month) = month else { continue };
            if !records.is_empty() {
                ledger.with_records.insert(month);
            }
            let statement = Statement::fold(month, records.iter().map(|(_, text)| text.as_str()));
            for entry in statement.entries() {
                let item = entry.get(Field::Item).unwrap_or_default();
                ledger.entries.entry(item).or_default().push((month, entry.clone()));
            }
        }
        ledger.check(user, violations);
    }
}

/// Adds a call to what it is a part of. Whoever is told, is told the same.
fn add<'a>(intent: &mut Intent<'a>, operation: &'a Operation, violations: &mut Vec<Violation>) {
    intent.calls.push(operation);
    let Answer::Result(told) = &operation.answer else { return };
    let told: Told = serde_json::from_str(told).expect("an answer of the ledger");
    intent.end = intent.end.min(operation.end.unwrap_or(u64::MAX));
    match &intent.told {
        Some(before) if *before != told => {
            let what = "two calls with one key were told different things".to_owned();
            violations.push(Violation::new(what, intent.calls.iter().copied()));
        }
        _ => intent.told = Some(told),
    }
}

impl Ledger<'_> {
    fn check(&self, user: &str, violations: &mut Vec<Violation>) {
        let mut wrong = |what: String, intents: &[&Intent<'_>]| {
            let calls = intents.iter().flat_map(|intent| intent.calls.iter().copied());
            violations.push(Violation::new(format!("in the ledger of {user} {what}"), calls));
        };
        for month in self.with_records.difference(&self.listed) {
            wrong(format!("{month} has records and is not in the list"), &[]);
        }
        let mut unexplained = Vec::new();
        for creation in &self.intents {
            for item in creation.items() {
                match self.entries.get(item).map(Vec::as_slice) {
                    None => {
                        if creation.told.is_some() && !self.is_certainly_gone(creation, item) {
                            unexplained.push((creation, item));
                        }
                    }
                    Some([(month, entry)]) => {
                        let date = entry.get(Field::Date).unwrap_or_default();
                        if !date.starts_with(&month.to_string()) {
                            wrong(format!("{item} of {date} is in {month}"), &[creation]);
                        }
                        self.check_removals(creation, item, &mut wrong);
                        self.check_fields(creation, item, entry, &mut wrong);
                    }
                    Some(_) => wrong(format!("{item} is there twice"), &[creation]),
                }
            }
        }
        // A deletion without an answer takes one entry away.
        let open = self.intents.iter().filter(|it| *it.asked == Asked::Delete && it.told.is_none()).count();
        for (creation, item) in unexplained.iter().skip(open) {
            wrong(format!("{item} was confirmed and is not there"), &[*creation]);
        }
        for item in self.entries.keys() {
            if !self.intents.iter().any(|intent| intent.items().contains(&item.as_str())) {
                wrong(format!("{item} is there, and nobody can have entered it"), &[]);
            }
        }
        self.check_ids(&mut wrong);
    }

    fn asked(&self, asked: &Asked) -> impl Iterator<Item = &Intent<'_>> {
        let kind = std::mem::discriminant(asked);
        self.intents.iter().filter(move |intent| std::mem::discriminant(intent.asked) == kind)
    }

    /// Whether a deletion of it was confirmed, or an erasure may have met it.
    fn is_certainly_gone(&self, creation: &Intent<'_>, item: &str) -> bool {
        let deleted = self.asked(&Asked::Delete).any(|deletion| deletion.target().as_deref() == Some(item));
        deleted || self.asked(&Asked::Erase).any(|erasure| !erasure.precedes(creation))
    }

    /// It is there, and so no confirmed deletion or erasure came after it.
    fn check_removals(
        &self,
        creation: &Intent<'_>,
        item: &str,
        wrong: &mut impl FnMut(String, &[&Intent<'_>]),
    ) {
        // A PUT without a key may put it there again, until its end.
        let is_put = matches!(creation.asked, Asked::Put { .. });
        for deletion in self.asked(&Asked::Delete).filter(|it| it.target().as_deref() == Some(item)) {
            if creation.precedes(deletion) || !is_put {
                wrong(format!("{item} was deleted and is there"), &[creation, deletion]);
            }
        }
        for erasure in self.erasures_after(creation) {
            if !creation.may_be_late() {
                wrong(format!("{item} was erased and is there"), &[creation, erasure]);
            }
        }
    }

    /// The erasures that were confirmed and began after the creation.
    fn erasures_after(&self, creation: &Intent<'_>) -> Vec<&Intent<'_>> {
        self.asked(&Asked::Erase).filter(|it| it.told.is_some() && creation.precedes(it)).collect()
    }

    /// Each field is as somebody left it who was not certainly before another.
    fn check_fields(
        &self,
        creation: &Intent<'_>,
        item: &str,
        entry: &Entry,
        wrong: &mut impl FnMut(String, &[&Intent<'_>]),
    ) {
        let first_date = match creation.asked {
            Asked::Put { date, .. } => date,
            _ => "2025-11-29",
        };
        let remark = (Field::Remark, Asked::Remark(String::new()), "");
        for (field, kind, first) in [remark, (Field::Date, Asked::Date(String::new()), first_date)] {
            let value = entry.get(field).unwrap_or_default();
            let edits: Vec<&Intent<'_>> = self
                .asked(&kind)
                .filter(|it| it.told.is_none() || it.target().as_deref() == Some(item))
                .collect();
            let gave = |intent: &&&Intent<'_>| match intent.asked {
                Asked::Remark(given) | Asked::Date(given) => *given == value,
                _ => value == first,
            };
            let superseded = |writer: &Intent<'_>| {
                edits.iter().any(|later| later.told.is_some() && writer.precedes(later))
            };
            let writers: Vec<&Intent<'_>> = edits.iter().chain([&creation]).filter(gave).copied().collect();
            // A late request brings back what the PUT gave, whatever was edited before the erasure.
            let is_late =
                value == first && creation.may_be_late() && !self.erasures_after(creation).is_empty();
            if writers.iter().all(|writer| superseded(writer)) && !is_late {
                let name = field.name();
                wrong(format!("{item} has the {name} {value:?}, which nobody gave it last"), &edits);
            }
        }
    }

    /// No two entries have one id, unless everything was erased in between.
    fn check_ids(&self, wrong: &mut impl FnMut(String, &[&Intent<'_>])) {
        let mut ids: BTreeMap<String, Vec<(&Intent<'_>, String)>> = BTreeMap::new();
        for intent in self.intents.iter().filter(|intent| !intent.items().is_empty()) {
            for entry in
                intent.told.iter().flat_map(|told| &told.entries).filter_map(|text| Entry::read(text))
            {
                let item = entry.get(Field::Item).unwrap_or_default();
                ids.entry(entry.id().to_owned()).or_default().push((intent, item));
            }
        }
        for (id, given) in ids {
            for pair in given.windows(2).filter(|pair| pair[0].1 != pair[1].1) {
                let (one, other) = (pair[0].0, pair[1].0);
                let erased = self.asked(&Asked::Erase).any(|erasure| {
                    erasure.start < one.end.max(other.end) && erasure.end > one.start.min(other.start)
                });
                if !erased {
                    wrong(format!("the id {id} was given twice"), &[one, other]);
                }
            }
        }
    }
}
