//! Half-said entries: in `午餐 100` the way to pay is missing, and `信用卡`, said after it, completes it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::tokens::Segment;
use super::{Sentence, entry, parse, words};
use crate::Moment;

/// The longest text that can name what was bought, in characters. A longer one is a message about something else.
const MAX_ITEM_CHARS: usize = 20;
/// The longest word that is taken for a way to pay by its ending, in characters.
const MAX_PAYMENT_CHARS: usize = 8;
/// What people also say after they were asked for something.
const NO_ITEMS: [&str; 16] = [
    "取消",
    "算了",
    "不用",
    "不用了",
    "沒事",
    "沒有",
    "謝謝",
    "感謝",
    "好",
    "好的",
    "好喔",
    "是",
    "對",
    "嗯",
    "OK",
    "ok",
];

/// What can be missing in an entry.
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
    /// The word that the bot's messages use.
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

/// An entry in which something is missing, as it was said. `Debug` shows none of its words.
#[derive(Clone, PartialEq, Eq)]
pub struct Pending {
    text: String,
    at: Moment,
    missing: Vec<Part>,
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("missing", &self.missing).finish_non_exhaustive()
    }
}

#[derive(Serialize, Deserialize)]
struct Stored {
    text: String,
    /// In the form of a `交易ID`.
    at: String,
    /// The group or room; none for a chat with the bot alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    chat: Option<String>,
}

impl Pending {
    /// How long it waits for what is missing.
    pub const TTL: Duration = Duration::from_secs(600);

    /// `text`, said at `at`, and what is missing in it: each part once, in however many entries.
    pub(super) fn new(text: &str, at: Moment, mut missing: Vec<Part>) -> Pending {
        missing.sort_unstable();
        missing.dedup();
        Pending { text: text.to_owned(), at, missing }
    }

    /// Reads the stored value; `None` if it is none, or was said in another chat. What is said in one chat is not told in
    /// another.
    pub fn read(stored: &str, chat: Option<&str>) -> Option<Pending> {
        let Stored { text, at, chat: said_in } = serde_json::from_str(stored).ok()?;
        if said_in.as_deref() != chat {
            return None;
        }
        match parse(&text, Moment::parse_id(&at)?) {
            Sentence::HalfSaid(pending, _) => Some(pending),
            _ => None,
        }
    }

    /// The JSON that is stored, if it was said in this chat.
    pub fn to_json(&self, chat: Option<&str>) -> String {
        let stored = Stored { text: self.text.clone(), at: self.at.id(), chat: chat.map(str::to_owned) };
        serde_json::to_string(&stored).unwrap_or_default()
    }

    /// Whether only the way to pay is missing.
    pub fn misses_only_payment(&self) -> bool {
        self.missing == [Part::Payment]
    }

    /// What was said and `text`, read as one: the complete entries, or a half-said entry in which less is missing. `None` if
    /// `text` supplies none of the missing parts, or says anything else.
    pub fn with(&self, text: &str) -> Option<Sentence> {
        let mut text = words::to_half_width(text).trim().to_owned();
        // `31.5`, to the question for the rate.
        if self.missing == [Part::Rate] && words::decimal(&text).is_ok() {
            text = format!("匯率 {text}");
        }
        let supplied = supplied(&text, self.at)?;
        if supplied.is_empty() || !supplied.iter().all(|part| self.missing.contains(part)) {
            return None;
        }
        let both = parse(&format!("{} {text}", self.text), self.at);
        match &both {
            Sentence::Note(_) => Some(both),
            Sentence::HalfSaid(rest, _) if rest.missing.len() < self.missing.len() => Some(both),
            _ => None,
        }
    }
}

/// What a text may supply to a half-said entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supply {
    /// Nothing.
    Nothing,
    /// A known way to pay, a currency or a rate, and nothing else.
    Payment,
    /// Perhaps an amount, the name of what was bought, or of another way to pay: any short text may be one.
    Word,
}

/// What `text` may supply to a half-said entry.
pub fn supply(text: &str, now: Moment) -> Supply {
    let text = words::to_half_width(text);
    match supplied(text.trim(), now).as_deref() {
        None | Some([]) => Supply::Nothing,
        Some(parts) if parts.contains(&Part::Item) || parts.contains(&Part::Amount) => Supply::Word,
        Some([Part::Payment]) if !words::is_payment(text.trim()) => Supply::Word,
        Some(_) => Supply::Payment,
    }
}

/// Whether the text is one word that is a way to pay, or ends like one.
fn is_one_payment(text: &str) -> bool {
    !text.contains(' ') && text.chars().count() <= MAX_PAYMENT_CHARS && words::may_be_payment(text)
}

/// The parts that a text has; `None` for a text that can complete nothing.
fn supplied(text: &str, now: Moment) -> Option<Vec<Part>> {
    let [text] = entry::split(text)[..] else { return None };
    if NO_ITEMS.contains(&text) {
        return None;
    }
    // `國泰信用卡` is one way to pay. By itself it would be read as a 國泰 that was paid for by card.
    if is_one_payment(text) {
        return Some(vec![Part::Payment]);
    }
    let Segment { item, amount, currency, rate, payment, date } = Segment::parse(text, now.date());
    let is_wrong = matches!(rate, Some(Err(_))) || matches!(amount, Some(Err(_)));
    if date.is_some() || is_wrong || item.chars().count() > MAX_ITEM_CHARS {
        return None;
    }
    let parts = [
        (Part::Item, !item.is_empty()),
        (Part::Amount, amount.is_some()),
        (Part::Currency, currency.is_some()),
        (Part::Rate, rate.is_some()),
        (Part::Payment, payment.is_some()),
    ];
    Some(parts.into_iter().filter(|(_, there)| *there).map(|(part, _)| part).collect())
}
