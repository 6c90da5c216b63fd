//! The words that the grammar knows, and the ways in which people write numbers and days.

use std::str::FromStr;

use crate::currency;
use crate::{Date, Decimal, Field, Moment, Reason};

/// Ways to pay.
const PAYMENTS: [&str; 34] = [
    "現金",
    "信用卡",
    "刷卡",
    "簽帳金融卡",
    "簽帳卡",
    "金融卡",
    "提款卡",
    "儲值卡",
    "悠遊卡",
    "悠遊付",
    "一卡通",
    "愛金卡",
    "iCash",
    "銀行轉帳",
    "轉帳",
    "匯款",
    "支票",
    "電子支付",
    "行動支付",
    "街口支付",
    "街口",
    "全支付",
    "全盈支付",
    "支付寶",
    "微信支付",
    "台灣Pay",
    "LINE Pay",
    "LINEPay",
    "Apple Pay",
    "ApplePay",
    "Google Pay",
    "GooglePay",
    "PayPal",
    "點數",
];

/// Endings of ways to pay that are not in the list: `國泰信用卡`, `橘子支付`.
const PAYMENT_ENDS: [&str; 3] = ["卡", "支付", "pay"];

/// Words for days, with how many days ago they were.
const DAYS: [(&str, u16); 7] =
    [("今天", 0), ("今日", 0), ("剛剛", 0), ("剛才", 0), ("昨天", 1), ("昨日", 1), ("前天", 2)];

/// The text with full-width digits, letters and signs made half-width.
pub(super) fn to_half_width(text: &str) -> String {
    let half_width = |c: char| match c {
        '０'..='９' | 'Ａ'..='Ｚ' | 'ａ'..='ｚ' | '＄' | '＋' | '－' | '．' | '／' => {
            char::from_u32(u32::from(c) - 0xFEE0).unwrap_or(c)
        }
        '\u{3000}' | '\t' => ' ',
        '−' => '-',
        c => c,
    };
    text.chars().map(half_width).collect()
}

/// What the chat calls a field, where it differs from its name.
pub(super) const fn label(field: Field) -> &'static str {
    match field {
        Field::Amount => "金額",
        Field::Currency => "幣別",
        Field::Detail => "明細",
        other => other.name(),
    }
}

/// The field whose name or label `text` begins with, and the rest.
pub(super) fn field(text: &str) -> Option<(Field, &str)> {
    let of = |field: Field| text.strip_prefix(field.name()).or_else(|| text.strip_prefix(label(field)));
    Field::ALL.into_iter().find_map(|field| Some((field, of(field)?)))
}

/// Whether the word is a way to pay.
pub(super) fn is_payment(word: &str) -> bool {
    PAYMENTS.iter().any(|known| known.eq_ignore_ascii_case(word))
}

/// Whether the word has at least three characters and ends like a way to pay.
pub(super) fn may_be_payment(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    word.chars().count() >= 3
        && (PAYMENT_ENDS.iter().any(|end| word.ends_with(end)) || split_payment(&word).is_some())
}

/// Splits a word that ends in a way to pay: `早餐現金`.
pub(super) fn split_payment(word: &str) -> Option<(&str, &str)> {
    let longest = PAYMENTS.iter().filter(|known| word.ends_with(*known)).max_by_key(|known| known.len())?;
    let (item, payment) = word.split_at(word.len() - longest.len());
    (!item.is_empty()).then_some((item, payment))
}

/// The day that a word means. `Err` for a day that does not exist.
pub(super) fn day(word: &str, today: Date) -> Option<Result<Date, Reason>> {
    if let Some((_, ago)) = DAYS.iter().find(|(name, _)| *name == word) {
        return Some(today.days_ago(*ago).ok_or("不存在"));
    }
    let date = match word.split(['/', '-']).collect::<Vec<_>>()[..] {
        [year, month, day] if year.len() == 4 => {
            Date::new(number(year, 4)?, number(month, 2)?, number(day, 2)?)
        }
        [month, day] if word.contains('/') => {
            let (month, day) = (number(month, 2)?, number(day, 2)?);
            // The latest such day that is not to come: in January, 12/31 is last year's.
            let last = |year| Date::new(year, month, day).filter(|date| *date <= today);
            (0..=8).find_map(|ago| last(today.year().checked_sub(ago)?))
        }
        _ => return None,
    };
    Some(date.ok_or("不存在"))
}

/// A number of at most `longest` digits and nothing else: `parse` by itself would take a sign.
pub(super) fn number<T: FromStr>(text: &str, longest: usize) -> Option<T> {
    let plain = text.len() <= longest && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// The day that a text begins with, and the rest: `昨天計程車`.
pub(super) fn leading_day(word: &str) -> Option<(u16, &str)> {
    DAYS.iter().find_map(|(name, ago)| Some((*ago, word.strip_prefix(name)?)))
}

/// Reads a number as people write it, which may have a `+` and commas between thousands.
pub(super) fn decimal(text: &str) -> Result<Decimal, Reason> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let groups: Vec<&str> = digits.split('.').next().unwrap_or_default().split(',').collect();
    let grouped = matches!(&groups[..], [first, others @ ..]
        if (1..=3).contains(&first.len()) && others.iter().all(|group| group.len() == 3));
    if groups.len() > 1 && !grouped {
        return Err("必須是數字");
    }
    Decimal::parse(&format!("{sign}{}", digits.replace(',', "")))
}

/// The currency that `text` ends in, and the rest before it.
pub(super) fn trailing_currency(text: &str) -> Option<(&str, &'static str)> {
    let word = currency::WORDS.iter().filter_map(|(word, code)| Some((text.strip_suffix(word)?, *code)));
    // The longest match leaves the shortest rest: `US$`, not `$`.
    word.chain(code_at(text, text.len().checked_sub(3))).min_by_key(|(rest, _)| rest.len())
}

/// The currency that `text` begins with, and the rest after it.
pub(super) fn leading_currency(text: &str) -> Option<(&str, &'static str)> {
    let word = currency::WORDS.iter().filter_map(|(word, code)| Some((text.strip_prefix(word)?, *code)));
    let code = text.get(..3).and_then(currency::code).map(|code| (&text[3..], code));
    word.chain(code).min_by_key(|(rest, _)| rest.len())
}

fn code_at(text: &str, at: Option<usize>) -> Option<(&str, &'static str)> {
    let at = at?;
    Some((text.get(..at)?, currency::code(text.get(at..)?)?))
}

/// The JSON for a field's new value as people write it in the chat.
pub(super) fn field_json(field: Field, text: &str, now: Moment) -> Result<String, Reason> {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    Ok(match field {
        Field::Amount | Field::Rate => {
            let text =
                trailing_currency(text).filter(|(_, code)| *code == "TWD").map_or(text, |(rest, _)| rest);
            let text =
                leading_currency(text).filter(|(_, code)| *code == "TWD").map_or(text, |(rest, _)| rest);
            decimal(text.trim())?.as_str().to_owned()
        }
        Field::Date => match day(text, now.date()) {
            Some(date) => quoted(&date?.to_string()),
            None => quoted(text),
        },
        Field::Time => {
            let text = text.replace('：', ":");
            quoted(&if text.find(':') == Some(1) { format!("0{text}") } else { text })
        }
        Field::Currency => quoted(currency::from_word(text).unwrap_or(text)),
        _ => quoted(text),
    })
}
