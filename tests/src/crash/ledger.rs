//! The ledger of a user as a run left it: the records of every month, in their order, and the list of months.

use std::collections::{BTreeMap, BTreeSet};

use onetap_ledger::{Book, Config, LedgerRecord, Moment, Month, Months, Statement};
use onetap_store::{Store, read_to_end};
use serde_json::Value;

use super::scenario::masked;

/// What stands for a month that no request names: that of the clock.
const THIS_MONTH: &str = "this month";

/// The ledger of one user. What differs from run to run is general: an entry is told by the number of the place at which
/// it was first recorded, and so two entries with one `交易ID` are told from two entries.
#[derive(Debug)]
pub(super) struct Ledger {
    user: String,
    words: String,
    months: Months,
    records: BTreeMap<Month, Vec<String>>,
    /// In the order of their first record.
    ids: Vec<String>,
}

impl Ledger {
    /// Reads every log that the list names, that a request names in `words`, and that today's entries go to.
    pub(super) async fn read(user: &str, words: &str, store: &dyn Store) -> Ledger {
        let book = Book::new(user, Config::default()).unwrap();
        let months = Months::read(store.get(book.months()).await.unwrap().as_deref());
        let mut records = BTreeMap::new();
        for month in months.latest_first().chain(possible_months(words)) {
            let log = read_to_end(store, &book.log(month).unwrap()).await.unwrap();
            records.insert(month, log.into_iter().map(|record| record.text).collect::<Vec<_>>());
        }
        let mut ids = Vec::new();
        for text in records.values().flatten() {
            let id = LedgerRecord::read(text).expect("a record that can be read").id().to_owned();
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        let ledger = Ledger { user: user.to_owned(), words: words.to_owned(), months, records, ids };
        ledger.assert_listed();
        ledger
    }

    /// A month that is not in the list would be overlooked by an erasure.
    fn assert_listed(&self) {
        let listed: BTreeSet<Month> = self.months.latest_first().collect();
        for (month, records) in &self.records {
            assert!(
                records.is_empty() || listed.contains(month),
                "{month} has records and is not in the list"
            );
            let statement = Statement::fold(*month, records.iter().map(String::as_str));
            assert_eq!(statement.unreadable(), 0, "{month}");
        }
    }

    /// The number of records of all months.
    pub(super) fn count(&self) -> usize {
        self.records.values().map(Vec::len).sum()
    }

    /// Whether a key is one of this user.
    pub(super) fn has(&self, key: &str) -> bool {
        key.strip_prefix("user:")
            .and_then(|rest| rest.strip_prefix(&*self.user))
            .is_some_and(|rest| rest.starts_with(':'))
    }

    /// The number of an entry, or a day that a request names.
    pub(super) fn general(&self, text: &str) -> Option<String> {
        let number = self.ids.iter().position(|id| id == text).map(|n| format!("entry {n}"));
        number.or_else(|| self.words.contains(text).then(|| text.to_owned()))
    }

    /// The records by month, and the months that can be read.
    pub(super) fn seen(&self) -> Vec<(String, Vec<String>)> {
        let general = |text: &String| {
            let json: Value = serde_json::from_str(text).expect("a record is JSON");
            masked(json, Some(self)).to_string()
        };
        let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (month, records) in &self.records {
            let name = format!("{}, {}", self.user, self.month(*month));
            seen.entry(name).or_default().extend(records.iter().map(general));
        }
        let mut listed: Vec<String> = self.months.latest_first().map(|month| self.month(month)).collect();
        listed.dedup();
        seen.insert(format!("{}, months", self.user), listed);
        seen.into_iter().collect()
    }

    fn month(&self, month: Month) -> String {
        let name = month.to_string();
        if self.words.contains(&name) { name } else { THIS_MONTH.to_owned() }
    }
}

/// The months that a request names in `words`, and those that an entry of today can be in, also if the month has just
/// ended.
pub(super) fn possible_months(words: &str) -> Vec<Month> {
    let named = words.char_indices().filter_map(|(at, _)| Month::parse(words.get(at..at + 7)?));
    let now = Month::from(Moment::now().date());
    // `20251129-123000` names no month of the year 1129.
    let named = named.filter(|month| month.year() >= 2000);
    named.chain([now]).chain(now.previous()).collect::<BTreeSet<Month>>().into_iter().collect()
}
