//! Days and times as people write them: `昨天`, `11/5`, `11月5號`, `5號`, `上週五`, `115/11/03`, `3天前`, `12:30`.

use super::numbers::{count, small};
use super::tables::TABLES;
use crate::{Date, Reason};

/// A day in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Day {
    /// How many characters of the text it takes.
    pub(super) len: usize,
    /// The day; `Err` for one that does not exist, is not over, or is not clear.
    pub(super) date: Result<Date, Reason>,
}

const NO_DAY: Reason = "不存在";
const UNCLEAR: Reason = "不清楚，請寫出是哪一天，例如：11/5";
const TO_COME: Reason = "還沒到，請在付款之後再記";

/// Words for days, with how many days ago they were.
const DAYS: [(&str, u16); 19] = [
    ("大大前天", 4),
    ("大前天", 3),
    ("今天", 0),
    ("今日", 0),
    ("今早", 0),
    ("今晨", 0),
    ("今午", 0),
    ("今晚", 0),
    ("今夜", 0),
    ("剛剛", 0),
    ("剛才", 0),
    ("昨天", 1),
    ("昨日", 1),
    ("昨早", 1),
    ("昨晚", 1),
    ("昨夜", 1),
    ("前天", 2),
    ("前日", 2),
    ("前晚", 2),
];
/// Words for a time of more than one day.
const NO_SINGLE_DAY: [&str; 22] = [
    "上上週末",
    "上上週",
    "上上周",
    "上上個月",
    "上上禮拜",
    "上上星期",
    "上週末",
    "上周末",
    "這週末",
    "這周末",
    "本週末",
    "週末",
    "周末",
    "前幾天",
    "前陣子",
    "那天",
    "月初",
    "月底",
    "上個月",
    "上個禮拜",
    "上禮拜",
    "上週",
];
const NOT_YET: [&str; 10] =
    ["明天", "明日", "明早", "明晚", "大後天", "後天", "下週", "下周", "下個月", "下禮拜"];
const WEEKS: [&str; 4] = ["星期", "禮拜", "週", "周"];
const TIMES_OF_DAY: [&str; 12] =
    ["早上", "上午", "中午", "下午", "傍晚", "晚上", "半夜", "凌晨", "清晨", "深夜", "夜裡", "晚間"];

/// `1/2個` is half of one.
pub(super) const FRACTIONS: [char; 8] = ['個', '顆', '條', '斤', '份', '隻', '盒', '價'];

/// Whether `word` stands at `at`.
pub(super) fn starts_with(text: &[char], at: usize, word: &str) -> bool {
    let mut chars = text.get(at..).unwrap_or_default().iter();
    word.chars().all(|c| chars.next() == Some(&c))
}

/// The first of the words that stands at `at`.
pub(super) fn any_of<'w>(text: &[char], at: usize, words: &[&'w str]) -> Option<&'w str> {
    words.iter().find(|word| starts_with(text, at, word)).copied()
}

/// The day that begins at `at`, with the time of day behind it. Before it stands nothing of another word, or a whole word.
pub(super) fn day(
    text: &[char],
    at: usize,
    (is_start, is_after_word): (bool, bool),
    today: Date,
) -> Option<Day> {
    let mut day = word(text, at, is_after_word, today).or_else(|| digits(text, at, is_start, today))?;
    // With an hour behind it it is a time.
    let is_part_of_time = time(text, at + day.len).is_some();
    if let Some(time) = any_of(text, at + day.len, &TIMES_OF_DAY).filter(|_| !is_part_of_time)
        && TABLES.items.longest(text, at + day.len).is_none_or(|item| item.len <= time.chars().count())
    {
        day.len += time.chars().count();
    }
    Some(day)
}

fn word(text: &[char], at: usize, is_start: bool, today: Date) -> Option<Day> {
    let day = |len: usize, date| Some(Day { len, date });
    let is_plain = |word: &str| is_start || word.starts_with(['今', '昨']);
    if let Some((word, ago)) = DAYS.iter().find(|(word, _)| is_plain(word) && starts_with(text, at, word)) {
        return day(word.chars().count(), today.days_ago(*ago).ok_or(NO_DAY));
    }
    let before = at.checked_sub(1).and_then(|before| text.get(before));
    if let Some(found) = weekday(text, at, today) {
        // `每週五` does not name one day. Within other words it is not clear whether a weekday is meant.
        let is_other = before.is_some_and(|c| ['每', '隔', '一', '兩', '三'].contains(c));
        let date = if is_start { found.date } else { Err(UNCLEAR) };
        return (!is_other || is_start).then_some(Day { date, ..found });
    }
    if !is_start && starts_with(text, at, "前天") {
        return day(2, Err(UNCLEAR));
    }
    if let Some(found) = of_month_or_year(text, at, today) {
        return Some(found);
    }
    if let Some((ago, len)) = small(text, at, 3)
        && starts_with(text, at + len, "天前")
    {
        return day(len + 2, today.days_ago(ago).ok_or(NO_DAY));
    }
    let unclear = any_of(text, at, &NO_SINGLE_DAY).map(|word| (word, UNCLEAR));
    let to_come = || any_of(text, at, &NOT_YET).map(|word| (word, TO_COME));
    let (word, reason) = unclear.or_else(to_come).filter(|_| is_start)?;
    day(word.chars().count(), Err(reason))
}

