//! The swap, over a store that races, loses and counts.

use std::sync::Arc;
use std::time::Duration;

use onetap_ledger::{Attempt, Book, Change, ChangeError, Config, Entry, Field, IfMatch, Patch, Step, etag};
use onetap_store::testing::{Fault, Gate, TestStore};
use onetap_store::{Batch, Expect, Memory, Store};

const LUNCH: &str = r#"{"交易ID":"20251129-143000","品項":"午餐","原幣金額":100.10}"#;
const DINNER: &str = r#"{"交易ID":"20251129-183000","品項":"晚餐","原幣金額":250}"#;
const HOUR: Duration = Duration::from_secs(3600);

fn book() -> Book {
    Book::new("U123", Config::default()).unwrap()
}

fn edit(body: &str) -> Change {
    Change::Edit(Patch::from_body(body.as_bytes()).unwrap())
}

fn once(change: Change) -> Attempt {
    Attempt::new(change, None)
}

async fn memory(value: &str) -> Arc<dyn Store> {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    put(&store, value).await;
    store
}

/// Whatever is there, this is there now.
async fn put(store: &Arc<dyn Store>, value: &str) {
    let there = store.get(book().last_transaction()).await.unwrap();
    let expect = there.map_or(Expect::Absent, Expect::Is);
    let _ = store.commit(&Batch::new().put(book().last_transaction(), expect, value, HOUR)).await.unwrap();
}

async fn there(store: &Arc<dyn Store>) -> Option<String> {
    store.get(book().last_transaction()).await.unwrap()
}

async fn run(store: &Arc<dyn Store>, mut attempt: Attempt) -> Result<Step, ChangeError> {
    let edit = attempt.edit(&book());
    Ok(edit.apply(&**store, |there| attempt.write(&book(), there)).await?)
}

/// Runs the change through faults, and returns with what came of it how many calls it took.
async fn through(
    store: &Arc<dyn Store>,
    faults: Vec<Fault>,
    attempt: Attempt,
) -> (Result<Step, ChangeError>, usize) {
    let faulty = TestStore::first(Arc::clone(store), faults);
    let as_store: Arc<dyn Store> = faulty.clone();
    let done = run(&as_store, attempt).await;
    (done, faulty.calls())
}

/// Runs the change, and `meanwhile` between its read and its write.
async fn between<F: Future<Output = ()>>(
    store: &Arc<dyn Store>,
    attempt: Attempt,
    meanwhile: impl FnOnce() -> F,
) -> (Result<Step, ChangeError>, usize) {
    let gate = Gate::new();
    let faults = vec![Fault::Pass, Fault::HeldBefore(gate.clone())];
    let race = async {
        gate.reached().await;
        meanwhile().await;
        gate.open();
    };
    tokio::join!(through(store, faults, attempt), race).0
}

