//! Amounts in a text: numbers with their currencies, and numbers that are none.

use super::dates::FRACTIONS;
use super::numbers::{NO_NUMBER, Numeral, count, numeral};
use super::scan::{Kind, Number, Piece, Scanner};
use super::tables::{TABLES, Table};
use crate::Reason;
use crate::currency::{self, HOME};

/// Signs between two numbers that leave open which of them is meant.
const BETWEEN_NUMBERS: [char; 9] = ['-', '~', 'x', 'X', '*', '+', '/', '.', ','];
/// Signs between two numbers, with blanks around them: `375 x 2`.
const TIMES: [char; 4] = ['x', 'X', '*', '+'];
/// Behind a number: it is about as much, and not as much.
const ABOUT: [char; 6] = ['多', '幾', '餘', '來', '億', '兆'];
/// Among these a run of Chinese digits is likely a number.
const POWERS: [char; 5] = ['十', '百', '千', '萬', '万'];
const NEGATIVE: Reason = "不可為負數";
pub(super) const UNCLEAR: Reason = "不清楚，請只寫一個數字，並在後面加上「元」";

fn is_count(c: char) -> bool {
    c.is_ascii_digit() || "兩三四五六七八九十".contains(c)
}

fn is_counting(piece: &Piece) -> bool {
    matches!(&piece.kind, Kind::Words(words) if words.contains(is_count))
}

