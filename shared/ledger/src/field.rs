//! The fields of an entry, and what each of them takes.

use serde_json::Value;

use crate::currency;
use crate::{Date, Decimal, Moment};

/// Why a value is wrong, worded to follow the name of its field: `不可為空`.
pub type Reason = &'static str;

/// A field that this version knows. An entry may hold others, added by a newer version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "`name` gives the name of each in the JSON")]
pub enum Field {
    Intent,
    Date,
    Time,
    Item,
    Currency,
    Amount,
    Rate,
    Payment,
    Id,
    Detail,
    Category,
    Project,
    Necessity,
    Advance,
    Party,
    Remark,
}

/// The values of `代墊狀態`.
const ADVANCES: [&str; 4] = ["無", "代墊", "需支付", "不索取"];

impl Field {
    /// All of them, in the order in which an entry is written.
    pub const ALL: [Field; 16] = [
        Field::Intent,
        Field::Date,
        Field::Time,
        Field::Item,
        Field::Currency,
        Field::Amount,
        Field::Rate,
        Field::Payment,
        Field::Id,
        Field::Detail,
        Field::Category,
        Field::Project,
        Field::Necessity,
        Field::Advance,
        Field::Party,
        Field::Remark,
    ];

    /// The name in the JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Field::Intent => "intent",
            Field::Date => "日期",
            Field::Time => "時間",
            Field::Item => "品項",
            Field::Currency => "原幣別",
            Field::Amount => "原幣金額",
            Field::Rate => "匯率",
            Field::Payment => "付款方式",
            Field::Id => "交易ID",
            Field::Detail => "明細說明",
            Field::Category => "分類",
            Field::Project => "專案",
            Field::Necessity => "必要性",
            Field::Advance => "代墊狀態",
            Field::Party => "收款支付對象",
            Field::Remark => "附註",
        }
    }

    /// The field of that name.
    pub fn named(name: &str) -> Option<Field> {
        Field::ALL.into_iter().find(|field| field.name() == name)
    }

    /// Whether an entry may lack it.
    pub fn is_optional(self) -> bool {
        matches!(self, Field::Detail | Field::Party | Field::Remark)
    }

    /// Whether an edit must not change it, because it identifies the entry.
    pub fn is_fixed(self) -> bool {
        matches!(self, Field::Intent | Field::Id)
    }

    /// Checks the JSON of a value and returns the JSON to store, or why the value is wrong. Numbers keep their digits;
    /// strings are serialized again, so that one text has one JSON, however it was escaped.
    pub fn check(self, json: &str) -> Result<String, Reason> {
        match self {
            Field::Amount | Field::Rate => {
                let number = Decimal::parse(json)?;
                match self {
                    Field::Rate if number.is_negative() || number.is_zero() => Err("必須大於 0"),
                    _ if number.is_negative() => Err("不可為負數"),
                    _ => Ok(number.as_str().to_owned()),
                }
            }
            _ => {
                let text: String = serde_json::from_str(json).map_err(|_| "必須是文字")?;
                self.check_text(&text)?;
                Ok(Value::from(text).to_string())
            }
        }
    }

    fn check_text(self, text: &str) -> Result<(), Reason> {
        let (holds, reason) = match self {
            Field::Intent => (text == "bookkeeping", "必須是 bookkeeping"),
            Field::Date => (Date::parse(text).is_some(), "必須是存在的日期，格式 YYYY-MM-DD"),
            Field::Time => (is_time(text), "必須是 HH:MM"),
            Field::Currency => (currency::code(text).is_some(), "必須是 ISO 4217 幣別代碼"),
            Field::Id => (Moment::parse_id(text).is_some(), "必須是 YYYYMMDD-HHMMSS"),
            Field::Advance => (ADVANCES.contains(&text), "必須是 無、代墊、需支付 或 不索取"),
            Field::Detail | Field::Party | Field::Remark => (true, ""),
            // Only blanks are as good as empty for the reader.
            _ => (!text.trim().is_empty(), "不可為空"),
        };
        if holds { Ok(()) } else { Err(reason) }
    }
}

fn is_time(text: &str) -> bool {
    let hour = |hour: &[u8]| matches!(hour, [b'0' | b'1', b'0'..=b'9'] | [b'2', b'0'..=b'3']);
    matches!(text.as_bytes(), [h1, h2, b':', b'0'..=b'5', b'0'..=b'9'] if hour(&[*h1, *h2]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_takes_what_it_says() {
        let taken = [
            (Field::Intent, r#""bookkeeping""#),
            (Field::Date, r#""2025-11-29""#),
            (Field::Time, r#""00:00""#),
            (Field::Time, r#""23:59""#),
            (Field::Item, r#""午餐""#),
            (Field::Currency, r#""TWD""#),
            (Field::Amount, "0"),
            (Field::Amount, "100.10"),
            (Field::Amount, "-0"),
            (Field::Rate, "0.00000001"),
            (Field::Id, r#""20251129-143000""#),
            (Field::Detail, r#""""#),
            (Field::Advance, r#""不索取""#),
        ];
        for (field, json) in taken {
            assert_eq!(field.check(json).as_deref(), Ok(json), "{field:?}");
        }
        let refused = [
            (Field::Intent, r#""other""#, "必須是 bookkeeping"),
            (Field::Date, r#""2025-02-29""#, "必須是存在的日期，格式 YYYY-MM-DD"),
            (Field::Time, r#""24:00""#, "必須是 HH:MM"),
            (Field::Time, r#""9:30""#, "必須是 HH:MM"),
            (Field::Item, r#""""#, "不可為空"),
            (Field::Item, r#"" ""#, "不可為空"),
            (Field::Item, "null", "必須是文字"),
            (Field::Item, "7", "必須是文字"),
            (Field::Item, r#"["a"]"#, "必須是文字"),
            (Field::Item, r#""\ud800""#, "必須是文字"),
            (Field::Currency, r#""twd""#, "必須是 ISO 4217 幣別代碼"),
            (Field::Amount, r#""120""#, "必須是數字"),
            (Field::Amount, "null", "必須是數字"),
            (Field::Amount, "-0.01", "不可為負數"),
            (Field::Amount, "1e400", "不可使用指數寫法"),
            (Field::Amount, "1234567890123456789", "最多 18 位整數與 8 位小數"),
            (Field::Rate, "0.000", "必須大於 0"),
            (Field::Rate, "-1", "必須大於 0"),
            (Field::Id, r#""20251129-250000""#, "必須是 YYYYMMDD-HHMMSS"),
            (Field::Remark, "1", "必須是文字"),
            (Field::Advance, r#""有""#, "必須是 無、代墊、需支付 或 不索取"),
        ];
        for (field, json, reason) in refused {
            assert_eq!(field.check(json), Err(reason), "{field:?} {json}");
        }
    }

    #[test]
    fn one_text_has_one_spelling() {
        assert_eq!(Field::Item.check(r#""\u5348\u9910""#).unwrap(), r#""午餐""#);
    }
}