#[tokio::test]
async fn an_edit_takes_one_read_and_one_swap() {
    let store = memory(LUNCH).await;
    let (done, calls) = through(&store, vec![], once(edit(r#"{"品項":"早餐"}"#))).await;
    assert_eq!(done.unwrap().entry().unwrap().get(Field::Item).unwrap(), "早餐");
    assert_eq!((there(&store).await.unwrap(), calls), (LUNCH.replace("午餐", "早餐"), 2));
}

#[tokio::test]
async fn a_lost_race_takes_one_more_swap_and_both_edits_are_there() {
    let store = memory(LUNCH).await;
    let winner = LUNCH.replace("100.10", "150");
    let (done, calls) = between(&store, once(edit(r#"{"品項":"早餐"}"#)), || put(&store, &winner)).await;
    done.unwrap();
    assert_eq!((there(&store).await.unwrap(), calls), (winner.replace("午餐", "早餐"), 3));
}

#[tokio::test]
async fn another_transaction_in_between_is_a_conflict_and_untouched() {
    let store = memory(LUNCH).await;
    let (done, calls) = between(&store, once(edit(r#"{"品項":"早餐"}"#)), || put(&store, DINNER)).await;
    assert!(matches!(done, Err(ChangeError::Replaced)));
    assert_eq!(calls, 2);
    assert_eq!(there(&store).await.unwrap(), DINNER);
    let named = Attempt::new(edit(r#"{"品項":"早餐"}"#), Some(IfMatch::parse(&etag(DINNER))));
    let (done, _) = between(&store, named, || put(&store, LUNCH)).await;
    assert!(matches!(done, Err(ChangeError::Stale)));
}

#[tokio::test]
async fn what_is_gone_in_between_has_expired() {
    let store = memory(LUNCH).await;
    let gone = || async {
        let _ = store.commit(&Batch::new().delete(book().last_transaction(), LUNCH)).await.unwrap();
    };
    let (done, _) = between(&store, once(edit(r#"{"品項":"早餐"}"#)), gone).await;
    assert!(matches!(done, Err(ChangeError::Expired)));
    assert_eq!(there(&store).await, None);
}

#[tokio::test]
async fn an_edit_whose_reply_is_lost_has_succeeded() {
    let store = memory(LUNCH).await;
    let (done, calls) =
        through(&store, vec![Fault::Pass, Fault::ReplyLost], once(edit(r#"{"品項":"早餐"}"#))).await;
    assert!(done.is_ok());
    // What is there, the swap, what is there now, and its record in the month's log.
    assert_eq!((there(&store).await.unwrap(), calls), (LUNCH.replace("午餐", "早餐"), 4));
}

#[tokio::test]
async fn an_edit_of_a_named_value_whose_reply_is_lost_has_succeeded_too() {
    let store = memory(LUNCH).await;
    let attempt = || Attempt::new(edit(r#"{"品項":"早餐"}"#), Some(IfMatch::parse(&etag(LUNCH))));
    let (done, _) = through(&store, vec![Fault::Pass, Fault::ReplyLost], attempt()).await;
    assert!(done.is_ok());
    // And so has its repeat, which names a value that is no longer there.
    assert!(through(&store, vec![], attempt()).await.0.is_ok());
}

#[tokio::test]
async fn an_edit_that_never_left_says_that_it_was_not_written() {
    let store = memory(LUNCH).await;
    for faults in [vec![Fault::NotSent], vec![Fault::ReplyLost]] {
        let (done, _) = through(&store, faults, once(edit(r#"{"品項":"早餐"}"#))).await;
        assert!(matches!(done, Err(ChangeError::Unreadable(_))));
    }
    for faults in [vec![Fault::Pass, Fault::NotSent], vec![Fault::Pass, Fault::ReplyLost, Fault::NotSent]] {
        let (done, _) = through(&store, faults, once(edit(r#"{"品項":"早餐"}"#))).await;
        assert!(matches!(done, Err(ChangeError::Unwritable(_))));
    }
}

#[tokio::test]
async fn a_put_guesses_that_there_is_nothing_and_learns_better() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let lunch = || once(Change::Put(Entry::read(LUNCH).unwrap()));
    let (done, calls) = through(&store, vec![], lunch()).await;
    assert_eq!((done.unwrap().created(), calls), (true, 1));
    let (done, calls) = through(&store, vec![], lunch()).await;
    assert_eq!((done.unwrap().created(), calls), (false, 2));
    put(&store, "broken").await;
    assert!(through(&store, vec![], lunch()).await.0.is_ok());
    assert_eq!(there(&store).await.unwrap(), LUNCH);
}

#[tokio::test]
async fn a_put_whose_reply_is_lost_still_knows_that_it_was_the_first() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let lunch = once(Change::Put(Entry::read(LUNCH).unwrap()));
    let (done, calls) = through(&store, vec![Fault::ReplyLost], lunch).await;
    // The put, what is there, and its record in the month's log.
    assert_eq!((done.unwrap().created(), calls), (true, 3));
}

#[tokio::test]
async fn deleting_takes_what_was_met_and_nothing_else() {
    let store = memory(LUNCH).await;
    let edited = LUNCH.replace("午餐", "早餐");
    let (done, calls) = between(&store, once(Change::Delete), || put(&store, &edited)).await;
    assert!(done.is_ok());
    assert_eq!((there(&store).await, calls), (None, 3));
    put(&store, LUNCH).await;
    let (done, _) = between(&store, once(Change::Delete), || put(&store, DINNER)).await;
    assert!(matches!(done, Err(ChangeError::Replaced)));
    assert_eq!(there(&store).await.as_deref(), Some(DINNER));
    let (done, _) = through(&store, vec![Fault::Pass, Fault::ReplyLost], once(Change::Delete)).await;
    assert!(done.is_ok());
    assert!(matches!(through(&store, vec![], once(Change::Delete)).await.0, Err(ChangeError::Missing)));
}

#[tokio::test]
async fn a_broken_value_is_left_as_it_is() {
    for broken in ["not JSON", "[]", "{}", r#"{"品項":"午餐"}"#] {
        let store = memory(broken).await;
        assert!(matches!(
            through(&store, vec![], once(edit(r#"{"品項":"早餐"}"#))).await.0,
            Err(ChangeError::Broken)
        ));
        assert!(matches!(through(&store, vec![], once(Change::Delete)).await.0, Err(ChangeError::Broken)));
        assert_eq!(there(&store).await.unwrap(), broken);
    }
}

#[tokio::test(start_paused = true)]
async fn a_swap_that_keeps_losing_gives_up() {
    // Another writer changes the value before every commit.
    let store: Arc<dyn Store> = TestStore::scripted(Arc::new(Memory::new()), |call| async move {
        if !call.batches().is_empty()
            && let Some(there) = there(&call.store).await
        {
            let mut entry: serde_json::Value = serde_json::from_str(&there).unwrap();
            entry["原幣金額"] = (entry["原幣金額"].as_f64().unwrap() + 1.0).into();
            put(&call.store, &entry.to_string()).await;
        }
        call.send().await
    });
    put(&store, LUNCH).await;
    let attempt = once(edit(r#"{"品項":"早餐"}"#));
    assert!(matches!(run(&store, attempt).await, Err(ChangeError::Outrun)));
}

#[test]
fn only_plain_user_ids_have_a_place() {
    let long = "a".repeat(64);
    for id in ["U123456789abcdef", "Uabc_-9", "a", &long] {
        assert_eq!(
            Book::new(id, Config::default()).unwrap().last_transaction().as_str(),
            format!("user:{id}:last_transaction")
        );
    }
    for id in ["", "a:b", "a/b", "a b", "..", "a%2Fb", "使用者", "a\n", &"a".repeat(65)] {
        assert!(Book::new(id, Config::default()).is_none(), "{id}");
    }
    assert!(!format!("{:?}", book()).contains("U123"));
}

#[tokio::test(start_paused = true)]
async fn a_new_entry_over_an_old_one_waits_for_nobody() {
    let store = memory(LUNCH).await;
    let start = tokio::time::Instant::now();
    let put = Change::Put(Entry::read(DINNER).unwrap());
    let (done, calls) = through(&store, vec![], once(put)).await;
    assert_eq!(done.unwrap().entry().unwrap().to_json(), DINNER);
    // The guess that nothing is there, and the swap. Nobody else was about, so there is nobody to give way to.
    assert_eq!((calls, start.elapsed()), (2, Duration::ZERO));
}
