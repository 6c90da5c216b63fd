//! Entries: `午餐 120 信用卡`, the words in any order, several in one text.

use super::amounts::UNCLEAR;
use super::habits::Habits;
use super::note::Draft;
use super::pending::{Part, Pending};
use super::scan::{Kind, Number, Piece, scan};
use super::tables::TABLES;
use super::{Note, Problem, Sentence};
use crate::currency::{HOME, example_rate};
use crate::statement::{INCOME, NO_CATEGORY};
use crate::texts::wrong_field;
use crate::{Date, Decimal, Moment, Reason};

/// The most entries of one text: they are recorded in one commit.
const MAX_ENTRIES: usize = 20;
/// The longest item that is taken for an entry without an amount, in characters.
const MAX_BARE_ITEM_CHARS: usize = 8;
/// Behind 我 these make another word: 我媽, 我家.
const KIN: [char; 12] = ['媽', '爸', '家', '老', '哥', '姐', '姊', '弟', '妹', '兒', '女', '們'];
const UNSAID: &str = "這筆我沒有記：聽起來像是問句，或是還沒花的錢。真的要記，請直接說，例如：午餐 120 現金";
const ONLY_ONE: Reason = "不只一個，請只說一個";
const SEVERAL: Reason = "不只一個，請在金額後加上「元」，或一筆一筆輸入";
/// How far a bare number may be from this year and look like a year.
const YEARS: u16 = 3;

/// What the text says was paid, or what is missing or wrong; [`Sentence::Other`] if there is no amount in it.
pub(super) fn parse(text: &str, now: Moment, habits: &Habits) -> Sentence {
    let parts = parts(scan(text, now.date(), habits));
    let groups = parts.into_iter().flat_map(|part| groups(part, now.date()));
    let groups: Vec<Said> = groups.map(|group| Said::of(group, now.date())).collect();
    if !groups.iter().any(|said| said.amount.is_some() || said.is_known_without_amount()) {
        return Sentence::Other;
    }
    if is_unsaid(text) {
        let has_amount = groups.iter().any(|said| said.amount.is_some());
        return if has_amount { Sentence::NoteProblem(UNSAID.into()) } else { Sentence::Other };
    }
    let shared = Shared::of(&groups, habits);
    let mut date = now.date();
    let (mut drafts, mut faults) = (Vec::new(), Vec::new());
    for (n, said) in groups.iter().enumerate() {
        let mut fault = Fault::default();
        // A day holds for the entries after it too.
        if let Some(day) = said.date {
            date = fault.need(Part::Date, Some(day)).unwrap_or(date);
        }
        if said.has_only_facts() && fault.is_empty() {
            continue;
        }
        let item = fault.need(Part::Item, Some(said.item.clone()).filter(|item| !item.is_empty()).map(Ok));
        let amount = fault.need(Part::Amount, said.amount.clone());
        let currency = said.currency.unwrap_or(HOME);
        let rate = match &shared.rates[n] {
            Some(_) if currency == HOME && !shared.has_foreign_currency => fault.need(Part::Currency, None),
            _ if currency == HOME => Some(Decimal::one()),
            rate => fault.need(Part::Rate, rate.clone()),
        };
        let payment = match said.payment() {
            Some(Err(reason)) => Some(Err(reason)),
            _ => shared.payments[n].clone().map(Ok),
        };
        let payment = fault.need(Part::Payment, payment);
        let category = shared.category.as_deref().or(said.category.as_deref());
        match (item, amount, payment, rate) {
            (Some(item), Some(amount), Some(payment), Some(rate)) if fault.is_empty() => {
                let category = category.or_else(|| habits.category(&item)).or_else(|| TABLES.category(&item));
                let (time, category) = (said.time.clone(), category.unwrap_or(NO_CATEGORY).to_owned());
                drafts.push(Draft { date, time, item, amount, currency, rate, payment, category });
            }
            _ => faults.push((fault, said)),
        }
    }
    if drafts.len() + faults.len() > MAX_ENTRIES {
        return Sentence::NoteProblem(Problem(format!("一次最多記錄 {MAX_ENTRIES} 筆，請分開輸入")));
    }
    if faults.is_empty() {
        return Sentence::Note(Note { now, drafts });
    }
    let problem =
        Problem(faults.iter().map(|(fault, said)| fault.message(said)).collect::<Vec<_>>().join("\n"));
    if faults.iter().any(|(fault, _)| !fault.wrong.is_empty()) {
        return Sentence::NoteProblem(problem);
    }
    let missing = faults.iter().flat_map(|(fault, _)| fault.missing.clone()).collect();
    Sentence::HalfSaid(Pending::new(text, now, missing), problem)
}

