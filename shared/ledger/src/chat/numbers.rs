//! Numbers as people write them: `1,200`, `1.5萬`, `2萬5`, `三百`, `兩百五`, `一千二`.

use crate::{Decimal, Reason};

/// A number in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Numeral {
    /// How many characters of the text it takes.
    pub(super) len: usize,
    /// Its value; `Err` for a number that no amount can be.
    pub(super) value: Result<Decimal, Reason>,
    /// Whether it is written in Chinese characters alone, which are in many other words too.
    pub(super) is_chinese: bool,
}

const TOO_LONG: Reason = "最多 18 位整數與 8 位小數";
pub(super) const NO_NUMBER: Reason = "必須是數字";

/// The number that begins at `at`, without a sign.
pub(super) fn numeral(text: &[char], at: usize) -> Option<Numeral> {
    arabic(text, at).or_else(|| chinese(text, at))
}

/// Digits with commas between thousands, then perhaps 萬, 千, 百 or k.
fn arabic(text: &[char], at: usize) -> Option<Numeral> {
    let mut end = at + count(text, at, |c| c.is_ascii_digit());
    if end == at {
        return None;
    }
    let mut digits: String = text[at..end].iter().collect();
    if digits.len() <= 3 {
        // A comma before exactly three digits.
        while text.get(end) == Some(&',') && count(text, end + 1, |c| c.is_ascii_digit()) == 3 {
            digits.extend(&text[end + 1..end + 4]);
            end += 4;
        }
    }
    if text.get(end) == Some(&'.') && text.get(end + 1).is_some_and(char::is_ascii_digit) {
        let fraction = count(text, end + 1, |c| c.is_ascii_digit());
        digits.extend(&text[end..=end + fraction]);
        end += 1 + fraction;
    }
    let found = |end: usize, value| Some(Numeral { len: end - at, value, is_chinese: false });
    // `60w` is watts, `1.5w` is 1.5萬.
    let is_power = |c: &&char| **c != 'w' || digits.contains('.');
    let Some(power) = text.get(end).filter(is_power).and_then(|c| power(*c)) else {
        return found(end, Decimal::parse(&digits));
    };
    if text[end].is_ascii() && text.get(end + 1).is_some_and(char::is_ascii_alphanumeric) {
        return found(end, Decimal::parse(&digits));
    }
    end += 1;
    let Some(mut units) = scaled(&digits, power) else { return found(end, Err(TOO_LONG)) };
    // `2萬5` is 25000, `2萬5000` too, `2萬 5000` too; `1萬2千` goes on.
    let has_fraction = digits.contains('.');
    if power > 1 && !has_fraction {
        let (rest, len) = rest(text, end, power);
        units += rest;
        end += len;
    }
    found(end, to_decimal(units))
}

/// What follows a number with a power of ten, and how many characters that takes.
fn rest(text: &[char], at: usize, power: u32) -> (i128, usize) {
    let gap = usize::from(text.get(at) == Some(&' '));
    let begin = at + gap;
    let digits = count(text, begin, |c| c.is_ascii_digit());
    let after = text.get(begin + digits).copied().unwrap_or(' ');
    let value: i128 = text[begin..begin + digits].iter().collect::<String>().parse().unwrap_or(0);
    let next = self::power(after).filter(|next| *next < power && digits > 0 && gap == 0 && !after.is_ascii());
    match (gap, digits, next) {
        (0, 1.., Some(next)) if digits <= 3 => {
            let (rest, len) = rest(text, begin + digits + 1, next);
            (value * 10_i128.pow(next + 8) + rest, digits + 1 + len)
        }
        _ if after.is_ascii_alphanumeric() || after == '.' || after == ',' => (0, 0),
        (0, 1, _) => (value * 10_i128.pow(power - 1 + 8), 1),
        (0, 2.., _) if digits <= power as usize => (value * 10_i128.pow(8), digits),
        (1, 4, _) if power == 4 => (value * 10_i128.pow(8), 5),
        (0, 0, _) => match text.get(at).and_then(|c| digit(*c)) {
            // `3百五`
            Some(value) if value > 0 => (i128::from(value) * 10_i128.pow(power - 1 + 8), 1),
            _ => (0, 0),
        },
        _ => (0, 0),
    }
}

/// Decimal digits times a power of ten, in units of 10⁻⁸.
fn scaled(digits: &str, power: u32) -> Option<i128> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole: i128 = Some(whole).filter(|whole| whole.len() <= 18)?.parse().ok()?;
    let fraction_units: i128 = format!("{fraction:0<8}").get(..8)?.parse().ok()?;
    (fraction.len() <= 8).then(|| (whole * 100_000_000 + fraction_units) * 10_i128.pow(power))
}

fn to_decimal(units: i128) -> Result<Decimal, Reason> {
    let text = format!("{}.{:08}", units / 100_000_000, units % 100_000_000);
    Decimal::parse(text.trim_end_matches('0').trim_end_matches('.'))
}

/// Chinese digits with 十, 百, 千 or 萬 among them; a single digit is one too.
fn chinese(text: &[char], at: usize) -> Option<Numeral> {
    let len = count(text, at, |c| digit(*c).is_some() || power_of_chinese(*c).is_some());
    let run = &text[at..at + len];
    if len == 0 {
        return None;
    }
    let value = chinese_value(run).ok_or(NO_NUMBER).and_then(|value| Decimal::parse(&value.to_string()));
    Some(Numeral { len, value, is_chinese: true })
}

