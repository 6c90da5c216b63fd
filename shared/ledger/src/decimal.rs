//! Amounts as they were written, and exact totals of them.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Mul};

/// The most digits that an amount has before the point.
const MAX_WHOLE_DIGITS: usize = 18;
/// The most digits that an amount has after the point.
const MAX_FRACTION_DIGITS: usize = 8;

/// A decimal number with the digits that were written: `100.10` is not `100.1`.
///
/// The product of two is a [`Total`], which is exact and can be added up.
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
        if whole.len() > MAX_WHOLE_DIGITS
            || fraction.is_some_and(|fraction| fraction.len() > MAX_FRACTION_DIGITS)
        {
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

    /// Whether it is zero, however it is written.
    pub fn is_zero(&self) -> bool {
        self.0.bytes().all(|b| b"-0.".contains(&b))
    }

    /// Whether it is the same number, however it is written.
    pub(crate) fn is_equal(&self, other: &Decimal) -> bool {
        self.units() == other.units()
    }

    /// The text that was parsed, a JSON number.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value in units of 10⁻⁸, below 10²⁶.
    fn units(&self) -> i128 {
        let digits = self.0.bytes().filter(u8::is_ascii_digit);
        let value = digits.fold(0, |value, digit| value * 10 + i128::from(digit - b'0'));
        let fraction_digits = self.0.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        let value = (fraction_digits..MAX_FRACTION_DIGITS).fold(value, |value, _| value * 10);
        if self.0.starts_with('-') { -value } else { value }
    }
}

/// Amounts must not get into logs.
impl fmt::Debug for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decimal(…)")
    }
}

/// A sum of products of decimals, exact: no digit is rounded, and 10¹² of the largest products fit.
///
/// `Display` writes as many digits after the point as are needed: `100.10` × `1.0` is `100.1`.
///
/// A product has up to 52 digits, more than an `i128` holds, so that the value is `high` × 10²⁶ + `low`, in units of
/// 10⁻¹⁶. (`bigdecimal` and `num-bigint` would do this too, for 76 and 55 KB more in each function.)
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Total {
    high: i128,
    /// From 0 to below 10²⁶, so that each value has one representation, and their order is that of the numbers.
    low: i128,
}

const HALF_LIMB: i128 = 10_i128.pow(13);
const LIMB: i128 = 10_i128.pow(26);
const TOTAL_FRACTION_DIGITS: usize = 2 * MAX_FRACTION_DIGITS;

impl Total {
    fn new(high: i128, low: i128) -> Total {
        Total { high: high + low.div_euclid(LIMB), low: low.rem_euclid(LIMB) }
    }
}

impl Mul for &Decimal {
    type Output = Total;

    /// Long multiplication, with two halves of 13 digits each.
    fn mul(self, other: &Decimal) -> Total {
        let halves = |decimal: &Decimal| (decimal.units() / HALF_LIMB, decimal.units() % HALF_LIMB);
        let ((a1, a0), (b1, b0)) = (halves(self), halves(other));
        let middle = a1 * b0 + a0 * b1;
        Total::new(a1 * b1 + middle / HALF_LIMB, middle % HALF_LIMB * HALF_LIMB + a0 * b0)
    }
}

impl Add for Total {
    type Output = Total;

    fn add(self, other: Total) -> Total {
        Total::new(self.high + other.high, self.low + other.low)
    }
}

impl Sum for Total {
    fn sum<I: Iterator<Item = Total>>(totals: I) -> Total {
        totals.fold(Total::default(), Add::add)
    }
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let negative = self.high < 0;
        let Total { high, low } = if negative { Total::new(-self.high, -self.low) } else { *self };
        let digits = match high {
            0 => format!("{low:0width$}", width = TOTAL_FRACTION_DIGITS + 1),
            _ => format!("{high}{low:026}"),
        };
        let (whole, fraction) = digits.split_at(digits.len() - TOTAL_FRACTION_DIGITS);
        let fraction = fraction.trim_end_matches('0');
        let (sign, point) = (if negative { "-" } else { "" }, if fraction.is_empty() { "" } else { "." });
        write!(f, "{sign}{whole}{point}{fraction}")
    }
}

/// Totals must not get into logs either.
impl fmt::Debug for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Total(…)")
    }
}

#[cfg(test)]
mod tests {
    use bigdecimal::BigDecimal;
    use proptest::prelude::*;

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

    fn total(products: &[(&str, &str)]) -> String {
        let decimal = |text: &str| Decimal::parse(text).unwrap();
        products.iter().map(|(a, b)| &decimal(a) * &decimal(b)).sum::<Total>().to_string()
    }

    #[test]
    fn a_total_has_the_digits_that_it_needs() {
        assert_eq!(total(&[]), "0");
        assert_eq!(total(&[("100.10", "1.0")]), "100.1");
        assert_eq!(total(&[("0.1", "1"), ("0.2", "1")]), "0.3");
        assert_eq!(total(&[("12.5", "31.5"), ("120", "1")]), "513.75");
        assert_eq!(total(&[("0.00000001", "0.00000001")]), "0.0000000000000001");
        assert_eq!(total(&[("-0", "1"), ("-0.0", "7")]), "0");
        assert_eq!(total(&[("-2.5", "3"), ("0.5", "1")]), "-7");
    }

    #[test]
    fn the_largest_amounts_lose_no_digit() {
        let most = "999999999999999999.99999999";
        assert_eq!(total(&[(most, most)]), "999999999999999999999999980000000000.0000000000000001");
        let two = total(&[(most, most), (most, most)]);
        assert_eq!(two, "1999999999999999999999999960000000000.0000000000000002");
        let month = total(&vec![(most, most); 10_000]);
        assert_eq!(month, "9999999999999999999999999800000000000000.000000000001");
    }

    /// What `Decimal::parse` takes.
    const DECIMAL: &str = r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,8})?";

    proptest! {
        #[test]
        fn totals_are_those_of_a_big_decimal(
            products in prop::collection::vec((DECIMAL, DECIMAL), 0..8),
        ) {
            let value = |text: &str| text.parse::<BigDecimal>().unwrap();
            let exact: BigDecimal = products.iter().map(|(a, b)| value(a) * value(b)).sum();
            let pairs: Vec<_> = products.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
            prop_assert_eq!(total(&pairs), exact.normalized().to_plain_string());
        }

        #[test]
        fn totals_are_in_the_order_of_their_numbers(a in -999..999, b in -999..999, rate in "[1-9][0-9]{17}") {
            let rate = Decimal::parse(&rate).unwrap();
            let total = |n: i32| &Decimal::parse(&n.to_string()).unwrap() * &rate;
            prop_assert_eq!(total(a).cmp(&total(b)), a.cmp(&b));
            prop_assert_eq!(total(a) + total(b), total(a + b));
        }
    }
}