/// Whether the text asks, plans or denies: then nothing was paid.
pub(super) fn is_unsaid(text: &str) -> bool {
    let end = text.trim_end_matches(['。', '!', '~', ' ', '.']);
    text.contains('?')
        || text.starts_with("取消")
        || end.ends_with(['嗎', '呢'])
        || TABLES.words.unsaid.is_in(text)
}

/// The parts of a text between its signs. If the text has one number, parts that are not whole belong together: `午餐，120，現金`.
fn parts(pieces: Vec<Piece>) -> Vec<Vec<Piece>> {
    let mut parts: Vec<(Vec<Piece>, char)> = vec![(Vec::new(), ' ')];
    for piece in pieces {
        match (&piece.kind, parts.last_mut()) {
            (Kind::Break(sign), _) => parts.push((Vec::new(), *sign)),
            (Kind::Words(words), _) if TABLES.words.alone.whole(words).is_some() => {}
            (_, Some((part, _))) => part.push(piece),
            _ => {}
        }
    }
    parts.retain(|(part, _)| !part.is_empty());
    let has = |part: &[Piece], is: fn(&Kind) -> bool| part.iter().any(|piece| is(&piece.kind));
    let is_number = |kind: &Kind| matches!(kind, Kind::Number(_));
    let is_words = |kind: &Kind| matches!(kind, Kind::Words(_));
    let numbers = parts.iter().filter(|(part, _)| has(part, is_number)).count();
    let with_words: Vec<usize> = (0..parts.len()).filter(|n| has(&parts[*n].0, is_words)).collect();
    let at = parts.iter().position(|(part, _)| has(part, is_number)).unwrap_or(0);
    // `牛奶、麵包 120`: what comes before an item with the only amount belongs to it.
    let is_one = numbers == 1
        && with_words.iter().all(|n| *n <= at || !with_words.contains(&at) && with_words.len() == 1);
    if !is_one {
        return parts.into_iter().map(|(part, _)| part).collect();
    }
    let mut one: Vec<Piece> = Vec::new();
    for (part, sign) in parts {
        let joins = |piece: Option<&Piece>| piece.is_some_and(|piece| matches!(piece.kind, Kind::Words(_)));
        if joins(one.last()) && joins(part.first()) && sign == '、' {
            one.push(Piece { kind: Kind::Words("、".to_owned()), is_glued: true });
            one.extend(
                part.into_iter()
                    .enumerate()
                    .map(|(n, piece)| Piece { is_glued: n == 0 || piece.is_glued, ..piece }),
            );
        } else {
            one.extend(part);
        }
    }
    vec![one]
}

