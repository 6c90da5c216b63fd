//! Edits: `改成150`, `金額打錯了，是 280`, `把午餐改成晚餐`, `修改金額 150`, `上一筆分類改教育`.

use super::entry::{Said, is_unsaid};
use super::habits::Habits;
use super::scan::{Kind, scan};
use super::tables::{CATEGORIES, TABLES};
use super::target::Target;
use super::{Problem, Sentence};
use crate::currency::{self, HOME};
use crate::texts::{INCOMPLETE, ONE_AT_A_TIME, wrong_field};
use crate::{Decimal, Field, Moment, Patch, Reason};

/// Polite words before the verb.
const POLITE: [&str; 9] = ["請", "麻煩", "幫我", "我要", "我想", "可以幫我", "把", "將", "幫忙"];
/// Particles at the end of a sentence.
const TAIL: [&str; 14] =
    ["謝謝", "好了", "才對", "拜託", "一下", "。", "!", "~", "吧", "啦", "喔", "哦", "囉", "唷"];
/// Words for the last transaction.
const LAST: [&str; 17] = [
    "上一筆",
    "前一筆",
    "最後一筆",
    "最後那筆",
    "剛剛那一筆",
    "剛剛那筆",
    "剛才那一筆",
    "剛才那筆",
    "剛剛這筆",
    "剛那筆",
    "上筆",
    "那一筆",
    "這一筆",
    "那筆",
    "這筆",
    "剛記的",
    "剛剛記的",
];
/// Words that may mean the last transaction, but also anything else.
const JUST_NOW: [&str; 2] = ["剛剛", "剛才"];
/// Nouns that may follow those words.
const ENTRY: [&str; 8] = ["交易記錄", "交易紀錄", "交易", "記錄", "紀錄", "記帳", "帳", "那筆"];
/// Verbs for an edit. The last is also a part of other words (`改天`), so it needs a field or an entry beside it.
const CHANGE: [&str; 5] = ["修改", "更改", "更新", "更正", SHORT_CHANGE];
const SHORT_CHANGE: &str = "改";
/// Before a new value.
const INTO: [&str; 13] = [
    "改成",
    "改為",
    "改作",
    "換成",
    "變成",
    "更正為",
    "更正成",
    "修正為",
    "修改成",
    "修改為",
    "更改為",
    "更改成",
    "改回",
];
/// That the old value was wrong, and the new one follows.
const WRONG: [&str; 15] = [
    "打錯了",
    "寫錯了",
    "輸錯了",
    "記錯了",
    "說錯了",
    "弄錯了",
    "按錯了",
    "打錯",
    "寫錯",
    "輸錯",
    "記錯",
    "說錯",
    "錯了",
    "不對",
    "有誤",
];
/// Before the right value.
const IS: [&str; 8] = ["應該是", "應該要", "正確是", "正確的是", "其實是", "才是", "而是", "是"];
/// Words and signs between two fields.
const AND: [&str; 6] = ["和", "跟", "與", "及", "、", ","];
/// Signs between two values.
const SEPARATORS: [char; 5] = ['、', ',', ';', '\n', ' '];
/// What people call the fields, besides their names. Of two words that begin alike, the longer comes first.
const FIELDS: [(&str, Field); 27] = [
    ("金額", Field::Amount),
    ("價錢", Field::Amount),
    ("價格", Field::Amount),
    ("費用", Field::Amount),
    ("多少錢", Field::Amount),
    ("數字", Field::Amount),
    ("錢", Field::Amount),
    ("幣別", Field::Currency),
    ("幣種", Field::Currency),
    ("貨幣", Field::Currency),
    ("項目", Field::Item),
    ("品名", Field::Item),
    ("名稱", Field::Item),
    ("內容", Field::Item),
    ("支付方式", Field::Payment),
    ("付費方式", Field::Payment),
    ("付款", Field::Payment),
    ("支付", Field::Payment),
    ("類別", Field::Category),
    ("種類", Field::Category),
    ("類型", Field::Category),
    ("明細", Field::Detail),
    ("備註", Field::Remark),
    ("註記", Field::Remark),
    ("商家", Field::Party),
    ("店家", Field::Party),
    ("日子", Field::Date),
];

