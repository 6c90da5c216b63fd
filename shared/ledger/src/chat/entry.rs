//! Entries: `午餐 120 信用卡`, the words in any order.

use super::note::Draft;
use super::part::Part;
use super::{Answer, Note};
use crate::texts::wrong_field;
use crate::{Decimal, Moment, Reason};

/// Between two things that were paid. A comma within a number is none.
const SEPARATORS: [char; 6] = ['，', '；', '、', ';', '\n', ','];
const EXAMPLE: &str = "例如：午餐 120 信用卡";
const HOME: &str = "TWD";

/// What the text says was paid, or what it lacks to say so; `None` if there is no amount in it.
pub(super) fn parse(text: &str, now: Moment) -> Option<Result<Note, Answer>> {
    let parts: Vec<Part> = split(text).into_iter().map(|text| Part::read(text, now.date())).collect();
    if parts.iter().all(|part| part.amount.is_none()) {
        return None;
    }
    let payments = shared(parts.iter().map(|part| part.payment.clone()));
    let rates = shared(parts.iter().map(|part| part.rate.clone()));
    let abroad = parts.iter().any(|part| part.currency.is_some_and(|code| code != HOME));
    let mut date = now.date();
    let (mut drafts, mut problems) = (Vec::new(), Vec::new());
    for ((part, payment), rate) in parts.iter().zip(payments).zip(rates) {
        let mut faults = Faults::default();
        // Once said, a day holds for what follows.
        if let Some(said) = part.date {
            date = faults.need("日期", Some(said)).unwrap_or(date);
        }
        // A part that only says when or how belongs to the others.
        let aside = part.payment.is_some() || part.date.is_some();
        if part.item.is_empty() && part.amount.is_none() && aside && faults.is_none() {
            continue;
        }
        let item = faults.need("品項", Some(&part.item).filter(|item| !item.is_empty()).map(Ok));
        let amount = faults.need("金額", part.amount.clone());
        let payment = faults.need("付款方式", payment.map(Ok));
        let currency = part.currency.unwrap_or(HOME);
        let rate = match rate {
            Some(_) if currency == HOME && !abroad => faults.need("幣別", None),
            _ if currency == HOME => Some(Decimal::one()),
            rate => faults.need("匯率", rate),
        };
        match (item, amount, payment, rate) {
            (Some(item), Some(amount), Some(payment), Some(rate)) if faults.is_none() => {
                drafts.push(Draft { date, item: item.clone(), amount, currency, rate, payment });
            }
            _ => problems.push(faults.told(Some(&part.item).filter(|_| parts.len() > 1))),
        }
    }
    Some(if problems.is_empty() { Ok(Note { now, drafts }) } else { Err(Answer(problems.join("\n"))) })
}

/// What a part lacks, and what is wrong with the rest of it.
#[derive(Default)]
struct Faults {
    lacks: Vec<&'static str>,
    wrong: Vec<String>,
}

impl Faults {
    /// The value; if there is none, or a wrong one, that is noted.
    fn need<T>(&mut self, name: &'static str, value: Option<Result<T, Reason>>) -> Option<T> {
        match value {
            Some(Ok(value)) => return Some(value),
            Some(Err(reason)) => self.wrong.push(wrong_field(name, reason)),
            None => self.lacks.push(name),
        }
        None
    }

    fn is_none(&self) -> bool {
        self.lacks.is_empty() && self.wrong.is_empty()
    }

    /// What to say; of one part among several, also of which.
    fn told(self, item: Option<&String>) -> String {
        let which =
            item.filter(|item| !item.is_empty()).map(|item| format!("「{item}」")).unwrap_or_default();
        let lacks = (!self.lacks.is_empty()).then(|| format!("缺少{}", self.lacks.join("、")));
        let example = lacks.as_ref().map(|_| EXAMPLE.to_owned());
        let all: Vec<String> = lacks.into_iter().chain(self.wrong).chain(example).collect();
        format!("{which}{}", all.join("，"))
    }
}

/// The parts of a text.
fn split(text: &str) -> Vec<&str> {
    let digit = |c: char| c.is_ascii_digit();
    let mut parts = Vec::new();
    let mut begin = 0;
    for (at, c) in text.char_indices().filter(|(_, c)| SEPARATORS.contains(c)) {
        let after = at + c.len_utf8();
        if c == ',' && text[..at].ends_with(digit) && text[after..].starts_with(digit) {
            continue;
        }
        parts.push(&text[begin..at]);
        begin = after;
    }
    parts.push(&text[begin..]);
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// Gives each part that says nothing what the next one says, else the one before.
fn shared<T: Clone>(said: impl Iterator<Item = Option<T>>) -> Vec<Option<T>> {
    let said: Vec<Option<T>> = said.collect();
    let next = |n: usize| said[n..].iter().flatten().next();
    let before = |n: usize| said[..n].iter().flatten().next_back();
    (0..said.len()).map(|n| next(n).or_else(|| before(n)).cloned()).collect()
}