/// The entries of a part: `早餐50元 午餐120元`. Numbers that are no amounts become words.
fn groups(part: Vec<Piece>, today: Date) -> Vec<Vec<Piece>> {
    let part = without_weak_numbers(part);
    let numbers: Vec<&Number> = part.iter().filter_map(Piece::number).collect();
    if numbers.len() < 2 {
        return vec![part];
    }
    let groups = alternating(&part);
    let said: Vec<Said> = groups.iter().map(|group| Said::of(group.clone(), today)).collect();
    let is_whole = |said: &Said| !said.item.is_empty() && said.amounts == 1;
    let all_are_marked = numbers.iter().all(|number| number.currency.is_some());
    let is_sure = all_are_marked || said.iter().all(|said| is_known(&said.item));
    if groups.len() == numbers.len() && is_sure && said.iter().all(is_whole) {
        return groups;
    }
    // `公車 307 15元`: one is marked, and the others stand beside it.
    let marked = numbers.iter().filter(|number| number.currency.is_some()).count();
    let is_number = |n: usize| part.get(n).is_some_and(|piece| piece.number().is_some());
    let beside = |n: usize| is_number(n + 1) || n > 0 && is_number(n - 1);
    let belongs =
        |n: usize, piece: &Piece| piece.number().is_none_or(|number| number.currency.is_some() || beside(n));
    if marked == 1 && part.iter().enumerate().all(|(n, piece)| belongs(n, piece)) {
        let words = |piece: Piece| match &piece.kind {
            Kind::Number(number) if number.currency.is_none() => piece.into_words(),
            _ => piece,
        };
        return vec![part.into_iter().map(words).collect()];
    }
    vec![part]
}

/// Groups of words and a number, in the order in which the first group has them.
fn alternating(part: &[Piece]) -> Vec<Vec<Piece>> {
    let is_words = |piece: &Piece| matches!(piece.kind, Kind::Words(_) | Kind::Date(_));
    let number_first =
        part.iter().position(|piece| piece.number().is_some()) < part.iter().position(is_words);
    let mut groups: Vec<Vec<Piece>> = vec![Vec::new()];
    for piece in part {
        let group = groups.last().map_or(&[][..], Vec::as_slice);
        let has_number = group.iter().any(|piece| piece.number().is_some());
        let begins = if number_first { piece.number().is_some() } else { is_words(piece) };
        if has_number && begins {
            groups.push(Vec::new());
        }
        if let Some(group) = groups.last_mut() {
            group.push(piece.clone());
        }
    }
    groups
}

/// Numbers that are likely part of a name become words, if there is another number: `iPhone 15 30000`, `買5送1 100`. If there is
/// none, they are unclear.
fn without_weak_numbers(mut part: Vec<Piece>) -> Vec<Piece> {
    let weak = |part: &[Piece], n: usize| {
        let number = part[n].number().filter(|number| number.currency.is_none() && number.value.is_ok())?;
        let after = part.get(n + 1).filter(|next| next.is_glued);
        let is_inside = match after.map(|next| &next.kind) {
            Some(Kind::Words(words)) => {
                let is_filler =
                    TABLES.words.behind.whole(words).or(TABLES.words.alone.whole(words)).is_some();
                !is_filler && !is_known(words)
            }
            _ => false,
        };
        let is_beside = part.get(n + 1).is_some_and(|next| next.number().is_some());
        let is_of_name = number.follows_letters || number.follows_numbered && is_beside;
        (is_inside || is_of_name).then_some(is_inside)
    };
    let numbers: Vec<usize> = (0..part.len()).filter(|n| part[*n].number().is_some()).collect();
    let found: Vec<(usize, bool)> = numbers.iter().filter_map(|n| Some((*n, weak(&part, *n)?))).collect();
    let all_weak = found.len() == numbers.len();
    for (n, is_inside) in found {
        let is_last = numbers.last() == Some(&n);
        match &mut part[n].kind {
            Kind::Number(number) if all_weak && is_last => {
                if is_inside {
                    number.value = Err(UNCLEAR);
                }
            }
            _ => part[n] = part[n].clone().into_words(),
        }
    }
    part
}

/// Whether the list or a habit knows what an item is.
fn is_known(item: &str) -> bool {
    TABLES.category(item).is_some()
}

impl Piece {
    fn number(&self) -> Option<&Number> {
        match &self.kind {
            Kind::Number(number) => Some(number),
            _ => None,
        }
    }

    fn into_words(self) -> Piece {
        let kind = match self.kind {
            Kind::Number(number) => Kind::Words(number.text),
            Kind::Payment(_, said) => Kind::Words(said),
            other => other,
        };
        Piece { kind, ..self }
    }
}

