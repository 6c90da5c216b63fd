//! The journal: what happened to the entries of a month, one record after the other.

use std::fmt;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::{Date, Entry, Field, Moment, Month};

/// One record of a month's log. `Debug` shows nothing of the entry.
#[derive(Clone, PartialEq, Eq)]
pub enum LedgerRecord {
    /// The entry is this one from now on: `{"op":"put","tx":{…}}`.
    Put(Entry),
    /// The entry with this `交易ID` is gone: `{"op":"delete","交易ID":"…"}`.
    Delete(String),
}

impl fmt::Debug for LedgerRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LedgerRecord::Put(_) => "Put",
            LedgerRecord::Delete(_) => "Delete",
        })
    }
}

impl LedgerRecord {
    /// The `交易ID` of the entry.
    pub fn id(&self) -> &str {
        match self {
            LedgerRecord::Put(entry) => entry.id(),
            LedgerRecord::Delete(id) => id,
        }
    }

    /// The record as it is stored.
    pub fn to_json(&self) -> String {
        match self {
            LedgerRecord::Put(entry) => format!(r#"{{"op":"put","tx":{}}}"#, entry.to_json()),
            LedgerRecord::Delete(id) => format!(r#"{{"op":"delete","交易ID":{}}}"#, Value::from(id.as_str())),
        }
    }

    /// Reads a stored record, whoever wrote it; `None` if it is none.
    pub fn read(text: &str) -> Option<LedgerRecord> {
        #[derive(Deserialize)]
        struct Stored<'a> {
            op: &'a str,
            #[serde(borrow)]
            tx: Option<&'a RawValue>,
            #[serde(rename = "交易ID")]
            id: Option<String>,
        }
        let stored: Stored<'_> = serde_json::from_str(text).ok()?;
        match stored.op {
            "put" => Entry::read(stored.tx?.get()).map(LedgerRecord::Put),
            "delete" => stored.id.map(LedgerRecord::Delete),
            _ => None,
        }
    }
}

/// The records of a change that has made `after` of `before`, each with its month. An entry that has left its month is
/// deleted there.
///
/// An entry of another writer may have neither a date nor a time in its `交易ID`. It belongs to no month, and gets no record.
pub(crate) fn records(before: Option<&Entry>, after: &[Entry]) -> Vec<(Month, LedgerRecord)> {
    // The entry has left its month: it was deleted, or the entry with its id now belongs to another month.
    let has_left = |old: &&Entry| match after.iter().find(|new| new.id() == old.id()) {
        Some(new) => month(new) != month(old),
        None => after.is_empty(),
    };
    let left = before.filter(has_left).into_iter();
    let deleted = left.map(|entry| (month(entry), LedgerRecord::Delete(entry.id().to_owned())));
    let put = after.iter().map(|entry| (month(entry), LedgerRecord::Put(entry.clone())));
    deleted.chain(put).filter_map(|(month, record)| Some((month?, record))).collect()
}

/// The month that an entry belongs to.
pub(crate) fn month(entry: &Entry) -> Option<Month> {
    let date = entry.get(Field::Date).and_then(|date| Date::parse(&date));
    date.or_else(|| Some(Moment::parse_id(entry.id())?.date())).map(Month::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{DINNER, LUNCH};

    fn entry(text: &str) -> Entry {
        Entry::read(text).unwrap()
    }

    fn described(before: Option<&str>, after: &[&str]) -> Vec<String> {
        let after: Vec<Entry> = after.iter().map(|text| entry(text)).collect();
        let records = records(before.map(entry).as_ref(), &after);
        records.iter().map(|(month, record)| format!("{month} {record:?} {}", record.id())).collect()
    }

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        for record in [LedgerRecord::Put(entry(LUNCH)), LedgerRecord::Delete("20251129-143000".into())] {
            assert_eq!(LedgerRecord::read(&record.to_json()), Some(record));
        }
        let json = LedgerRecord::Put(entry(LUNCH)).to_json();
        assert_eq!(json, format!(r#"{{"op":"put","tx":{LUNCH}}}"#));
        assert_eq!(LedgerRecord::Delete("a\"b".into()).to_json(), r#"{"op":"delete","交易ID":"a\"b"}"#);
        for broken in [
            "",
            "{}",
            "[]",
            r#"{"op":"put"}"#,
            r#"{"op":"put","tx":{}}"#,
            r#"{"op":"put","tx":"x"}"#,
            r#"{"op":"delete"}"#,
            r#"{"op":"delete","交易ID":7}"#,
            r#"{"op":"move","交易ID":"a"}"#,
        ] {
            assert_eq!(LedgerRecord::read(broken), None, "{broken}");
        }
    }

    #[test]
    fn an_entry_is_recorded_in_its_month() {
        assert_eq!(
            described(None, &[LUNCH, DINNER]),
            ["2025-11 Put 20251129-143000", "2025-11 Put 20251129-183000"]
        );
        assert_eq!(described(Some(DINNER), &[LUNCH]), ["2025-11 Put 20251129-143000"]);
        assert_eq!(described(Some(LUNCH), &[]), ["2025-11 Delete 20251129-143000"]);
        let moved = LUNCH.replace("2025-11-29", "2024-02-29");
        assert_eq!(
            described(Some(LUNCH), &[&moved]),
            ["2025-11 Delete 20251129-143000", "2024-02 Put 20251129-143000"]
        );
    }

    #[test]
    fn an_entry_without_a_date_belongs_to_the_month_of_its_id() {
        assert_eq!(described(None, &[r#"{"交易ID":"20251129-143000"}"#]), ["2025-11 Put 20251129-143000"]);
        assert_eq!(described(None, &[r#"{"交易ID":"x"}"#]), Vec::<String>::new());
    }
}
