//! Questions: `今天花多少`, `本週`, `上個月花多少`, `9月`, `2026-09`, `飲食花了多少`, `最近紀錄`.

use super::dates::{any_of, day};
use super::numbers::{count, small};
use super::tables::{CATEGORIES, TABLES};
use crate::{Date, Moment, Month};

/// What of the ledger a text asks for. `Debug` shows no item.
#[derive(Clone, PartialEq, Eq)]
pub enum Recall {
    /// The entries with the latest dates.
    Recent,
    /// The sums of a month.
    Month(Month),
    /// The sums of some days, or of one category or item.
    Days {
        /// The first day.
        first: Date,
        /// The last day.
        last: Date,
        /// What the days are called.
        name: String,
        /// A category, or the name of an item.
        of: Option<String>,
    },
}

impl std::fmt::Debug for Recall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Recall::Recent => f.write_str("Recent"),
            Recall::Month(month) => write!(f, "Month({month})"),
            Recall::Days { first, last, of, .. } => write!(f, "Days({first}, {last}, {})", of.is_some()),
        }
    }
}

/// Words that ask for a sum. Of two that begin alike, the longer comes first.
const ASKS: [&str; 32] = [
    "賺了多少錢",
    "花了多少錢",
    "用了多少錢",
    "賺了多少",
    "賺多少錢",
    "花了多少",
    "花多少錢",
    "用了多少",
    "收入多少",
    "花多少",
    "多少錢",
    "賺多少",
    "多少",
    "總共",
    "一共",
    "合計",
    "總計",
    "花費",
    "支出",
    "開銷",
    "消費",
    "花了",
    "帳單",
    "明細",
    "紀錄",
    "記錄",
    "統計",
    "小計",
    "總額",
    "帳",
    "錢",
    "花",
];
/// Words that say nothing more.
const FILLERS: [&str; 19] = [
    "請問",
    "請",
    "幫我",
    "我想",
    "我要",
    "查詢",
    "查一下",
    "查",
    "看一下",
    "看",
    "我",
    "的",
    "了",
    "共",
    "在",
    "有",
    "是",
    "到",
    "目前",
];
/// What people call a category when they ask for its sum.
const ALIASES: [(&str, &str); 8] = [
    ("吃飯", "飲食"),
    ("吃的", "飲食"),
    ("吃", "飲食"),
    ("吃東西", "飲食"),
    ("坐車", "交通"),
    ("交通費", "交通"),
    ("醫藥費", "醫療"),
    ("玩", "娛樂"),
];
/// Questions for this month that name neither days nor anything else.
const THIS_MONTH: [&str; 9] =
    ["查帳", "對帳", "支出", "花費", "開銷", "總共花多少", "總共花了多少", "花多少", "花了多少"];
const RECENT: [&str; 12] = [
    "最近紀錄",
    "最近記錄",
    "最近的紀錄",
    "最近的記錄",
    "最近幾筆",
    "最近五筆",
    "最近5筆",
    "最近記帳",
    "最近的帳",
    "最近花費",
    "最近消費",
    "最近明細",
];

/// What the text asks for; `None` if it does not ask for anything of the ledger.
pub(super) fn parse(text: &str, now: Moment) -> Option<Recall> {
    let text = text.trim_end_matches(['?', '。', '!', '~', ' ', '嗎', '呢', '啊', '呀', '喔']);
    let recent = FILLERS.iter().fold(text, |text, filler| text.strip_prefix(filler).unwrap_or(text).trim());
    if RECENT.contains(&recent) {
        return Some(Recall::Recent);
    }
    let today = now.date();
    if THIS_MONTH.contains(&recent)
        || recent.strip_suffix('錢').is_some_and(|text| THIS_MONTH.contains(&text))
    {
        return Some(Recall::Month(Month::from(today)));
    }
    let mut chars: Vec<char> = text.chars().collect();
    let period = take_period(&mut chars, today);
    let mut rest: String = chars.into_iter().collect();
    let mut asks = false;
    for word in ASKS {
        asks |= rest.contains(word);
        rest = rest.replace(word, " ");
    }
    let of: Vec<&str> = rest.split_whitespace().filter(|word| !FILLERS.contains(word)).collect();
    let of = match &of[..] {
        [] => None,
        [one] => Some(strip_fillers(one)).filter(|word| !word.is_empty()),
        _ => return None,
    };
    // `收入多少`: the verb is the category.
    let of = of.or((text.contains("收入") || text.contains('賺')).then_some("收入"));
    let of = of.map(|of| ALIASES.iter().find(|(alias, _)| *alias == of).map_or(of, |(_, name)| *name));
    let is_said = |word: &str| {
        CATEGORIES.contains(&word) || TABLES.category(word).is_some() || TABLES.payments.whole(word).is_some()
    };
    match (&period, of, asks) {
        (None, None, _) | (_, _, false)
            if of.is_some() || period.as_ref().is_none_or(|period| period.needs_ask) =>
        {
            return None;
        }
        (_, Some(of), _) if of.chars().count() > 10 || has_number(of) => {
            return None;
        }
        (None, Some(of), _) if !is_said(of) => return None,
        _ => {}
    }
    let is_spent =
        ["花", "支出", "多少", "消費", "開銷", "總", "合計"].iter().any(|word| text.contains(word));
    if of.is_some() && !is_spent && !text.contains("收入") {
        return None;
    }
    let of = of.map(|of| TABLES.payments.whole(of).unwrap_or(of).to_owned());
    Some(match (period, of) {
        (Some(Period { month: Some(month), .. }), None) => Recall::Month(month),
        (Some(Period { first, last, name, .. }), of) => Recall::Days { first, last, name, of },
        (None, of) => {
            let month = Month::from(today);
            Recall::Days {
                first: Date::new(today.year(), today.month(), 1)?,
                last: today,
                name: month.to_string(),
                of,
            }
        }
    })
}

