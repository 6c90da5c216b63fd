//! Amounts: decimals, exactly as they were written.

use std::fmt;

/// The most digits before the point.
pub const MAX_WHOLE: usize = 18;
/// The most digits after it.
pub const MAX_FRACTION: usize = 8;

/// A decimal number that remembers its digits: `100.10` is not `100.1`. Nothing here computes with it, so nothing
/// rounds it.
#[derive(Clone, PartialEq, Eq)]
pub struct Decimal(String);

impl Decimal {
    /// Reads a JSON number without an exponent, or says why it cannot be one.
    pub fn parse(text: &str) -> Result<Decimal, &'static str> {
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let unsigned = text.strip_prefix('-').unwrap_or(text);
        let (whole, fraction) = match unsigned.split_once('.') {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (unsigned, None),
        };
        let json = whole == "0" || !whole.starts_with('0');
        if !json || !digits(whole) || !fraction.is_none_or(digits) {
            let exponent =
                unsigned.starts_with(|c: char| c.is_ascii_digit()) && unsigned.contains(['e', 'E']);
            return Err(if exponent { "不可使用指數寫法" } else { "必須是數字" });
        }
        if whole.len() > MAX_WHOLE || fraction.is_some_and(|fraction| fraction.len() > MAX_FRACTION) {
            return Err("最多 18 位整數與 8 位小數");
        }
        Ok(Decimal(text.to_owned()))
    }

    pub(crate) fn one() -> Decimal {
        Decimal("1".to_owned())
    }

    /// Whether it is below zero; `-0` is not.
    pub fn is_negative(&self) -> bool {
        self.0.starts_with('-') && !self.is_zero()
    }

    /// Whether it is nothing at all.
    pub fn is_zero(&self) -> bool {
        self.0.bytes().all(|b| b"-0.".contains(&b))
    }

    /// Its digits, a JSON number.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Amounts are nobody's business in a log.
impl fmt::Debug for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decimal(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_comes_back_digit_for_digit() {
        for text in
            ["0", "0.1", "0.30000000", "100.10", "-5", "-0.0", "123456789012345678.12345678", "0.30000004"]
        {
            assert_eq!(Decimal::parse(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn what_is_no_plain_number_is_refused() {
        for text in
            ["", "-", ".5", "5.", "1.2.3", "01", "+1", "NaN", "Infinity", "1,000", "１", "0x10", "--1", "e5"]
        {
            assert_eq!(Decimal::parse(text), Err("必須是數字"), "{text}");
        }
        assert_eq!(Decimal::parse("1e3"), Err("不可使用指數寫法"));
        assert_eq!(Decimal::parse("1.5E-3"), Err("不可使用指數寫法"));
        for text in ["1234567890123456789", "0.123456789", "1.000000000"] {
            assert_eq!(Decimal::parse(text), Err("最多 18 位整數與 8 位小數"), "{text}");
        }
    }

    #[test]
    fn zero_has_no_sign() {
        let decimal = |text| Decimal::parse(text).unwrap();
        assert!(decimal("0.000").is_zero() && decimal("-0").is_zero() && !decimal("0.01").is_zero());
        assert!(
            decimal("-0.01").is_negative() && !decimal("-0").is_negative() && !decimal("1").is_negative()
        );
    }
}
