use std::time::{SystemTime, UNIX_EPOCH};

use time::{PlainDateTime, SignedDuration, Time, UtcDateTime};

use crate::{Date, iso8601, parse_pattern};

/// Taiwan is at UTC+8 all year.
const TAIPEI_OFFSET_SECONDS: i64 = 8 * 3600;

/// A point in time, to the second, as date and time in Taipei (UTC+8), in the years 1 to 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(PlainDateTime);

impl Moment {
    /// The present second.
    pub fn now() -> Moment {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // A clock beyond the year 9999 is as wrong as one before 1970, which counts as 1970.
        i64::try_from(since.as_secs()).ok().and_then(Moment::from_unix).unwrap_or(Moment(PlainDateTime::MAX))
    }

    /// This many seconds after the beginning of 1970 in UTC; `None` outside the years 1 to 9999.
    pub fn from_unix(seconds: i64) -> Option<Moment> {
        let local = UtcDateTime::from_unix_timestamp(seconds.checked_add(TAIPEI_OFFSET_SECONDS)?).ok()?;
        Moment::in_range(PlainDateTime::new(local.date(), local.time()))
    }

    fn in_range(local: PlainDateTime) -> Option<Moment> {
        Date::in_range(local.date()).map(|_| Moment(local))
    }

    /// Seconds since the beginning of 1970 in UTC.
    pub fn unix(self) -> i64 {
        self.0.as_utc().unix_timestamp() - TAIPEI_OFFSET_SECONDS
    }

    /// Reads ISO 8601, as [`is_iso8601`](crate::is_iso8601) takes it; without an offset it is Taipei's own time.
    /// Fractions of a second are dropped.
    pub fn parse(text: &str) -> Option<Moment> {
        match iso8601::parse(text)? {
            (local, None) => Moment::in_range(local),
            (local, Some(offset)) => Moment::from_unix(local.as_utc().unix_timestamp() - offset),
        }
    }

    /// Reads the form of an id: `YYYYMMDD-HHMMSS`.
    pub fn parse_id(text: &str) -> Option<Moment> {
        let [year, month, day, hour, minute, second] = parse_pattern(text, "YYYYMMDD-hhmmss")?;
        let date = Date::new(year, month as u8, day as u8)?;
        let time = Time::from_hms(hour as u8, minute as u8, second as u8).ok()?;
        Some(Moment(PlainDateTime::new(date.0, time)))
    }

    /// The same moment in the form of an id: `YYYYMMDD-HHMMSS`.
    pub fn id(self) -> String {
        let (date, (hour, minute, second)) = (self.date(), self.0.as_hms());
        let (year, month, day) = (date.year(), date.month(), date.day());
        format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
    }

    /// The date in Taipei.
    pub fn date(self) -> Date {
        Date(self.0.date())
    }

    /// The time of day: `HH:MM`.
    pub fn time(self) -> String {
        format!("{:02}:{:02}", self.hour(), self.minute())
    }

    /// The hour of the day, 0 to 23.
    pub fn hour(self) -> u8 {
        self.0.hour()
    }

    /// The minute of the hour, 0 to 59.
    pub fn minute(self) -> u8 {
        self.0.minute()
    }

    /// The next second; `None` after the last of the year 9999.
    pub fn next_second(self) -> Option<Moment> {
        self.0.checked_add(SignedDuration::SECOND).map(Moment)
    }

    /// The moment `hours` later, at most the end of the year 9999.
    pub fn plus_hours(self, hours: u32) -> Moment {
        Moment(self.0.saturating_add(SignedDuration::hours(hours.into())))
    }

