//! Deletions: `刪除`, `刪掉剛剛那筆`, `取消上一筆`, `刪除午餐`.

use super::edit::{names_field, strip_any, strip_last, strip_polite, strip_tail};
use super::habits::Habits;
use super::target::Target;
use super::{Problem, Sentence};
use crate::Moment;

const DELETE: [&str; 9] = ["刪除掉", "刪除", "刪掉", "刪去", "移除", "拿掉", "去掉", "砍掉", "刪"];
/// Verbs that delete only where words for the last transaction follow.
const UNDO: [&str; 4] = ["取消", "不要", "撤銷", "還原"];
/// What makes it no order.
const NO_ORDER: [&str; 10] =
    ["不要刪", "別刪", "不用刪", "不能刪", "不想刪", "嗎", "?", "怎麼", "如何", "可以刪"];
const EVERYTHING: [&str; 9] = ["全部", "所有", "整個", "每一筆", "資料", "帳本", "本月", "這個月", "紀錄"];

/// The deletion that the text asks for, or why it cannot be made; `None` if it asks for none.
pub(super) fn parse(text: &str, now: Moment, habits: &Habits) -> Option<Sentence> {
    if NO_ORDER.iter().any(|word| text.contains(word)) {
        return None;
    }
    let text = strip_tail(strip_polite(text));
    let rest = match (strip_any(text, &DELETE), strip_any(text, &UNDO).and_then(strip_last)) {
        (Some(rest), _) => strip_last(rest).unwrap_or(rest),
        (None, Some(rest)) => rest,
        (None, None) => {
            // `上一筆刪除`, `把午餐刪掉`, `剛剛那筆不要了`
            let undone = ["不要了", "取消", "作廢", "不算"].iter().find_map(|verb| text.strip_suffix(verb));
            if undone.and_then(strip_last).is_some_and(|rest| strip_tail(rest).is_empty()) {
                return Some(Sentence::Delete(Target::default()));
            }
            let (before, verb) = DELETE.iter().find_map(|verb| Some((text.strip_suffix(verb)?, verb)))?;
            let before = before.trim_end();
            match strip_last(before) {
                Some(rest) => rest,
                None if verb.chars().count() > 1 && !before.is_empty() => before,
                None => return None,
            }
        }
    };
    let rest = strip_tail(rest);
    if rest.is_empty() {
        return Some(Sentence::Delete(Target::default()));
    }
    if EVERYTHING.iter().any(|word| rest.starts_with(word)) {
        let all = "一次只能刪除上一筆。要刪除全部的資料，請輸入「刪除我的資料」";
        return (!rest.contains("我的資料")).then(|| Sentence::EditProblem(Problem::from(all)));
    }
    // `刪除上一筆的附註` would clear a field, which the grammar does not support.
    if names_field(rest) || rest.starts_with('我') {
        return None;
    }
    Target::read(rest, now, habits).map(Sentence::Delete)
}