/// What the chat calls a field, where it differs from its name.
pub(super) const fn label(field: Field) -> &'static str {
    match field {
        Field::Amount => "金額",
        Field::Currency => "幣別",
        Field::Detail => "明細",
        other => other.name(),
    }
}

/// The field whose name `text` begins with, and the rest.
fn field(text: &str) -> Option<(Field, &str)> {
    let of = |field: Field| Some((field, text.strip_prefix(field.name())?));
    let named = Field::ALL.into_iter().find_map(of);
    named.or_else(|| FIELDS.iter().find_map(|(name, field)| Some((*field, text.strip_prefix(name)?))))
}

/// Whether the text begins with the name of a field.
pub(super) fn names_field(text: &str) -> bool {
    field(text).is_some()
}

/// Whether the text begins with words for the last transaction.
pub(super) fn names_last_transaction(text: &str) -> bool {
    let text = strip_polite(text);
    strip_any(text, &LAST).is_some() && !text.starts_with("那") && !text.starts_with("這")
}

/// The edit that the text asks for, or what is wrong with it; `None` if it asks for no edit.
pub(super) fn parse(text: &str, now: Moment, habits: &Habits) -> Option<Sentence> {
    if text.contains('?') || text.ends_with(['嗎', '呢']) {
        return None;
    }
    let found =
        named(text, now, habits).map(|edit| (edit, Target::default())).or_else(|| unnamed(text, now, habits));
    Some(match found? {
        (Ok(patch), target) => Sentence::Edit(patch, target),
        (Err(problem), _) => Sentence::EditProblem(problem),
    })
}

/// New values without the names of their fields: `改成 150 現金`, `打錯了，是 280`, `不是120是150`, `午餐改150`.
fn unnamed(text: &str, now: Moment, habits: &Habits) -> Option<(Result<Patch, Problem>, Target)> {
    let is_right = text.trim_end_matches(['。', '!']).ends_with("才對");
    let text = strip_tail(strip_polite(text));
    let text = strip_last(text).unwrap_or(text);
    let values = |rest: &str| new_values(rest, now, habits);
    // `午餐 150 才對`
    if is_right && said(text, now, habits).is_some_and(|said| said.amounts == 1) {
        return values(text).map(|edit| (edit, Target::default()));
    }
    if let Some(rest) = strip_any(text, &INTO).or_else(|| right_value(text)) {
        return values(rest).map(|edit| (edit, Target::default()));
    }
    if let Some(rest) = text.strip_prefix("不是")
        && let Some((old, new)) = IS.iter().find_map(|word| rest.split_once(word))
    {
        let old = Target::read(old.trim_matches(SEPARATORS), now, habits)?;
        return values(new).map(|edit| (edit, old));
    }
    // `午餐改成 150`: the words before the verb say which entry is meant.
    if let Some((old, new)) =
        INTO.iter().find_map(|word| text.split_once(word)).filter(|(old, _)| !old.is_empty())
    {
        let old = old.trim_matches(SEPARATORS).trim_end_matches('的');
        let old = match old {
            "" => Some(Target::default()),
            old => Target::read(old, now, habits),
        };
        return Some(match old {
            Some(old) => (values(new)?, old),
            // `早上改成150`
            None => (Err(INCOMPLETE.into()), Target::default()),
        });
    }
    // Without 成 the verb is a part of other words too: only values that are clear.
    let verb_first = strip_any(text, &CHANGE).map(|new| ("", new));
    let (old, new) = verb_first.or_else(|| text.split_once(SHORT_CHANGE))?;
    let old = old.trim_matches(SEPARATORS).trim_end_matches('的');
    let new = new.trim_start_matches([':', '=', ' ']);
    let said = said(new, now, habits)?;
    let is_item = |text: &str| TABLES.items.whole(text).is_some();
    // `修改西裝 600` may be what was paid for.
    let verb = CHANGE[..CHANGE.len() - 1].iter().find_map(|verb| Some((*verb, text.strip_prefix(verb)?)));
    let is_long_verb = verb.is_some_and(|(verb, rest)| verb == "更正" || rest.starts_with(' '));
    let is_clear = match old.is_empty() {
        true if is_long_verb => true,
        true => said.item.is_empty() && (said.has_fact() || said.date.is_some()) || is_item(new),
        false => {
            let is_value = said.has_fact() || is_item(old) && said.date.is_some();
            said.item.is_empty() && is_value || is_item(old) && is_item(new)
        }
    };
    if !is_clear {
        return None;
    }
    let old = if old.is_empty() { Target::default() } else { Target::read(old, now, habits)? };
    values(new).map(|edit| (edit, old))
}

