//! Reads a text from left to right into its pieces: numbers, days, ways to pay, categories, and the words between them.

use super::dates::{day, starts_with, time};
use super::habits::Habits;
use super::numbers::{count, numeral};
use super::tables::{CATEGORIES, Match, TABLES};
use crate::{Date, Decimal, Reason};

/// A piece of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) kind: Kind,
    /// Nothing stands between it and the piece before it.
    pub(super) is_glued: bool,
}

impl Piece {
    pub(super) fn is_break(&self) -> bool {
        matches!(self.kind, Kind::Break(_))
    }
}

/// What a piece is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Words of an item, or of something that is not understood.
    Words(String),
    /// A number that may be an amount.
    Number(Number),
    Date(Result<Date, Reason>),
    Time(Option<String>),
    /// A way to pay: the name that is stored, and what was written.
    Payment(String, String),
    /// What `分類` names.
    Category(String),
    /// What `匯率` names.
    Rate(Result<Decimal, Reason>),
    /// A sign between two entries, or between the parts of one.
    Break(char),
}

/// A number that may be an amount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Number {
    /// The text of it, for an item that it turns out to belong to.
    pub(super) text: String,
    pub(super) value: Result<Decimal, Reason>,
    pub(super) currency: Option<&'static str>,
    /// It follows a word of letters: `iPhone 15`.
    pub(super) follows_letters: bool,
    /// It follows a word that often has a number: `公車 307`.
    pub(super) follows_numbered: bool,
}

/// Signs that end a part of a text.
const BREAKS: [char; 8] = ['、', '。', ',', ';', '!', '?', '\n', '｡'];
/// Signs that mean no more than a blank.
const BLANKS: [char; 13] = ['~', '…', '=', ':', '(', ')', '"', '\'', '·', '|', '_', '•', '→'];
const NO_RATE: Reason = "必須是數字";

/// The pieces of a normalized text.
pub(super) fn scan(text: &str, today: Date, habits: &Habits) -> Vec<Piece> {
    let chars: Vec<char> = text.chars().collect();
    let mut scanner = Scanner {
        text: &chars,
        at: 0,
        today,
        habits,
        pieces: Vec::new(),
        words: String::new(),
        is_glued: false,
    };
    while scanner.at < chars.len() {
        scanner.step();
    }
    scanner.end_words();
    scanner.pieces
}

pub(super) struct Scanner<'a> {
    pub(super) text: &'a [char],
    pub(super) at: usize,
    today: Date,
    pub(super) habits: &'a Habits,
    pub(super) pieces: Vec<Piece>,
    /// The words that are being read.
    pub(super) words: String,
    /// Whether the next piece is glued to the one before it.
    pub(super) is_glued: bool,
}

