//! How long a month is kept, and what an edit costs that leaves it as it is.

use std::sync::Arc;
use std::time::Duration;

use onetap_ledger::{Attempt, Book, Change, ChangeError, Config, Entry, Moment, Months, Patch, Step};
use onetap_store::testing::TestStore;
use onetap_store::{Batch, Expect, Memory, Store, Ttl};
use tokio::time::advance;

const LUNCH: &str = r#"{"交易ID":"20251129-143000","品項":"午餐","原幣金額":100}"#;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// When the entry is made.
const START: i64 = 1_764_397_800;

fn book(retention: Ttl) -> Book {
    Book::new("U1", Config { retention, ..Config::default() }).unwrap()
}

fn lunch() -> Change {
    Change::Put(Entry::read(LUNCH).unwrap())
}

fn remark(n: usize) -> Change {
    Change::Edit(Patch::from_body(format!(r#"{{"附註":"{n}"}}"#).as_bytes()).unwrap())
}

/// Makes the change, and returns with it how many calls it took.
async fn make(
    store: &Arc<dyn Store>,
    book: &Book,
    change: Change,
    now: Moment,
) -> (Result<Step, ChangeError>, usize) {
    let counted = TestStore::first(Arc::clone(store), vec![]);
    let mut attempt = Attempt::new(change, None).at(now);
    let edit = attempt.edit(book);
    let made = edit.apply(&*counted, |there| attempt.write(book, there)).await.map_err(ChangeError::from);
    (made, counted.calls())
}

async fn records(store: &Arc<dyn Store>, book: &Book) -> usize {
    let month = onetap_ledger::Month::parse("2025-11").unwrap();
    store.read(&book.log(month).unwrap(), None, 10_000).await.unwrap().len()
}

async fn list(store: &Arc<dyn Store>, book: &Book) -> Option<String> {
    store.get(book.months()).await.unwrap()
}

/// The second in which this much time has passed since the entry was made.
fn after(passed: Duration) -> Moment {
    Moment::from_unix(START + i64::try_from(passed.as_secs()).unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_month_is_kept_for_its_retention_after_its_last_entry_and_at_most_a_hundredth_less_after_an_edit() {
    // Of the second every edit renews the month: a hundredth of it is less than the time between two edits.
    for retention in [DAY * 40, DAY] {
        for edits in [0, 1, 7, 300] {
            let (store, book): (Arc<dyn Store>, _) = (Arc::new(Memory::new()), book(retention.into()));
            make(&store, &book, lunch(), after(Duration::ZERO)).await.0.unwrap();
            let mut passed = Duration::ZERO;
            for n in 0..edits {
                let pause = book.life() - Duration::from_secs(60 * (n as u64 % 50 + 1));
                advance(pause).await;
                passed += pause;
                let (made, calls) = make(&store, &book, remark(n), after(passed)).await;
                assert_eq!((made.map(drop).is_ok(), calls), (true, 2));
            }
            let shortening = if edits == 0 { Duration::ZERO } else { retention / 100 };
            advance(retention - shortening - Duration::from_secs(1)).await;
            assert_eq!(records(&store, &book).await, edits + 1, "{retention:?}, {edits} edits");
            assert!(list(&store, &book).await.is_some(), "{retention:?}, {edits} edits");
            advance(shortening + Duration::from_secs(1)).await;
            assert_eq!(records(&store, &book).await, 0, "{retention:?}, {edits} edits");
            assert_eq!(list(&store, &book).await, None, "{retention:?}, {edits} edits");
        }
    }
}

#[tokio::test]
async fn few_edits_renew_the_month_and_none_of_one_that_is_kept_for_ever() {
    let renewing = |retention: Ttl| {
        let book = book(retention);
        (0..10_000).filter(|hour| book.renews_at(after(Duration::from_secs(3600) * *hour))).count()
    };
    assert_eq!(renewing(Ttl::Forever), 0);
    assert!((30..50).contains(&renewing((DAY * 1095).into())), "one in 261");
    assert_eq!(renewing(DAY.into()), 10_000);
}

#[tokio::test]
async fn an_edit_that_renews_nothing_writes_the_entry_and_its_record_alone() {
    let (store, book): (Arc<dyn Store>, _) = (Arc::new(Memory::new()), book(Ttl::Forever));
    make(&store, &book, lunch(), after(Duration::ZERO)).await.0.unwrap();
    let before = list(&store, &book).await;
    for (n, change) in [remark(1), Change::Delete].into_iter().enumerate() {
        let mut attempt = Attempt::new(change, None).at(after(Duration::ZERO));
        let mut names = Vec::new();
        let edit = attempt.edit(&book);
        let step = |there: &onetap_store::Values| {
            let (writes, step) = attempt.write(&book, there)?;
            names = writes.writes().iter().filter_map(|write| write.name().map(str::to_owned)).collect();
            Ok::<_, ChangeError>((writes, step))
        };
        edit.apply(&*store, step).await.unwrap();
        assert_eq!(names, ["user:U1:last_transaction", "user:U1:ledger:2025-11"]);
        assert_eq!((records(&store, &book).await, list(&store, &book).await), (n + 2, before.clone()));
    }
}

#[tokio::test]
async fn an_edit_that_changes_nothing_takes_a_read_and_a_write_and_leaves_no_record() {
    let (store, book): (Arc<dyn Store>, _) = (Arc::new(Memory::new()), book(Ttl::Forever));
    make(&store, &book, lunch(), after(Duration::ZERO)).await.0.unwrap();
    for _ in 0..2 {
        let (made, calls) = make(&store, &book, remark(1), after(Duration::ZERO)).await;
        assert_eq!((made.map(drop).is_ok(), calls, records(&store, &book).await), (true, 2, 2));
    }
}

#[tokio::test]
async fn an_entry_that_another_program_wrote_gets_its_month_with_its_first_edit() {
    for change in [remark(1), Change::Delete] {
        let (store, book): (Arc<dyn Store>, _) = (Arc::new(Memory::new()), book(Ttl::Forever));
        let foreign = Batch::new().put(book.last_transaction(), Expect::Absent, LUNCH, DAY);
        let _ = store.commit(&foreign).await.unwrap();
        let (made, calls) = make(&store, &book, change, after(Duration::ZERO)).await;
        // The second write begins the log. (With a list of other months, a third.)
        assert_eq!((made.map(drop).is_ok(), calls), (true, 3));
        let months = Months::read(list(&store, &book).await.as_deref());
        let months: Vec<String> = months.latest_first().map(|month| month.to_string()).collect();
        assert_eq!((months, records(&store, &book).await), (vec!["2025-11".to_owned()], 1));
    }
}