/// The right value after words that the old one was wrong: `打錯了，是 280`, `應該是 280`.
fn right_value(text: &str) -> Option<&str> {
    let text = text.strip_prefix('我').unwrap_or(text);
    let wrong = strip_any(text, &WRONG).map(|rest| rest.trim_start_matches(SEPARATORS));
    let right = |rest| strip_any(rest, &INTO).or_else(|| strip_any(rest, &IS));
    let is_value = |rest: &&str| rest.starts_with(|c: char| c.is_ascii_digit() || c == '$');
    match wrong {
        Some(rest) => {
            right(rest).or_else(|| strip_any(rest, &[SHORT_CHANGE])).or(Some(rest).filter(is_value))
        }
        None => strip_any(text, &IS[..4]),
    }
    .filter(|rest| !rest.is_empty())
}

/// What a text of new values says; `None` if it is no such text.
fn said(rest: &str, now: Moment, habits: &Habits) -> Option<Said> {
    let pieces = scan(rest, now.date(), habits);
    let is_break = |kind: &Kind| matches!(kind, Kind::Break(sign) if *sign == '\n' || *sign == '?');
    if pieces.is_empty() || is_unsaid(rest) || pieces.iter().any(|piece| is_break(&piece.kind)) {
        return None;
    }
    Some(Said::of(pieces, now.date()))
}

/// The edit of every field whose new value is said.
fn new_values(rest: &str, now: Moment, habits: &Habits) -> Option<Result<Patch, Problem>> {
    let rest = strip_tail(rest.trim_start_matches([':', '=', ' ', ',']));
    if rest.is_empty() {
        return Some(Err(INCOMPLETE.into()));
    }
    let said = said(rest, now, habits)?;
    let payment = said.payment().map(|payment| payment.map(quoted));
    let Said { item, amount, currency, rate, category, date, time, .. } = &said;
    // `改成 2 杯` does not say what is changed.
    let unit = item.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
    if item.starts_with(|c: char| c.is_ascii_digit()) && TABLES.units.whole(unit).is_some() {
        return Some(Err(INCOMPLETE.into()));
    }
    let mut fields: Vec<(Field, Result<String, Reason>)> = Vec::new();
    if CATEGORIES.contains(&item.as_str()) && category.is_none() {
        fields.push((Field::Category, Ok(quoted(item))));
    } else if let Some(code) = currency_named(item).filter(|_| currency.is_none() && amount.is_none()) {
        fields.push((Field::Currency, Ok(quoted(code))));
    } else if !item.is_empty() {
        fields.push((Field::Item, Ok(quoted(item))));
    }
    fields.extend(date.map(|date| (Field::Date, date.map(|date| quoted(&date.to_string())))));
    fields.extend(time.as_deref().map(|time| (Field::Time, Ok(quoted(time)))));
    fields.extend(amount.as_ref().map(|amount| (Field::Amount, digits(amount))));
    fields.extend(currency.map(|code| (Field::Currency, Ok(quoted(code)))));
    fields.extend(rate.as_ref().map(|rate| (Field::Rate, digits(rate))));
    fields.extend(category.as_deref().map(|name| (Field::Category, Ok(quoted(name)))));
    fields.extend(payment.map(|payment| (Field::Payment, payment)));
    let checked = fields.into_iter().map(|(field, json)| {
        let json = json.and_then(|json| field.check(&json));
        json.map(|json| (field, json)).map_err(|reason| problem(field, reason))
    });
    Some(match checked.collect::<Result<Vec<_>, Problem>>() {
        Ok(fields) => Patch::of(fields).ok_or_else(|| INCOMPLETE.into()),
        Err(problem) => Err(problem),
    })
}