/// What a group of pieces says.
#[derive(Default)]
pub(super) struct Said {
    pub(super) item: String,
    pub(super) amount: Option<Result<Decimal, Reason>>,
    /// How many numbers may be the amount.
    pub(super) amounts: usize,
    pub(super) currency: Option<&'static str>,
    pub(super) rate: Option<Result<Decimal, Reason>>,
    pub(super) payments: Vec<String>,
    /// Its words say how it was paid, in a way that is not understood: then no default holds.
    pub(super) hints_payment: bool,
    pub(super) category: Option<String>,
    pub(super) date: Option<Result<Date, Reason>>,
    pub(super) time: Option<String>,
}

impl Said {
    /// What a text says that has no signs between its parts; `None` if it has, or is empty.
    pub(super) fn read(text: &str, today: Date, habits: &Habits) -> Option<Said> {
        let pieces = scan(text, today, habits);
        let is_one = !pieces.is_empty() && !pieces.iter().any(Piece::is_break);
        is_one.then(|| Said::of(pieces, today))
    }

    pub(super) fn of(mut group: Vec<Piece>, today: Date) -> Said {
        join_payments(&mut group);
        let mut said = Said::default();
        let mut words = String::new();
        let mut before_number = String::new();
        let mut after_words = false;
        let first_words = group.iter().position(|piece| matches!(piece.kind, Kind::Words(_)));
        for (n, piece) in group.into_iter().enumerate() {
            let is_words = matches!(piece.kind, Kind::Words(_));
            match piece.kind {
                Kind::Words(text) => {
                    let is_joined = words.is_empty() || piece.is_glued && after_words;
                    words.push_str(if is_joined { "" } else { " " });
                    words.push_str(&text);
                }
                Kind::Number(number) => {
                    before_number.clone_from(&words);
                    said.amounts += 1;
                    said.currency = number.currency.or(said.currency);
                    let is_year = number.currency.is_none() && first_words.is_some_and(|first| n < first);
                    said.amount = Some(match said.amounts {
                        1 if is_year && is_like_a_year(&number, today.year()) => Err(UNCLEAR),
                        1 => number.value,
                        _ => Err(SEVERAL),
                    });
                }
                Kind::Date(date) => {
                    let is_another = said.date.is_some_and(|other| other != date);
                    said.date = Some(if is_another { Err(ONLY_ONE) } else { date });
                }
                Kind::Time(time) => said.time = time,
                Kind::Payment(name, _) if said.payments.contains(&name) => {}
                Kind::Payment(name, _) => said.payments.push(name),
                Kind::Category(name) => said.category = Some(name),
                Kind::Rate(rate) => said.rate = Some(rate),
                Kind::Break(_) => {}
            }
            after_words = is_words;
        }
        if said.amounts == 1
            && counts_again(&before_number, words.get(before_number.len()..).unwrap_or_default())
        {
            said.amount = Some(Err(UNCLEAR));
        }
        if said.payments.is_empty() {
            let rest = without_items(&words);
            let within = payments_within(&rest);
            said.hints_payment =
                !within.is_empty() || TABLES.words.paid.is_in(&rest) || words.contains("請客");
            // `一半現金一半刷卡`
            said.payments = if within.len() > 1 { within } else { Vec::new() };
        }
        said.item = item(&words);
        said
    }

    /// The way to pay, or why it is none.
    pub(super) fn payment(&self) -> Option<Result<&str, Reason>> {
        match &self.payments[..] {
            [] => None,
            [payment] => Some(Ok(payment)),
            _ => Some(Err(ONLY_ONE)),
        }
    }

    /// Whether it says an amount or a way to pay.
    pub(super) fn has_fact(&self) -> bool {
        self.amount.is_some() || !self.payments.is_empty()
    }

    /// Nothing but what belongs to the other entries: a day, a way to pay.
    fn has_only_facts(&self) -> bool {
        self.item.is_empty() && self.amount.is_none()
    }

    /// `午餐 現金`: an entry whose amount is missing, and not any other text.
    fn is_known_without_amount(&self) -> bool {
        self.payments.len() == 1 && is_known(&self.item) && self.item.chars().count() <= MAX_BARE_ITEM_CHARS
    }
}

