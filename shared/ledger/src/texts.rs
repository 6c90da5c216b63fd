//! Messages for the user, the same over HTTP and in the chat.

use std::time::Duration;

use crate::chat::Note;
use crate::currency::{HOME, example_rate};
use crate::{
    CategoryTotal, Change, ChangeError, Entry, Field, Invalid, Patch, Reason, Statement, Step, Total,
};

/// After an edit.
pub const EDITED: &str = "修改成功";
/// How the answer to a deletion begins.
pub const DELETED: &str = "已刪除";
/// An edit in the chat without a field or without a new value.
pub const INCOMPLETE: &str = "缺少欄位名稱或新值";
/// An edit in the chat of more than one field.
pub const ONE_AT_A_TIME: &str = "一次只允許更新一個欄位";

/// Why a change was not made, over HTTP, where transactions live for `life`.
pub fn failure(failure: &ChangeError, life: Duration) -> String {
    match failure {
        ChangeError::Missing => format!("目前沒有可修改的交易記錄（交易記錄會在 {}後自動清除）", span(life)),
        ChangeError::Replaced | ChangeError::Stale => "交易已變更，請重新操作".to_owned(),
        ChangeError::NotThisOne(entry) => {
            let text = |field| shortened(&entry.get(field).unwrap_or_default());
            let (item, amount) = (text(Field::Item), text(Field::Amount));
            format!(
                "最後記的是「{item} {amount}」，不是您說的那一筆，所以沒有變更。只能改或刪最後記的那一筆。"
            )
        }
        ChangeError::Expired => format!("交易已過期（{}限制）", span(life)),
        ChangeError::Broken => "資料格式錯誤，請重新記帳".to_owned(),
        ChangeError::Invalid(Invalid::Malformed) => "內容必須是 JSON 物件".to_owned(),
        ChangeError::Invalid(Invalid::Fields(wrong)) if wrong.is_empty() => "沒有要修改的欄位".to_owned(),
        ChangeError::Invalid(Invalid::Fields(wrong)) => {
            wrong.iter().map(|(name, reason)| wrong_field(name, reason)).collect::<Vec<_>>().join("；")
        }
        ChangeError::TooLarge => "內容過大".to_owned(),
        ChangeError::Unreadable(_) => "系統暫時無法讀取交易記錄，請稍後再試".to_owned(),
        ChangeError::Unwritable(_) | ChangeError::Outrun => "系統暫時無法儲存變更，請稍後再試".to_owned(),
    }
}

/// The same in the chat: what is missing can be said there, and its entries stay in the ledger when they can no longer be edited.
pub fn chat_failure(failure: &ChangeError, change: &Change, life: Duration) -> String {
    match (failure, change) {
        (ChangeError::Missing | ChangeError::Expired, _) => {
            format!("目前沒有可修改的交易記錄（記帳後 {}內可以修改；更早的記錄仍保留在帳本中）", span(life))
        }
        (ChangeError::Invalid(invalid), Change::Edit(patch)) => match patch.currency_without_rate(invalid) {
            Some(code) => {
                format!("匯率是多少？1 {code} 等於多少台幣，例如：匯率 {}", example_rate(&code))
            }
            None => self::failure(failure, life),
        },
        _ => self::failure(failure, life),
    }
}

/// A field and its reason as one phrase: `金額不可為負數`, `缺少品項`, `交易ID 不可修改`.
pub fn wrong_field(name: &str, reason: Reason) -> String {
    match reason {
        "缺少" => format!("缺少{name}"),
        _ if name.ends_with(|c: char| c.is_ascii()) => format!("{name} {reason}"),
        _ => format!("{name}{reason}"),
    }
}

