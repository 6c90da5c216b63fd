//! Days and seconds of Taipei, which has no summer time: what a clock elsewhere says is an argument here.

use std::fmt;

const DAY: i64 = 86_400;
/// Taipei is eight hours ahead of Greenwich, all year.
const AHEAD: i64 = 8 * 3600;
const MONTH_ENDS: [u8; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
/// Days from the first of the year 1 to the first of 1970.
const BEFORE_1970: i64 = 719_162;

/// A day of the calendar, in the years 1 to 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    year: u16,
    month: u8,
    day: u8,
}

impl Date {
    /// The day, if there is such a one.
    pub fn new(year: u16, month: u8, day: u8) -> Option<Date> {
        let exists = (1..=9999).contains(&year) && (1..=month_end(year, month)?).contains(&day);
        exists.then_some(Date { year, month, day })
    }

    /// Reads `YYYY-MM-DD`.
    pub fn parse(text: &str) -> Option<Date> {
        match text.as_bytes() {
            [y @ .., b'-', m1, m2, b'-', d1, d2] if y.len() == 4 => {
                Date::new(number(y)?, number(&[*m1, *m2])?, number(&[*d1, *d2])?)
            }
            _ => None,
        }
    }

    /// Its year.
    pub fn year(self) -> u16 {
        self.year
    }

    /// So many days earlier.
    pub fn days_ago(self, days: u16) -> Option<Date> {
        Date::from_days(self.days() - i64::from(days))
    }

    /// Days since 1970.
    fn days(self) -> i64 {
        let past = i64::from(self.year) - 1;
        let leaps = past / 4 - past / 100 + past / 400;
        let months = (1..self.month).filter_map(|month| month_end(self.year, month)).map(i64::from);
        past * 365 + leaps + months.sum::<i64>() + i64::from(self.day) - 1 - BEFORE_1970
    }

    fn from_days(days: i64) -> Option<Date> {
        // A year is never longer than 366 days, so the guess is never late, and early by a few years at most.
        let mut year = u16::try_from((days + BEFORE_1970) / 366 + 1).ok()?;
        let begins = |year| Some(Date::new(year, 1, 1)?.days());
        while year < 9999 && begins(year + 1)? <= days {
            year += 1;
        }
        let mut left = days - begins(year)?;
        let mut month = 1;
        while left >= i64::from(month_end(year, month)?) {
            left -= i64::from(month_end(year, month)?);
            month += 1;
        }
        Date::new(year, month, u8::try_from(left + 1).ok()?)
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

/// The last day of a month, if there is such a month.
fn month_end(year: u16, month: u8) -> Option<u8> {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let end = MONTH_ENDS.get(usize::from(month).checked_sub(1)?)?;
    Some(if month == 2 && leap { 29 } else { *end })
}

/// A second on the clocks of Taipei.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    date: Date,
    /// Since midnight.
    second: u32,
}

impl Moment {
    /// What Taipei's clocks show at so many seconds after 1970 began in Greenwich. `None` beyond the year 9999.
    pub fn from_unix(seconds: i64) -> Option<Moment> {
        let local = seconds.checked_add(AHEAD)?;
        let date = Date::from_days(local.div_euclid(DAY))?;
        Some(Moment { date, second: u32::try_from(local.rem_euclid(DAY)).ok()? })
    }

    /// Reads a `交易ID`: `YYYYMMDD-HHMMSS`.
    pub fn parse_id(text: &str) -> Option<Moment> {
        let (date, time) = text.split_once('-')?;
        let (date, time) = (date.as_bytes(), time.as_bytes());
        if date.len() != 8 || time.len() != 6 {
            return None;
        }
        let date = Date::new(number(&date[..4])?, number(&date[4..6])?, number(&date[6..])?)?;
        let (hour, minute, second): (u32, u32, u32) =
            (number(&time[..2])?, number(&time[2..4])?, number(&time[4..])?);
        (hour < 24 && minute < 60 && second < 60)
            .then_some(Moment { date, second: hour * 3600 + minute * 60 + second })
    }

    /// Its day.
    pub fn date(self) -> Date {
        self.date
    }

    /// `HH:MM`
    pub fn time(self) -> String {
        format!("{:02}:{:02}", self.second / 3600, self.second / 60 % 60)
    }

    /// `YYYYMMDD-HHMMSS`
    pub fn id(self) -> String {
        let Date { year, month, day } = self.date;
        let (hour, minute, second) = (self.second / 3600, self.second / 60 % 60, self.second % 60);
        format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
    }

    /// The next second; `None` after the last of the year 9999.
    pub fn next(self) -> Option<Moment> {
        match self.second + 1 {
            86_400 => Some(Moment { date: Date::from_days(self.date.days() + 1)?, second: 0 }),
            second => Some(Moment { second, ..self }),
        }
    }
}

/// Digits and nothing else: `parse` by itself would take a sign.
pub(crate) fn number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    plain.then(|| std::str::from_utf8(digits).ok()?.parse().ok()).flatten()
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
    }

    #[test]
    fn the_days_of_ten_thousand_years_come_back_from_their_numbers() {
        let (first, last) = (Date::parse("0001-01-01").unwrap(), Date::parse("9999-12-31").unwrap());
        let mut before = None;
        // Every day would take seconds; a stride of 11 meets every day of the year, and every year.
        for days in (first.days()..=last.days()).step_by(11) {
            let date = Date::from_days(days).unwrap();
            assert_eq!(date.days(), days);
            assert!(before < Some(date));
            before = Some(date);
        }
        assert_eq!(Date::from_days(last.days() + 1), None);
        assert_eq!(Date::from_days(first.days() - 1), None);
    }

    #[test]
    fn taipei_is_eight_hours_ahead() {
        let moment = Moment::from_unix(1_764_397_800).unwrap();
        assert_eq!((moment.date().to_string(), moment.time()), ("2025-11-29".into(), "14:30".into()));
        assert_eq!(moment.id(), "20251129-143000");
        assert_eq!(Moment::from_unix(0).unwrap().id(), "19700101-080000");
        assert_eq!(Moment::from_unix(-28_801).unwrap().id(), "19691231-235959");
        assert_eq!(Moment::from_unix(i64::MAX), None);
    }

    #[test]
    fn an_id_is_a_second_that_exists() {
        for id in ["20251129-143000", "20240229-235959"] {
            assert_eq!(Moment::parse_id(id).unwrap().id(), id);
        }
        for id in
            ["20251129-240000", "20250229-000000", "20251129143000", "2025112-9143000", "20251129-14300", ""]
        {
            assert_eq!(Moment::parse_id(id), None, "{id}");
        }
    }

    #[test]
    fn the_next_second_may_be_the_next_year() {
        assert_eq!(Moment::parse_id("20251231-235959").unwrap().next().unwrap().id(), "20260101-000000");
        assert_eq!(Moment::parse_id("99991231-235959").unwrap().next(), None);
    }
}