impl Scanner<'_> {
    fn step(&mut self) {
        let c = self.text[self.at];
        if c.is_whitespace() && c != '\n' || BLANKS.contains(&c) && !self.is_clock(c) {
            self.end_words();
            self.is_glued = false;
            self.at += 1;
        } else if BREAKS.contains(&c) {
            self.push(1, Kind::Break(c));
            self.is_glued = false;
        } else {
            let name = TABLES.names.longest(self.text, self.at);
            let item = TABLES.items.longest(self.text, self.at);
            let marked = if name.is_none() { self.marked() } else { None };
            let name = name.filter(|_| !self.is_in_number());
            let found = marked.or_else(|| if name.is_none() { self.fact(item) } else { None });
            match found {
                Some((len, kind)) => self.push(len, kind),
                None => {
                    let len = self.word(name, item);
                    self.words.extend(&self.text[self.at..self.at + len]);
                    self.at += len;
                }
            }
        }
    }

    /// `12:30` is no pair of words.
    fn is_clock(&self, c: char) -> bool {
        let is_digit =
            |at: Option<usize>| at.and_then(|at| self.text.get(at)).is_some_and(char::is_ascii_digit);
        c == ':' && is_digit(self.at.checked_sub(1)) && is_digit(Some(self.at + 1)) && self.words.is_empty()
    }

    fn push(&mut self, len: usize, kind: Kind) {
        self.end_words();
        self.pieces.push(Piece { kind, is_glued: self.is_glued });
        self.is_glued = true;
        self.at += len;
    }

    fn end_words(&mut self) {
        if !self.words.is_empty() {
            let kind = Kind::Words(std::mem::take(&mut self.words));
            self.pieces.push(Piece { kind, is_glued: self.is_glued });
            self.is_glued = true;
        }
    }

    /// `分類 教育`, `匯率 31.5`, `付款方式：現金`.
    fn marked(&self) -> Option<(usize, Kind)> {
        let after = |word: &str| {
            let len = word.chars().count();
            self.begins_with(self.at, word).then(|| {
                let is_link = |c: &char| [' ', ':', '=', '是', '為'].contains(c);
                self.at + len + count(self.text, self.at + len, is_link)
            })
        };
        if let Some(at) = after("分類") {
            let known = CATEGORIES.iter().find(|name| self.begins_with(at, name));
            let name = known.map_or_else(|| self.chunk(at), |name| (*name).to_owned());
            let len = at + name.chars().count() - self.at;
            return (!name.is_empty()).then_some((len, Kind::Category(name)));
        }
        if let Some(at) = after("匯率") {
            let sign = usize::from(self.text.get(at) == Some(&'-'));
            let Some(number) = numeral(self.text, at + sign).filter(|number| !number.is_chinese) else {
                return (at >= self.text.len() || self.text[at - 1] == ' ')
                    .then_some((at - self.at, Kind::Rate(Err(NO_RATE))));
            };
            let rate = number.value.and_then(|rate| match rate.is_zero() || sign > 0 {
                true => Err("必須大於 0"),
                false => Ok(rate),
            });
            return Some((at + sign + number.len - self.at, Kind::Rate(rate)));
        }
        if let Some(at) = after("付款方式").filter(|at| self.text.get(at - 1) == Some(&':')) {
            let (chunk, named) = (self.chunk(at), self.named_payment(at));
            let (name, len) = match named.filter(|(_, len)| self.is_boundary(at + len)) {
                Some((name, len)) => (name, len),
                None => (chunk.clone(), chunk.chars().count()),
            };
            return (len > 0).then_some((at + len - self.at, Kind::Payment(name.clone(), name)));
        }
        None
    }

    /// A day, a time, a number or a way to pay, unless the item that begins here is longer.
    fn fact(&self, item: Option<Match>) -> Option<(usize, Kind)> {
        let item = item.filter(|item| item.len > 1);
        let is_start = self.words.is_empty();
        // `午餐前天`, `我週五`
        let is_word = |words: &str| TABLES.items.whole(words).or(TABLES.words.before.whole(words)).is_some();
        let is_after_word = is_start || is_word(&self.words);
        if let Some((len, time)) = time(self.text, self.at).filter(|(_, time)| is_start || time.is_none()) {
            return Some((len, Kind::Time(time)));
        }
        if let Some(found) = day(self.text, self.at, (is_start, is_after_word), self.today)
            && item.is_none_or(|item| item.len <= found.len)
        {
            return Some((found.len, Kind::Date(found.date)));
        }
        if item.is_none()
            && let Some((len, number)) = self.number()
        {
            return Some((len, Kind::Number(number)));
        }
        let (len, name) = self.payment()?;
        item.is_none_or(|item| item.len <= len).then(|| {
            let said = self.text[self.at..self.at + len].iter().collect();
            (len, Kind::Payment(name, said))
        })
    }

    /// How many characters belong together as words: a name, an item, letters with their digits, or one character.
    fn word(&self, name: Option<Match>, item: Option<Match>) -> usize {
        if let Some(len) = self.fraction() {
            return len;
        }
        let letters = match self.text[self.at].is_ascii_alphanumeric() {
            true => count(self.text, self.at, |c| c.is_ascii_alphanumeric() || *c == '%'),
            // No part of a run of Chinese digits is a number.
            false => numeral(self.text, self.at).map_or(1, |run| run.len),
        };
        [name, item].into_iter().flatten().map(|found| found.len).fold(letters, usize::max)
    }

    pub(super) fn is_in_number(&self) -> bool {
        let is_digit = |at: usize| self.text.get(at).is_some_and(char::is_ascii_digit);
        self.at > 0 && is_digit(self.at) && is_digit(self.at - 1)
    }

    pub(super) fn begins_with(&self, at: usize, word: &str) -> bool {
        starts_with(self.text, at, word)
    }

    /// The characters from `at` on to the next blank or sign.
    fn chunk(&self, at: usize) -> String {
        let is_end = |c: &char| c.is_whitespace() || BREAKS.contains(c) || BLANKS.contains(c);
        self.text.get(at..).unwrap_or_default().iter().take_while(|c| !is_end(c)).collect()
    }

    /// Whether words end before `at`.
    pub(super) fn is_boundary(&self, at: usize) -> bool {
        self.text.get(at).is_none_or(|c| {
            c.is_whitespace() || BREAKS.contains(c) || BLANKS.contains(c) || c.is_ascii_digit() || *c == '-'
        })
    }
}