/// A new value behind the name of its field.
fn named(text: &str, now: Moment, habits: &Habits) -> Option<Result<Patch, Problem>> {
    let text = strip_polite(text);
    let mut is_edit = names_last_transaction(text);
    let text = strip_last(text).unwrap_or(text);
    let verb = CHANGE.iter().find_map(|verb| Some((*verb, text.strip_prefix(verb)?)));
    if strip_any(text, &INTO).is_some() {
        return None;
    }
    let (field, rest) = match verb {
        Some((verb, rest)) => {
            is_edit |= names_last_transaction(rest) || verb != SHORT_CHANGE;
            match field(strip_last(rest).unwrap_or(rest.trim_start())) {
                Some(found) => found,
                // `改信用卡`, `上一筆改150`
                None if said_is_clear(rest, now, habits) => return None,
                None => return is_edit.then(|| Err(INCOMPLETE.into())),
            }
        }
        None => {
            let (field, rest) = field(text)?;
            if strip_any(rest, &AND).is_some_and(|rest| self::field(rest).is_some())
                && rest.contains(SHORT_CHANGE)
            {
                return Some(Err(ONE_AT_A_TIME.into()));
            }
            let rest = rest.trim_start();
            let wrong = right_value(rest).filter(|_| strip_any(rest, &WRONG).is_some());
            let into = || CHANGE.iter().find_map(|verb| rest.strip_prefix(verb));
            let change = strip_any(rest, &INTO).filter(|_| !rest.starts_with(SHORT_CHANGE));
            // `金額 150`: nothing else that it could mean.
            let bare = || {
                let value = rest.trim_start_matches(['是', ':', '=', ' ']);
                let said = said(value, now, habits).filter(|_| field == Field::Amount)?;
                let is_alone = said.item.is_empty() && said.payments.is_empty() && said.date.is_none();
                (said.amounts == 1 && is_alone).then_some(value)
            };
            (field, wrong.or(change).or_else(into).or_else(bare)?)
        }
    };
    Some(patch(field, strip_tail(rest), now, habits))
}

/// Whether a text is a new value that needs no name.
fn said_is_clear(rest: &str, now: Moment, habits: &Habits) -> bool {
    let rest = strip_last(rest).unwrap_or(rest.trim_start());
    said(rest, now, habits).is_some_and(|said| {
        said.item.is_empty() && said.has_fact() || TABLES.items.whole(&said.item).is_some()
    })
}

fn patch(field: Field, rest: &str, now: Moment, habits: &Habits) -> Result<Patch, Problem> {
    let json = |field, value: &str| json(field, value, now, habits);
    if let Some((currency, rate)) = currency_and_rate(field, rest) {
        return one_field(Field::Currency, json(Field::Currency, currency)?)?
            .and(Field::Rate, &json(Field::Rate, rate)?)
            .map_err(|reason| problem(Field::Rate, reason));
    }
    if names_second_field(rest) {
        return several(field, rest, json).unwrap_or_else(|| Err(ONE_AT_A_TIME.into()));
    }
    let value = new_value(rest);
    if value.is_empty() {
        return Err(INCOMPLETE.into());
    }
    if field.is_fixed() {
        return Err(problem(field, "不可修改"));
    }
    // `金額改成 1000 日幣`: the currency comes along.
    if let (Field::Amount, Some(said)) = (field, said(value, now, habits))
        && said.item.is_empty()
        && (said.currency.is_some_and(|code| code != HOME) || said.amounts > 1)
    {
        return new_values(value, now, habits).unwrap_or_else(|| Err(INCOMPLETE.into()));
    }
    one_field(field, json(field, value)?)
}

