//! Half-said entries: `午餐 100` lacks the way to pay, and `信用卡`, said after it, completes it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::tokens::Segment;
use super::{Sentence, entry, parse, words};
use crate::Moment;

/// The longest text that can name what was bought, in characters. A longer one is a message about something else.
const MAX_ITEM_CHARS: usize = 20;

/// What an entry can lack. The names are those of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Date,
    Item,
    Amount,
    Currency,
    Rate,
    Payment,
}

impl Part {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Part::Date => "日期",
            Part::Item => "品項",
            Part::Amount => "金額",
            Part::Currency => "幣別",
            Part::Rate => "匯率",
            Part::Payment => "付款方式",
        }
    }
}

/// An entry that lacks something, as it was said. `Debug` shows none of its words.
#[derive(Clone, PartialEq, Eq)]
pub struct Pending {
    text: String,
    at: Moment,
    lacks: Vec<Part>,
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("lacks", &self.lacks).finish_non_exhaustive()
    }
}

#[derive(Serialize, Deserialize)]
struct Stored {
    text: String,
    /// In the form of a `交易ID`.
    at: String,
}

impl Pending {
    /// How long it waits for what lacks.
    pub const LIFE: Duration = Duration::from_secs(600);

    /// What `text`, said at `at`, lacks: each part once, however many entries lack it.
    pub(super) fn new(text: &str, at: Moment, mut lacks: Vec<Part>) -> Pending {
        lacks.sort_unstable();
        lacks.dedup();
        Pending { text: text.to_owned(), at, lacks }
    }

    /// Reads the stored value; `None` if it is none.
    pub fn read(stored: &str) -> Option<Pending> {
        let Stored { text, at } = serde_json::from_str(stored).ok()?;
        match parse(&text, Moment::parse_id(&at)?) {
            Sentence::HalfSaid(pending, _) => Some(pending),
            _ => None,
        }
    }

    /// The JSON that is stored.
    pub fn to_json(&self) -> String {
        serde_json::json!({"text": self.text, "at": self.at.id()}).to_string()
    }

    /// Whether only the way to pay lacks.
    pub fn lacks_only_payment(&self) -> bool {
        self.lacks == [Part::Payment]
    }

    /// What was said together with `text`: the entries, or less that lacks. `None` if `text` supplies nothing that lacks, or
    /// says anything else.
    pub fn with(&self, text: &str) -> Option<Sentence> {
        let mut text = words::to_half_width(text).trim().to_owned();
        // `31.5`, to the question for the rate.
        if self.lacks == [Part::Rate] && words::decimal(&text).is_ok() {
            text = format!("匯率 {text}");
        }
        let supplied = supplied(&text, self.at)?;
        if supplied.is_empty() || !supplied.iter().all(|part| self.lacks.contains(part)) {
            return None;
        }
        let both = parse(&format!("{} {text}", self.text), self.at);
        match &both {
            Sentence::Note(_) => Some(both),
            Sentence::HalfSaid(rest, _) if rest.lacks.len() < self.lacks.len() => Some(both),
            _ => None,
        }
    }
}

/// Whether `text` may be what an entry lacks: `Some(true)` if it says nothing but how something was paid or changed,
/// `Some(false)` if it may also name what was bought.
pub fn completes(text: &str, now: Moment) -> Option<bool> {
    let supplied = supplied(&words::to_half_width(text), now)?;
    match &supplied[..] {
        [] => None,
        parts => Some(!parts.contains(&Part::Item)),
    }
}

/// The parts that a text without an amount has; `None` for a text that can complete nothing.
fn supplied(text: &str, now: Moment) -> Option<Vec<Part>> {
    let [text] = entry::split(text)[..] else { return None };
    // `國泰信用卡` is one way to pay. By itself it would be read as a 國泰 that was paid for by card.
    if words::may_be_payment(text) && !text.contains(' ') {
        return Some(vec![Part::Payment]);
    }
    let Segment { item, amount, currency, rate, payment, date } = Segment::parse(text, now.date());
    let wrong_rate = matches!(rate, Some(Err(_)));
    if amount.is_some() || date.is_some() || wrong_rate || item.chars().count() > MAX_ITEM_CHARS {
        return None;
    }
    let parts = [
        (Part::Item, !item.is_empty()),
        (Part::Currency, currency.is_some()),
        (Part::Rate, rate.is_some()),
        (Part::Payment, payment.is_some()),
    ];
    Some(parts.into_iter().filter(|(_, there)| *there).map(|(part, _)| part).collect())
}
