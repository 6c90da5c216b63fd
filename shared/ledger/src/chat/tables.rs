//! The lists of the grammar. Each is a file in `data` that says at its top how to add a word.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

/// All lists, read at their first use.
pub(super) static TABLES: LazyLock<Tables> = LazyLock::new(Tables::read);

/// The lists.
pub(super) struct Tables {
    /// Ways to pay: what people write, and the name that is stored.
    pub(super) payments: Table,
    /// Banks and shops before a card, and the cards behind them.
    pub(super) banks: Table,
    pub(super) cards: Table,
    /// Words after a number that is no amount.
    pub(super) units: Table,
    /// Names with digits in them, or with words that would mean something else.
    pub(super) names: Table,
    /// Words for a currency before or after a number.
    pub(super) currencies: Table,
    /// Words for a currency that count only after a number.
    pub(super) currencies_after: Table,
    /// Codes that are English words too.
    pub(super) plain_codes: HashSet<&'static str>,
    /// Everyday words, and their category.
    pub(super) items: Table,
    /// Shops, and the category of what they sell.
    shops: Table,
    /// The small words of the grammar.
    pub(super) words: Words,
}

/// The lists of `words.txt`, which says what each of them is for.
#[derive(Default)]
pub(super) struct Words {
    pub(super) before: Table,
    pub(super) behind: Table,
    pub(super) alone: Table,
    pub(super) pay_before: Table,
    pub(super) pay_behind: Table,
    pub(super) bought: Table,
    pub(super) unsaid: Table,
    pub(super) chat: Table,
    pub(super) cancel: Table,
    pub(super) numbered: Table,
    pub(super) unsure: Table,
    pub(super) each: Table,
    pub(super) paid: Table,
}

impl Tables {
    fn read() -> Tables {
        let banks = plain_lines(include_str!("../../data/banks.txt"));
        let (cards, banks): (Vec<&str>, Vec<&str>) = banks.partition(|line| line.starts_with('/'));
        let currencies = include_str!("../../data/currencies.txt");
        let (plain_codes, currencies): (Vec<Line>, Vec<Line>) =
            lines(currencies).partition(|(name, _)| *name == "plain");
        let (currencies, currencies_after) = Table::by_suffix(currencies, " after");
        let (items, shops) = Table::by_suffix(lines(include_str!("../../data/categories.txt")), " shop");
        Tables {
            payments: Table::named(include_str!("../../data/payments.txt")),
            banks: Table::list(banks),
            cards: Table::list(cards.into_iter().map(|line| line.trim_start_matches('/'))),
            units: Table::list(plain_lines(include_str!("../../data/units.txt"))),
            names: Table::list(plain_lines(include_str!("../../data/names.txt"))),
            currencies,
            currencies_after,
            plain_codes: plain_codes.into_iter().flat_map(|(_, words)| words.split_whitespace()).collect(),
            items,
            shops,
            words: Words::read(lines(include_str!("../../data/words.txt"))),
        }
    }

    /// The category of an item: that of the longest word in it, of two as long of the later one.
    pub(super) fn category(&self, item: &str) -> Option<&'static str> {
        let chars: Vec<char> = item.chars().collect();
        let longest = |table: &Table| {
            let found = (0..chars.len()).filter_map(|at| table.longest(&chars, at));
            found.max_by_key(|found| found.len).map(|found| found.name)
        };
        longest(&self.items).or_else(|| longest(&self.shops))
    }
}

/// The categories, in the order in which they are listed.
pub(super) const CATEGORIES: [&str; 11] =
    ["飲食", "交通", "居住", "娛樂", "醫療", "教育", "服飾", "日用", "通訊", "收入", "其他"];

impl Words {
    fn read(lines: impl Iterator<Item = Line>) -> Words {
        let mut all: HashMap<&str, Table> = lines.map(|(name, words)| (name, Table::list([words]))).collect();
        let mut take = |name| all.remove(name).unwrap_or_default();
        Words {
            before: take("before"),
            behind: take("behind"),
            alone: take("alone"),
            pay_before: take("pay_before"),
            pay_behind: take("pay_behind"),
            bought: take("bought"),
            unsaid: take("unsaid"),
            chat: take("chat"),
            cancel: take("cancel"),
            numbered: take("numbered"),
            unsure: take("unsure"),
            each: take("each"),
            paid: take("paid"),
        }
    }
}

/// A line `name: word word` of a file.
type Line = (&'static str, &'static str);

fn lines(file: &'static str) -> impl Iterator<Item = Line> {
    plain_lines(file).filter_map(|line| line.split_once(':')).map(|(name, words)| (name.trim(), words))
}