/// The values of several fields: `金額改200 付款方式改悠遊卡`. `None` if a field has no value of its own.
fn several(
    first: Field,
    rest: &str,
    json: impl Fn(Field, &str) -> Result<String, Problem>,
) -> Option<Result<Patch, Problem>> {
    let mut values: Vec<(Field, String)> = vec![(first, String::new())];
    for chunk in rest.split(SEPARATORS).filter(|chunk| !chunk.is_empty()) {
        let bare = strip_any(chunk, &AND).unwrap_or(chunk);
        let named = field(strip_any(bare, &CHANGE).unwrap_or(bare));
        match (
            named.filter(|(_, rest)| rest.is_empty() || rest.starts_with(follows_field)),
            values.last_mut(),
        ) {
            (Some((field, rest)), _) => values.push((field, rest.to_owned())),
            (None, Some((_, value))) => *value = format!("{value} {chunk}"),
            _ => {}
        }
    }
    let mut fields = Vec::new();
    for (field, value) in &values {
        let value = new_value(value);
        let value = strip_any(value, &[SHORT_CHANGE]).unwrap_or(value);
        if value.is_empty() {
            return None;
        }
        if field.is_fixed() {
            return Some(Err(problem(*field, "不可修改")));
        }
        let checked =
            json(*field, value).and_then(|json| field.check(&json).map_err(|reason| problem(*field, reason)));
        match checked {
            Ok(json) => fields.push((*field, json)),
            Err(problem) => return Some(Err(problem)),
        }
    }
    Patch::of(fields).map(Ok)
}

fn one_field(field: Field, json: String) -> Result<Patch, Problem> {
    Patch::one(field, &json).map_err(|reason| problem(field, reason))
}

/// The JSON for a field's new value as people write it.
fn json(field: Field, value: &str, now: Moment, habits: &Habits) -> Result<String, Problem> {
    let said = || said(value, now, habits);
    let json = match field {
        Field::Amount => match said() {
            Some(Said { item, amount: Some(amount), .. }) if item.is_empty() => digits(&amount),
            _ => Err("必須是數字"),
        },
        Field::Rate => {
            let (sign, number) = value.strip_prefix('-').map_or(("", value), |number| ("-", number));
            let number = number.trim_end_matches(['元', '塊', '圓']);
            digits(&Decimal::parse(&format!("{sign}{}", number.trim())))
        }
        Field::Date => match said().and_then(|said| said.date) {
            Some(date) => date.map(|date| quoted(&date.to_string())),
            None => Ok(quoted(value)),
        },
        Field::Time => Ok(quoted(&said().and_then(|said| said.time).unwrap_or(value.to_owned()))),
        Field::Currency => Ok(quoted(currency_named(value).unwrap_or(value))),
        Field::Payment => {
            let said = said().filter(|said| said.item.is_empty());
            let named = said.as_ref().and_then(|said| said.payment()?.ok());
            Ok(quoted(named.unwrap_or(value)))
        }
        _ => Ok(quoted(value)),
    };
    json.map_err(|reason| problem(field, reason))
}

/// The JSON of a text.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The JSON of a number.
fn digits(number: &Result<Decimal, Reason>) -> Result<String, Reason> {
    number.as_ref().map(|number| number.as_str().to_owned()).map_err(|reason| *reason)
}

/// The currency that a word means by itself: its code in any case, or what people call it.
pub(super) fn currency_named(word: &str) -> Option<&'static str> {
    let word = word.trim();
    let code = currency::code(&word.to_ascii_uppercase());
    code.or_else(|| TABLES.currencies.whole(word)).or_else(|| TABLES.currencies_after.whole(word))
}

fn problem(field: Field, reason: Reason) -> Problem {
    Problem(wrong_field(label(field), reason))
}

