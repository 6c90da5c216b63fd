//! Half-said entries: in `午餐 100` the way to pay is missing, and `信用卡`, said after it, completes it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::entry::Said;
use super::habits::Habits;
use super::normal::normalize;
use super::numbers::numeral;
use super::tables::TABLES;
use super::{Note, Problem, Sentence, Target, entry, parse};
use crate::{Field, Moment, Patch};

/// The longest text that can name what was bought, in characters. A longer one is a message about something else.
const MAX_ITEM_CHARS: usize = 15;
/// The longest word that is taken for a way to pay by its ending, in characters.
const MAX_PAYMENT_CHARS: usize = 8;
/// The most chats of a user in which something is half said.
const MAX_CHATS: usize = 5;
/// Endings of ways to pay that are in no list.
const PAYMENT_ENDS: [&str; 3] = ["卡", "支付", "pay"];

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
    is_edit: bool,
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("missing", &self.missing).finish_non_exhaustive()
    }
}

/// What a user has half said, in each chat. It is one value, so that an erasure finds all of it. `Debug` shows none of its words.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "OneOrMore", into = "OneOrMore")]
pub struct PendingByChat(Vec<Stored>);

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stored {
    text: String,
    /// In the form of a `交易ID`.
    at: String,
    /// The group or room; none for a chat with the bot alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    chat: Option<String>,
    /// Until when it waits, in seconds since 1970. The value lives as long as the youngest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<i64>,
}

/// As it is stored. Most users have one.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(Stored),
    More(Vec<Stored>),
}

impl From<OneOrMore> for PendingByChat {
    fn from(stored: OneOrMore) -> PendingByChat {
        match stored {
            OneOrMore::One(one) => PendingByChat(vec![one]),
            OneOrMore::More(all) => PendingByChat(all),
        }
    }
}

impl From<PendingByChat> for OneOrMore {
    fn from(PendingByChat(mut all): PendingByChat) -> OneOrMore {
        match all.pop() {
            Some(one) if all.is_empty() => OneOrMore::One(one),
            last => OneOrMore::More(all.into_iter().chain(last).collect()),
        }
    }
}

impl PendingByChat {
    /// What was said in this chat and still waits, if it can be read. What is said in one chat is not shown in another.
    pub fn get(&self, chat: Option<&str>, habits: &Habits, now: Moment) -> Option<Pending> {
        let there = self.0.iter().find(|said| said.waits(now) && said.chat.as_deref() == chat)?;
        let (text, at) = (&there.text, Moment::parse_id(&there.at)?);
        let read = |habits: &Habits| match parse(text, at, habits) {
            Sentence::HalfSaid(pending, _) => Some(pending),
            Sentence::Edit(..) => Some(Pending::rate_of_edit(text, at)),
            _ => None,
        };
        // A way to pay that was made the default since completes nothing that was asked for before.
        let mut without_default = habits.clone();
        without_default.set_payment(None);
        read(habits).or_else(|| read(&without_default))
    }

    /// Keeps what was said in this chat, in place of what was said there before.
    pub fn put(&mut self, pending: &Pending, chat: Option<&str>, now: Moment) {
        self.remove(chat, now);
        let until = now.unix().saturating_add_unsigned(PendingByChat::TTL.as_secs());
        let (text, at, chat) = (pending.text.clone(), pending.at.id(), chat.map(str::to_owned));
        self.0.insert(0, Stored { text, at, chat, until: Some(until) });
        self.0.truncate(MAX_CHATS);
    }

    /// Drops what was said in this chat.
    pub fn remove(&mut self, chat: Option<&str>, now: Moment) {
        self.0.retain(|said| said.waits(now) && said.chat.as_deref() != chat);
    }

    /// How long it waits for what is missing.
    pub const TTL: Duration = Duration::from_secs(600);
}

impl fmt::Debug for PendingByChat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PendingByChat({})", self.0.len())
    }
}

impl Stored {
    fn waits(&self, now: Moment) -> bool {
        self.until.is_none_or(|until| now.unix() < until)
    }
}

/// What a text is to a half-said entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It completes the entry.
    Complete(Note),
    /// It completes an edit: the rate of another currency.
    Edit(Patch, Target),
    /// It supplies something, and something is missing still.
    Asks(Pending, Problem),
    /// The entry is not wanted any more.
    Cancelled,
    /// It is about something else.
    Other,
}

impl Pending {
    /// `text`, said at `at`, and what is missing in it: each part once, in however many entries.
    pub(super) fn new(text: &str, at: Moment, mut missing: Vec<Part>) -> Pending {
        missing.sort_unstable();
        missing.dedup();
        Pending { text: text.to_owned(), at, missing, is_edit: false }
    }

    /// The edit `text`, which changes the currency and lacks its rate.
    pub fn rate_of_edit(text: &str, at: Moment) -> Pending {
        Pending { is_edit: true, ..Pending::new(text, at, vec![Part::Rate]) }
    }

    /// What was said.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// When it was said.
    pub fn at(&self) -> Moment {
        self.at
    }

    /// Whether it is an edit that lacks its rate.
    pub fn is_edit(&self) -> bool {
        self.is_edit
    }

    /// What is missing, in words.
    pub fn missing(&self) -> String {
        self.missing.iter().map(|part| part.name()).collect::<Vec<_>>().join("、")
    }

    /// Whether the way to pay is missing.
    pub fn misses_payment(&self) -> bool {
        self.missing.contains(&Part::Payment)
    }