/// The lines of a file, without its comments.
fn plain_lines(file: &'static str) -> impl Iterator<Item = &'static str> {
    file.lines().filter(|line| !line.starts_with('#'))
}

/// Words, each with the name that it stands for. Letters match in any case, and with single spaces between them.
#[derive(Default)]
pub(super) struct Table {
    names: HashMap<String, &'static str>,
    longest: usize,
}

#[cfg(test)]
thread_local! {
    /// How often a table was asked, as a measure of the work that a text is.
    pub(super) static LOOK_UPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A word of a table, found in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Match {
    /// How many characters of the text it takes.
    pub(super) len: usize,
    /// What it stands for.
    pub(super) name: &'static str,
}

impl Table {
    /// Words that stand for themselves.
    fn list<'a>(lines: impl IntoIterator<Item = &'a str>) -> Table {
        let mut table = Table::default();
        lines.into_iter().flat_map(str::split_whitespace).for_each(|word| table.add(word, ""));
        table
    }

    /// Words that stand for the name of their line, in two tables: the second has the lines whose name ends in `suffix`.
    fn by_suffix(lines: impl IntoIterator<Item = Line>, suffix: &str) -> (Table, Table) {
        let (mut without, mut with) = (Table::default(), Table::default());
        for (name, words) in lines {
            let (table, name) = match name.strip_suffix(suffix) {
                Some(name) => (&mut with, name),
                None => (&mut without, name),
            };
            words.split_whitespace().for_each(|word| table.add(word, name));
        }
        (without, with)
    }

    /// Words that stand for the name of their line, which is one of them.
    fn named(file: &'static str) -> Table {
        let mut table = Table::default();
        for (name, words) in lines(file) {
            words.split_whitespace().chain([name]).for_each(|word| table.add(word, name));
        }
        table
    }

    fn add(&mut self, word: &str, name: &'static str) {
        let word: String = word.chars().filter(|c| *c != ' ').map(fold).collect();
        self.longest = self.longest.max(word.chars().count());
        self.names.insert(word, name);
    }

    /// The longest word that begins at `at`. A word of letters is not found inside another: `visa` is not in `visage`.
    pub(super) fn longest(&self, text: &[char], at: usize) -> Option<Match> {
        #[cfg(test)]
        LOOK_UPS.set(LOOK_UPS.get() + 1);
        let is_letter = |n: usize| text.get(n).is_some_and(char::is_ascii_alphabetic);
        if at > 0 && is_letter(at) && is_letter(at - 1) {
            return None;
        }
        let (mut key, mut found, mut chars) = (String::new(), None, 0);
        for (n, c) in text.iter().enumerate().skip(at) {
            let after_ascii = key.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '+');
            if *c == ' ' && after_ascii && text.get(n + 1).is_some_and(char::is_ascii_alphanumeric) {
                continue;
            }
            key.push(fold(*c));
            chars += 1;
            if chars > self.longest {
                break;
            }
            if let Some(name) = self.names.get(&key)
                && !(is_letter(n) && is_letter(n + 1))
            {
                found = Some(Match { len: n + 1 - at, name });
            }
        }
        found
    }

    /// What `text` as a whole stands for.
    pub(super) fn whole(&self, text: &str) -> Option<&'static str> {
        let chars: Vec<char> = text.chars().collect();
        self.longest(&chars, 0).filter(|found| found.len == chars.len()).map(|found| found.name)
    }

    /// Whether a word of two characters or more is in `text`.
    pub(super) fn has_long_word(&self, text: &str) -> bool {
        let chars: Vec<char> = text.chars().collect();
        (0..chars.len()).any(|at| self.longest(&chars, at).is_some_and(|found| found.len > 1))
    }

    /// Whether one of the words is in `text`.
    pub(super) fn is_in(&self, text: &str) -> bool {
        let chars: Vec<char> = text.chars().collect();
        (0..chars.len()).any(|at| self.longest(&chars, at).is_some())
    }

    /// Whether `text` ends in one of the words, or is one.
    pub(super) fn ends(&self, text: &str) -> bool {
        self.strip_end(text).len() < text.len() || self.whole(text).is_some()
    }

    /// `text` without the words at its beginning. It is left as it is if nothing else is in it.
    pub(super) fn strip_start<'a>(&self, text: &'a str) -> &'a str {
        let mut text = text.trim_start();
        loop {
            let chars: Vec<char> = text.chars().take(self.longest * 2).collect();
            let Some(found) = self.longest(&chars, 0) else { return text };
            let len: usize = chars[..found.len].iter().map(|c| c.len_utf8()).sum();
            let rest = text[len..].trim_start();
            if rest.is_empty() {
                return text;
            }
            text = rest;
        }
    }

    /// The same at its end.
    pub(super) fn strip_end<'a>(&self, text: &'a str) -> &'a str {
        let mut text = text.trim_end();
        'words: loop {
            // Some more than the longest word, which may have blanks in it.
            let begin = text.char_indices().rev().nth(2 * self.longest).map_or(0, |(at, _)| at);
            let chars: Vec<char> = text[begin..].chars().collect();
            for at in 0..chars.len() {
                let is_all = begin == 0 && at == 0;
                if !is_all && self.longest(&chars, at).is_some_and(|found| at + found.len == chars.len()) {
                    let len: usize = chars[..at].iter().map(|c| c.len_utf8()).sum();
                    text = text[..begin + len].trim_end();
                    continue 'words;
                }
            }
            return text;
        }
    }
}

