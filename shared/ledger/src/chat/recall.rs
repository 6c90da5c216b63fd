//! Reading back: `最近紀錄`, `本月`, `上個月`, `9月`, `2026-09`.

use super::words::number;
use crate::{Moment, Month};

/// What of the ledger a text asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recall {
    /// The entries with the latest dates.
    Recent,
    /// The sums of a month.
    Month(Month),
}

/// What the text asks for; `None` if it does not ask for anything of the ledger.
pub(super) fn parse(text: &str, now: Moment) -> Option<Recall> {
    let this_month = Month::from(now.date());
    let month = match text {
        "最近紀錄" | "最近記錄" => return Some(Recall::Recent),
        "本月" | "這個月" => Some(this_month),
        "上個月" | "上月" => this_month.previous(),
        _ => named(text, this_month),
    };
    month.map(Recall::Month)
}

/// The month that is named with its year, or without: then the latest one that has begun.
fn named(text: &str, this_month: Month) -> Option<Month> {
    if let Some((year, month)) = text.strip_suffix('月').unwrap_or(text).split_once(['-', '/', '年']) {
        return Month::new(number(year, 4).filter(|_| year.len() == 4)?, number(month, 2)?);
    }
    let month = number(text.strip_suffix('月')?, 2)?;
    let year = if month <= this_month.month() { this_month.year() } else { this_month.year() - 1 };
    Month::new(year, month)
}
