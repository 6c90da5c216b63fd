//! What people say, sentence by sentence, to the whole function: `tests/corpus`.

use crate::support;

use std::fmt::Write;

use onetap_ledger::{Book, Config, Date, Moment, Months, Statement};
use onetap_store::read_to_end;
use serde::Deserialize;
use serde_json::Value;
use support::*;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    say: Vec<Message>,
    books: Option<Vec<Value>>,
    has: Option<String>,
    lacks: Option<String>,
    #[serde(default)]
    silent: bool,
    /// What it is about, for a reader.
    #[serde(default)]
    about: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Message {
    Alone(String),
    InGroup { g: String },
    Mentioned { m: String },
}

impl Message {
    fn event(&self, user: &str) -> Value {
        match self {
            Message::Alone(words) => text(user, words),
            Message::InGroup { g } => in_group(text(user, g)),
            Message::Mentioned { m } => mentioning(user, m),
        }
    }

    fn words(&self) -> String {
        match self {
            Message::Alone(words) => words.clone(),
            Message::InGroup { g } => format!("[group] {g}"),
            Message::Mentioned { m } => format!("[mention] {m}"),
        }
    }
}

/// Every entry that the user's ledger has.
async fn ledger(bot: &Bot, user: &str) -> Vec<Value> {
    let book = Book::new(user, Config::default()).unwrap();
    let months = Months::read(bot.store.get(book.months()).await.unwrap().as_deref());
    let mut entries = Vec::new();
    for month in months.latest_first() {
        let records = read_to_end(&bot.store, &book.log(month).unwrap()).await.unwrap();
        let statement = Statement::fold(month, records.iter().map(|record| record.text.as_str()));
        let json = |entry: &onetap_ledger::Entry| serde_json::from_str(&entry.to_json()).unwrap();
        entries.extend(statement.entries().map(json));
    }
    entries
}

/// The date that `text` means: `D-1`, `MD 11 5`, `DAY 5`, `LASTWEEK 4`, or a date.
fn date(text: &str, today: Date) -> String {
    let latest = |is: &dyn Fn(Date) -> bool| {
        (0..3000).filter_map(|ago| today.days_ago(ago)).find(|date| is(*date)).unwrap().to_string()
    };
    let words: Vec<&str> = text.split(' ').collect();
    let number = |n: usize| words[n].parse::<u8>().unwrap();
    match words[0] {
        "MD" => latest(&|date| (date.month(), date.day()) == (number(1), number(2))),
        "DAY" => latest(&|date| date.day() == number(1)),
        "LASTWEEK" => {
            let ago = today.weekday() + 7 - number(1);
            today.days_ago(ago.into()).unwrap().to_string()
        }
        "LASTYEAR" => Date::new(today.year() - 1, number(1), number(2)).unwrap().to_string(),
        relative if relative.starts_with('D') => {
            let ago = relative[1..].parse::<i32>().unwrap().unsigned_abs();
            today.days_ago(u16::try_from(ago).unwrap()).unwrap().to_string()
        }
        date => date.to_owned(),
    }
}

/// Whether an entry has every field as it is expected.
fn is_entry(entry: &Value, expected: &Value, today: Date) -> bool {
    expected.as_object().unwrap().iter().all(|(field, expected)| match (field.as_str(), expected) {
        (_, Value::Null) => true,
        ("日期", Value::String(text)) => entry[field] == *date(text, today),
        ("原幣金額" | "匯率", Value::String(text)) => {
            entry[field].as_f64() == text.parse().ok() && entry[field].is_number()
        }
        _ => entry[field] == *expected,
    })
}

/// What is wrong with a case; nothing if it is right.
async fn fault(bot: &Bot, case: &Case) -> Option<String> {
    let user = user();
    let mut said = String::new();
    let mut transcript = String::new();
    // One message a second, all of them on one day.
    let later = |seconds: i64| Moment::from_unix(Moment::now().unix() + seconds).unwrap();
    let first = if later(0).date() == later(60).date() { later(0) } else { later(60) };
    for (n, message) in (0..).zip(&case.say) {
        let time = Moment::from_unix(first.unix() + n).unwrap();
        assert_eq!(bot.deliver(&[at(time, message.event(&user))]).await, 200);
        said = bot.said().join("\n");
        let _ = write!(transcript, "\n    > {}\n    {}", message.words(), said.replace('\n', "\n    "));
    }
    let today = first.date();
    let entries = ledger(bot, &user).await;
    let mut faults = Vec::new();
    if let Some(books) = &case.books {
        let mut left = entries.clone();
        let all = books.iter().all(|expected| {
            let at = left.iter().position(|entry| is_entry(entry, expected, today));
            at.map(|at| left.remove(at)).is_some()
        });
        if !all || !left.is_empty() {
            let field = |entry: &Value, field: &str| match &entry[field] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let line = |entry: &Value| {
                ["日期", "品項", "原幣金額", "原幣別", "匯率", "付款方式", "分類"]
                    .map(|name| field(entry, name))
                    .join(" ")
            };
            let lines: Vec<String> = entries.iter().map(line).collect();
            faults.push(format!("books {lines:?}, not {}", serde_json::to_string(books).unwrap()));
        }
    }
    if case.silent && !said.is_empty() {
        faults.push("is not silent".to_owned());
    }
    if let Some(text) = case.has.as_ref().filter(|text| !said.contains(*text)) {
        faults.push(format!("lacks {text:?}"));
    }
    if let Some(text) = &case.lacks
        && (said.contains(text) || said.is_empty())
    {
        faults.push(format!("has {text:?}, or nothing"));
    }
    let about = case.about.as_deref().unwrap_or_default();
    (!faults.is_empty()).then(|| format!("{about}{transcript}\n    {}", faults.join("\n    ")))
}

async fn run(corpus: &str) {
    let cases: Vec<Case> = serde_json::from_str(corpus).unwrap();
    let bot = Bot::new(memory());
    let mut faults = Vec::new();
    for case in &cases {
        faults.extend(fault(&bot, case).await);
    }
    assert!(faults.is_empty(), "{} of {} are wrong:\n{}", faults.len(), cases.len(), faults.join("\n"));
}

#[tokio::test]
async fn every_sentence_of_the_specification_does_the_right_thing() {
    run(include_str!("../corpus/chat.json")).await;
}

#[tokio::test]
async fn what_people_say_every_day_does_the_right_thing() {
    run(include_str!("../corpus/everyday.json")).await;
}

#[tokio::test]
async fn what_could_be_misunderstood_is_understood_or_asked_for() {
    run(include_str!("../corpus/hard.json")).await;
}