/// `上週五`, `這週五`, `週五`.
fn weekday(text: &[char], at: usize, today: Date) -> Option<Day> {
    let (weeks_ago, mut end) = match text.get(at)? {
        '上' if text.get(at + 1) == Some(&'上') => (Some(2), at + 2),
        '上' => (Some(1), at + 1),
        '這' | '本' => (Some(0), at + 1),
        _ => (None, at),
    };
    end += usize::from(weeks_ago.is_some() && text.get(end) == Some(&'個'));
    end += any_of(text, end, &WEEKS)?.chars().count();
    let weekday = match text.get(end)? {
        '一' | '1' => 0,
        '二' | '2' => 1,
        '三' | '3' => 2,
        '四' | '4' => 3,
        '五' | '5' => 4,
        '六' | '6' => 5,
        '日' | '天' | '7' => 6,
        _ => return None,
    };
    // `週一次`
    let next = text.get(end + 1);
    if next.is_some_and(|c| ['次', '刊'].contains(c)) {
        return None;
    }
    // `上週日本料理`, `週一百貨公司`
    if next.is_some_and(|c| ['本', '百', '千', '年'].contains(c)) {
        return Some(Day { len: end + 1 - at, date: Err(UNCLEAR) });
    }
    // `週5` ends there, `週50` is none.
    if text.get(end + 1).is_some_and(char::is_ascii_digit) && text[end].is_ascii_digit() {
        return None;
    }
    let now = u16::from(today.weekday());
    let date = match weeks_ago {
        Some(weeks) if 7 * weeks + now < weekday => Err(TO_COME),
        Some(weeks) => today.days_ago(7 * weeks + now - weekday).ok_or(NO_DAY),
        None => today.days_ago((7 + now - weekday) % 7).ok_or(NO_DAY),
    };
    Some(Day { len: end + 1 - at, date })
}

/// `這個月5號`, `上個月5號`, `去年5月5日`.
fn of_month_or_year(text: &[char], at: usize, today: Date) -> Option<Day> {
    let word = any_of(text, at, &["這個月", "本月", "上個月", "上月", "去年", "前年", "今年"])?;
    let begin = at + word.chars().count();
    let begin = begin + usize::from(text.get(begin).is_some_and(|c| ['的', ' '].contains(c)));
    let (first, end) = part(text, begin)?;
    let (date, end) = match word {
        "去年" | "前年" | "今年" => {
            let year = today.year()
                - ["今年", "去年", "前年"].iter().position(|name| *name == word).unwrap_or(0) as u16;
            let is_named = text.get(end) == Some(&'月');
            if !is_named && text.get(end) != Some(&'/') {
                return None;
            }
            let (day, end) = part(text, end + 1)?;
            (Date::new(year, first, day), end + usize::from(is_named && ends_day(text, end)))
        }
        _ if !ends_day(text, end) => return None,
        "這個月" | "本月" => (Date::new(today.year(), today.month(), first), end + 1),
        _ => {
            let last = today.days_ago(today.day().into())?;
            (Date::new(last.year(), last.month(), first), end + 1)
        }
    };
    Some(Day { len: end - at, date: past(date, today) })
}

/// A month or a day at `at`, and where it ends.
fn part(text: &[char], at: usize) -> Option<(u8, usize)> {
    let (value, len) = small(text, at, 2)?;
    Some((u8::try_from(value).unwrap_or(0), at + len))
}

fn ends_day(text: &[char], at: usize) -> bool {
    text.get(at).is_some_and(|c| ['日', '號', '号'].contains(c))
}

/// A day that has been.
fn past(date: Option<Date>, today: Date) -> Result<Date, Reason> {
    match date {
        Some(date) if date > today => Err(TO_COME),
        date => date.ok_or(NO_DAY),
    }
}