    /// What `text`, said after it, is to it.
    pub fn answer(&self, text: &str, habits: &Habits) -> Answer {
        if is_cancel(text) {
            return Answer::Cancelled;
        }
        let text = normalize(text);
        let word = without_particles(&text);
        if self.missing == [Part::Rate] && is_wrong_rate(word) {
            let problem = "請告訴我匯率：1 單位的外幣等於多少台幣，要大於 0，例如：匯率 31.5";
            return Answer::Asks(self.clone(), Problem::from(problem));
        }
        let Some(whole) = self.supplied(word, habits) else { return Answer::Other };
        match parse(&whole, self.at, habits) {
            Sentence::Note(note) => Answer::Complete(note),
            Sentence::Edit(patch, this) => Answer::Edit(patch, this),
            Sentence::HalfSaid(rest, problem) if rest.missing.len() < self.missing.len() => {
                Answer::Asks(rest, problem)
            }
            _ => Answer::Other,
        }
    }

    /// What was said together with what `text` supplies; `None` if it supplies nothing that is missing, or says anything else.
    fn supplied(&self, text: &str, habits: &Habits) -> Option<String> {
        let misses = |part| self.missing.contains(&part);
        let mut whole = self.text.clone();
        // `31.5`, to the question for the rate.
        let chars: Vec<char> = text.chars().collect();
        let is_number = || numeral(&chars, 0).is_some_and(|number| number.len == chars.len());
        if self.missing == [Part::Rate] && is_number() {
            return Some(format!("{whole} 匯率 {text}"));
        }
        let said = Said::read(text, self.at.date(), habits)?;
        let is_foreign = said.date.is_some() || said.time.is_some() || entry::is_unsaid(text);
        let is_extra = |part: Part, is_there: bool| is_there && !misses(part);
        if is_foreign
            || is_extra(Part::Amount, said.amount.is_some())
            || is_extra(Part::Currency, said.currency.is_some() && said.amount.is_none())
            || is_extra(Part::Rate, said.rate.is_some())
            || is_extra(Part::Payment, !said.payments.is_empty())
        {
            return None;
        }
        let mut item = Some(said.item.as_str()).filter(|item| !item.is_empty());
        let mut payment = said.payment().transpose().ok()?;
        if misses(Part::Payment) && payment.is_none() && item.is_some_and(may_be_payment) {
            payment = item.take();
        }
        if let Some(item) = item {
            if !misses(Part::Item) || !may_be_item(text, item, self.at) {
                return None;
            }
            whole = format!("{item} {whole}");
        }
        if let (Some(Ok(amount)), code) = (&said.amount, said.currency) {
            whole = format!("{whole} {}{}", amount.as_str(), code.unwrap_or("元"));
        }
        if let Some(payment) = payment {
            whole = format!("{whole} 付款方式:{payment}");
        }
        if let Some(rate) = said.rate {
            whole = format!("{whole} 匯率 {}", rate.ok()?.as_str());
        }
        if let Some(category) = said.category {
            whole = format!("{whole} 分類 {category}");
        }
        (whole != self.text).then_some(whole)
    }
}

/// The text without the particles at its end.
fn without_particles(text: &str) -> &str {
    text.trim_end_matches(['。', '!', '~', '.', ',', ' ', '啦', '喔', '哦', '…'])
}

/// Whether a text drops a half-said entry: `算了`, `取消`, `打錯了`.
pub fn is_cancel(text: &str) -> bool {
    TABLES.words.cancel.whole(without_particles(&normalize(text))).is_some()
}

/// Whether a text is a number that no rate can be: zero, less, or a sum of money.
fn is_wrong_rate(text: &str) -> bool {
    let number = text.trim_start_matches("匯率").trim_start_matches([' ', ':', '=']);
    let digits = number.trim_start_matches('-').trim_end_matches(['元', '塊', '圓']);
    let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == '.');
    let is_zero = digits.chars().all(|c| c == '0' || c == '.');
    is_number && (number != digits || is_zero)
}

/// Whether a text that only the store can tell to be an answer is one word that is a way to pay.
pub fn is_payment(text: &str) -> bool {
    let text = normalize(text);
    TABLES.payments.whole(&text).is_some()
}

/// Whether a word ends like a way to pay, and is none of those that people say besides.
fn may_be_payment(word: &str) -> bool {
    let lower = word.to_ascii_lowercase();
    (2..=MAX_PAYMENT_CHARS).contains(&word.chars().count())
        && !word.contains(' ')
        && !word.contains(['或', '和', '跟', '還'])
        && PAYMENT_ENDS.iter().any(|end| lower.ends_with(end))
        && !TABLES.words.chat.is_in(word)
}

/// Whether a text may name what was bought: it is short, and no command, no question and no chat.
fn may_be_item(text: &str, item: &str, now: Moment) -> bool {
    let is_short = |text: &str| text.chars().count() <= MAX_ITEM_CHARS;
    let is_chat = || TABLES.words.chat.is_in(text);
    let is_known = || TABLES.items.has_long_word(text) && !TABLES.words.cancel.is_in(text);
    is_short(text)
        && (!is_chat() || text.starts_with(['看', '我']) && is_known())
        && Field::ALL.iter().all(|field| !item.starts_with(field.name()))
        && matches!(parse(text, now, &Habits::default()), Sentence::Other | Sentence::HalfSaid(..))
        && item.chars().any(char::is_alphanumeric)
}
