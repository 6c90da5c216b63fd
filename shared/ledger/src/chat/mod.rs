//! Bookkeeping in the chat: a fixed grammar, no model.
//!
//! ```text
//! 刪除上一筆                                    delete
//! 修改金額 150 · 上一筆分類改教育                  edit, one field
//! 午餐 120 信用卡 · 昨天 計程車 250 現金           note, words in any order
//! 早餐 50、午餐 120、飲料 45 現金                  several, which share what only one of them says
//! 書 12.5 美金 匯率 31.5 信用卡                   another currency, with its rate
//! ```
//!
//! Settings come before it and places after it; both are the webhook's.

mod edit;
mod entry;
mod note;
mod part;
mod words;

pub use note::Note;

use crate::{Edit, Moment};

/// What a text says about the ledger. `Debug` shows no words of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sentence {
    /// The last transaction is to go.
    Delete,
    /// One of its fields is to change.
    Edit(Edit),
    /// An edit that cannot be made, and what to answer.
    EditProblem(Answer),
    /// Something was paid.
    Note(Note),
    /// There is an amount, but not all that an entry needs, and what to answer. In a group it may be nothing of ours.
    NoteProblem(Answer),
    /// Nothing about the ledger.
    Other,
}

/// A text for whoever wrote; it may quote them, so `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer(pub String);

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Answer(…)")
    }
}

impl From<&str> for Answer {
    fn from(text: &str) -> Answer {
        Answer(text.to_owned())
    }
}

/// What `text`, written at `now`, says: tried as deleting, then as an edit, then as entries.
pub fn parse(text: &str, now: Moment) -> Sentence {
    let text = words::plain(text);
    let text = text.trim();
    if edit::deletes(text) {
        return Sentence::Delete;
    }
    match edit::parse(text, now) {
        Some(Ok(edit)) => return Sentence::Edit(edit),
        Some(Err(problem)) => return Sentence::EditProblem(problem),
        None => {}
    }
    // It speaks of what was noted before, in a way that is no edit: a question perhaps, but nothing new to note.
    if edit::speaks_of_the_last(text) {
        return Sentence::Other;
    }
    match entry::parse(text, now) {
        Some(Ok(note)) => Sentence::Note(note),
        Some(Err(problem)) => Sentence::NoteProblem(problem),
        None => Sentence::Other,
    }
}