/// Days in digits.
fn digits(text: &[char], at: usize, is_start: bool, today: Date) -> Option<Day> {
    let republic = usize::from(starts_with(text, at, "民國")) * 2;
    let begin = at + republic;
    let before = at.checked_sub(1).and_then(|before| text.get(before));
    if before.is_some_and(|c| c.is_ascii_alphanumeric() || ['.', '/', '-', ':', '$'].contains(c)) {
        return None;
    }
    let (first, len) = small(text, begin, 4)?;
    let mut end = begin + len;
    let sign = *text.get(end)?;
    let day = |end: usize, date: Option<Date>| Some(Day { len: end - at, date: date.ok_or(NO_DAY) });
    let is_year = republic > 0 || len == 4 || len == 3 && (100..200).contains(&first);
    let year = if len == 4 && republic == 0 { first } else { first + 1911 };
    if is_year && ['/', '-', '.', '年'].contains(&sign) {
        let (month, after) = part(text, end + 1)?;
        if !['/', '-', '.', '月'].contains(text.get(after)?) {
            return None;
        }
        let (date, mut end) = part(text, after + 1)?;
        end += usize::from(ends_day(text, end));
        return day(end, Date::new(year, month, date)).filter(|_| !is_digit(text, end));
    }
    let first = u8::try_from(first).ok().filter(|_| len <= 2 || !text[begin].is_ascii_digit())?;
    match sign {
        '/' => {
            let (date, end) = part(text, end + 1)?;
            let is_other = |c: &char| c.is_ascii_digit() || *c == '/' || FRACTIONS.contains(c);
            let gap = usize::from(text.get(end) == Some(&' '));
            let is_fraction = text.get(end + gap).is_some_and(|c| FRACTIONS.contains(c));
            (!is_fraction && !text.get(end).is_some_and(is_other))
                .then(|| day(end, latest(today, |year| Date::new(year, first, date))))?
        }
        '月' => {
            let gap = usize::from(text.get(end + 1) == Some(&' '));
            let (date, after) = part(text, end + 1 + gap)?;
            ends_day(text, after)
                .then(|| day(after + 1, latest(today, |year| Date::new(year, first, date))))?
        }
        '號' | '号' | '日' => {
            let unit = TABLES.units.longest(text, end).map_or(0, |unit| unit.len);
            // `茶9號` is a name, `US 9號` a size.
            let follows_letters = at > 1 && text[at - 1] == ' ' && text[at - 2].is_ascii_alphabetic();
            if unit > 1 || !is_start || follows_letters {
                return None;
            }
            end += 1;
            day(end, latest_of_month(today, first))
        }
        _ => None,
    }
}

/// Whether digits that end here can be minutes, and no sum of money.
fn is_end_of_time(text: &[char], at: usize) -> bool {
    !text.get(at).is_some_and(|c| c.is_ascii_alphanumeric() || ['元', '塊', '圓', '.', ','].contains(c))
}

fn is_digit(text: &[char], at: usize) -> bool {
    text.get(at).is_some_and(char::is_ascii_digit)
}

/// The latest such day that has been: in January, 12/31 is last year's.
fn latest(today: Date, of_year: impl Fn(u16) -> Option<Date>) -> Option<Date> {
    (0..=8).find_map(|ago| of_year(today.year().checked_sub(ago)?).filter(|date| *date <= today))
}

/// The latest day with this number that has been.
fn latest_of_month(today: Date, day: u8) -> Option<Date> {
    let months = (0..12).scan((today.year(), today.month()), |(year, month), _| {
        let this = (*year, *month);
        (*year, *month) = if *month == 1 { (*year - 1, 12) } else { (*year, *month - 1) };
        Some(this)
    });
    months.into_iter().filter_map(|(year, month)| Date::new(year, month, day)).find(|date| *date <= today)
}