/// The entries that were recorded, one line each, with everything that was understood: the date if it is not that of the text,
/// the time if it was said, item, amount, currency if it is not TWD, way to pay, category.
pub fn noted(note: &Note, entries: &[Entry]) -> String {
    let today = note.now().date().to_string();
    let line = |(n, entry): (usize, &Entry)| {
        let text = |field| shortened(&entry.get(field).unwrap_or_default());
        let date = Some(text(Field::Date)).filter(|date| *date != today);
        let time = Some(text(Field::Time)).filter(|_| note.says_time(n));
        let amount = match text(Field::Currency).as_str() {
            HOME => text(Field::Amount),
            code => format!("{} {code}（匯率 {}）", text(Field::Amount), text(Field::Rate)),
        };
        let words = [date, time, Some(text(Field::Item)), Some(amount), Some(text(Field::Payment))];
        let words: Vec<String> = words.into_iter().flatten().collect();
        format!("• {}（{}）", words.join(" "), text(Field::Category))
    };
    let lines: Vec<String> = entries.iter().enumerate().map(line).collect();
    format!("已記帳：\n{}", lines.join("\n"))
}

/// The entries with the latest dates, one line each.
pub fn recent(entries: &[Entry]) -> String {
    if entries.is_empty() {
        return "目前沒有記帳紀錄，例如輸入：午餐 120 信用卡".to_owned();
    }
    format!("最近紀錄：\n{}", lines(entries))
}

/// The most categories that a summary lists: a message has a limit, and a reader too.
const MAX_CATEGORIES: usize = 30;

/// The sums of a statement: of a month, or of some days that have a name. Income is counted apart.
pub fn summary(statement: &Statement, name: &str) -> String {
    if statement.count() == 0 {
        return format!("{name} 沒有記帳紀錄");
    }
    let mut lines = Vec::new();
    let has_income = statement.income_count() > 0;
    if statement.spending_count() > 0 {
        let of = if has_income { "支出" } else { "共" };
        lines.push(format!("{name} {of} {} 筆，合計 {} TWD", statement.spending_count(), statement.total()));
    }
    let categories = statement.by_category();
    let of_category = |category: &CategoryTotal| {
        format!("• {}：{} TWD（{} 筆）", shortened(&category.name), category.total, category.count)
    };
    lines.extend(categories.iter().take(MAX_CATEGORIES).map(of_category));
    if let Some(others) = categories.get(MAX_CATEGORIES..).filter(|others| !others.is_empty()) {
        let total: Total = others.iter().map(|category| category.total).sum();
        lines.push(format!("• 另外 {} 個分類：{total} TWD", others.len()));
    }
    if has_income {
        lines.push(format!("{name} 收入 {} 筆，合計 {} TWD", statement.income_count(), statement.income()));
    }
    lines.join("\n")
}

