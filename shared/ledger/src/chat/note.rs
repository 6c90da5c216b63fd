//! What a text says was paid, and the entries that are made of it.

use std::fmt;

use serde_json::Value;

use crate::{Date, Decimal, Entry, Field, Moment, Months};

/// One thing that was paid.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Draft {
    pub(super) date: Date,
    pub(super) item: String,
    pub(super) amount: Decimal,
    pub(super) currency: &'static str,
    pub(super) rate: Decimal,
    pub(super) payment: String,
}

/// What one text says was paid, and when the text was written. `Debug` shows only the number of things.
#[derive(Clone, PartialEq, Eq)]
pub struct Note {
    pub(super) now: Moment,
    pub(super) drafts: Vec<Draft>,
}

impl fmt::Debug for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Note({})", self.drafts.len())
    }
}

impl Note {
    /// The entries, where `previous` is the last transaction so far and `months` has the latest `交易ID`.
    ///
    /// Each gets a `交易ID` of its own: the second in which the text was written or, if that second or a later one was given
    /// before, the second after the latest that was given.
    pub fn entries(&self, previous: Option<&Entry>, months: &Months) -> Vec<Entry> {
        let previous = previous.and_then(|entry| Moment::parse_id(entry.id()));
        let taken = months.latest_id(self.now, previous);
        // After the last second of the year 9999 there is no next one.
        let mut id =
            taken.filter(|taken| *taken >= self.now).and_then(Moment::next_second).unwrap_or(self.now);
        let mut entries = Vec::new();
        for draft in &self.drafts {
            entries.push(self.entry(draft, id));
            id = id.next_second().unwrap_or(id);
        }
        entries
    }

    fn entry(&self, draft: &Draft, id: Moment) -> Entry {
        let field = |field: Field| {
            let text = match field {
                Field::Amount => return (field, draft.amount.as_str().to_owned()),
                Field::Rate => return (field, draft.rate.as_str().to_owned()),
                Field::Intent => "bookkeeping".to_owned(),
                Field::Date => draft.date.to_string(),
                Field::Time => self.now.time(),
                Field::Item => draft.item.clone(),
                Field::Currency => draft.currency.to_owned(),
                Field::Payment => draft.payment.clone(),
                Field::Id => id.id(),
                Field::Category => "其他".to_owned(),
                Field::Project => "日常".to_owned(),
                Field::Necessity => "必要".to_owned(),
                Field::Advance => "無".to_owned(),
                Field::Detail | Field::Party | Field::Remark => String::new(),
            };
            (field, Value::from(text).to_string())
        };
        Entry::from_fields(id.id(), Field::ALL.map(field))
    }
}