/// The value of a whole run of Chinese digits.
pub(super) fn chinese_value(run: &[char]) -> Option<u64> {
    let (mut total, mut section, mut pending) = (0_u64, 0_u64, None::<u64>);
    let (mut last, mut zero) = (0_u32, false);
    for (n, c) in run.iter().enumerate() {
        match (digit(*c), power_of_chinese(*c)) {
            (Some(0), _) if pending.is_none() && n > 0 => zero = true,
            (Some(value), _) if pending.is_none() && value > 0 => pending = Some(value.into()),
            (_, Some(4)) if total == 0 && (section > 0 || pending.is_some()) => {
                total = (section + pending.take().unwrap_or(0)) * 10_000;
                (section, last, zero) = (0, 4, false);
            }
            (_, Some(power @ 1..=3)) if last == 0 || last > power || total > 0 && section == 0 => {
                // 十 alone is ten; 百 and 千 need a digit.
                let value = pending.take().or((power == 1 && n == 0).then_some(1))?;
                section += value * 10_u64.pow(power);
                (last, zero) = (power, false);
            }
            _ => return None,
        }
    }
    let ones = match pending {
        // 一百二 is 120, 一百零二 is 102.
        Some(value) if last > 1 && !zero => value * 10_u64.pow(last - 1),
        other => other.unwrap_or(0),
    };
    Some(total + section + ones)
}

/// The value of a Chinese digit.
fn digit(c: char) -> Option<u8> {
    Some(match c {
        '零' | '〇' => 0,
        '一' | '壹' => 1,
        '二' | '兩' | '两' | '貳' => 2,
        '三' | '參' => 3,
        '四' | '肆' => 4,
        '五' | '伍' => 5,
        '六' | '陸' => 6,
        '七' | '柒' => 7,
        '八' | '捌' => 8,
        '九' | '玖' => 9,
        _ => return None,
    })
}

fn power_of_chinese(c: char) -> Option<u32> {
    Some(match c {
        '十' | '拾' => 1,
        '百' | '佰' => 2,
        '千' | '仟' => 3,
        '萬' | '万' => 4,
        _ => return None,
    })
}

/// The power of ten of a sign behind Arabic digits.
fn power(c: char) -> Option<u32> {
    match c {
        'k' | 'K' => Some(3),
        'w' => Some(4),
        '十' | '拾' => None,
        c => power_of_chinese(c),
    }
}

/// How many characters from `at` on are of a kind.
pub(super) fn count(text: &[char], at: usize, is: impl Fn(&char) -> bool) -> usize {
    text.get(at..).unwrap_or_default().iter().take_while(|c| is(c)).count()
}

/// A whole number of at most `longest` characters at `at`, in digits of either kind, and its length.
pub(super) fn small(text: &[char], at: usize, longest: usize) -> Option<(u16, usize)> {
    let digits = count(text, at, |c| c.is_ascii_digit());
    if digits > 0 {
        let value = text[at..at + digits].iter().collect::<String>();
        return (digits <= longest).then(|| Some((value.parse().ok()?, digits)))?;
    }
    let len = count(text, at, |c| digit(*c).is_some() || *c == '十');
    let value = chinese_value(text.get(at..at + len).filter(|run| !run.is_empty())?)?;
    (value < 100).then(|| Some((u16::try_from(value).ok()?, len)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(usize, String)> {
        let chars: Vec<char> = text.chars().collect();
        let found = numeral(&chars, 0)?;
        Some((found.len, found.value.map_or_else(|reason| reason.to_owned(), |v| v.as_str().to_owned())))
    }

    #[test]
    fn people_write_numbers_in_many_ways() {
        for (text, len, value) in [
            ("120", 3, "120"),
            ("1,200", 5, "1200"),
            ("1,234,567 元", 9, "1234567"),
            ("12,34", 2, "12"),
            ("1200,300", 4, "1200"),
            ("45.50", 5, "45.50"),
            ("45.", 2, "45"),
            ("1.5萬", 4, "15000"),
            ("1.25萬", 5, "12500"),
            ("2萬5", 3, "25000"),
            ("2萬5000", 6, "25000"),
            ("2萬 5000 轉帳", 7, "25000"),
            ("2萬 500 轉帳", 2, "20000"),
            ("2萬500", 5, "20500"),
            ("1萬2千3", 5, "12300"),
            ("3百", 2, "300"),
            ("3百5", 3, "350"),
            ("3百五", 3, "350"),
            ("5千2", 3, "5200"),
            ("5k", 2, "5000"),
            ("5kg", 1, "5"),
            ("三百", 2, "300"),
            ("兩百五", 3, "250"),
            ("一千二", 3, "1200"),
            ("一百二十", 4, "120"),
            ("一百零五", 4, "105"),
            ("十五", 2, "15"),
            ("二十", 2, "20"),
            ("三萬五", 3, "35000"),
            ("兩萬五千", 4, "25000"),
            ("一萬零五百", 5, "10500"),
            ("十二萬", 3, "120000"),
            ("五", 1, "5"),
            ("百", 1, NO_NUMBER),
            ("三三", 2, NO_NUMBER),
            ("萬", 1, NO_NUMBER),
            ("1234567890123456789", 19, TOO_LONG),
            ("999999999999999999萬", 19, TOO_LONG),
            ("0912", 4, NO_NUMBER),
        ] {
            assert_eq!(read(text), Some((len, value.to_owned())), "{text}");
        }
        assert_eq!(read("午"), None);
    }
}
