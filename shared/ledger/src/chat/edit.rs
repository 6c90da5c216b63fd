//! Deletions and edits: `刪除上一筆`, `修改金額 150`, `上一筆分類改教育`.

use super::{Problem, words};
use crate::texts::{INCOMPLETE, ONE_AT_A_TIME, wrong_field};
use crate::{Field, Moment, Patch, Reason};

/// Polite words before the verb.
const POLITE: [&str; 6] = ["請", "麻煩", "幫我", "我要", "把", "將"];
/// Words for the last transaction.
const LAST: [&str; 5] = ["上一筆", "前一筆", "最後一筆", "剛剛那筆", "剛才那筆"];
/// Words that may mean the last transaction, but also anything else.
const JUST_NOW: [&str; 2] = ["剛剛", "剛才"];
/// Nouns that may follow those words.
const ENTRY: [&str; 7] = ["交易記錄", "交易紀錄", "交易", "記錄", "紀錄", "記帳", "帳"];
const DELETE: [&str; 4] = ["刪除", "刪掉", "移除", "刪"];
/// Verbs for an edit. The last is also a part of other words (`改天`), so it needs a field or an entry beside it.
const CHANGE: [&str; 4] = ["修改", "更改", "更新", SHORT_CHANGE];
const SHORT_CHANGE: &str = "改";
/// Words and signs between two fields.
const AND: [&str; 7] = ["和", "跟", "與", "及", "、", "，", ","];
/// Signs between two values.
const SEPARATORS: [char; 7] = ['，', '；', '、', ',', ';', '\n', ' '];

/// Whether the text asks to delete the last transaction, and nothing else.
pub(super) fn deletes(text: &str) -> bool {
    let text = strip_polite(text).trim_end_matches(['。', '！', '!', '～', '吧', ' ']);
    let verb_first = strip_any(text, &DELETE).and_then(strip_last).is_some_and(str::is_empty);
    verb_first || strip_last(text).and_then(|rest| strip_any(rest, &DELETE)).is_some_and(str::is_empty)
}

/// Whether the text begins with words for the last transaction.
pub(super) fn names_last_transaction(text: &str) -> bool {
    strip_any(strip_polite(text), &LAST).is_some()
}

/// The edit that the text asks for, or what is wrong with it; `None` if it asks for no edit.
pub(super) fn parse(text: &str, now: Moment) -> Option<Result<Patch, Problem>> {
    let text = strip_polite(text);
    let mut is_edit = names_last_transaction(text);
    let text = strip_last(text).unwrap_or(text);
    let (field, rest) = match CHANGE.iter().find_map(|verb| Some((*verb, text.strip_prefix(verb)?))) {
        Some((verb, rest)) => {
            is_edit |= names_last_transaction(rest) || verb != SHORT_CHANGE;
            match words::field(strip_last(rest).unwrap_or(rest.trim_start())) {
                Some(found) => found,
                None => return is_edit.then(|| Err(INCOMPLETE.into())),
            }
        }
        None => {
            let (field, rest) = words::field(text)?;
            if strip_any(rest, &AND).is_some_and(|rest| words::field(rest).is_some())
                && rest.contains(SHORT_CHANGE)
            {
                return Some(Err(ONE_AT_A_TIME.into()));
            }
            (field, CHANGE.iter().find_map(|verb| rest.trim_start().strip_prefix(verb))?)
        }
    };
    Some(patch(field, rest, now))
}

fn patch(field: Field, rest: &str, now: Moment) -> Result<Patch, Problem> {
    if let Some((currency, rate)) = currency_and_rate(field, rest) {
        return one_field(Field::Currency, currency, now)?
            .and(Field::Rate, &json(Field::Rate, rate, now)?)
            .map_err(|reason| problem(Field::Rate, reason));
    }
    if names_second_field(rest) {
        return Err(ONE_AT_A_TIME.into());
    }
    let value = new_value(rest);
    if value.is_empty() {
        return Err(INCOMPLETE.into());
    }
    one_field(field, value, now)
}

fn one_field(field: Field, value: &str, now: Moment) -> Result<Patch, Problem> {
    if field.is_fixed() {
        return Err(problem(field, "不可修改"));
    }
    Patch::one(field, &json(field, value, now)?).map_err(|reason| problem(field, reason))
}

