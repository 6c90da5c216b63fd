//! A month of the ledger, or a part of it: its entries and what they add up to.

use std::collections::HashMap;
use std::fmt;

use serde_json::Value;

use crate::csv::{Cell, Csv};
use crate::{Date, Decimal, Entry, Field, LedgerRecord, Month, Total};

/// What an entry without a `分類` counts as. The chat writes the same.
pub(crate) const NO_CATEGORY: &str = "其他";

/// The `分類` of income. Every other one is spending.
pub(crate) const INCOME: &str = "收入";

/// The entries of a month, folded from the records of its log. `Debug` shows only counts.
///
/// Income and spending are never added up together.
///
/// ```
/// use onetap_ledger::{Month, Statement};
///
/// let month = Month::parse("2026-11").unwrap();
/// let statement = Statement::fold(month, [
///     r#"{"op":"put","tx":{"交易ID":"20261117-120000","日期":"2026-11-17","原幣金額":12.50,"匯率":31.5,"分類":"飲食"}}"#,
///     r#"{"op":"put","tx":{"交易ID":"20261117-180000","日期":"2026-11-17","原幣金額":99,"匯率":1,"分類":"飲食"}}"#,
///     r#"{"op":"delete","交易ID":"20261117-180000"}"#,
///     r#"{"op":"put","tx":{"交易ID":"20261118-090000","日期":"2026-11-18","原幣金額":50000,"匯率":1,"分類":"收入"}}"#,
/// ]);
/// assert_eq!((statement.spending_count(), statement.total().to_string().as_str()), (1, "393.75"));
/// assert_eq!((statement.income_count(), statement.income().to_string().as_str()), (1, "50000"));
/// ```
#[derive(Clone)]
pub struct Statement {
    month: Month,
    /// In the order of `日期`, `時間` and `交易ID`.
    rows: Vec<Row>,
    unreadable: usize,
}

/// An entry whose date and amount could be read.
#[derive(Clone)]
struct Row {
    date: Date,
    time: String,
    category: String,
    total: Total,
    entry: Entry,
}

impl Row {
    fn read(entry: Entry) -> Option<Row> {
        let decimal = |field| Decimal::parse(entry.json(field)?).ok();
        let date = Date::parse(&entry.get(Field::Date)?)?;
        let total = &decimal(Field::Amount)? * &decimal(Field::Rate)?;
        let category = match entry.get(Field::Category).unwrap_or_default().trim() {
            "" => NO_CATEGORY.to_owned(),
            name => name.to_owned(),
        };
        Some(Row { date, time: entry.get(Field::Time).unwrap_or_default(), category, total, entry })
    }

    fn is_income(&self) -> bool {
        self.category == INCOME
    }

    fn order(&self) -> (Date, &str, &str) {
        (self.date, &self.time, self.entry.id())
    }
}

/// The entries of one `分類`. `Debug` shows only their number.
#[derive(Clone, PartialEq, Eq)]
pub struct CategoryTotal {
    /// The `分類`.
    pub name: String,
    /// The number of its entries.
    pub count: usize,
    /// Their sum in TWD.
    pub total: Total,
}

impl fmt::Debug for CategoryTotal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CategoryTotal").field("count", &self.count).finish_non_exhaustive()
    }
}

impl fmt::Debug for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Statement")
            .field("month", &self.month)
            .field("count", &self.count())
            .field("unreadable", &self.unreadable)
            .finish()
    }
}