    /// The beginning of the three hours that it falls into: midnight, three, six …
    pub fn start_of_three_hours(self) -> Moment {
        let into = SignedDuration::hours((self.hour() % 3).into());
        Moment(self.0.truncate_to_hour().saturating_sub(into))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(text: &str) -> Moment {
        Moment::parse_id(text).unwrap()
    }

    #[test]
    fn taipei_is_eight_hours_ahead() {
        let moment = Moment::from_unix(1_764_397_800).unwrap();
        assert_eq!((moment.date().to_string(), moment.time()), ("2025-11-29".into(), "14:30".into()));
        assert_eq!(moment.id(), "20251129-143000");
        assert_eq!(Moment::from_unix(0).unwrap().id(), "19700101-080000");
        assert_eq!(Moment::from_unix(-28_801).unwrap().id(), "19691231-235959");
        assert_eq!(Moment::from_unix(i64::MAX), None);
        assert_eq!(Moment::from_unix(i64::MIN), None);
    }

    #[test]
    fn the_calendar_ends_with_the_years_1_and_9999() {
        let (first, last) = (id("00010101-000000"), id("99991231-235959"));
        assert_eq!(Moment::from_unix(first.unix()), Some(first));
        assert_eq!(Moment::from_unix(first.unix() - 1), None);
        assert_eq!(Moment::from_unix(last.unix()), Some(last));
        assert_eq!(Moment::from_unix(last.unix() + 1), None);
    }

    #[test]
    fn an_id_is_a_second_that_exists() {
        for text in ["20251129-143000", "20240229-235959"] {
            assert_eq!(id(text).id(), text);
        }
        for text in
            ["20251129-240000", "20250229-000000", "20251129143000", "2025112-9143000", "20251129-14300", ""]
        {
            assert_eq!(Moment::parse_id(text), None, "{text}");
        }
    }

    #[test]
    fn the_next_second_may_be_the_next_year() {
        assert_eq!(id("20251231-235959").next_second(), Some(id("20260101-000000")));
        assert_eq!(id("99991231-235959").next_second(), None);
    }

    #[test]
    fn offsets_are_taken_off_and_none_means_taipei() {
        let six = Moment::parse("2026-03-01T06:00:00+08:00").unwrap();
        for same in ["2026-03-01T06:00", "2026-02-28T22:00:00Z", "2026-02-28T17:30-04:30"] {
            assert_eq!(Moment::parse(same), Some(six), "{same}");
        }
        assert_eq!((six.unix(), six.hour()), (1_772_316_000, 6));
        assert_eq!(six.date(), Date::new(2026, 3, 1).unwrap());
    }

    #[test]
    fn what_is_no_time_is_refused() {
        let wrong =
            ["", "2026-03-01", "2026-13-01T00:00", "2026-03-01T24:00", "2026-03-01T06", "20-03-0106:00"];
        for text in
            wrong.into_iter().chain(["2026-03-01T06:00+8", "二〇二六年三月一日早上", "2026-03-01T06:00ZZ"])
        {
            assert_eq!(Moment::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_leap_day_and_the_turn_of_the_year_have_their_dates() {
        for (text, date) in [
            ("2024-02-29T23:59", "2024-02-29"),
            ("2024-03-01T00:00", "2024-03-01"),
            ("2025-12-31T16:00Z", "2026-01-01"),
            ("1970-01-01T00:00Z", "1970-01-01"),
        ] {
            assert_eq!(Moment::parse(text).unwrap().date().to_string(), date, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_moment_reads_back_as_it_is_written(seconds in 0i64..253_402_214_400) {
            let moment = Moment::from_unix(seconds - seconds % 60).unwrap();
            prop_assert_eq!(Moment::parse(&format!("{}T{}", moment.date(), moment.time())), Some(moment));
            prop_assert_eq!(Moment::parse_id(&moment.id()), Some(moment));
            prop_assert_eq!(moment.unix(), seconds - seconds % 60);
        }

        #[test]
        fn no_moment_and_no_text_panics(seconds: i64, hours: u32, text: String) {
            // Most of the range of an i64 is in no year that the calendar has; a part of it always is.
            for seconds in [seconds, seconds >> 25] {
                let Some(moment) = Moment::from_unix(seconds) else { continue };
                let moment = moment.plus_hours(hours);
                prop_assert!((0..24).contains(&moment.hour()) && (1..=12).contains(&moment.date().month()));
                prop_assert!(moment.start_of_three_hours() <= moment);
            }
            let _ = Moment::parse(&text);
        }
    }
}
