//! The months that have a log.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{Moment, Month};

/// The value of `user:{user_id}:ledger`: which months have a log, and the latest `交易ID`.
///
/// Every change of the ledger writes it in its own commit. So an erasure, which removes the logs that it names, and a change
/// that comes at the same time are never both unaware of each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Months {
    /// Months with a log.
    pub(crate) with_log: BTreeSet<Month>,
    /// Months whose log was erased, but may still have records that no reader sees.
    pub(crate) erased: BTreeSet<Month>,
    /// The latest `交易ID` that was given. A new entry of the chat gets a later one, also if this one was deleted or has
    /// expired: two entries of a month never have the same.
    pub(crate) last_id: Option<Moment>,
}

impl Months {
    /// Reads the stored value. What cannot be read counts as absent.
    pub fn read(stored: Option<&str>) -> Months {
        let object: Map<String, Value> =
            stored.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let months = |name: &str| {
            let texts = object.get(name).and_then(Value::as_array).into_iter().flatten();
            texts.filter_map(|month| Month::parse(month.as_str()?)).collect()
        };
        let last_id = object.get("last_id").and_then(Value::as_str).and_then(Moment::parse_id);
        Months { with_log: months("months"), erased: months("erased"), last_id }
    }

    /// The months that have a log, the latest first.
    pub fn latest_first(&self) -> impl Iterator<Item = Month> {
        self.with_log.iter().rev().copied()
    }

    /// Adds a month that has a log.
    pub(crate) fn add(&mut self, month: Month) {
        self.with_log.insert(month);
    }

    /// Remembers the `交易ID` of an entry, if it is the latest.
    pub(crate) fn note_id(&mut self, id: &str) {
        self.last_id = self.last_id.max(Moment::parse_id(id));
    }

    /// The JSON that is stored.
    pub fn to_json(&self) -> String {
        let texts = |months: &BTreeSet<Month>| months.iter().map(Month::to_string).collect::<Vec<_>>();
        let mut object = json!({"months": texts(&self.with_log)});
        if !self.erased.is_empty() {
            object["erased"] = texts(&self.erased).into();
        }
        if let Some(id) = self.last_id {
            object["last_id"] = id.id().into();
        }
        object.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_as_it_was_written() {
        let text = r#"{"erased":["2025-12"],"last_id":"20261117-120000","months":["2026-09","2026-11"]}"#;
        let months = Months::read(Some(text));
        assert_eq!(Months::read(Some(&months.to_json())), months);
        assert_eq!(
            months.latest_first().map(|month| month.to_string()).collect::<Vec<_>>(),
            ["2026-11", "2026-09"]
        );
        assert_eq!(Months::default().to_json(), r#"{"months":[]}"#);
    }

    #[test]
    fn what_cannot_be_read_counts_as_absent() {
        for text in ["", "[]", "{", r#"{"months":7,"last_id":"x"}"#, r#"{"months":["2026-13",7]}"#] {
            assert_eq!(Months::read(Some(text)), Months::default(), "{text}");
        }
    }
}