impl Statement {
    /// Folds the records of a month's log, in their order: of each `交易ID` the latest record holds.
    ///
    /// A record that cannot be read is skipped and counted, as is one whose entry has no readable `日期`, `原幣金額` or
    /// `匯率`: the record before it holds.
    pub fn fold<'a>(month: Month, records: impl IntoIterator<Item = &'a str>) -> Statement {
        let mut rows: HashMap<String, Row> = HashMap::new();
        let mut unreadable = 0;
        for record in records {
            match LedgerRecord::read(record) {
                Some(LedgerRecord::Put(entry)) => match Row::read(entry) {
                    Some(row) => {
                        rows.insert(row.entry.id().to_owned(), row);
                    }
                    None => unreadable += 1,
                },
                Some(LedgerRecord::Delete(id)) => {
                    rows.remove(&id);
                }
                None => unreadable += 1,
            }
        }
        Statement { month, rows: in_order(rows.into_values().collect()), unreadable }
    }

    /// Only the entries from the `first` date to the `last`, both included.
    #[must_use]
    pub fn between(mut self, first: Date, last: Date) -> Statement {
        self.rows.retain(|row| (first..=last).contains(&row.date));
        self
    }

    /// Only the entries whose `分類` or `付款方式` is this name, or whose `品項` has it. An entry without a `分類` counts as `其他`.
    #[must_use]
    pub fn matching(mut self, name: &str) -> Statement {
        let name = name.trim();
        let text = |row: &Row, field| row.entry.get(field).unwrap_or_default();
        let is_paid = |row: &Row| !name.is_empty() && text(row, Field::Payment).trim() == name;
        let has_item = |row: &Row| !name.is_empty() && text(row, Field::Item).contains(name);
        self.rows.retain(|row| row.category == name || is_paid(row) || has_item(row));
        self
    }

    /// The entries of both, which are statements of different months: a week may begin in one and end in the next.
    #[must_use]
    pub fn join(mut self, other: Statement) -> Statement {
        self.rows.extend(other.rows);
        Statement {
            month: self.month.min(other.month),
            rows: in_order(self.rows),
            unreadable: self.unreadable + other.unreadable,
        }
    }

    /// The month; of joined statements the earlier one.
    pub fn month(&self) -> Month {
        self.month
    }

    /// The number of entries, spending and income.
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// The number of entries that are spending.
    pub fn spending_count(&self) -> usize {
        self.spending().count()
    }

    /// The number of entries that are income.
    pub fn income_count(&self) -> usize {
        self.count() - self.spending_count()
    }

    /// The number of records that could not be read.
    pub fn unreadable(&self) -> usize {
        self.unreadable
    }

    /// What was spent, in TWD: the sum of `原幣金額` × `匯率`, exact.
    pub fn total(&self) -> Total {
        self.spending().map(|row| row.total).sum()
    }

    /// What came in, in TWD: the same sum, of the entries whose `分類` is `收入`.
    pub fn income(&self) -> Total {
        self.rows.iter().filter(|row| row.is_income()).map(|row| row.total).sum()
    }

    fn spending(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| !row.is_income())
    }

    /// What was spent by `分類`, the largest sum first; of equal sums, by name. An entry without a `分類` counts as `其他`.
    pub fn by_category(&self) -> Vec<CategoryTotal> {
        let mut categories: HashMap<&str, (usize, Total)> = HashMap::new();
        for row in self.spending() {
            let (count, total) = categories.entry(&row.category).or_default();
            *count += 1;
            *total = *total + row.total;
        }
        let category =
            |(name, (count, total)): (&str, _)| CategoryTotal { name: name.to_owned(), count, total };
        let mut categories: Vec<CategoryTotal> = categories.into_iter().map(category).collect();
        categories.sort_unstable_by(|a, b| b.total.cmp(&a.total).then_with(|| a.name.cmp(&b.name)));
        categories
    }

    /// The entries, by `日期`, `時間` and `交易ID`.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> + ExactSizeIterator {
        self.rows.iter().map(|row| &row.entry)
    }

    /// The `n` entries with the latest dates, the latest first.
    pub fn latest(&self, n: usize) -> impl Iterator<Item = &Entry> {
        self.entries().rev().take(n)
    }

    /// The statement as JSON. The entries are those that were stored, digit for digit; the sums are strings, so that no
    /// reader makes binary floats of them.
    pub fn to_json(&self) -> String {
        let category = |category: &CategoryTotal| {
            let (name, total) = (Value::from(category.name.as_str()), category.total);
            format!(r#"{{"分類":{name},"count":{},"total_twd":"{total}"}}"#, category.count)
        };
        let mut text = format!(
            r#"{{"month":"{}","count":{},"total_twd":"{}","income_twd":"{}","by_category":["#,
            self.month,
            self.count(),
            self.total(),
            self.income()
        );
        join(&mut text, self.by_category().iter().map(category));
        text.push_str(r#"],"transactions":["#);
        join(&mut text, self.entries().map(Entry::to_json));
        text.push_str("]}");
        text
    }

    /// The statement as CSV for a spreadsheet: a row with the names of the [fields](Field::ALL), then one for each entry.
    ///
    /// Fields that this version does not know are left out. Numbers keep their digits. A text that a spreadsheet would take
    /// for a formula begins with an apostrophe.
    pub fn to_csv(&self) -> String {
        let mut csv = Csv::new();
        csv.row(Field::ALL.map(|field| Cell::Text(field.name())));
        for entry in self.entries() {
            let texts = Field::ALL.map(|field| entry.get(field).unwrap_or_default());
            csv.row(Field::ALL.into_iter().zip(&texts).map(|(field, text)| match field {
                Field::Amount | Field::Rate => Cell::Number(text),
                _ => Cell::Text(text),
            }));
        }
        csv.into_string()
    }
}

/// The rows by `日期`, `時間` and `交易ID`.
fn in_order(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_unstable_by(|a, b| a.order().cmp(&b.order()));
    rows
}

fn join(text: &mut String, parts: impl Iterator<Item = String>) {
    for (n, part) in parts.enumerate() {
        text.push_str(if n == 0 { "" } else { "," });
        text.push_str(&part);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bigdecimal::BigDecimal;
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{DINNER, LUNCH};

    fn november() -> Month {
        Month::parse("2025-11").unwrap()
    }

    fn put(entry: &str) -> String {
        format!(r#"{{"op":"put","tx":{entry}}}"#)
    }

    fn fold(records: &[String]) -> Statement {
        Statement::fold(november(), records.iter().map(String::as_str))
    }

    fn ids(statement: &Statement) -> Vec<&str> {
        statement.entries().map(Entry::id).collect()
    }

    #[test]
    fn a_month_without_records_is_empty() {
        let empty = fold(&[]);
        assert_eq!(
            empty.to_json(),
            r#"{"month":"2025-11","count":0,"total_twd":"0","income_twd":"0","by_category":[],"transactions":[]}"#
        );
        assert_eq!(empty.to_csv().matches("\r\n").count(), 1);
    }

    #[test]
    fn the_latest_record_of_an_entry_holds() {
        let edited = LUNCH.replace("100.10", "150.50");
        let delete = r#"{"op":"delete","交易ID":"20251129-183000"}"#.to_owned();
        let both = fold(&[put(DINNER), put(LUNCH), put(&edited)]);
        assert_eq!(ids(&both), ["20251129-143000", "20251129-183000"]);
        assert_eq!(
            both.to_json(),
            format!(
                r#"{{"month":"2025-11","count":2,"total_twd":"400.5","income_twd":"0","by_category":[{{"分類":"飲食","count":2,"total_twd":"400.5"}}],"transactions":[{edited},{DINNER}]}}"#
            )
        );
        assert_eq!(ids(&fold(&[put(DINNER), put(LUNCH), delete.clone()])), ["20251129-143000"]);
        assert_eq!(ids(&fold(&[delete, put(DINNER)])), ["20251129-183000"]);
    }

    #[test]
    fn entries_are_in_the_order_of_date_time_and_id() {
        let entry = |date: &str, time: &str, id: &str| {
            put(&format!(r#"{{"交易ID":"{id}","日期":"{date}","時間":"{time}","原幣金額":1,"匯率":1}}"#))
        };
        let statement = fold(&[
            entry("2025-11-30", "00:00", "a"),
            entry("2025-11-29", "18:00", "c"),
            entry("2025-11-29", "18:00", "b"),
            entry("2025-11-29", "09:00", "d"),
        ]);
        assert_eq!(ids(&statement), ["d", "b", "c", "a"]);
        assert_eq!(statement.latest(3).map(Entry::id).collect::<Vec<_>>(), ["a", "c", "b"]);
        assert_eq!(statement.latest(9).count(), 4);
    }

    #[test]
    fn what_cannot_be_read_is_counted_and_hides_nothing() {
        let broken = [
            "not JSON".to_owned(),
            String::new(),
            r#"{"op":"move","交易ID":"20251129-143000"}"#.to_owned(),
            r#"{"op":"delete"}"#.to_owned(),
            put(r#"{"日期":"2025-11-29","原幣金額":1,"匯率":1}"#),
            put(&LUNCH.replace("2025-11-29", "昨天")),
            put(&LUNCH.replace("100.10", "\"100.10\"")),
            put(&LUNCH.replace("100.10", "1e2")),
            put(&LUNCH.replace("1.0,", "null,")),
            put(r#"{"交易ID":"20251129-143000"}"#),
        ];
        for broken in &broken {
            let statement = fold(&[put(LUNCH), broken.clone(), put(DINNER)]);
            assert_eq!((statement.count(), statement.unreadable()), (2, 1), "{broken}");
            assert_eq!(statement.entries().next().map(Entry::to_json).as_deref(), Some(LUNCH), "{broken}");
        }
        assert_eq!(fold(&broken).unreadable(), broken.len());
    }

    #[test]
    fn categories_are_in_descending_order_of_their_sums() {
        let entry = |id: usize, category: &str, amount: &str, rate: &str| {
            let category =
                if category.is_empty() { String::new() } else { format!(r#","分類":"{category}""#) };
            put(&format!(
                r#"{{"交易ID":"{id}","日期":"2025-11-01","原幣金額":{amount},"匯率":{rate}{category}}}"#
            ))
        };
        let statement = fold(&[
            entry(1, "交通", "250", "1"),
            entry(2, "教育", "10", "31.5"),
            entry(3, "飲食", "100.10", "1"),
            entry(4, "飲食", "149.90", "1.0"),
            entry(5, "", "1", "1"),
            entry(6, " ", "2", "1"),
            entry(7, "收入", "50000", "1"),
        ]);
        let sums: Vec<_> =
            statement.by_category().into_iter().map(|c| (c.name, c.count, c.total.to_string())).collect();
        let expected = [("教育", 1, "315"), ("交通", 1, "250"), ("飲食", 2, "250"), ("其他", 2, "3")];
        assert_eq!(sums, expected.map(|(name, count, total)| (name.to_owned(), count, total.to_owned())));
        assert_eq!(statement.total().to_string(), "818");
    }

    #[test]
    fn a_csv_has_the_fields_as_columns_and_a_row_for_each_entry() {
        let dangerous = LUNCH
            .replace("\"品項\":\"午餐\"", r#""品項":"=HYPERLINK(\"http://x\",\"a\")""#)
            .replace("\"附註\":\"\"", r#""附註":"一,二\n三""#)
            .replace("\"收款支付對象\":\"\"", "\"收款支付對象\":\"－\",\"新欄位\":\"x\"")
            .replace("\"明細說明\":\"\",", "");
        assert_eq!(
            fold(&[put(&dangerous), put(DINNER)]).to_csv(),
            concat!(
                "\u{feff}intent,日期,時間,品項,原幣別,原幣金額,匯率,付款方式,交易ID,明細說明,分類,專案,必要性,代墊狀態,收款支付對象,附註\r\n",
                "bookkeeping,2025-11-29,14:30,\"'=HYPERLINK(\"\"http://x\"\",\"\"a\"\")\",TWD,100.10,1.0,信用卡,",
                "20251129-143000,,飲食,日常,必要,無,'－,\"一,二\n三\"\r\n",
                "bookkeeping,2025-11-29,18:30,晚餐,TWD,250,1,現金,20251129-183000,,飲食,日常,必要,無,,\r\n",
            )
        );
    }

    #[test]
    fn a_month_may_have_five_thousand_records() {
        let records: Vec<String> =
            (0..5000).map(|n| put(&LUNCH.replace("143000", &format!("{n:06}")))).collect();
        let statement = fold(&records);
        assert_eq!((statement.count(), statement.total().to_string().as_str()), (5000, "500500"));
        assert!(statement.to_json().len() > 5000 * 300 && statement.to_csv().len() > 5000 * 100);
    }

    #[test]
    fn debug_shows_no_word_and_no_amount() {
        let statement = fold(&[put(LUNCH), "broken".to_owned()]);
        let shown = format!(
            "{statement:?} {:?} {:?}",
            statement.by_category(),
            statement.entries().collect::<Vec<_>>()
        );
        assert_eq!(
            shown,
            "Statement { month: Month { year: 2025, month: 11 }, count: 1, unreadable: 1 } [CategoryTotal { count: 1, .. }] [Entry(16 fields)]"
        );
    }

    /// A record, and what it does to a model of the month.
    #[derive(Clone, Debug)]
    enum Told {
        Put { id: u8, day: u8, amount: String, rate: String, category: String },
        Delete(u8),
        Broken(String),
    }

    impl Told {
        fn json(&self) -> String {
            match self {
                Told::Put { id, day, amount, rate, category } => put(&format!(
                    r#"{{"交易ID":"{id}","日期":"2025-11-{day:02}","時間":"12:00","原幣金額":{amount},"匯率":{rate},"分類":"{category}"}}"#
                )),
                Told::Delete(id) => format!(r#"{{"op":"delete","交易ID":"{id}"}}"#),
                Told::Broken(text) => text.clone(),
            }
        }
    }

    fn told() -> impl Strategy<Value = Told> {
        let decimal = r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,8})?";
        prop_oneof![
            4 => (0..6u8, 1..=30u8, decimal, decimal, "a|b|收入").prop_map(|(id, day, amount, rate, category)| {
                Told::Put { id, day, amount, rate, category }
            }),
            1 => (0..6u8).prop_map(Told::Delete),
            1 => ".{0,8}".prop_map(Told::Broken),
        ]
    }

    proptest! {
        #[test]
        fn any_records_fold_as_a_map_would(told in prop::collection::vec(told(), 0..24)) {
            let (mut model, mut broken) = (BTreeMap::new(), 0);
            for told in &told {
                match told {
                    Told::Put { id, .. } => drop(model.insert(*id, told)),
                    Told::Delete(id) => drop(model.remove(id)),
                    Told::Broken(_) => broken += 1,
                }
            }
            let records: Vec<String> = told.iter().map(Told::json).collect();
            let statement = fold(&records);
            prop_assert_eq!((statement.count(), statement.unreadable()), (model.len(), broken));

            let value = |text: &String| text.parse::<BigDecimal>().unwrap();
            let (mut sum, mut income) = (BigDecimal::from(0), BigDecimal::from(0));
            let mut by_category = BTreeMap::<&str, (usize, BigDecimal)>::new();
            let mut order = Vec::new();
            for told in model.values() {
                let Told::Put { id, day, amount, rate, category } = told else { unreachable!() };
                let product = value(amount) * value(rate);
                order.push((*day, *id, told.json()));
                if category == "收入" {
                    income += product;
                    continue;
                }
                sum += &product;
                let (count, total) = by_category.entry(category).or_default();
                *count += 1;
                *total += product;
            }
            order.sort_unstable();
            let stored: Vec<String> = statement.entries().map(|entry| put(&entry.to_json())).collect();
            prop_assert_eq!(stored, order.into_iter().map(|(_, _, json)| json).collect::<Vec<_>>());
            prop_assert_eq!(statement.total().to_string(), sum.normalized().to_plain_string());
            prop_assert_eq!(statement.income().to_string(), income.normalized().to_plain_string());

            let mut expected: Vec<_> = by_category.into_iter().map(|(name, (count, total))| (total, name, count)).collect();
            expected.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
            let expected: Vec<_> =
                expected.into_iter().map(|(total, name, count)| (name.to_owned(), count, total.normalized().to_plain_string())).collect();
            let sums: Vec<_> = statement.by_category().into_iter().map(|c| (c.name, c.count, c.total.to_string())).collect();
            prop_assert_eq!(sums, expected);
            prop_assert!(serde_json::from_str::<Value>(&statement.to_json()).is_ok());
        }

        #[test]
        fn no_text_in_a_record_breaks_the_json_or_the_csv(text in ".{0,12}") {
            let category = Value::from(text.as_str());
            let record = put(&format!(r#"{{"交易ID":{category},"日期":"2025-11-01","原幣金額":1,"匯率":1,"分類":{category}}}"#));
            let statement = fold(&[record]);
            let json: Value = serde_json::from_str(&statement.to_json()).unwrap();
            prop_assert_eq!(&json["transactions"][0]["分類"], &category);
            prop_assert_eq!(statement.count(), 1);
        }
    }
}