/// A time in a text: its length and, if it is clear, `HH:MM`.
pub(super) fn time(text: &[char], at: usize) -> Option<(usize, Option<String>)> {
    let before = at.checked_sub(1).and_then(|before| text.get(before));
    if before.is_some_and(|c| c.is_ascii_alphanumeric() || [':', '.', '/', '-'].contains(c)) {
        return None;
    }
    let part_of_day = any_of(text, at, &TIMES_OF_DAY);
    let mut begin = at + part_of_day.map_or(0, |word| word.chars().count());
    if part_of_day.is_some() && text.get(begin) == Some(&' ') {
        begin += 1;
    }
    let (hour, len) = small(text, begin, 2)?;
    let mut end = begin + len;
    let minute = match text.get(end)? {
        ':' => {
            let digits = count(text, end + 1, |c| c.is_ascii_digit());
            let (minute, len) = small(text, end + 1, 2).filter(|_| digits == 2)?;
            end += 1 + len;
            minute
        }
        '點' | '点' => {
            end += 1;
            end += usize::from(text.get(end) == Some(&'鐘'));
            match small(text, end, 2) {
                Some((minute, len)) if text.get(end + len) == Some(&'分') => {
                    end += len + 1;
                    minute
                }
                // `8點30`, and not `8點 30元`
                Some((minute, 2))
                    if text[end].is_ascii_digit() && minute < 60 && is_end_of_time(text, end + 2) =>
                {
                    end += 2;
                    minute
                }
                _ if text.get(end) == Some(&'半') => {
                    end += 1;
                    30
                }
                _ => 0,
            }
        }
        _ => return None,
    };
    let is_clock = text[begin..end].contains(&':');
    if hour > 24 || minute > 59 {
        return None;
    }
    let is_late = part_of_day.is_some_and(|word| ["下午", "傍晚", "晚上", "晚間"].contains(&word));
    let hour = match hour {
        1..=11 if is_late => hour + 12,
        1..=2 if part_of_day == Some("中午") => hour + 12,
        12 if part_of_day.is_some_and(|word| ["半夜", "凌晨", "晚上", "深夜"].contains(&word)) => 0,
        hour => hour % 24,
    };
    let is_clear = is_clock || part_of_day.is_some();
    Some((end - at, is_clear.then(|| format!("{hour:02}:{minute:02}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Saturday.
    fn today() -> Date {
        Date::new(2025, 11, 29).unwrap()
    }

    fn read(text: &str) -> Option<(usize, String)> {
        let chars: Vec<char> = text.chars().collect();
        let found = day(&chars, 0, (true, true), today())?;
        Some((found.len, found.date.map_or_else(str::to_owned, |date| date.to_string())))
    }

    #[test]
    fn a_day_may_be_said_in_many_ways() {
        for (text, len, date) in [
            ("今天", 2, "2025-11-29"),
            ("昨晚宵夜", 2, "2025-11-28"),
            ("昨天晚上宵夜", 4, "2025-11-28"),
            ("昨天晚上7點半 火鍋", 2, "2025-11-28"),
            ("這個月5號", 5, "2025-11-05"),
            ("上個月5號", 5, "2025-10-05"),
            ("這個月30號", 6, TO_COME),
            ("去年5月5日", 6, "2024-05-05"),
            ("上上週五", 4, "2025-11-14"),
            ("11月 5日", 6, "2025-11-05"),
            ("32號", 3, NO_DAY),
            ("昨天下午茶", 2, "2025-11-28"),
            ("大前天", 3, "2025-11-26"),
            ("3天前", 3, "2025-11-26"),
            ("三天前", 3, "2025-11-26"),
            ("11/5午餐", 4, "2025-11-05"),
            ("12/31", 5, "2024-12-31"),
            ("2/29", 4, "2024-02-29"),
            ("2/30", 4, NO_DAY),
            ("11月5日", 5, "2025-11-05"),
            ("11月5號午餐", 5, "2025-11-05"),
            ("十一月五號", 5, "2025-11-05"),
            ("5號午餐", 2, "2025-11-05"),
            ("30號", 3, "2025-10-30"),
            ("五號 午餐", 2, "2025-11-05"),
            ("2025/11/3", 9, "2025-11-03"),
            ("2025-11-03", 10, "2025-11-03"),
            ("2025年11月3日", 10, "2025-11-03"),
            ("114/11/03", 9, "2025-11-03"),
            ("民國114年11月3日", 11, "2025-11-03"),
            ("上週五", 3, "2025-11-21"),
            ("上周五", 3, "2025-11-21"),
            ("上星期五聚餐", 4, "2025-11-21"),
            ("上個禮拜五", 5, "2025-11-21"),
            ("週五", 2, "2025-11-28"),
            ("星期日", 3, "2025-11-23"),
            ("週六", 2, "2025-11-29"),
            ("這週三", 3, "2025-11-26"),
            ("這週日", 3, TO_COME),
            ("明天", 2, TO_COME),
            ("上週末", 3, UNCLEAR),
        ] {
            assert_eq!(read(text), Some((len, date.to_owned())), "{text}");
        }
        for text in
            ["5號電池", "5號餐", "120", "11月房租", "午餐", "1/2/3", "11/5/6", "85度C", "週年慶", "3日遊"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_time_is_known_where_it_is_clear() {
        for (text, expected) in [
            ("12:30 午餐", Some((5, Some("12:30")))),
            ("9:05", Some((4, Some("09:05")))),
            ("晚上7點半", Some((5, Some("19:30")))),
            ("下午3點10分", Some((7, Some("15:10")))),
            ("8點 集合", Some((2, None))),
            ("25:00", None),
            ("早上", None),
        ] {
            let chars: Vec<char> = text.chars().collect();
            let found = time(&chars, 0);
            let found = found.as_ref().map(|(len, time)| (*len, time.as_deref()));
            assert_eq!(found, expected, "{text}");
        }
    }
}
