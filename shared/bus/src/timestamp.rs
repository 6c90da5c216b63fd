//! ISO 8601, as every language's default formatter writes it: `2025-11-03T08:15:30.123456`, with or without an offset.
//!
//! Nothing here computes with the time; it is only looked at so that no reader downstream stumbles over it.

/// Whether `text` is a date and a time of the extended format. Seconds and their fraction may be left out; `Z`,
/// `+09`, `+0900` and `+09:00` are offsets, and no offset means UTC.
pub(crate) fn is_timestamp(text: &str) -> bool {
    parse(text).is_some()
}

fn parse(text: &str) -> Option<()> {
    let (date, time) = text.split_once('T')?;
    let [year, month, day] = split(date, '-')?;
    let year = number(year, 4)?;
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match number(month, 2)? {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    within(number(day, 2)?, 1, days)?;

    let offset = time.find(['Z', '+', '-']).unwrap_or(time.len());
    let (time, offset) = time.split_at(offset);
    let (clock, fraction) = time.split_once(['.', ',']).map_or((time, None), |(c, f)| (c, Some(f)));
    let (minutes, seconds) = match clock.len() {
        5 => (clock, None),
        _ => clock.rsplit_once(':').map(|(minutes, seconds)| (minutes, Some(seconds)))?,
    };
    let [hour, minute] = split(minutes, ':')?;
    within(number(hour, 2)?, 0, 23)?;
    within(number(minute, 2)?, 0, 59)?;
    if let Some(seconds) = seconds {
        // 60 is a leap second.
        within(number(seconds, 2)?, 0, 60)?;
    }
    if let Some(fraction) = fraction {
        seconds?;
        number(fraction, fraction.len())?;
    }

    match offset.strip_prefix(['+', '-']) {
        None if offset.is_empty() || offset == "Z" => Some(()),
        None => None,
        Some(offset) => {
            let (hours, minutes) = match offset.len() {
                2 => (offset, "00"),
                4 => offset.split_at_checked(2)?,
                _ => offset.split_once(':')?,
            };
            within(number(hours, 2)?, 0, 23)?;
            within(number(minutes, 2)?, 0, 59)
        }
    }
}

fn split<const N: usize>(text: &str, by: char) -> Option<[&str; N]> {
    text.split(by).collect::<Vec<_>>().try_into().ok()
}

/// Exactly so many digits, at least one; a fraction may have more than a number holds, and is not kept.
fn number(text: &str, digits: usize) -> Option<u32> {
    let plain = !text.is_empty() && text.len() == digits && text.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| text.parse().unwrap_or(u32::MAX))
}

fn within(number: u32, least: u32, most: u32) -> Option<()> {
    (least..=most).contains(&number).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_formatters_write_is_a_timestamp() {
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
            assert!(is_timestamp(text), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
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
            assert!(!is_timestamp(text), "{text}");
        }
    }
}
