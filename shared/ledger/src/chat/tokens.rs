//! Parses one segment of a chat message: finds the item, the amount, the currency, the exchange rate, the payment
//! method and the date among its words.

use super::words;
use crate::{Date, Decimal, Reason};

/// The parts of one segment of a chat message.
pub(super) struct Segment {
    pub(super) item: String,
    pub(super) amount: Option<Result<Decimal, Reason>>,
    pub(super) currency: Option<&'static str>,
    pub(super) rate: Option<Result<Decimal, Reason>>,
    pub(super) payment: Option<String>,
    pub(super) date: Option<Result<Date, Reason>>,
}

/// How likely it is that a number is the amount. In `Ord` the smallest is the most likely.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Confidence {
    /// With a currency: `120元`.
    Marked,
    /// By itself: `120`.
    Alone,
    /// At the end of a word: `午餐120`.
    Attached,
}

struct Candidate<'a> {
    confidence: Confidence,
    digits: &'a str,
    /// The index of its token.
    token: usize,
    /// The index at which it is inserted into the words of the item if it is not the amount.
    word: usize,
}

impl Segment {
    pub(super) fn parse(text: &str, today: Date) -> Segment {
        let (text, rate) = without_rate(text);
        let (mut currency, mut date) = (None, None);
        let mut item_words: Vec<String> = Vec::new();
        let mut candidates: Vec<Candidate<'_>> = Vec::new();
        let mut marked = Vec::new();
        let tokens: Vec<&str> = text.split_whitespace().collect();
        let is_number = |n: usize| tokens.get(n).is_some_and(|token| words::decimal(token).is_ok());
        for (n, token) in tokens.iter().copied().enumerate() {
            let neighbour = [n.wrapping_sub(1), n + 1].into_iter().find(|n| is_number(*n));
            // A token that is a date. `push_word` finds one at the beginning of a word. The last date wins.
            if let Some(day) = words::day(token, today) {
                date = Some(day);
            } else if let (Some(("", code)), Some(number)) = (words::leading_currency(token), neighbour) {
                currency = Some(code);
                marked.push(number);
            } else if let (true, Some(word)) = (token.eq_ignore_ascii_case("pay"), item_words.last_mut()) {
                // `Apple Pay` is one word.
                *word = format!("{word} {token}");
            } else if let Some(number) = Number::within(token) {
                currency = number.currency.or(currency);
                push_word(number.before, &mut item_words, &mut date, today);
                let word = item_words.len();
                candidates.push(Candidate {
                    confidence: number.confidence,
                    digits: number.digits,
                    token: n,
                    word,
                });
                push_word(number.after, &mut item_words, &mut date, today);
            } else {
                push_word(token, &mut item_words, &mut date, today);
            }
        }
        for candidate in candidates.iter_mut().filter(|candidate| marked.contains(&candidate.token)) {
            candidate.confidence = Confidence::Marked;
        }
        let amount = choose_amount(&candidates, &mut item_words);
        let payment = take_payment(&mut item_words);
        Segment { item: item_words.join(" "), amount, currency, rate, payment, date }
    }
}

/// Adds a token without an amount to the words of the item. A day at its beginning becomes the date instead.
fn push_word(word: &str, item_words: &mut Vec<String>, date: &mut Option<Result<Date, Reason>>, today: Date) {
    let word = word.trim_matches(['。', '！', '!', '？', '?', '：', ':', '～']);
    match words::leading_day(word) {
        _ if word.is_empty() => {}
        Some((ago, rest)) => {
            *date = today.days_ago(ago).map(Ok);
            push_word(rest, item_words, date, today);
        }
        None => item_words.push(word.to_owned()),
    }
}