impl Scanner<'_> {
    /// A number with its currency, if it may be an amount.
    pub(super) fn number(&self) -> Option<(usize, Number)> {
        if self.fraction().is_some() {
            return None;
        }
        let (prefix, begin, is_negative) = self.before_number()?;
        let Numeral { len, value, is_chinese } = numeral(self.text, begin)?;
        let follows_letter = begin > 0 && self.text[begin - 1].is_ascii_alphabetic();
        if prefix.is_none() && (follows_letter || self.is_in_number()) {
            return None;
        }
        let mut end = begin + len;
        let suffix = self.currency_after(end);
        // `100多`: about as much.
        let is_about = self.is_about(end);
        let mut value = value;
        if is_chinese {
            // Many words contain a Chinese digit that is not a number.
            let has_power = len > 1 && self.text[begin..end].iter().any(|c| POWERS.contains(c));
            if suffix.is_none() && !(has_power && (is_about || self.ends_amount(end))) {
                return None;
            }
            // `三四百` has no value either.
            value = value.map_err(|_| UNCLEAR);
        } else if suffix.is_none() {
            let more = self.range_after(end);
            let is_phone = value == Err(NO_NUMBER);
            if more > 0 {
                (value, end) = (Err(UNCLEAR), end + more);
            } else if self.begins_unit(end)
                || self.text.get(end).is_some_and(char::is_ascii_alphabetic)
                || is_phone
            {
                return None;
            }
        }
        let (code, suffix_len) = suffix.map_or((None, 0), |(code, len)| (Some(code), len));
        let currency = match (prefix, code) {
            // `$12美金`, `¥100人民幣`: several currencies use the sign.
            (Some(HOME), Some(code)) | (Some("JPY"), Some(code @ "CNY")) => Some(code),
            // `日幣1000元`: the unit says nothing of its own.
            (Some(prefix), Some(HOME)) if self.is_bare_unit(end) => Some(prefix),
            (Some(prefix), Some(code)) if prefix != code => {
                value = Err(UNCLEAR);
                Some(prefix)
            }
            (prefix, code) => prefix.or(code),
        };
        // `1.200` may be a thousand.
        let has_three_decimals = matches!(&self.text[begin..end], [.., '.', a, b, c]
            if [a, b, c].iter().all(|c| c.is_ascii_digit()));
        let is_thousand = has_three_decimals && currency.is_none_or(|code| code == HOME);
        let value = match value {
            Ok(_) if is_about || is_thousand || prefix.is_none() && self.is_unsure() => Err(UNCLEAR),
            Ok(value) if is_negative && !value.is_zero() => Err(NEGATIVE),
            value => value,
        };
        let follows_letters = self.words_before().ends_with(|c: char| c.is_ascii_alphabetic());
        let follows_numbered = self.words_end_with(&TABLES.words.numbered);
        let text = self.text[self.at..end].iter().collect();
        let number = Number { text, value, currency, follows_letters, follows_numbered };
        Some((end + suffix_len - self.at, number))
    }

    /// The length of a part of a thing: the `1/2` of `1/2 隻烤雞`.
    pub(super) fn fraction(&self) -> Option<usize> {
        let above = count(self.text, self.at, char::is_ascii_digit);
        let slash = self.at + above;
        let below = count(self.text, slash + 1, char::is_ascii_digit);
        let end = slash + 1 + below;
        let is_fraction = above > 0 && below > 0 && self.text.get(slash) == Some(&'/');
        let gap = usize::from(self.text.get(end) == Some(&' '));
        let is_of = self.text.get(end + gap).is_some_and(|c| FRACTIONS.contains(c));
        (is_fraction && is_of).then(|| end - self.at)
    }

    /// Whether a bare unit, such as 元 or 塊, follows a number.
    fn is_bare_unit(&self, end: usize) -> bool {
        let begin = end + usize::from(self.text.get(end) == Some(&' '));
        TABLES.currencies_after.longest(self.text, begin).is_some()
    }

    /// The currency before a number, where the number begins, and whether it is negative.
    fn before_number(&self) -> Option<(Option<&'static str>, usize, bool)> {
        let (prefix, gap) = self.currency_before();
        let begin = self.at + gap;
        let sign = *self.text.get(begin)?;
        // `-$120`
        if sign == '-' && prefix.is_none() && self.words.is_empty() && !(self.is_glued && self.at > 0) {
            let currency = self.currency_at(begin + 1, &TABLES.currencies);
            let number = currency.map(|(code, len)| (code, begin + 1 + len));
            if let Some((code, at)) =
                number.filter(|(_, at)| self.text.get(*at).is_some_and(char::is_ascii_digit))
            {
                return Some((Some(code), at, true));
            }
        }
        if !['-', '+'].contains(&sign) {
            return Some((prefix, begin, self.words.ends_with('負')));
        }
        // A dash between an item and its amount is a dash.
        let is_dash = !self.words.is_empty() || gap == 0 && self.is_glued && self.at > 0;
        let is_sign =
            self.text.get(begin + 1).is_some_and(char::is_ascii_digit) && (!is_dash || prefix.is_some());
        is_sign.then_some((prefix, begin + 1, sign == '-'))
    }

    /// How many characters of a range or a sum follow a number: `100~200`, `50x2`.
    fn range_after(&self, end: usize) -> usize {
        let is_number = |c: &char| c.is_ascii_digit() || *c == '$';
        // `375 x 2`
        let gap = usize::from(self.text.get(end) == Some(&' ') && self.text.get(end + 2) == Some(&' '));
        let begins = self.text.get(end + gap).is_some_and(|c| match gap {
            0 => BETWEEN_NUMBERS.contains(c),
            _ => TIMES.contains(c),
        });
        if gap == 1 && begins && self.text.get(end + 3).is_some_and(is_number) {
            return 3 + count(self.text, end + 3, char::is_ascii_digit);
        }
        match gap == 0 && begins && self.text.get(end + 1).is_some_and(is_number) {
            true => count(self.text, end, |c| is_number(c) || BETWEEN_NUMBERS.contains(c)),
            false => 0,
        }
    }

    /// Whether a number is only about as much: `100多`, `300 多`, `1億`.
    fn is_about(&self, end: usize) -> bool {
        let gap = usize::from(self.text.get(end) == Some(&' '));
        self.text.get(end + gap).is_some_and(|c| ABOUT.contains(c)) && (gap == 0 || self.is_boundary(end + 2))
    }

    /// Whether the words before a number say that it is not what was paid: `原價 500`, `4人 每人 250`.
    fn is_unsure(&self) -> bool {
        // `一杯 55`, `每瓶 95`
        let before: Vec<char> = self.words_before().chars().collect();
        let one = before.iter().rposition(|c| ['一', '每'].contains(c));
        let is_of_one = one.is_some_and(|one| {
            let unit = TABLES.units.longest(&before, one + 1);
            unit.is_some_and(|unit| one + 1 + unit.len == before.len())
        });
        let counted_before = |n: usize| before[..n].iter().any(|c| is_count(*c));
        let has_count = match one {
            Some(one) if is_of_one => counted_before(one) || self.has_count_before(),
            _ => self.has_count(),
        };
        self.words_end_with(&TABLES.words.unsure)
            || (is_of_one || self.words_end_with(&TABLES.words.each)) && has_count
    }

    fn words_end_with(&self, list: &Table) -> bool {
        list.ends(self.words_before())
    }

    /// Whether the words so far say how many there were: 4人.
    fn has_count(&self) -> bool {
        self.words.contains(is_count)
            || self.pieces.last().is_some_and(is_counting)
            || self.has_count_before()
    }

    /// The same of the words before the last ones.
    fn has_count_before(&self) -> bool {
        let skip = usize::from(self.words.is_empty());
        let before = self.pieces.iter().rev().take_while(|piece| !piece.is_break()).skip(skip);
        before.into_iter().any(is_counting)
    }

    /// The words before this place, which a blank may follow.
    fn words_before(&self) -> &str {
        match self.pieces.last() {
            _ if !self.words.is_empty() => &self.words,
            Some(Piece { kind: Kind::Words(words), .. }) => words,
            _ => "",
        }
    }

    /// A currency that is followed by a number, and how many characters come before the number.
    fn currency_before(&self) -> (Option<&'static str>, usize) {
        let Some((code, len)) = self.currency_at(self.at, &TABLES.currencies) else { return (None, 0) };
        let gap = len + usize::from(self.text.get(self.at + len) == Some(&' '));
        let is_number = self.text.get(self.at + gap).is_some_and(|c| c.is_ascii_digit() || *c == '-');
        if is_number { (Some(code), gap) } else { (None, 0) }
    }

    /// A currency behind a number, and how many characters it takes with the blank before it.
    fn currency_after(&self, at: usize) -> Option<(&'static str, usize)> {
        let gap = usize::from(self.text.get(at) == Some(&' '));
        let begin = at + gap;
        let anywhere = self.currency_at(begin, &TABLES.currencies);
        let after = TABLES.currencies_after.longest(self.text, begin).map(|found| (found.name, found.len));
        let (code, len) = anywhere.into_iter().chain(after).max_by_key(|(_, len)| *len)?;
        let is_item = TABLES.items.longest(self.text, begin).is_some_and(|item| item.len > len);
        let is_name = TABLES.names.longest(self.text, begin).is_some_and(|name| name.len > len);
        // `3塊雞排` counts pieces: it is a sum only where the word ends.
        let is_piece = self.text[begin] == '塊' && len == 1 && !self.ends_amount(begin + len);
        let is_sign = self.text[begin] == '$'
            || self.text.get(begin + len).is_some_and(char::is_ascii_digit) && gap > 0;
        let is_apart = gap == 0 || self.ends_amount(begin + len);
        (!is_item && !is_name && !is_piece && !is_sign && is_apart).then_some((code, gap + len))
    }

    fn currency_at(&self, at: usize, words: &Table) -> Option<(&'static str, usize)> {
        let word = words.longest(self.text, at).map(|found| (found.name, found.len));
        let letters = count(self.text, at, char::is_ascii_alphabetic);
        let is_start = at == 0 || !self.text[at - 1].is_ascii_alphabetic();
        let code = (letters == 3 && is_start).then(|| self.text[at..at + 3].iter().collect::<String>());
        let code = code.and_then(|code| {
            let known = currency::code(&code.to_ascii_uppercase())?;
            (code == known || !TABLES.plain_codes.contains(known)).then_some((known, 3))
        });
        word.into_iter().chain(code).max_by_key(|(_, len)| *len)
    }

    /// Whether an amount can end at `at`: nothing follows, or a way to pay, or an item of the list.
    fn ends_amount(&self, at: usize) -> bool {
        let has_payment = || self.payment_at(at).is_some();
        let has_item = || TABLES.items.longest(self.text, at).is_some_and(|item| item.len > 1);
        let is_word = |word: &str| self.begins_with(at, word);
        let ends_sentence = || ["了", "吧", "喔", "啦", "用", "刷", "付"].iter().any(|word| is_word(word));
        self.is_boundary(at) || has_payment() || has_item() || ends_sentence()
    }

    /// Whether a unit follows at `at`, perhaps after a blank: 30 分鐘, 2杯.
    fn begins_unit(&self, at: usize) -> bool {
        let gap = usize::from(self.text.get(at) == Some(&' '));
        let begin = at + gap;
        let Some(unit) = TABLES.units.longest(self.text, begin) else { return false };
        // `11月薪水` is the pay of November.
        let digits = (0..at).rev().take_while(|n| self.text[*n].is_ascii_digit()).count();
        let number: u32 = self.text[at - digits..at].iter().collect::<String>().parse().unwrap_or(0);
        let is_cake = ["月餅", "年糕", "年菜", "年夜飯"].iter().any(|cake| self.begins_with(begin, cake));
        let is_date = gap == 0
            && !is_cake
            && match self.text[begin] {
                '月' => (1..=12).contains(&number),
                '年' => (100..200).contains(&number) || digits == 4,
                _ => false,
            };
        let is_item =
            TABLES.items.longest(self.text, begin).is_some_and(|item| item.len > unit.len) && !is_date;
        let is_payment = self.payment_at(begin).is_some_and(|(len, _)| len > unit.len);
        // After a blank a unit is a word by itself, and counts few: `65 折 5 元` and `599 人 3` are no counts.
        let is_many = at >= 3 && self.text[at - 3..at].iter().all(char::is_ascii_digit);
        let is_few = !is_many || !['人', '次'].contains(&self.text[begin]);
        let is_word = gap == 0 || self.is_boundary(begin + unit.len) && is_few && self.text[begin] != '折';
        !is_item && !is_payment && is_word
    }
}
