//! What a text says was paid, and the entries that are made of it.

use std::fmt;

use serde_json::Value;

use crate::{Date, Decimal, Entry, Field, Moment, Months};

/// One thing that was paid.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Draft {
    pub(super) date: Date,
    /// `HH:MM`, if the text says it.
    pub(super) time: Option<String>,
    pub(super) item: String,
    pub(super) amount: Decimal,
    pub(super) currency: &'static str,
    pub(super) rate: Decimal,
    pub(super) payment: String,
    pub(super) category: String,
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
    /// When the text was written.
    pub(crate) fn now(&self) -> Moment {
        self.now
    }

    /// Whether the text says at what time its entry with this number was paid.
    pub(crate) fn says_time(&self, n: usize) -> bool {
        self.drafts.get(n).is_some_and(|draft| draft.time.is_some())
    }

    /// The entries, where `previous` is the last transaction so far and `months` has the ids that were given.
    ///
    /// Each gets a `交易ID` of its own, which no entry had before: the second in which the text was written or, if that second or
    /// one of the day after it was given, the next free second.
    pub fn entries(&self, previous: Option<&Entry>, months: &Months) -> Vec<Entry> {
        let mut given = months.given_ids(self.now);
        // Another program may have written it.
        if let Some(id) = previous.and_then(|entry| Moment::parse_id(entry.id())) {
            given.add(id, self.now);
        }
        let mut entries = Vec::new();
        for draft in &self.drafts {
            let id = given.next(self.now);
            given.add(id, self.now);
            entries.push(self.entry(draft, id));
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
                Field::Time => draft.time.clone().unwrap_or_else(|| self.now.time()),
                Field::Item => draft.item.clone(),
                Field::Currency => draft.currency.to_owned(),
                Field::Payment => draft.payment.clone(),
                Field::Id => id.id(),
                Field::Category => draft.category.clone(),
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