/// Takes the most likely number as the amount; the others are words of the item (`iPhone 15 30000元`).
fn choose_amount(
    candidates: &[Candidate<'_>],
    item_words: &mut Vec<String>,
) -> Option<Result<Decimal, Reason>> {
    let best = candidates.iter().map(|candidate| candidate.confidence).min()?;
    let (amounts, others): (Vec<_>, Vec<_>) =
        candidates.iter().partition(|candidate| candidate.confidence == best);
    // From the last to the first, so that the indexes of the others stay valid.
    for other in others.iter().rev() {
        item_words.insert(other.word.min(item_words.len()), other.digits.to_owned());
    }
    let [amount] = amounts[..] else { return Some(Err("不只一個，請在金額後加上「元」")) };
    let amount = words::decimal(amount.digits);
    Some(amount.and_then(|amount| if amount.is_negative() { Err("不可為負數") } else { Ok(amount) }))
}

/// Removes the payment method from the words: the last word that is a known payment method (in `悠遊卡 100 現金` the card is
/// the item); otherwise the last word with the ending of one, unless it is the only word; otherwise the end of the only
/// word.
fn take_payment(item_words: &mut Vec<String>) -> Option<String> {
    let listed = item_words.iter().rposition(|word| words::is_payment(word));
    let likely = || item_words.iter().rposition(|word| item_words.len() > 1 && words::may_be_payment(word));
    if let Some(n) = listed.or_else(likely) {
        return Some(item_words.remove(n));
    }
    let [only] = &mut item_words[..] else { return None };
    let (item, payment) = words::split_payment(only)?;
    let payment = payment.to_owned();
    *only = item.to_owned();
    Some(payment)
}

/// A token with a number in it that may be an amount.
struct Number<'a> {
    confidence: Confidence,
    before: &'a str,
    digits: &'a str,
    after: &'a str,
    currency: Option<&'static str>,
}

impl Number<'_> {
    fn within(token: &str) -> Option<Number<'_>> {
        let first = token.find(|c: char| c.is_ascii_digit())?;
        let begin = token[..first]
            .rfind(|c| c != '-' && c != '+' && c != '.')
            .map_or(0, |at| at + token[at..].chars().next().map_or(0, char::len_utf8));
        let length = token[first..].find(|c: char| !c.is_ascii_digit() && c != ',' && c != '.');
        let end = length.map_or(token.len(), |length| first + length);
        let digits = token[begin..end].trim_end_matches([',', '.']);
        let (before, after) = (&token[..begin], &token[end..]);
        // `7-11`, `12:30` and digits after a leading zero (such as a telephone number) are no amounts.
        let whole = digits.trim_start_matches(['-', '+']);
        if after.contains(|c: char| c.is_ascii_digit())
            || whole.starts_with('0') && whole[1..].starts_with(|c: char| c.is_ascii_digit())
        {
            return None;
        }
        let (before, prefixed) =
            words::trailing_currency(before).map_or((before, None), |(rest, c)| (rest, Some(c)));
        let (after, suffixed) =
            words::leading_currency(after).map_or((after, None), |(rest, c)| (rest, Some(c)));
        let currency = match (prefixed, suffixed) {
            // `$12美金`: many currencies use the sign.
            (Some("TWD"), Some(code)) => Some(code),
            (code, other) => code.or(other),
        };
        let confidence = match (currency, before, after) {
            (Some(_), ..) => Confidence::Marked,
            (None, "", "") => Confidence::Alone,
            // `85度C` and `3點` are no amounts, `午餐120` and `午餐120現金` are; `iPhone15` is a name.
            (None, before, after)
                if !before.is_empty()
                    && !before.ends_with(|c: char| c.is_ascii_alphanumeric())
                    && (after.is_empty() || words::is_payment(after)) =>
            {
                Confidence::Attached
            }
            (None, "", after) if words::is_payment(after) => Confidence::Attached,
            _ => return None,
        };
        Some(Number { confidence, before, digits, after, currency })
    }
}

/// The text without `匯率 31.5`, and the rate.
fn without_rate(text: &str) -> (String, Option<Result<Decimal, Reason>>) {
    let Some((before, after)) = text.split_once("匯率") else { return (text.to_owned(), None) };
    let after = after.trim_start_matches([' ', ':', '：', '=', '為', '是']);
    let end =
        after.find(|c: char| !c.is_ascii_digit() && !['.', ',', '-'].contains(&c)).unwrap_or(after.len());
    let (digits, after) = after.split_at(end);
    let rate = words::decimal(digits)
        .and_then(|rate| if rate.is_negative() || rate.is_zero() { Err("必須大於 0") } else { Ok(rate) });
    (format!("{before} {after}"), Some(rate))
}
