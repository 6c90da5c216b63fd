//! ISO 8601, as every language's default formatter writes it: `2025-11-03T08:15:30.123456`, with or without an offset.

use std::time::{SystemTime, UNIX_EPOCH};

use time::{PlainDateTime, Time, UtcDateTime};

use crate::{date, parse_pattern};

/// Whether `text` is a date and a time in the extended format. Seconds and their fraction may be left out; `Z`,
/// `+09`, `+0900` and `+09:00` are offsets, and there may be none.
pub fn is_iso8601(text: &str) -> bool {
    parse(text).is_some()
}

/// The present time in UTC, to the millisecond: `2025-11-03T08:15:30.123Z`.
pub fn utc_now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let nanos = i128::try_from(since.as_nanos()).unwrap_or(i128::MAX);
    let now = UtcDateTime::from_unix_timestamp_nanos(nanos).unwrap_or(UtcDateTime::MAX);
    let (year, month, day) = now.to_calendar_date();
    let (hour, minute, second, milli) = now.time().as_hms_milli();
    format!("{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z", u8::from(month))
}

/// The date and the time that are written, and the offset from UTC in seconds if there is one.
pub(crate) fn parse(text: &str) -> Option<(PlainDateTime, Option<i64>)> {
    let (date, time) = text.split_once('T')?;
    let date = date::parse(date)?;
    let (time, offset) = time.split_at(time.find(['Z', '+', '-']).unwrap_or(time.len()));
    let [hour, minute, second] = match time.split_once(['.', ',']) {
        Some((time, fraction)) => parse_pattern(time, "hh:mm:ss").filter(|_| is_digits(fraction))?,
        None => parse_pattern(time, "hh:mm:ss").or_else(|| {
            let [hour, minute] = parse_pattern(time, "hh:mm")?;
            Some([hour, minute, 0])
        })?,
    };
    // 60 is a leap second. `time` has none, so it counts as the second before it.
    let second = if second == 60 { 59 } else { second };
    let time = Time::from_hms(hour as u8, minute as u8, second as u8).ok()?;
    let offset = if offset.is_empty() { None } else { Some(offset_seconds(offset)?) };
    Some((PlainDateTime::new(date, time), offset))
}

fn offset_seconds(text: &str) -> Option<i64> {
    let (sign, text) = match text.split_at_checked(1)? {
        ("Z", "") => return Some(0),
        ("+", text) => (1, text),
        ("-", text) => (-1, text),
        _ => return None,
    };
    let [hours, minutes] =
        parse_pattern(text, "hh:mm").or_else(|| parse_pattern(text, "hhmm")).or_else(|| {
            let [hours] = parse_pattern(text, "hh")?;
            Some([hours, 0])
        })?;
    let seconds = i64::from(hours) * 3600 + i64::from(minutes) * 60;
    (hours < 24 && minutes < 60).then_some(sign * seconds)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_present_is_written_in_utc() {
        let seconds = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
        let before = seconds();
        let text = utc_now();
        let after = seconds();
        let (written, offset) = parse(&text).unwrap();
        assert_eq!((offset, text.len()), (Some(0), "2025-11-03T08:15:30.123Z".len()));
        assert!((before..=after).contains(&written.as_utc().unix_timestamp()), "{text}");
    }

    #[test]
    fn what_formatters_write_is_iso_8601() {
        for text in [
            "2025-11-03T08:15:30.123456",
            "2025-11-03T08:15:30",
            "2025-11-03T08:15",
            "2025-11-03T08:15:30Z",
            "2025-11-03T08:15:30.123Z",
            "2025-11-03T08:15:30,5+09:00",
            "2025-11-03T08:15:30-0330",
            "2025-11-03T08:15:30+09",
            "2024-02-29T23:59:60Z",
            "2000-02-29T00:00:00.12345678901234567890Z",
        ] {
            assert!(is_iso8601(text), "{text}");
        }
    }

    #[test]
    fn what_is_no_date_with_a_time_is_refused() {
        for text in [
            "",
            "now",
            "1762157730",
            "2025-11-03",
            "08:15:30",
            "2025-11-03 08:15:30",
            "2025-13-03T08:15:30",
            "2025-00-03T08:15:30",
            "2025-02-29T08:15:30",
            "1900-02-29T08:15:30",
            "2025-04-31T08:15:30",
            "2025-11-00T08:15:30",
            "2025-11-03T24:00:00",
            "2025-11-03T08:60:00",
            "2025-11-03T08:15:61",
            "2025-11-03T08:15.5",
            "2025-11-03T08:15:30.",
            "2025-11-03T08:15:30.Z",
            "2025-11-03T08:15:30z",
            "2025-11-03T08:15:30+24:00",
            "2025-11-03T08:15:30+9",
            "2025-11-03T08:15:30ZZ",
            "2025-11-03T08:15:30Z ",
            "２０２５-11-03T08:15:30",
            "2025-11-03T08:15:30+é1",
            "25-11-03T08:15:30",
            "+2025-11-03T08:15:30",
        ] {
            assert!(!is_iso8601(text), "{text}");
        }
    }
}