/// The values of a currency and its rate, which are changed together: `幣別 美金 匯率 31.5`, in either order. `rest` follows the
/// first of the two.
fn currency_and_rate(field: Field, rest: &str) -> Option<(&str, &str)> {
    let second = match field {
        Field::Currency => Field::Rate,
        Field::Rate => Field::Currency,
        _ => return None,
    };
    let names = [second.name(), label(second)];
    let (at, name) = names.into_iter().filter_map(|name| Some((rest.find(name)?, name))).min()?;
    let before = rest[..at].trim_end_matches(SEPARATORS);
    let before = AND.iter().find_map(|word| before.strip_suffix(word)).unwrap_or(before);
    let after = new_value(&rest[at + name.len()..]);
    let after = after.strip_prefix(SHORT_CHANGE).unwrap_or(after);
    let values = (new_value(before), after.trim());
    let is_whole = |value: &str| !value.is_empty() && !value.contains(SEPARATORS);
    match values {
        (one, other) if !is_whole(one) || !is_whole(other) => None,
        (one, other) if field == Field::Currency => Some((one, other)),
        (one, other) => Some((other, one)),
    }
}

/// The new value, without the particle before it.
fn new_value(rest: &str) -> &str {
    let text = rest.trim_start();
    let spaced = text.len() < rest.len();
    let particle = ["改成", "改為", "成為", "為", ":", "="];
    let rest = match particle.iter().find_map(|word| text.strip_prefix(word)) {
        Some(rest) => rest,
        // `分類成教育`, `分類 成 教育`; but in `分類 成人用品` it belongs to the value.
        None => match text.strip_prefix('成') {
            Some(rest) if !spaced || rest.starts_with(' ') => rest,
            _ => text,
        },
    };
    rest.trim()
}

/// A second field is followed by a value, a verb or a separator. Otherwise the text only begins like a field's name.
fn follows_field(c: char) -> bool {
    c.is_ascii_digit() || ['改', '為', '成', ':', '='].contains(&c) || SEPARATORS.contains(&c)
}

/// Whether the text after a field names a second field to change.
fn names_second_field(rest: &str) -> bool {
    let rest = rest.trim_start();
    let field = |text| field(strip_any(text, &CHANGE).unwrap_or(text)).map(|(_, rest)| rest);
    let joined = strip_any(rest, &AND).is_some_and(|rest| field(rest).is_some());
    let first = field(rest).is_some_and(|rest| rest.starts_with(follows_field));
    let mut later =
        rest.char_indices().filter(|(_, c)| SEPARATORS.contains(c)).map(|(at, c)| &rest[at + c.len_utf8()..]);
    joined
        || first
        || later
            .any(|text| field(text).is_some_and(|rest| rest.is_empty() || rest.starts_with(follows_field)))
}

/// The text after the polite words.
pub(super) fn strip_polite(text: &str) -> &str {
    let mut text = text.trim_start();
    while let Some(rest) = strip_any(text, &POLITE) {
        text = rest;
    }
    text
}

/// The text before particles and thanks.
pub(super) fn strip_tail(text: &str) -> &str {
    let mut text = text.trim_end_matches(SEPARATORS);
    while let Some(rest) = TAIL.iter().find_map(|word| text.strip_suffix(word)) {
        text = rest.trim_end_matches(SEPARATORS);
    }
    text
}

/// The text after the words for the last transaction, if it begins with them.
pub(super) fn strip_last(text: &str) -> Option<&str> {
    let rest = strip_any(text, &LAST).or_else(|| strip_any(text, &JUST_NOW))?;
    let rest = rest.strip_prefix('的').map_or(rest, str::trim_start);
    let rest = strip_any(rest, &ENTRY).unwrap_or(rest);
    Some(rest.strip_prefix('的').map_or(rest, str::trim_start))
}

/// The text after one of the words, if it begins with one. Blanks around the word are dropped.
pub(super) fn strip_any<'a>(text: &'a str, words: &[&str]) -> Option<&'a str> {
    words.iter().find_map(|word| text.trim_start().strip_prefix(word)).map(str::trim_start)
}
