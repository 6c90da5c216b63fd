//! What the bot remembers of a user: how the user pays, and what the user calls an item. It is kept in the user's profile.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::tables::TABLES;
use crate::{Entry, Field, Patch};

/// The most ways to pay, names and items that are remembered. The oldest is forgotten first.
const MAX_USUAL: usize = 4;
const MAX_OWN: usize = 10;
const MAX_ITEMS: usize = 50;
/// The longest name that is remembered, in characters.
const MAX_NAME_CHARS: usize = 20;
/// The ways to pay that a user without habits is offered.
const OFFERED: [&str; 5] = ["現金", "信用卡", "悠遊卡", "LINE Pay", "轉帳"];

/// The habits of a user. `Debug` shows none of them.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Habits {
    /// The way to pay that is not asked for: `設定付款 現金`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payment: Option<String>,
    /// The ways to pay that were used, the latest new one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    usual: Vec<String>,
    /// Ways to pay that are in no list: the user has named them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    own: Vec<String>,
    /// Items, each with the category that the user gave it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    items: Vec<(String, String)>,
}

impl fmt::Debug for Habits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Habits(…)")
    }
}

impl Habits {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Habits::default()
    }

    /// The way to pay that is not asked for.
    pub fn payment(&self) -> Option<&str> {
        self.payment.as_deref()
    }

    /// Remembers the way to pay that is not asked for; `None` forgets it.
    pub fn set_payment(&mut self, payment: Option<&str>) {
        self.payment = payment.map(str::to_owned);
        if let Some(payment) = payment {
            self.name_payment(payment);
        }
    }

    /// The ways to pay that a question offers: the user's, then the common ones.
    pub fn offered(&self) -> impl Iterator<Item = &str> {
        let usual = self.usual.iter().map(String::as_str);
        let common = OFFERED.into_iter().filter(|name| !self.usual.iter().any(|usual| usual == name));
        usual.chain(common).take(OFFERED.len() + 1)
    }

    /// The longest of the user's own names that the text begins with at `at`, and its length.
    pub(super) fn own_payment_at(&self, text: &[char], at: usize) -> Option<(&str, usize)> {
        let begins = |own: &&String| {
            let mut there = text.get(at..).unwrap_or_default().iter();
            own.chars().all(|c| there.next().is_some_and(|there| there.eq_ignore_ascii_case(&c)))
        };
        let longest = self.own.iter().filter(begins).max_by_key(|own| own.len())?;
        Some((longest, longest.chars().count()))
    }

    /// The category that the user gave this item.
    pub(super) fn category(&self, item: &str) -> Option<&str> {
        self.items.iter().find(|(known, _)| known == item).map(|(_, category)| category.as_str())
    }

    /// Remembers how these new entries were paid.
    pub fn after_entries(&mut self, entries: &[Entry]) {
        for payment in entries.iter().filter_map(|entry| entry.get(Field::Payment)) {
            if !self.usual.contains(&payment) && is_short(&payment) {
                put_first(&mut self.usual, payment, MAX_USUAL);
            }
        }
    }

    /// Remembers what an edit has named: a way to pay, or the category of an item.
    pub fn after_edit(&mut self, patch: &Patch, edited: &Entry) {
        let changes = |field| patch.fields().any(|changed| changed == field);
        let text = |field| edited.get(field).filter(|text| is_short(text));
        if let Some(payment) = text(Field::Payment).filter(|_| changes(Field::Payment)) {
            self.name_payment(&payment);
        }
        if let (true, Some(item), Some(category)) =
            (changes(Field::Category), text(Field::Item), text(Field::Category))
        {
            self.items.retain(|(known, _)| *known != item);
            put_first(&mut self.items, (item, category), MAX_ITEMS);
        }
    }

    fn name_payment(&mut self, payment: &str) {
        let is_own = self.own.iter().any(|own| own.eq_ignore_ascii_case(payment));
        let is_known = is_own || TABLES.payments.whole(payment).is_some();
        // A word that means something else would be taken for a way to pay from then on.
        let is_other = TABLES.items.whole(payment).is_some() || TABLES.units.whole(payment).is_some();
        let is_name = payment.chars().count() > 1 && !payment.contains(|c: char| c.is_ascii_digit());
        if !is_known && !is_other && is_name && is_short(payment) {
            put_first(&mut self.own, payment.to_owned(), MAX_OWN);
        }
    }
}

fn is_short(text: &str) -> bool {
    text.chars().count() <= MAX_NAME_CHARS
}

fn put_first<T>(list: &mut Vec<T>, new: T, longest: usize) {
    list.insert(0, new);
    list.truncate(longest);
}
