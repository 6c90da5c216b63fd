//! What a statement adds up: spending and income apart, and parts of it.

use onetap_ledger::{Date, Entry, Month, Statement};

/// An entry: id, date, item, amount, rate, category.
type Told = (&'static str, &'static str, &'static str, &'static str, &'static str, &'static str);

const OCTOBER: [Told; 3] = [
    ("a", "2026-10-25", "房租", "12000", "1", "居住"),
    ("b", "2026-10-26", "午餐", "100.10", "1.0", "飲食"),
    ("c", "2026-10-31", "薪水", "50000", "1", "收入"),
];
const NOVEMBER: [Told; 5] = [
    ("d", "2026-11-01", "午餐", "12.50", "31.5", "飲食"),
    ("e", "2026-11-01", "退款", "10.10", "31.5", "收入"),
    ("f", "2026-11-02", "計程車", "250", "1", "交通"),
    ("g", "2026-11-30", "利息", "0.00000001", "1", " 收入 "),
    ("h", "2026-11-30", "收入", "30", "1", " "),
];

fn month(name: &str, entries: &[Told]) -> Statement {
    let records: Vec<String> = entries
        .iter()
        .map(|(id, date, item, amount, rate, category)| {
            format!(
                r#"{{"op":"put","tx":{{"交易ID":"{id}","日期":"{date}","品項":"{item}","原幣金額":{amount},"匯率":{rate},"分類":"{category}"}}}}"#
            )
        })
        .collect();
    Statement::fold(Month::parse(name).unwrap(), records.iter().map(String::as_str))
}

fn october() -> Statement {
    month("2026-10", &OCTOBER)
}

fn november() -> Statement {
    month("2026-11", &NOVEMBER)
}

fn date(text: &str) -> Date {
    Date::parse(text).unwrap()
}

fn ids(statement: &Statement) -> String {
    statement.entries().map(Entry::id).collect()
}

/// Spending and income, each with its number of entries.
fn sums(statement: &Statement) -> (usize, String, usize, String) {
    assert_eq!(statement.count(), statement.spending_count() + statement.income_count());
    let categories = statement.by_category();
    assert!(categories.iter().all(|category| category.name != "收入"));
    assert_eq!(categories.iter().map(|category| category.count).sum::<usize>(), statement.spending_count());
    (
        statement.spending_count(),
        statement.total().to_string(),
        statement.income_count(),
        statement.income().to_string(),
    )
}

fn are(spending: (usize, &str), income: (usize, &str)) -> (usize, String, usize, String) {
    (spending.0, spending.1.to_owned(), income.0, income.1.to_owned())
}

#[test]
fn income_is_counted_apart_from_spending() {
    assert_eq!(sums(&october()), are((2, "12100.1"), (1, "50000")));
    // A refund in another currency is income at its rate. An item called 收入 is not, without the category.
    assert_eq!(sums(&november()), are((3, "673.75"), (2, "318.15000001")));
    let names: Vec<_> = november()
        .by_category()
        .into_iter()
        .map(|category| (category.name, category.count, category.total.to_string()))
        .collect();
    let expected = [("飲食", 1, "393.75"), ("交通", 1, "250"), ("其他", 1, "30")];
    assert_eq!(names, expected.map(|(name, count, total)| (name.to_owned(), count, total.to_owned())));
}

#[test]
fn a_month_of_income_alone_has_no_spending() {
    let statement = month("2026-10", &OCTOBER[2..]);
    assert_eq!(sums(&statement), are((0, "0"), (1, "50000")));
    let start = r#"{"month":"2026-10","count":1,"total_twd":"0","income_twd":"50000","by_category":[],"transactions":[{"#;
    assert!(statement.to_json().starts_with(start), "{}", statement.to_json());
}

#[test]
fn a_statement_is_narrowed_to_dates() {
    for (first, last, expected) in [
        ("2026-11-01", "2026-11-30", "defgh"),
        ("2026-11-01", "2026-11-01", "de"),
        ("2026-11-02", "2026-11-29", "f"),
        ("2026-10-01", "2026-11-02", "def"),
        ("2026-11-30", "2099-12-31", "gh"),
        ("2026-11-03", "2026-11-29", ""),
        ("2026-11-30", "2026-11-01", ""),
    ] {
        assert_eq!(ids(&november().between(date(first), date(last))), expected, "{first} to {last}");
    }
    let day = november().between(date("2026-11-01"), date("2026-11-01"));
    assert_eq!(sums(&day), are((1, "393.75"), (1, "318.15")));
}

#[test]
fn a_week_may_begin_in_one_month_and_end_in_the_next() {
    let (monday, sunday) = (date("2026-10-26"), date("2026-11-01"));
    for joined in [october().join(november()), november().join(october())] {
        assert_eq!(ids(&joined), "abcdefgh");
        assert_eq!(joined.month().to_string(), "2026-10");
        assert_eq!(sums(&joined), are((5, "12773.85"), (3, "50318.15000001")));
        let latest: String = joined.latest(3).map(Entry::id).collect();
        assert_eq!(latest, "hgf");
        let week = joined.between(monday, sunday);
        assert_eq!(ids(&week), "bcde");
        assert_eq!(sums(&week), are((2, "493.85"), (2, "50318.15")));
        assert_eq!(ids(&week.matching("飲食")), "bd");
    }
    let halves = october().between(monday, sunday).join(november().between(monday, sunday));
    assert_eq!(ids(&halves), "bcde");
}

#[test]
fn what_could_not_be_read_is_counted_of_both_months() {
    let broken = |name| Statement::fold(Month::parse(name).unwrap(), ["{}", "no"]);
    assert_eq!(broken("2026-10").join(broken("2026-11")).unreadable(), 4);
    assert_eq!(broken("2026-10").between(date("2026-10-01"), date("2026-10-01")).unreadable(), 2);
}

#[test]
fn a_statement_is_narrowed_to_a_category_or_an_item() {
    for (name, expected) in [
        ("飲食", "bd"),
        (" 飲食 ", "bd"),
        ("午餐", "bd"),
        ("計程車", "f"),
        ("交通", "f"),
        ("其他", "h"),
        ("收入", "cegh"),
        ("薪水", "c"),
        ("午", "bd"),
        ("", ""),
    ] {
        assert_eq!(ids(&october().join(november()).matching(name)), expected, "{name}");
    }
    assert_eq!(sums(&november().matching("退款")), are((0, "0"), (1, "318.15")));
}

#[test]
fn a_csv_has_income_and_spending_in_the_same_columns() {
    let csv = october().to_csv();
    let mut lines = csv.lines();
    let header = "\u{feff}intent,日期,時間,品項,原幣別,原幣金額,匯率,付款方式,交易ID,明細說明,分類,專案,必要性,代墊狀態,收款支付對象,附註";
    assert_eq!(lines.next(), Some(header));
    assert_eq!(lines.next(), Some(",2026-10-25,,房租,,12000,1,,a,,居住,,,,,"));
    assert_eq!(lines.nth(1), Some(",2026-10-31,,薪水,,50000,1,,c,,收入,,,,,"));
    assert_eq!(lines.next(), None);
}
