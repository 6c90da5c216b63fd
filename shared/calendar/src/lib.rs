#![doc = include_str!("../README.md")]

mod date;
mod iso8601;
mod moment;
mod month;

pub use date::Date;
pub use iso8601::{is_iso8601, utc_now};
pub use moment::Moment;
pub use month::Month;

/// Parses `text` by a pattern such as `YYYY-MM-DD`: each group of the same letter is a number with that many digits,
/// and any other character must match. Returns the numbers; `None` if there are not exactly `N`.
fn parse_pattern<const N: usize>(text: &str, pattern: &str) -> Option<[u16; N]> {
    if text.len() != pattern.len() {
        return None;
    }
    let mut numbers = [0; N];
    let (mut count, mut previous) = (0, None);
    for (byte, expected) in text.bytes().zip(pattern.bytes()) {
        if expected.is_ascii_alphabetic() {
            count += usize::from(previous != Some(expected));
            let digit = byte.is_ascii_digit().then(|| u16::from(byte - b'0'))?;
            let number = numbers.get_mut(count - 1)?;
            *number = *number * 10 + digit;
        } else if byte != expected {
            return None;
        }
        previous = Some(expected);
    }
    (count == N).then_some(numbers)
}
