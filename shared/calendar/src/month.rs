use std::fmt;

use crate::{Date, parse_pattern};

/// A month of the calendar, in the years 1 to 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Month {
    year: u16,
    month: u8,
}

impl Month {
    /// The month, if it exists.
    pub fn new(year: u16, month: u8) -> Option<Month> {
        Date::new(year, month, 1).map(Month::from)
    }

    /// Reads `YYYY-MM`.
    pub fn parse(text: &str) -> Option<Month> {
        let [year, month] = parse_pattern(text, "YYYY-MM")?;
        Month::new(year, month as u8)
    }

    /// The year, 1 to 9999.
    pub fn year(self) -> u16 {
        self.year
    }

    /// The month of the year, 1 to 12.
    pub fn month(self) -> u8 {
        self.month
    }

    /// The month before; `None` before the year 1.
    pub fn previous(self) -> Option<Month> {
        match self.month {
            1 => Month::new(self.year - 1, 12),
            _ => Month::new(self.year, self.month - 1),
        }
    }
}

impl From<Date> for Month {
    fn from(date: Date) -> Month {
        Month { year: date.year(), month: date.month() }
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.year, self.month)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_is_one_that_exists() {
        for real in ["2026-11", "0001-01", "9999-12"] {
            assert_eq!(Month::parse(real).unwrap().to_string(), real);
        }
        for unreal in ["2026-13", "2026-00", "0000-01", "2026-1", "2026-011", "2026/11", "202611", ""] {
            assert_eq!(Month::parse(unreal), None, "{unreal}");
        }
    }

    #[test]
    fn months_follow_each_other() {
        let month = |text| Month::parse(text).unwrap();
        assert_eq!(month("2026-11").previous(), Some(month("2026-10")));
        assert_eq!(month("2026-01").previous(), Some(month("2025-12")));
        assert_eq!(month("0001-01").previous(), None);
        assert!(month("2025-12") < month("2026-01"));
        assert_eq!(Month::from(Date::parse("2024-02-29").unwrap()), month("2024-02"));
    }
}
