//! Entries: `午餐 120 信用卡`, the words in any order.

use super::note::Draft;
use super::pending::{Part, Pending};
use super::tokens::Segment;
use super::{Note, Problem, Sentence};
use crate::currency::HOME;
use crate::texts::wrong_field;
use crate::{Decimal, Moment, Reason};

/// Signs between two segments. A comma within a number is not one of them.
const SEPARATORS: [char; 6] = ['，', '；', '、', ';', '\n', ','];
const EXAMPLE: &str = "例如：午餐 120 信用卡";

/// The most entries of one text: they are recorded in one commit.
const MAX_ENTRIES: usize = 20;

/// What the text says was paid, or what is missing or wrong; [`Sentence::Other`] if there is no amount in it.
pub(super) fn parse(text: &str, now: Moment) -> Sentence {
    let segments: Vec<Segment> =
        split(text).into_iter().map(|text| Segment::parse(text, now.date())).collect();
    if segments.iter().all(|segment| segment.amount.is_none()) {
        return Sentence::Other;
    }
    let payments = fill_gaps(segments.iter().map(|segment| segment.payment.clone()));
    let rates = fill_gaps(segments.iter().map(|segment| segment.rate.clone()));
    let has_foreign_currency =
        segments.iter().any(|segment| segment.currency.is_some_and(|code| code != HOME));
    let mut date = now.date();
    let (mut drafts, mut problems) = (Vec::new(), Vec::new());
    let (mut missing, mut is_wrong) = (Vec::new(), false);
    for ((segment, payment), rate) in segments.iter().zip(payments).zip(rates) {
        let mut faults = Faults::default();
        // A day holds for the segments after it too.
        if let Some(day) = segment.date {
            date = faults.need(Part::Date, Some(day)).unwrap_or(date);
        }
        // A segment with only a day or a way to pay belongs to the others.
        let belongs_to_others = segment.payment.is_some() || segment.date.is_some();
        if segment.item.is_empty() && segment.amount.is_none() && belongs_to_others && faults.is_empty() {
            continue;
        }
        let item = faults.need(Part::Item, Some(&segment.item).filter(|item| !item.is_empty()).map(Ok));
        let amount = faults.need(Part::Amount, segment.amount.clone());
        let payment = faults.need(Part::Payment, payment.map(Ok));
        let currency = segment.currency.unwrap_or(HOME);
        let rate = match rate {
            Some(_) if currency == HOME && !has_foreign_currency => faults.need(Part::Currency, None),
            _ if currency == HOME => Some(Decimal::one()),
            rate => faults.need(Part::Rate, rate),
        };
        match (item, amount, payment, rate) {
            (Some(item), Some(amount), Some(payment), Some(rate)) if faults.is_empty() => {
                drafts.push(Draft { date, item: item.clone(), amount, currency, rate, payment });
            }
            _ => {
                missing.extend(&faults.missing);
                is_wrong |= !faults.wrong.is_empty();
                problems.push(faults.message(Some(&segment.item).filter(|_| segments.len() > 1)));
            }
        }
    }
    if drafts.len() + problems.len() > MAX_ENTRIES {
        return Sentence::NoteProblem(Problem(format!("一次最多記錄 {MAX_ENTRIES} 筆，請分開輸入")));
    }
    let problem = Problem(problems.join("\n"));
    match problems.is_empty() {
        true => Sentence::Note(Note { now, drafts }),
        false if is_wrong => Sentence::NoteProblem(problem),
        false => Sentence::HalfSaid(Pending::new(text, now, missing), problem),
    }
}

/// What is missing in a segment, and what is wrong.
#[derive(Default)]
struct Faults {
    missing: Vec<Part>,
    wrong: Vec<String>,
}

impl Faults {
    /// The value; a missing or a wrong one is added to the faults.
    fn need<T>(&mut self, part: Part, value: Option<Result<T, Reason>>) -> Option<T> {
        match value {
            Some(Ok(value)) => return Some(value),
            Some(Err(reason)) => self.wrong.push(wrong_field(part.name(), reason)),
            None => self.missing.push(part),
        }
        None
    }

    fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.wrong.is_empty()
    }

    /// The message, which names the item if there is one.
    fn message(self, item: Option<&String>) -> String {
        let which =
            item.filter(|item| !item.is_empty()).map(|item| format!("「{item}」")).unwrap_or_default();
        let names: Vec<&str> = self.missing.iter().map(|part| part.name()).collect();
        let missing = (!names.is_empty()).then(|| format!("缺少{}", names.join("、")));
        let example = missing.as_ref().map(|_| EXAMPLE.to_owned());
        let all: Vec<String> = missing.into_iter().chain(self.wrong).chain(example).collect();
        format!("{which}{}", all.join("，"))
    }
}

/// The segments of a text.
pub(super) fn split(text: &str) -> Vec<&str> {
    let digit = |c: char| c.is_ascii_digit();
    let mut segments = Vec::new();
    let mut begin = 0;
    for (at, c) in text.char_indices().filter(|(_, c)| SEPARATORS.contains(c)) {
        let after = at + c.len_utf8();
        if c == ',' && text[..at].ends_with(digit) && text[after..].starts_with(digit) {
            continue;
        }
        segments.push(&text[begin..at]);
        begin = after;
    }
    segments.push(&text[begin..]);
    segments.into_iter().map(str::trim).filter(|segment| !segment.is_empty()).collect()
}

/// Fills each gap with the next value, or with the previous one if there is no next.
fn fill_gaps<T: Clone>(values: impl Iterator<Item = Option<T>>) -> Vec<Option<T>> {
    let values: Vec<Option<T>> = values.collect();
    let next = |n: usize| values[n..].iter().flatten().next();
    let before = |n: usize| values[..n].iter().flatten().next_back();
    (0..values.len()).map(|n| next(n).or_else(|| before(n)).cloned()).collect()
}
