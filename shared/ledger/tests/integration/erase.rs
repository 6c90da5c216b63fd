//! Erasing a ledger: what its readers see, and what is left to erase again.

use onetap_ledger::chat::{Habits, Sentence, parse};
use onetap_ledger::{Attempt, Book, Change, Config, Moment, Month, Months, Remaining, erase, remove_hidden};
use onetap_store::{Edit, Memory, Store};

fn book() -> Book {
    Book::new("U1", Config::default()).unwrap()
}

async fn say(store: &Memory, text: &str) {
    let Sentence::Note(note) = parse(text, Moment::from_unix(1_764_397_800).unwrap(), &Habits::default())
    else {
        panic!("{text}")
    };
    let mut attempt = Attempt::new(Change::Note(note), None);
    attempt.edit(&book()).apply(store, |there| attempt.write(&book(), there)).await.unwrap();
}

async fn hide(store: &Memory) -> Remaining {
    let edit = Edit::of_all(book().keys()).idempotent();
    edit.apply(store, |there| erase(&book(), there)).await.unwrap()
}

async fn remove(store: &Memory) -> Remaining {
    let edit = Edit::of(book().months()).idempotent();
    edit.apply(store, |there| remove_hidden(&book(), there)).await.unwrap()
}

async fn months(store: &Memory) -> Months {
    Months::read(store.get(book().months()).await.unwrap().as_deref())
}

async fn records(store: &Memory, month: &str) -> usize {
    let log = book().log(Month::parse(month).unwrap()).unwrap();
    store.read(&log, None, 100).await.unwrap().len()
}

#[tokio::test]
async fn one_commit_hides_it_all_and_the_next_removes_the_list() {
    let store = Memory::new();
    assert_eq!((hide(&store).await, remove(&store).await), (Remaining::Nothing, Remaining::Nothing));
    say(&store, "早餐 50 現金，2024-02-29 午餐 120 現金").await;
    assert_eq!((records(&store, "2025-11").await, records(&store, "2024-02").await), (1, 1));
    assert_eq!(remove(&store).await, Remaining::Nothing, "nothing is hidden");
    assert_eq!(hide(&store).await, Remaining::Hidden);
    assert_eq!((records(&store, "2025-11").await, records(&store, "2024-02").await), (0, 0));
    assert_eq!(store.get(book().last_transaction()).await.unwrap(), None);
    assert_eq!(hide(&store).await, Remaining::Hidden);
    assert_eq!(remove(&store).await, Remaining::Nothing);
    assert_eq!(store.get(book().months()).await.unwrap(), None);
    assert_eq!((hide(&store).await, remove(&store).await), (Remaining::Nothing, Remaining::Nothing));
}

#[tokio::test]
async fn an_entry_after_an_interrupted_erasure_is_erased_only_by_another() {
    let store = Memory::new();
    say(&store, "早餐 50 現金").await;
    assert_eq!(hide(&store).await, Remaining::Hidden);
    say(&store, "午餐 120 現金").await;
    assert_eq!(remove(&store).await, Remaining::Visible);
    assert_eq!(records(&store, "2025-11").await, 1);
    assert_eq!(hide(&store).await, Remaining::Hidden);
    assert_eq!(records(&store, "2025-11").await, 0);
    assert_eq!(remove(&store).await, Remaining::Nothing);
}

#[tokio::test]
async fn more_months_than_one_commit_takes_are_erased_by_several() {
    let store = Memory::new();
    for year in 2016..2025 {
        let month = |month: u8| format!("{year}-{month:02}-01 茶 10");
        say(&store, &((1..=12).map(month).collect::<Vec<_>>().join("、") + " 現金")).await;
    }
    assert_eq!(hide(&store).await, Remaining::Visible);
    assert_eq!(months(&store).await.latest_first().count(), 108 - 40);
    assert_eq!((records(&store, "2024-12").await, records(&store, "2016-01").await), (0, 1));
    assert_eq!((hide(&store).await, hide(&store).await), (Remaining::Visible, Remaining::Hidden));
    assert_eq!(records(&store, "2016-01").await, 0);
    assert_eq!((remove(&store).await, remove(&store).await), (Remaining::Hidden, Remaining::Hidden));
    assert_eq!((remove(&store).await, remove(&store).await), (Remaining::Nothing, Remaining::Nothing));
}