fn lines(entries: &[Entry]) -> String {
    entries.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn line(entry: &Entry) -> String {
    let text = |field| entry.get(field).unwrap_or_default();
    let rate = match text(Field::Currency).as_str() {
        "TWD" => String::new(),
        _ => format!("（匯率 {}）", text(Field::Rate)),
    };
    let (date, item, amount) = (text(Field::Date), shortened(&text(Field::Item)), text(Field::Amount));
    format!("• {date} {item} {amount} {}{rate} {}", text(Field::Currency), shortened(&text(Field::Payment)))
}

/// The longest name in a line, in characters. Over HTTP a field may have any length, and a message to LINE has a limit.
const MAX_NAME_CHARS: usize = 100;

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_NAME_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The fields that were edited, one line each: `• 欄位：舊 → 新`; also the rate, if it follows from the currency.
pub fn edited(patch: &Patch, step: &Step) -> String {
    let before = step.before();
    let value = |entry: Option<&Entry>, field| entry.and_then(|entry| entry.get(field));
    let line = |field: Field| {
        let text = |entry: Option<&Entry>| match value(entry, field) {
            Some(text) if !text.is_empty() => text,
            _ => "（空）".to_owned(),
        };
        format!("• {}：{} → {}", field.name(), text(before.as_ref()), text(step.entry()))
    };
    let changes = |field: &Field| value(before.as_ref(), *field) != value(step.entry(), *field);
    let rate_follows = patch.fields().all(|field| field != Field::Rate)
        && value(before.as_ref(), Field::Rate) != value(step.entry(), Field::Rate);
    let fields: Vec<Field> = patch.fields().chain(rate_follows.then_some(Field::Rate)).collect();
    // What stays as it was is shown only if nothing else is there to show.
    let changed = fields.iter().copied().filter(changes);
    let shown: Vec<Field> = if fields.iter().any(changes) { changed.collect() } else { fields };
    let lines: Vec<String> = shown.into_iter().map(line).collect();
    format!("{EDITED}\n{}", lines.join("\n"))
}

/// The same for a group, which is not shown the old values: they may have been said elsewhere.
pub fn edited_in_group(patch: &Patch, step: &Step) -> String {
    let new = |field: Field| step.entry().and_then(|entry| entry.get(field)).filter(|text| !text.is_empty());
    let line = |field: Field| format!("• {}：{}", field.name(), new(field).unwrap_or("（空）".to_owned()));
    let lines: Vec<String> = patch.fields().map(line).collect();
    format!("{EDITED}\n{}", lines.join("\n"))
}

/// The entry that was deleted.
pub fn deleted(step: &Step) -> String {
    let before = step.before();
    let text = |field| before.as_ref().and_then(|entry| entry.get(field)).map(|text| shortened(&text));
    let words = [Field::Item, Field::Amount, Field::Payment].into_iter().filter_map(text);
    format!("{DELETED}：{}", words.collect::<Vec<_>>().join(" "))
}

/// A duration in the largest unit of which it is a whole number.
fn span(life: Duration) -> String {
    match life.as_secs() {
        seconds if seconds > 0 && seconds.is_multiple_of(3600) => format!("{} 小時", seconds / 3600),
        seconds if seconds > 0 && seconds.is_multiple_of(60) => format!("{} 分鐘", seconds / 60),
        seconds => format!("{seconds} 秒"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::LUNCH;
    use crate::{Attempt, Months};

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn the_hour_follows_the_life_of_a_transaction() {
        let missing = failure(&ChangeError::Missing, HOUR);
        assert_eq!(missing, "目前沒有可修改的交易記錄（交易記錄會在 1 小時後自動清除）");
        assert_eq!(failure(&ChangeError::Expired, HOUR), "交易已過期（1 小時限制）");
        for (seconds, text) in
            [(7200, "2 小時"), (1800, "30 分鐘"), (5400, "90 分鐘"), (45, "45 秒"), (61, "61 秒")]
        {
            assert_eq!(span(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn the_chat_does_not_say_that_what_the_ledger_keeps_is_gone() {
        let says = |failure, life| chat_failure(&failure, &Change::Delete, life);
        let missing = "目前沒有可修改的交易記錄（記帳後 1 小時內可以修改；更早的記錄仍保留在帳本中）";
        assert_eq!(says(ChangeError::Missing, HOUR), missing);
        assert_eq!(says(ChangeError::Expired, HOUR), missing);
        assert!(says(ChangeError::Missing, HOUR / 2).contains("（記帳後 30 分鐘內可以修改；"));
        assert_eq!(says(ChangeError::Broken, HOUR), "資料格式錯誤，請重新記帳");
    }

    #[test]
    fn every_wrong_field_is_told_with_its_reason() {
        let wrong = [("原幣金額", "不可為負數"), ("品項", "缺少"), ("交易ID", "不可修改")];
        let wrong = Invalid::Fields(wrong.map(|(name, reason)| (name.to_owned(), reason)).into());
        assert_eq!(
            failure(&ChangeError::Invalid(wrong), HOUR),
            "原幣金額不可為負數；缺少品項；交易ID 不可修改"
        );
    }

    #[test]
    fn an_edit_tells_the_old_and_the_new() {
        let patch = Patch::from_body(r#"{"原幣金額":150,"附註":"加班"}"#.as_bytes()).unwrap();
        let step =
            Attempt::new(Change::Edit(patch.clone()), None).step(Some(LUNCH), &Months::default()).unwrap();
        assert_eq!(edited(&patch, &step), "修改成功\n• 原幣金額：100.10 → 150\n• 附註：（空） → 加班");
    }
}
