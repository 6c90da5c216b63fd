//! Bookkeeping in the chat: a fixed grammar, no language model.
//!
//! ```text
//! 刪除上一筆                                    delete
//! 修改金額 150 · 上一筆分類改教育                  edit, one field
//! 修改幣別 美金 匯率 31.5                          edit, a currency with its rate
//! 午餐 120 信用卡 · 昨天 計程車 250 現金           record an entry, words in any order
//! 早餐 50、午餐 120、飲料 45 現金                  several entries, which share what only one of them says
//! 書 12.5 美金 匯率 31.5 信用卡                   another currency, with its rate
//! 午餐 100 · 信用卡                              an entry in two messages
//! 最近紀錄 · 本月 · 上個月 · 9月 · 2026-09         read back
//! ```
//!
//! The webhook tries settings before it and places after it.

mod edit;
mod entry;
mod note;
mod pending;
mod recall;
mod tokens;
mod words;

pub use note::Note;
pub use pending::{Pending, Supply, supply};
pub use recall::Recall;

use crate::{Moment, Patch};

/// What a text means for the ledger. `Debug` shows none of its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sentence {
    /// Delete the last transaction.
    Delete,
    /// Change one of its fields, or its currency and rate.
    Edit(Patch),
    /// An edit that cannot be made.
    EditProblem(Problem),
    /// Record what was paid.
    Note(Note),
    /// There is an amount, but not all that an entry needs, and nothing that is wrong: what is missing may be said next. In a
    /// group the text may not be meant for the bot.
    HalfSaid(Pending, Problem),
    /// There is an amount, but something is wrong. In a group the text may not be meant for the bot.
    NoteProblem(Problem),
    /// Read the ledger.
    Recall(Recall),
    /// Nothing that concerns the ledger.
    Other,
}

/// What is wrong with a text, in words for its author. They may quote it, so `Debug` does not show them.
#[derive(Clone, PartialEq, Eq)]
pub struct Problem(pub String);

impl std::fmt::Debug for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Problem(…)")
    }
}

impl From<&str> for Problem {
    fn from(text: &str) -> Problem {
        Problem(text.to_owned())
    }
}

/// Reads `text`, written at `now`: as a deletion, else as an edit, else as a question, else as entries.
pub fn parse(text: &str, now: Moment) -> Sentence {
    let text = words::to_half_width(text);
    let text = text.trim();
    if edit::deletes(text) {
        return Sentence::Delete;
    }
    match edit::parse(text, now) {
        Some(Ok(patch)) => return Sentence::Edit(patch),
        Some(Err(problem)) => return Sentence::EditProblem(problem),
        None => {}
    }
    // It is about the last transaction without being an edit, such as a question: there is no new entry in it.
    if edit::names_last_transaction(text) {
        return Sentence::Other;
    }
    if let Some(recall) = recall::parse(text, now) {
        return Sentence::Recall(recall);
    }
    entry::parse(text, now)
}
