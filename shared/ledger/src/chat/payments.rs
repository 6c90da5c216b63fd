//! Ways to pay in a text: where they stand by themselves, with the words around them.

use super::scan::Scanner;
use super::tables::{TABLES, Table};

/// Before 用 these make another word: 信用, 費用.
const BEFORE_USE: [char; 12] = ['信', '費', '日', '家', '公', '食', '實', '使', '適', '引', '作', '專'];

/// The most words behind a way to pay: 現金付的喔.
const MAX_WORDS_BEHIND: usize = 4;

impl Scanner<'_> {
    /// The way to pay that stands here by itself, and its length.
    pub(super) fn payment(&self) -> Option<(usize, String)> {
        let is_glued_to_words = !self.words.is_empty();
        let begins_with_use = ["用", "刷", "使用"].iter().any(|word| self.begins_with(self.at, word));
        if is_glued_to_words && !begins_with_use && TABLES.items.whole(&self.words).is_none() {
            return None;
        }
        let (len, name) = self.payment_at(self.at)?;
        if is_glued_to_words {
            let is_other = self.words.ends_with(BEFORE_USE);
            // `早餐現金`: an item of the list, and nothing but it.
            let is_item = TABLES.items.whole(&self.words).is_some_and(|category| category == "飲食");
            let is_apart = begins_with_use && !is_other && len > 2 || is_item;
            if !is_apart {
                return None;
            }
        }
        Some((len, name))
    }

    /// The way to pay at `at` with the words around it (`用現金付的`), if a word ends behind it.
    pub(super) fn payment_at(&self, at: usize) -> Option<(usize, String)> {
        let (before, behind) = (&TABLES.words.pay_before, &TABLES.words.pay_behind);
        let plain = self.payment_ending(at, at, behind);
        plain.or_else(|| {
            let word = before.longest(self.text, at)?;
            let gap = usize::from(self.text.get(at + word.len) == Some(&' '));
            self.payment_ending(at, at + word.len + gap, behind)
        })
    }

    fn payment_ending(&self, at: usize, begin: usize, behind: &Table) -> Option<(usize, String)> {
        let (name, len) = self.named_payment(begin)?;
        let mut end = begin + len;
        for _ in 0..MAX_WORDS_BEHIND {
            let Some(word) = behind.longest(self.text, end).filter(|_| !self.is_boundary(end)) else { break };
            end += word.len;
        }
        let is_item = |end: usize| {
            let item = TABLES.items.longest(self.text, end)?;
            (item.len > 1 && self.is_boundary(end + item.len)).then_some(())
        };
        let is_marked = self.begins_with(end, "分類") || self.begins_with(end, "匯率");
        (self.is_boundary(end) || is_item(end).is_some() || is_marked).then(|| (end - at, name))
    }

    /// A way to pay of the list, of a bank, or of the user's own, and its length.
    pub(super) fn named_payment(&self, at: usize) -> Option<(String, usize)> {
        let own = self.habits.own_payment_at(self.text, at).map(|(name, len)| (name.to_owned(), len));
        let listed = TABLES.payments.longest(self.text, at).map(|found| (found.name.to_owned(), found.len));
        let of_bank = TABLES.banks.longest(self.text, at).and_then(|bank| {
            let gap = usize::from(self.text.get(at + bank.len) == Some(&' '));
            let card = TABLES.cards.longest(self.text, at + bank.len + gap)?;
            let len = bank.len + gap + card.len;
            Some((self.text[at..at + len].iter().filter(|c| **c != ' ').collect(), len))
        });
        own.into_iter().chain(listed).chain(of_bank).max_by_key(|(_, len)| *len)
    }
}