/// Whether an amount is in it: then it is no question.
fn has_number(text: &str) -> bool {
    let chars: Vec<char> = text.chars().collect();
    let is_digit = |c: char| "一二兩三四五六七八九".contains(c);
    let is_sum = |pair: &[char]| is_digit(pair[0]) && ['十', '百', '千', '萬', '元', '塊'].contains(&pair[1]);
    chars.iter().any(char::is_ascii_digit) || chars.windows(2).any(is_sum)
}

fn strip_fillers(word: &str) -> &str {
    let mut word = word;
    while let Some(rest) =
        FILLERS.iter().find_map(|filler| word.strip_prefix(filler).or(word.strip_suffix(filler)))
    {
        word = rest;
    }
    word
}

struct Period {
    first: Date,
    last: Date,
    name: String,
    /// It is a whole month.
    month: Option<Month>,
    /// By itself it is no question: `今天`.
    needs_ask: bool,
}

/// Takes the period out of the text.
fn take_period(text: &mut Vec<char>, today: Date) -> Option<Period> {
    for at in 0..text.len() {
        let found =
            week(text, at, today).or_else(|| month(text, at, today)).or_else(|| year(text, at, today));
        if let Some((len, period)) = found {
            text.splice(at..at + len, [' ']);
            return Some(period);
        }
        if let Some(found) = day(text, at, (true, true), today)
            && let Ok(date) = found.date
        {
            let name = text[at..at + found.len].iter().collect();
            text.splice(at..at + found.len, [' ']);
            return Some(Period { first: date, last: date, name, month: None, needs_ask: true });
        }
    }
    None
}

/// The length of the first of the words that stands at `at`.
fn begins(text: &[char], at: usize, words: &[&str]) -> Option<usize> {
    any_of(text, at, words).map(|word| word.chars().count())
}

/// `本週`, `上週`, without a weekday behind it.
fn week(text: &[char], at: usize, today: Date) -> Option<(usize, Period)> {
    const THIS: [&str; 9] =
        ["這個星期", "這個禮拜", "這星期", "這禮拜", "本星期", "本週", "本周", "這週", "這周"];
    const LAST: [&str; 6] = ["上個星期", "上個禮拜", "上星期", "上禮拜", "上週", "上周"];
    let (len, ago) =
        begins(text, at, &THIS).map(|len| (len, 0)).or_else(|| Some((begins(text, at, &LAST)?, 7)))?;
    let next = text.get(at + len);
    if next.is_some_and(|c| "一二三四五六日天末1234567".contains(*c)) {
        return None;
    }
    let monday = today.days_ago(u16::from(today.weekday()) + ago)?;
    let last = if ago == 0 { today } else { today.days_ago(u16::from(today.weekday()) + 1)? };
    let name = if ago == 0 { "本週" } else { "上週" };
    Some((len, Period { first: monday, last, name: name.to_owned(), month: None, needs_ask: false }))
}

/// `今年`, `去年`.
fn year(text: &[char], at: usize, today: Date) -> Option<(usize, Period)> {
    let len = begins(text, at, &["今年", "去年"])?;
    let year = today.year() - u16::from(text[at] == '去');
    let (first, last) = (Date::new(year, 1, 1)?, Date::new(year, 12, 31)?.min(today));
    Some((len, Period { first, last, name: year.to_string(), month: None, needs_ask: true }))
}

/// `本月`, `上個月`, `9月`, `2026-09`: the latest such month that has begun.
fn month(text: &[char], at: usize, today: Date) -> Option<(usize, Period)> {
    let this = Month::from(today);
    let whole = |len: usize, month: Month| {
        let first = Date::new(month.year(), month.month(), 1)?;
        let last = (28..=31).rev().find_map(|day| Date::new(month.year(), month.month(), day))?;
        let name = month.to_string();
        Some((len, Period { first, last, name, month: Some(month), needs_ask: false }))
    };
    if let Some(len) = begins(text, at, &["這個月份", "這個月", "本月份", "本月", "這月"]) {
        return whole(len, this);
    }
    if let Some(len) = begins(text, at, &["上個月份", "上個月", "上月份", "上月"]) {
        return whole(len, this.previous()?);
    }
    if at > 0 && text[at - 1].is_ascii_alphanumeric() {
        return None;
    }
    let digits = count(text, at, |c| c.is_ascii_digit());
    if digits == 4 && text.get(at + 4).is_some_and(|c| ['-', '/', '年'].contains(c)) {
        let (year, _) = small(text, at, 4)?;
        let (number, len) = small(text, at + 5, 2)?;
        let mut end = at + 5 + len;
        if text.get(end).is_some_and(|c| ['-', '/'].contains(c)) {
            return None;
        }
        end += usize::from(text.get(end) == Some(&'月'));
        if text.get(end).is_some_and(char::is_ascii_digit) {
            return None;
        }
        return whole(end - at, Month::new(year, u8::try_from(number).ok()?)?);
    }
    let (number, len) = small(text, at, 2)?;
    let end = at + len;
    if text.get(end) != Some(&'月') || text.get(end + 1).is_some_and(char::is_ascii_digit) {
        return None;
    }
    let end = end + 1 + usize::from(text.get(end + 1) == Some(&'份'));
    let number = u8::try_from(number).ok()?;
    let year = if number <= this.month() { this.year() } else { this.year().checked_sub(1)? };
    whole(end - at, Month::new(year, number)?)
}
