//! Deleting and editing: `刪除上一筆`, `修改金額 150`, `上一筆分類改教育`.

use super::{Answer, words};
use crate::texts::{INCOMPLETE, ONE_AT_A_TIME, wrong_field};
use crate::{Edit, Field, Moment};

/// What people say before they come to the point.
const POLITE: [&str; 6] = ["請", "麻煩", "幫我", "我要", "把", "將"];
/// The last transaction.
const LAST: [&str; 5] = ["上一筆", "前一筆", "最後一筆", "剛剛那筆", "剛才那筆"];
/// What may stand for it, and may as well be about anything else.
const JUST_NOW: [&str; 2] = ["剛剛", "剛才"];
/// What may follow it.
const ENTRY: [&str; 7] = ["交易記錄", "交易紀錄", "交易", "記錄", "紀錄", "記帳", "帳"];
const DELETE: [&str; 4] = ["刪除", "刪掉", "移除", "刪"];
/// To change. The last is also a part of other words (`改天`), so alone it says too little.
const CHANGE: [&str; 4] = ["修改", "更改", "更新", BARE];
const BARE: &str = "改";
/// Between two fields.
const AND: [&str; 7] = ["和", "跟", "與", "及", "、", "，", ","];
/// Between two values.
const SEPARATORS: [char; 7] = ['，', '；', '、', ',', ';', '\n', ' '];

/// Whether the text asks to delete the last transaction, and nothing else.
pub(super) fn deletes(text: &str) -> bool {
    let text = polite(text).trim_end_matches(['。', '！', '!', '～', '吧', ' ']);
    let verb_first = strip(text, &DELETE).and_then(last).is_some_and(str::is_empty);
    verb_first || last(text).and_then(|rest| strip(rest, &DELETE)).is_some_and(str::is_empty)
}

/// Whether the text begins with the last transaction.
pub(super) fn speaks_of_the_last(text: &str) -> bool {
    strip(polite(text), &LAST).is_some()
}

/// The edit that the text asks for, or what to answer instead; `None` if it asks for none.
pub(super) fn parse(text: &str, now: Moment) -> Option<Result<Edit, Answer>> {
    let text = polite(text);
    let mut meant = speaks_of_the_last(text);
    let text = last(text).unwrap_or(text);
    let (field, rest) = match CHANGE.iter().find_map(|verb| Some((*verb, text.strip_prefix(verb)?))) {
        Some((verb, rest)) => {
            meant |= speaks_of_the_last(rest) || verb != BARE;
            match words::field(last(rest).unwrap_or(rest.trim_start())) {
                Some(found) => found,
                None => return meant.then(|| Err(INCOMPLETE.into())),
            }
        }
        None => {
            let (field, rest) = words::field(text)?;
            if strip(rest, &AND).is_some_and(|rest| words::field(rest).is_some()) && rest.contains(BARE) {
                return Some(Err(ONE_AT_A_TIME.into()));
            }
            (field, CHANGE.iter().find_map(|verb| rest.trim_start().strip_prefix(verb))?)
        }
    };
    Some(set(field, rest, now))
}

fn set(field: Field, rest: &str, now: Moment) -> Result<Edit, Answer> {
    if names_another(rest) {
        return Err(ONE_AT_A_TIME.into());
    }
    let value = value(rest);
    if value.is_empty() {
        return Err(INCOMPLETE.into());
    }
    let problem = |reason| Answer(wrong_field(words::label(field), reason));
    if field.is_fixed() {
        return Err(problem("不可修改"));
    }
    Edit::one(field, &words::json(field, value, now).map_err(problem)?).map_err(problem)
}

/// The new value, without the particle before it.
fn value(rest: &str) -> &str {
    let text = rest.trim_start();
    let apart = text.len() < rest.len();
    let particle = ["改成", "改為", "成為", "為", "：", ":", "="];
    let rest = match particle.iter().find_map(|word| text.strip_prefix(word)) {
        Some(rest) => rest,
        // `分類成教育`, `分類 成 教育`; but in `分類 成人用品` it belongs to the value.
        None => match text.strip_prefix('成') {
            Some(rest) if !apart || rest.starts_with(' ') => rest,
            _ => text,
        },
    };
    rest.trim()
}

/// Whether what follows a field names a second one, to be changed too.
fn names_another(rest: &str) -> bool {
    let rest = rest.trim_start();
    // A field with a value of its own, or about to have one; else it is a text that begins like a field's name.
    let marks = |c: char| {
        c.is_ascii_digit() || ['改', '為', '成', '：', ':', '='].contains(&c) || SEPARATORS.contains(&c)
    };
    let field = |text| words::field(strip(text, &CHANGE).unwrap_or(text)).map(|(_, rest)| rest);
    let joined = strip(rest, &AND).is_some_and(|rest| field(rest).is_some());
    let first = field(rest).is_some_and(|rest| rest.starts_with(marks));
    let mut later =
        rest.char_indices().filter(|(_, c)| SEPARATORS.contains(c)).map(|(at, c)| &rest[at + c.len_utf8()..]);
    joined
        || first
        || later.any(|text| field(text).is_some_and(|rest| rest.is_empty() || rest.starts_with(marks)))
}

fn polite(text: &str) -> &str {
    let mut text = text.trim_start();
    while let Some(rest) = strip(text, &POLITE) {
        text = rest;
    }
    text
}

/// What follows the last transaction, if it is named.
fn last(text: &str) -> Option<&str> {
    let rest = strip(text, &LAST).or_else(|| strip(text, &JUST_NOW))?;
    let rest = rest.strip_prefix('的').map_or(rest, str::trim_start);
    let rest = strip(rest, &ENTRY).unwrap_or(rest);
    Some(rest.strip_prefix('的').map_or(rest, str::trim_start))
}

/// The text after one of the words, without blanks.
fn strip<'a>(text: &'a str, words: &[&str]) -> Option<&'a str> {
    words.iter().find_map(|word| text.trim_start().strip_prefix(word)).map(str::trim_start)
}
