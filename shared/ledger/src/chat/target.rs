//! Which entry a correction means: `刪除午餐` means the last transaction only if it is a 午餐.

use std::fmt;

use super::entry::Said;
use super::habits::Habits;
use crate::{Date, Decimal, Entry, Field, Moment};

/// What a text says of the entry that it means; nothing if it means the last transaction whatever that is. `Debug` shows none of
/// it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Target {
    item: Option<String>,
    amount: Option<Decimal>,
    payment: Option<String>,
    category: Option<String>,
    date: Option<Date>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Target(…)")
    }
}

impl Target {
    /// What a text says of it; `None` if it cannot be an entry.
    pub(super) fn read(text: &str, now: Moment, habits: &Habits) -> Option<Target> {
        let said = Said::read(text, now.date(), habits)?;
        let payment = said.payment().transpose().ok()?.map(str::to_owned);
        let target = Target {
            item: Some(said.item).filter(|item| !item.is_empty()),
            amount: said.amount.transpose().ok()?,
            payment,
            category: said.category,
            date: said.date.transpose().ok()?,
        };
        (!target.is_any()).then_some(target)
    }

    /// Whether it is the last transaction, whatever that is.
    pub fn is_any(&self) -> bool {
        *self == Target::default()
    }

    /// Whether `entry` is the one.
    pub(crate) fn is(&self, entry: &Entry) -> bool {
        let is = |field, said: Option<&str>| {
            said.is_none_or(|said| entry.get(field).is_some_and(|there| there.trim() == said))
        };
        let amount = || entry.get(Field::Amount).and_then(|amount| Decimal::parse(&amount).ok());
        let has_item =
            |said: &String| entry.get(Field::Item).is_some_and(|there| there.contains(said.as_str()));
        self.item.as_ref().is_none_or(has_item)
            && self.amount.as_ref().is_none_or(|said| amount().is_some_and(|there| there.is_equal(said)))
            && is(Field::Payment, self.payment.as_deref())
            && is(Field::Category, self.category.as_deref())
            && is(Field::Date, self.date.map(|date| date.to_string()).as_deref())
    }
}
