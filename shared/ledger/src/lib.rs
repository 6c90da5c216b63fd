#![doc = include_str!("../README.md")]

mod book;
mod change;
mod change_error;
pub mod chat;
mod config;
mod csv;
pub mod currency;
mod decimal;
mod entry;
mod erase;
mod field;
mod given_ids;
mod if_match;
mod journal;
mod months;
mod patch;
mod statement;
pub mod texts;

pub use book::{Book, key_kind};
pub use change::{Attempt, Change, Step};
pub use change_error::ChangeError;
pub use config::Config;
pub use decimal::{Decimal, Total};
pub use entry::{Entry, Invalid};
pub use erase::{Remaining, erase, remove_hidden};
pub use field::{Field, Reason};
pub use if_match::{IfMatch, etag};
pub use journal::LedgerRecord;
pub use months::Months;
pub use onetap_calendar::{Date, Moment, Month};
pub use patch::Patch;
pub use statement::{CategoryTotal, Statement};

#[cfg(test)]
mod testing {
    /// Seed 002's entry, with an amount that a binary float would not keep.
    pub(crate) const LUNCH: &str = r#"{"intent":"bookkeeping","日期":"2025-11-29","時間":"14:30","品項":"午餐","原幣別":"TWD","原幣金額":100.10,"匯率":1.0,"付款方式":"信用卡","交易ID":"20251129-143000","明細說明":"","分類":"飲食","專案":"日常","必要性":"必要","代墊狀態":"無","收款支付對象":"","附註":""}"#;

    /// Another transaction.
    pub(crate) const DINNER: &str = r#"{"intent":"bookkeeping","日期":"2025-11-29","時間":"18:30","品項":"晚餐","原幣別":"TWD","原幣金額":250,"匯率":1,"付款方式":"現金","交易ID":"20251129-183000","明細說明":"","分類":"飲食","專案":"日常","必要性":"必要","代墊狀態":"無","收款支付對象":"","附註":""}"#;
}