/// The ways to pay that are named within words.
fn payments_within(words: &str) -> Vec<String> {
    let words: Vec<char> = words.chars().collect();
    let mut names: Vec<String> = Vec::new();
    let mut at = 0;
    while at < words.len() {
        match TABLES.payments.longest(&words, at) {
            Some(found) => {
                names.extend((!names.iter().any(|name| name == found.name)).then(|| found.name.to_owned()));
                at += found.len;
            }
            None => at += 1,
        }
    }
    names
}

/// The words without the names and items of the lists, which may have other words in them: 日用品 is no 用.
fn without_items(words: &str) -> String {
    let words: Vec<char> = words.chars().collect();
    let (mut rest, mut at) = (String::new(), 0);
    while at < words.len() {
        let known = [TABLES.names.longest(&words, at), TABLES.items.longest(&words, at)];
        match known.into_iter().flatten().map(|found| found.len).max().filter(|len| *len > 1) {
            Some(len) => {
                rest.push(' ');
                at += len;
            }
            None => {
                rest.push(words[at]);
                at += 1;
            }
        }
    }
    rest
}

/// The item that these words name, without the small words around it.
fn item(words: &str) -> String {
    let is_item = |text: &str| {
        let chars: Vec<char> = text.chars().collect();
        TABLES.items.longest(&chars, 0).is_some_and(|found| found.len > 1)
    };
    let mut item = words.trim();
    loop {
        // `我媽的卡` is hers.
        let is_kin = item.starts_with('我') && item.chars().nth(1).is_some_and(|c| KIN.contains(&c));
        let shorter = if is_item(item) || is_kin { item } else { TABLES.words.before.strip_start(item) };
        let shorter = if TABLES.items.whole(shorter).is_some() {
            shorter
        } else {
            TABLES.words.behind.strip_end(shorter)
        };
        let shorter = shorter.trim_matches(['-', '/', '+', '*', '#', '.', ' ', '、']);
        if shorter == item {
            break;
        }
        item = shorter;
    }
    match TABLES.words.before.whole(item).or(TABLES.words.behind.whole(item)) {
        Some(_) => String::new(),
        None => item.to_owned(),
    }
}

/// Whether the price of a number of things is followed by another number of them: `一斤 60 買了兩斤`.
fn counts_again(before: &str, after: &str) -> bool {
    let is_digit = |c: &char| c.is_ascii_digit() || "一二兩三四五六七八九十".contains(*c);
    let before: Vec<char> = before.trim_end().chars().collect();
    let [.., count, unit] = before[..] else { return false };
    let after: Vec<char> = after.chars().collect();
    is_digit(&count) && !is_digit(&unit) && after.windows(2).any(|pair| is_digit(&pair[0]) && pair[1] == unit)
}

fn is_like_a_year(number: &Number, this_year: u16) -> bool {
    number.text.parse().is_ok_and(|year: u16| number.text.len() == 4 && year.abs_diff(this_year) <= YEARS)
}

/// A way to pay that was bought, or that stands before the amount while another stands behind it, is a word of the item.
fn join_payments(group: &mut [Piece]) {
    let is_payment = |piece: &Piece| matches!(piece.kind, Kind::Payment(..));
    let payments: Vec<usize> = (0..group.len()).filter(|n| is_payment(&group[*n])).collect();
    let number = group.iter().position(|piece| piece.number().is_some());
    let has_words = group.iter().any(|piece| matches!(piece.kind, Kind::Words(_)));
    let mut joined = Vec::new();
    for n in &payments {
        let before = n.checked_sub(1).map(|before| &group[before].kind);
        let is_bought = matches!(before, Some(Kind::Words(words)) if TABLES.words.bought.ends(words));
        let is_before = number.is_some_and(|number| *n < number);
        let has_one_behind = payments.last().is_some_and(|last| number.is_some_and(|number| *last > number));
        let is_first_of_two = !has_words && payments.len() == 2 && payments[0] == *n;
        let follows_words = group[..*n].iter().any(|piece| matches!(piece.kind, Kind::Words(_)));
        let is_of_item = is_before && has_one_behind && payments.len() > 1 && follows_words;
        if is_bought && is_before || is_of_item || is_first_of_two {
            joined.push(*n);
        }
    }
    for n in joined {
        group[n] = group[n].clone().into_words();
    }
}