/// A character as the tables have it.
fn fold(c: char) -> char {
    match c {
        '臺' => '台',
        '週' => '周',
        c => c.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longest(table: &Table, text: &str) -> Option<(usize, &'static str)> {
        let chars: Vec<char> = text.chars().collect();
        table.longest(&chars, 0).map(|found| (found.len, found.name))
    }

    #[test]
    fn a_way_to_pay_is_known_in_any_case_and_spacing() {
        for word in ["LINE Pay", "linepay", "Line pay", "LINEPAY"] {
            assert_eq!(TABLES.payments.whole(word), Some("LINE Pay"), "{word}");
        }
        assert_eq!(longest(&TABLES.payments, "visa"), Some((4, "信用卡")));
        assert_eq!(longest(&TABLES.payments, "visage"), None);
        assert_eq!(longest(&TABLES.payments, "悠遊卡加值"), Some((3, "悠遊卡")));
    }

    #[test]
    fn the_longest_word_is_found_at_a_place() {
        assert_eq!(longest(&TABLES.items, "包子店"), Some((2, "飲食")));
        assert_eq!(longest(&TABLES.currencies_after, "元整"), Some((2, "TWD")));
        assert!(TABLES.plain_codes.contains("CUP"));
    }

    #[test]
    fn an_item_has_the_category_of_its_longest_and_last_word() {
        for (item, category) in [
            ("湯圓", Some("飲食")),
            ("冰摩卡", Some("飲食")),
            ("遊戲點數", Some("娛樂")),
            ("手機殼", Some("通訊")),
            ("書桌", Some("居住")),
            ("拉麵書", Some("飲食")),
            ("年終獎金", Some("收入")),
            ("7-11 咖啡", Some("飲食")),
            ("全聯", Some("日用")),
            ("嗶嗶", None),
        ] {
            assert_eq!(TABLES.category(item), category, "{item}");
        }
    }

    #[test]
    fn every_name_of_a_category_is_one_of_the_list() {
        for (name, _) in lines(include_str!("../../data/categories.txt")) {
            assert!(CATEGORIES.contains(&name.trim_end_matches(" shop")), "{name}");
        }
        for (name, _) in lines(include_str!("../../data/currencies.txt")) {
            let code = name.strip_suffix(" after").unwrap_or(name);
            assert!(name == "plain" || crate::currency::code(code).is_some(), "{name}");
        }
    }

    #[test]
    fn every_list_of_the_small_words_has_its_field() {
        let mut read = 0;
        let count = lines(include_str!("../../data/words.txt")).inspect(|_| read += 1);
        let Words {
            before,
            behind,
            alone,
            pay_before,
            pay_behind,
            bought,
            unsaid,
            chat,
            cancel,
            numbered,
            unsure,
            each,
            paid,
        } = Words::read(count);
        let all = [
            before, behind, alone, pay_before, pay_behind, bought, unsaid, chat, cancel, numbered, unsure,
            each, paid,
        ];
        assert!(all.iter().all(|table| table.longest > 0));
        assert_eq!(read, all.len(), "a list that nothing reads");
    }

    #[test]
    fn words_at_the_edges_are_cut_and_never_all_of_a_text() {
        let (before, behind) = (&TABLES.words.before, &TABLES.words.behind);
        assert_eq!(before.strip_start("我剛剛買了咖啡"), "咖啡");
        assert_eq!(before.strip_start("我"), "我");
        assert_eq!(behind.strip_end("午餐一共花了"), "午餐");
        assert_eq!(behind.strip_end("了"), "了");
    }
}
