//! Bookkeeping in the chat: a fixed grammar, no language model. `docs/chat.md` shows what can be said.
//!
//! ```text
//! text ─▶ normal ─▶ scan ─────▶ pieces: numbers, days, ways to pay, categories, words
//!         one       (amounts,      │
//!         spelling   dates,        ├─▶ setting, delete, edit, recall: a command or a question
//!                    payments)     └─▶ entry: what was paid, or what is missing or wrong
//! ```
//!
//! Every list of words is a file in `data`. All of it is pure: no I/O and no clock. The bot never records what was not said, and
//! asks where it is not sure.

mod amounts;
mod dates;
mod delete;
mod edit;
mod entry;
mod habits;
mod normal;
mod note;
mod numbers;
mod payments;
mod pending;
mod recall;
mod scan;
mod setting;
mod tables;
mod target;

pub use habits::Habits;
pub use note::Note;
pub use pending::{Answer, Pending, PendingByChat, is_cancel, is_payment};
pub use recall::Recall;
pub use target::Target;

use crate::{Moment, Patch};

/// What a text means for the ledger. `Debug` shows none of its words.
#[derive(Clone, PartialEq, Eq)]
pub enum Sentence {
    /// Delete the last transaction, if it is this one.
    Delete(Target),
    /// Change some of its fields, if it is this one.
    Edit(Patch, Target),
    /// An edit or a deletion that cannot be made.
    EditProblem(Problem),
    /// Record what was paid.
    Note(Note),
    /// There is an entry, but not all that it needs, and nothing that is wrong: what is missing may be said next.
    HalfSaid(Pending, Problem),
    /// There is an amount, but something is wrong.
    NoteProblem(Problem),
    /// Read the ledger.
    Recall(Recall),
    /// The way to pay that is not asked for from now on; `None`: it is asked for again.
    SetPayment(Option<String>),
    /// Nothing that concerns the ledger.
    Other,
}

impl std::fmt::Debug for Sentence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Sentence::Delete(_) => f.write_str("Delete"),
            Sentence::Edit(patch, _) => write!(f, "Edit({patch:?})"),
            Sentence::EditProblem(_) => f.write_str("EditProblem"),
            Sentence::Note(note) => write!(f, "{note:?}"),
            Sentence::HalfSaid(pending, _) => write!(f, "HalfSaid({pending:?})"),
            Sentence::NoteProblem(_) => f.write_str("NoteProblem"),
            Sentence::Recall(recall) => write!(f, "Recall({recall:?})"),
            Sentence::SetPayment(payment) => write!(f, "SetPayment({})", payment.is_some()),
            Sentence::Other => f.write_str("Other"),
        }
    }
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

/// Reads `text`, written at `now` by a user with these habits: as a setting, else as a deletion, an edit, a question, entries.
pub fn parse(text: &str, now: Moment, habits: &Habits) -> Sentence {
    let text = normal::normalize(text);
    let command = setting::parse(&text)
        .or_else(|| delete::parse(&text, now, habits))
        .or_else(|| edit::parse(&text, now, habits));
    if let Some(command) = command {
        return command;
    }
    // It is about the last transaction without being an edit, such as a question: there is no new entry in it.
    if edit::names_last_transaction(&text) {
        return Sentence::Other;
    }
    match recall::parse(&text, now) {
        Some(recall) => Sentence::Recall(recall),
        None => entry::parse(&text, now, habits),
    }
}

#[cfg(test)]
mod tests {
    use super::tables::LOOK_UPS;
    use super::*;

    #[test]
    fn the_work_grows_with_a_text_and_not_with_its_square() {
        let now = Moment::from_unix(1_764_397_800).unwrap();
        let work = |text: &str| {
            let before = LOOK_UPS.get();
            let _ = parse(text, now, &Habits::default());
            LOOK_UPS.get() - before
        };
        for word in [
            "了",
            "用",
            "國泰",
            "上",
            "是",
            "改",
            "1",
            "1a",
            "的",
            "午餐",
            "現金",
            "LINE Pay ",
            "早餐50、",
            "一",
            "我",
        ] {
            let text = |chars: usize| format!("午餐{} 120 現金", word.repeat(chars / word.chars().count()));
            let (short, long) = (work(&text(1000)), work(&text(4000)));
            assert!(long < 6 * short, "{word}: {short} look-ups for 1000 characters, {long} for 4000");
        }
    }
}