/// What one entry says for the others too.
struct Shared {
    payments: Vec<Option<String>>,
    rates: Vec<Option<Result<Decimal, Reason>>>,
    has_foreign_currency: bool,
    /// A category that stands apart from all entries.
    category: Option<String>,
}

impl Shared {
    fn of(groups: &[Said], habits: &Habits) -> Shared {
        let default = || habits.payment().map(str::to_owned);
        let payments = fill_gaps(groups.iter().map(|said| said.payments.first().cloned()));
        Shared {
            payments: payments
                .into_iter()
                .zip(groups)
                .map(|(payment, said)| payment.or_else(|| default().filter(|_| !said.hints_payment)))
                .collect(),
            rates: fill_gaps(groups.iter().map(|said| said.rate.clone())),
            has_foreign_currency: groups.iter().any(|said| said.currency.is_some_and(|code| code != HOME)),
            category: groups
                .iter()
                .filter(|said| said.has_only_facts())
                .find_map(|said| said.category.clone()),
        }
    }
}

/// Fills each gap with the next value, or with the previous one if there is no next.
fn fill_gaps<T: Clone>(values: impl Iterator<Item = Option<T>>) -> Vec<Option<T>> {
    let values: Vec<Option<T>> = values.collect();
    let next = |n: usize| values[n..].iter().flatten().next();
    let before = |n: usize| values[..n].iter().flatten().next_back();
    (0..values.len()).map(|n| next(n).or_else(|| before(n)).cloned()).collect()
}

/// What is missing in an entry, and what is wrong.
#[derive(Default)]
struct Fault {
    missing: Vec<Part>,
    wrong: Vec<String>,
}

impl Fault {
    /// The value; a missing or a wrong one is added to the faults.
    fn need<T>(&mut self, part: Part, value: Option<Result<T, Reason>>) -> Option<T> {
        match value {
            Some(Ok(value)) => return Some(value),
            Some(Err(reason)) => self.wrong.push(wrong_field(part.name(), reason)),
            None => self.missing.push(part),
        }
        None
    }

    fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.wrong.is_empty()
    }

    /// The message: what is wrong, or the questions for what is missing.
    fn message(&self, said: &Said) -> String {
        let item = Some(&said.item).filter(|item| !item.is_empty()).map(|item| format!("「{item}」"));
        if !self.wrong.is_empty() {
            return format!("{}{}", item.unwrap_or_default(), self.wrong.join("；"));
        }
        let currency = said.currency.unwrap_or(HOME);
        let amount = said.amount.as_ref().and_then(|amount| amount.as_ref().ok());
        let amount = amount.map(|amount| match currency {
            HOME => format!("{} 元", amount.as_str()),
            code => format!("{} {code} ", amount.as_str()),
        });
        let what = [item, amount].into_iter().flatten().collect::<String>();
        let is_income = TABLES.category(&said.item) == Some(INCOME);
        let asks = self.missing.iter().map(|part| part.question(currency, is_income));
        format!("{what}{}", asks.collect::<String>())
    }
}

impl Part {
    /// The question for it.
    fn question(self, currency: &str, is_income: bool) -> String {
        match self {
            Part::Date => "是哪一天？".to_owned(),
            Part::Item => "是什麼品項？".to_owned(),
            Part::Amount => "的金額是多少？".to_owned(),
            Part::Currency => "是哪一種幣別？".to_owned(),
            Part::Payment if is_income => "的付款方式是什麼？是怎麼收到的？".to_owned(),
            Part::Payment => "的付款方式是什麼？".to_owned(),
            Part::Rate => {
                let example = example_rate(currency);
                format!("的匯率是多少？（1 {currency} 等於多少台幣，例如：{example}）")
            }
        }
    }
}
