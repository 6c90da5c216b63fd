//! The time of day in Taiwan: UTC+8 since 1979, without daylight saving, so a sum is all the calendar it takes.

use std::time::{SystemTime, UNIX_EPOCH};

const OFFSET: i64 = 8 * 3600;
const DAY: i64 = 24 * 3600;

/// A moment, read on a clock in Taipei.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taipei(i64);

impl Taipei {
    /// Now.
    pub fn now() -> Taipei {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Taipei::from_unix(since.as_secs().try_into().unwrap_or(i64::MAX))
    }

    /// This many seconds after the beginning of 1970 in UTC. A moment that no calendar here could name (some two
    /// hundred thousand years off) counts as the furthest that it can.
    pub fn from_unix(seconds: i64) -> Taipei {
        Taipei(seconds.clamp(-(1 << 42), 1 << 42))
    }

    /// Seconds since the beginning of 1970 in UTC.
    pub fn unix(self) -> i64 {
        self.0
    }

    /// Reads `2026-03-01T06:00`, with or without seconds, and with an offset (`+08:00`, `Z`) or, without one, as
    /// Taipei's own time.
    pub fn parse(text: &str) -> Option<Taipei> {
        let (date, time) = text.split_at_checked(10)?;
        let [year, month, day] = numbers(date, '-')?;
        let time = time.strip_prefix('T')?;
        let (time, offset) = match time.find(['Z', '+', '-']) {
            Some(at) => (&time[..at], offset(&time[at..])?),
            None => (time, OFFSET),
        };
        let [hour, minute, second] = numbers(time, ':').or_else(|| {
            let [hour, minute] = numbers(time, ':')?;
            Some([hour, minute, 0])
        })?;
        let sane = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60;
        let local = days_before(year, month, day) * DAY + hour * 3600 + minute * 60 + second;
        (sane && second < 61).then(|| Taipei::from_unix(local - offset))
    }

    /// The moment `hours` later.
    pub fn plus_hours(self, hours: i64) -> Taipei {
        Taipei::from_unix(self.0.saturating_add(hours.saturating_mul(3600)))
    }

    /// The beginning of the three hours it falls into: midnight, three, six …
    pub fn three_hours(self) -> Taipei {
        Taipei(self.0 - (self.0 + OFFSET).rem_euclid(3 * 3600))
    }

    /// The hour of day, 0–23.
    pub fn hour(self) -> i64 {
        (self.0 + OFFSET).rem_euclid(DAY) / 3600
    }

    /// The minute of the hour, 0–59.
    pub fn minute(self) -> i64 {
        (self.0 + OFFSET).rem_euclid(3600) / 60
    }

    /// Year, month and day.
    pub fn date(self) -> (i64, i64, i64) {
        // Years that begin in March end with the leap day, so that months need no exceptions: five of them have
        // 153 days, wherever the five begin.
        let days = (self.0 + OFFSET).div_euclid(DAY) + 719_468;
        let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        (era * 400 + year + i64::from(month <= 2), month, day)
    }
}

/// Days from the beginning of 1970 to this date: the inverse of [`Taipei::date`].
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let month = (month + 9) % 12;
    era * 146_097 + 365 * year + year / 4 - year / 100 + (153 * month + 2) / 5 + day - 1 - 719_468
}

fn offset(text: &str) -> Option<i64> {
    let (sign, text) = match text.split_at_checked(1)? {
        ("Z", "") => return Some(0),
        ("+", text) => (1, text),
        ("-", text) => (-1, text),
        _ => return None,
    };
    let [hours, minutes] = numbers(text, ':')?;
    Some(sign * (hours * 3600 + minutes * 60))
}

/// Exactly `N` short decimal numbers between separators.
fn numbers<const N: usize>(text: &str, separator: char) -> Option<[i64; N]> {
    let plain = |part: &&str| (1..=4).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    let parts: Option<Vec<i64>> =
        text.split(separator).map(|part| Some(part).filter(plain)?.parse().ok()).collect();
    parts?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn offsets_are_taken_off_and_none_means_taipei() {
        let six = Taipei::parse("2026-03-01T06:00:00+08:00").unwrap();
        for same in ["2026-03-01T06:00", "2026-02-28T22:00:00Z", "2026-02-28T17:30-04:30"] {
            assert_eq!(Taipei::parse(same), Some(six), "{same}");
        }
        assert_eq!((six.unix(), six.hour(), six.date()), (1_772_316_000, 6, (2026, 3, 1)));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        let wrong =
            ["", "2026-03-01", "2026-13-01T00:00", "2026-03-01T24:00", "2026-03-01T06", "20-03-0106:00"];
        for text in
            wrong.into_iter().chain(["2026-03-01T06:00+8", "二〇二六年三月一日早上", "2026-03-01T06:00ZZ"])
        {
            assert_eq!(Taipei::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_leap_day_and_the_turn_of_the_year_have_their_dates() {
        for (text, date) in [
            ("2024-02-29T23:59", (2024, 2, 29)),
            ("2024-03-01T00:00", (2024, 3, 1)),
            ("2025-12-31T16:00Z", (2026, 1, 1)),
            ("1970-01-01T00:00Z", (1970, 1, 1)),
        ] {
            assert_eq!(Taipei::parse(text).unwrap().date(), date, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_moment_reads_back_as_it_is_written(seconds in 0i64..253_402_214_400) {
            let moment = Taipei::from_unix(seconds - seconds % 60);
            let (year, month, day) = moment.date();
            let text = format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}", moment.hour(), moment.minute());
            prop_assert_eq!(Taipei::parse(&text), Some(moment));
        }

        #[test]
        fn no_moment_and_no_text_panics(seconds: i64, hours: i64, text: String) {
            let moment = Taipei::from_unix(seconds).plus_hours(hours);
            prop_assert!((0..24).contains(&moment.hour()) && (1..=12).contains(&moment.date().1));
            prop_assert!(moment.three_hours() <= moment);
            let _ = Taipei::parse(&text);
        }
    }
}