fn json(field: Field, value: &str, now: Moment) -> Result<String, Problem> {
    words::field_json(field, value, now).map_err(|reason| problem(field, reason))
}

fn problem(field: Field, reason: Reason) -> Problem {
    Problem(wrong_field(words::label(field), reason))
}

/// The values of a currency and its rate, which are changed together: `幣別 美金 匯率 31.5`, in either order. `rest` follows the
/// first of the two.
fn currency_and_rate(field: Field, rest: &str) -> Option<(&str, &str)> {
    let second = match field {
        Field::Currency => Field::Rate,
        Field::Rate => Field::Currency,
        _ => return None,
    };
    let names = [second.name(), words::label(second)];
    let (at, name) = names.into_iter().filter_map(|name| Some((rest.find(name)?, name))).min()?;
    let before = rest[..at].trim_end_matches(SEPARATORS);
    let before = AND.iter().find_map(|word| before.strip_suffix(word)).unwrap_or(before);
    let after = new_value(&rest[at + name.len()..]);
    let after = after.strip_prefix(SHORT_CHANGE).unwrap_or(after);
    let values = (new_value(before), after.trim());
    let is_whole = |value: &str| !value.is_empty() && !value.contains(SEPARATORS);
    match values {
        (one, other) if !is_whole(one) || !is_whole(other) => None,
        (one, other) if field == Field::Currency => Some((one, other)),
        (one, other) => Some((other, one)),
    }
}

/// The new value, without the particle before it.
fn new_value(rest: &str) -> &str {
    let text = rest.trim_start();
    let spaced = text.len() < rest.len();
    let particle = ["改成", "改為", "成為", "為", "：", ":", "="];
    let rest = match particle.iter().find_map(|word| text.strip_prefix(word)) {
        Some(rest) => rest,
        // `分類成教育`, `分類 成 教育`; but in `分類 成人用品` it belongs to the value.
        None => match text.strip_prefix('成') {
            Some(rest) if !spaced || rest.starts_with(' ') => rest,
            _ => text,
        },
    };
    rest.trim()
}

/// Whether the text after a field names a second field to change.
fn names_second_field(rest: &str) -> bool {
    let rest = rest.trim_start();
    // A second field is followed by a value, a verb or a separator. Otherwise the text only begins like a field's name.
    let follows_field = |c: char| {
        c.is_ascii_digit() || ['改', '為', '成', '：', ':', '='].contains(&c) || SEPARATORS.contains(&c)
    };
    let field = |text| words::field(strip_any(text, &CHANGE).unwrap_or(text)).map(|(_, rest)| rest);
    let joined = strip_any(rest, &AND).is_some_and(|rest| field(rest).is_some());
    let first = field(rest).is_some_and(|rest| rest.starts_with(follows_field));
    let mut later =
        rest.char_indices().filter(|(_, c)| SEPARATORS.contains(c)).map(|(at, c)| &rest[at + c.len_utf8()..]);
    joined
        || first
        || later
            .any(|text| field(text).is_some_and(|rest| rest.is_empty() || rest.starts_with(follows_field)))
}

/// The text after the polite words.
fn strip_polite(text: &str) -> &str {
    let mut text = text.trim_start();
    while let Some(rest) = strip_any(text, &POLITE) {
        text = rest;
    }
    text
}

/// The text after the words for the last transaction, if it begins with them.
fn strip_last(text: &str) -> Option<&str> {
    let rest = strip_any(text, &LAST).or_else(|| strip_any(text, &JUST_NOW))?;
    let rest = rest.strip_prefix('的').map_or(rest, str::trim_start);
    let rest = strip_any(rest, &ENTRY).unwrap_or(rest);
    Some(rest.strip_prefix('的').map_or(rest, str::trim_start))
}

/// The text after one of the words, if it begins with one. Blanks around the word are dropped.
fn strip_any<'a>(text: &'a str, words: &[&str]) -> Option<&'a str> {
    words.iter().find_map(|word| text.trim_start().strip_prefix(word)).map(str::trim_start)
}
