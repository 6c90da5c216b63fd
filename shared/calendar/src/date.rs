use std::fmt;

use time::{Month, SignedDuration};

use crate::parse_pattern;

/// A day of the calendar, in the years 1 to 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date(pub(crate) time::Date);

impl Date {
    /// The day, if it exists.
    pub fn new(year: u16, month: u8, day: u8) -> Option<Date> {
        date(year, month, day).and_then(Date::in_range)
    }

    /// Reads `YYYY-MM-DD`.
    pub fn parse(text: &str) -> Option<Date> {
        parse(text).and_then(Date::in_range)
    }

    /// `time` also has the year 0 and those before it.
    pub(crate) fn in_range(date: time::Date) -> Option<Date> {
        (date.year() >= 1).then_some(Date(date))
    }

    /// The year, 1 to 9999.
    pub fn year(self) -> u16 {
        self.0.year().unsigned_abs() as u16
    }

    /// The month, 1 to 12.
    pub fn month(self) -> u8 {
        self.0.month().into()
    }

    /// The day of the month, 1 to 31.
    pub fn day(self) -> u8 {
        self.0.day()
    }

    /// How many days ago the Monday of its week was.
    pub fn weekday(self) -> u8 {
        self.0.weekday().number_days_from_monday()
    }

    /// The date `days` earlier; `None` before the year 1.
    pub fn days_ago(self, days: u16) -> Option<Date> {
        self.0.checked_sub(SignedDuration::days(days.into())).and_then(Date::in_range)
    }
}

/// Reads `YYYY-MM-DD`, also in the year 0.
pub(crate) fn parse(text: &str) -> Option<time::Date> {
    let [year, month, day] = parse_pattern(text, "YYYY-MM-DD")?;
    date(year, month as u8, day as u8)
}

fn date(year: u16, month: u8, day: u8) -> Option<time::Date> {
    time::Date::from_calendar_date(year.into(), Month::try_from(month).ok()?, day).ok()
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year(), self.month(), self.day())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_a_day_that_exists() {
        for real in ["2024-02-29", "2000-02-29", "0001-01-01", "9999-12-31", "2025-11-29"] {
            assert_eq!(Date::parse(real).unwrap().to_string(), real);
        }
        for unreal in
            ["2025-02-29", "1900-02-29", "2025-13-01", "2025-00-10", "2025-04-31", "0000-01-01", "2025-1-01"]
        {
            assert_eq!(Date::parse(unreal), None, "{unreal}");
        }
        for odd in
            ["", "2025-11-29 ", "+025-11-29", "２０２５-11-29", "2025/11/29", "20251129", "x2025-11-29"]
        {
            assert_eq!(Date::parse(odd), None, "{odd}");
        }
        assert_eq!((Date::new(10_000, 1, 1), Date::new(u16::MAX, 1, 1)), (None, None));
    }

    #[test]
    fn the_days_of_ten_thousand_years_follow_each_other() {
        let mut date = Date::parse("9999-12-31").unwrap();
        let mut days = 0;
        // Every day would take seconds; a stride of 11 meets every day of the year, and every year.
        while let Some(before) = date.days_ago(11) {
            assert!(before < date);
            assert_eq!(Date::parse(&before.to_string()), Some(before));
            date = before;
            days += 11;
        }
        // 9999 years of 365 days, and 2424 leap days.
        let left = (0..11).find(|left| date.days_ago(*left) == Date::parse("0001-01-01")).unwrap();
        assert_eq!(days + u32::from(left) + 1, 9999 * 365 + 2424);
        assert_eq!(date.days_ago(left + 1), None);
    }
}
