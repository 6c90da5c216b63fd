//! An id is never given twice, and no entry that was confirmed is lost: whatever clocks the events, the requests and the
//! function have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use onetap_ledger::chat::{Habits, Sentence, parse};
use onetap_ledger::{
    Attempt, Book, Change, ChangeError, Config, Entry, Field, Moment, Months, Patch, Statement, Step,
};
use onetap_store::testing::{Fault, Gate, TestStore};
use onetap_store::{Batch, Expect, Memory, Store, Ttl, read_to_end};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;
use tokio::sync::Notify;

/// When the function begins to write, by its clock: some minutes before a month begins.
const START: i64 = 1_796_054_100;
const MINUTE: i64 = 60;
const DAY: i64 = 24 * 60 * MINUTE;
const DATES: [&str; 4] = ["2026-10-31", "2026-11-29", "2026-11-30", "2026-12-01"];

#[derive(Clone, Debug)]
enum Op {
    /// A text of this many entries, whose event is so many seconds from the function's clock; with a date, if it says one.
    Note(i64, usize, Option<&'static str>),
    /// An entry over HTTP with an id that nothing has yet, so many seconds from the function's clock.
    Put(i64, &'static str),
    EditDate(&'static str),
    Delete,
    /// A text, and while it waits before its n-th call to the store another one or an entry over HTTP.
    Race(i64, usize, Box<Op>),
}

/// How far an event is from the clock, in seconds.
fn offset() -> impl Strategy<Value = i64> {
    prop_oneof![3 => Just(0), 3 => -5 * MINUTE..=5 * MINUTE, 2 => -2 * DAY..0, 2 => -7 * DAY..0]
}

fn note() -> impl Strategy<Value = Op> {
    (offset(), 1_usize..4, proptest::option::of(select(&DATES[..])))
        .prop_map(|(offset, count, date)| Op::Note(offset, count, date))
}

/// An id from decades ahead, or from the past.
fn far() -> impl Strategy<Value = i64> {
    prop_oneof![400 * DAY..3000 * DAY, 26_000 * DAY..27_000 * DAY, -20_000 * DAY..-30 * DAY]
}

fn put(offset: impl Strategy<Value = i64>) -> impl Strategy<Value = Op> {
    (offset, select(&DATES[..])).prop_map(|(offset, date)| Op::Put(offset, date))
}

fn op() -> impl Strategy<Value = Op> {
    let second = prop_oneof![2 => note(), 1 => put(far())];
    prop_oneof![
        6 => note(),
        2 => put(-3_i64..10),
        1 => put(-8 * DAY..2 * DAY),
        2 => put(far()),
        2 => select(&DATES[..]).prop_map(Op::EditDate),
        2 => Just(Op::Delete),
        3 => (offset(), 1_usize..4, second).prop_map(|(offset, call, op)| Op::Race(offset, call, Box::new(op))),
    ]
}

/// How wrong the function's clock is, in seconds.
fn clock() -> impl Strategy<Value = i64> {
    prop_oneof![20 => Just(0), 2 => -3_i64..3, 1 => Just(-DAY), 1 => Just(3650 * DAY), 1 => Just(-3650 * DAY)]
}

struct World {
    store: Arc<dyn Store>,
    book: Book,
    now: Moment,
    /// The item of every entry, by its id.
    entries: BTreeMap<String, String>,
    given: BTreeSet<String>,
    items: u32,
}

impl World {
    fn new() -> World {
        World {
            store: Arc::new(Memory::new()),
            book: Book::new("U1", Config::default()).unwrap(),
            now: Moment::from_unix(START).unwrap(),
            entries: BTreeMap::new(),
            given: BTreeSet::new(),
            items: 0,
        }
    }

    fn at(&self, offset: i64) -> Moment {
        Moment::from_unix(self.now.unix() + offset).unwrap()
    }

    fn item(&mut self) -> String {
        self.items += 1;
        format!("茶{}號", self.items)
    }

    fn note(&mut self, offset: i64, count: usize, date: Option<&str>) -> Change {
        let line = |_| format!("{} {} 10 現金", date.unwrap_or_default(), self.item());
        let words: Vec<String> = (0..count).map(line).collect();
        let Sentence::Note(note) = parse(&words.join("\n"), self.at(offset), &Habits::default()) else {
            panic!("{words:?}")
        };
        Change::Note(note)
    }

    /// An entry whose id was never given.
    fn put(&mut self, offset: i64, date: &str) -> Change {
        let mut id = Moment::from_unix((self.now.unix() + offset).max(DAY)).unwrap();
        while self.given.contains(&id.id()) {
            id = id.next_second().unwrap();
        }
        let body = json!({
            "intent": "bookkeeping", "日期": date, "時間": "12:00", "品項": self.item(), "原幣別": "TWD",
            "原幣金額": 10, "匯率": 1, "付款方式": "現金", "交易ID": id.id(), "分類": "其他", "專案": "日常",
            "必要性": "必要", "代墊狀態": "無",
        });
        Change::Put(Entry::from_body(body.to_string().as_bytes()).unwrap())
    }

    fn change(&mut self, op: &Op) -> Change {
        match op {
            Op::Note(offset, count, date) => self.note(*offset, *count, *date),
            Op::Put(offset, date) => self.put(*offset, date),
            Op::EditDate(date) => {
                let patch = json!({"日期": date}).to_string();
                Change::Edit(Patch::from_body(patch.as_bytes()).unwrap())
            }
            Op::Delete | Op::Race(..) => Change::Delete,
        }
    }

    async fn make(&self, store: &dyn Store, change: Change) -> Result<Step, ChangeError> {
        let mut attempt = Attempt::new(change, None).at(self.now);
        let book = &self.book;
        Ok(attempt.edit(book).apply(store, |there| attempt.write(book, there)).await?)
    }

    /// What was confirmed: new ids, and an entry that is gone.
    fn confirm(&mut self, op: &Op, step: &Step) {
        match op {
            Op::Delete => {
                self.entries.remove(step.before().unwrap().id());
            }
            Op::EditDate(_) => {}
            _ => {
                for entry in step.entries() {
                    assert!(self.given.insert(entry.id().to_owned()), "{} was given before", entry.id());
                    self.entries.insert(entry.id().to_owned(), entry.get(Field::Item).unwrap());
                }
            }
        }
    }

    async fn happens(&mut self, op: &Op) {
        let Op::Race(offset, call, second) = op else {
            let change = self.change(op);
            match self.make(&*Arc::clone(&self.store), change).await {
                Ok(step) => self.confirm(op, &step),
                Err(error) => assert!(matches!(error, ChangeError::Missing), "{error:?}"),
            }
            return;
        };
        let first = Op::Note(*offset, 2, None);
        let (one, other) = (self.change(&first), self.change(second));
        let (gate, call, ended) = (Gate::new(), *call, Notify::new());
        let held = gate.clone();
        let store = TestStore::faulty(Arc::clone(&self.store), move |n| match n == call {
            true => Fault::HeldBefore(held.clone()),
            false => Fault::Pass,
        });
        let world = &*self;
        let one = async {
            let step = world.make(&*store, one).await;
            ended.notify_one();
            step
        };
        let other = async {
            // The first may need fewer calls.
            tokio::select! { () = gate.reached() => {} () = ended.notified() => {} }
            let step = world.make(&*world.store, other).await;
            gate.open();
            step
        };
        let (one, other) = tokio::join!(one, other);
        self.confirm(&first, &one.unwrap());
        self.confirm(second, &other.unwrap());
    }

    /// The items of all months, by id.
    async fn kept(&self) -> BTreeMap<String, String> {
        let listed = Months::read(self.store.get(self.book.months()).await.unwrap().as_deref());
        let mut kept = BTreeMap::new();
        for month in listed.latest_first() {
            let records = read_to_end(&*self.store, &self.book.log(month).unwrap()).await.unwrap();
            let statement = Statement::fold(month, records.iter().map(|record| record.text.as_str()));
            for entry in statement.entries() {
                let other = kept.insert(entry.id().to_owned(), entry.get(Field::Item).unwrap());
                assert_eq!(other, None, "{} is in two months", entry.id());
            }
        }
        kept
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn an_id_is_never_given_twice_and_no_confirmed_entry_is_lost(
        ops in proptest::collection::vec((op(), prop_oneof![0_i64..3, 0_i64..2 * DAY], clock()), 1..40)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let mut world = World::new();
            for (op, after, clock) in &ops {
                world.now = world.at(*after);
                let now = world.now;
                world.now = world.at(*clock);
                world.happens(op).await;
                world.now = now;
                assert_eq!(world.kept().await, world.entries);
            }
        });
    }
}

#[tokio::test]
async fn an_entry_costs_no_round_trip_more_however_late_it_is() {
    let mut world = World::new();
    let ops = [Op::Note(0, 1, None), Op::Put(26_500 * DAY, DATES[0]), Op::Note(0, 1, None)];
    for op in &ops {
        world.happens(op).await;
    }
    for offset in [0, -DAY, -7 * DAY] {
        let store = TestStore::counting(Arc::clone(&world.store));
        let note = world.note(offset, 3, None);
        world.make(&*store, note).await.unwrap();
        // The first one guesses that there is nothing; its refusal brings what is there.
        assert_eq!(store.calls(), 2);
    }
}

#[tokio::test]
async fn the_list_stays_small_however_many_entries_there_are() {
    let mut world = World::new();
    for n in 0..400 {
        world.now = world.at(7919);
        world.happens(&Op::Note(-((n * 104_729) % (7 * DAY)), 1, None)).await;
        if n % 10 == 0 {
            world.happens(&Op::Put(n * 60 * DAY, DATES[0])).await;
        }
    }
    assert_eq!(world.kept().await, world.entries);
    let list = world.store.get(world.book.months()).await.unwrap().unwrap();
    assert!(list.len() < 800, "{} bytes", list.len());
}

#[tokio::test]
async fn the_id_of_an_entry_that_another_program_wrote_is_not_given_after_it_was_overwritten() {
    let mut world = World::new();
    let id = world.at(-MINUTE).id();
    let foreign = json!({"交易ID": id, "品項": "藥"}).to_string();
    let batch = Batch::new().put(world.book.last_transaction(), Expect::Absent, foreign, Ttl::Forever);
    let _ = world.store.commit(&batch).await.unwrap();
    world.given.insert(id);
    world.now = world.at(2 * DAY);
    world.happens(&Op::Note(0, 1, None)).await;
    world.happens(&Op::Note(-2 * DAY - MINUTE, 1, None)).await;
    assert_eq!(world.kept().await, world.entries);
}

#[tokio::test]
async fn the_ids_of_a_list_of_version_0_2_are_not_given_again() {
    for put in ["20261120-100000", "20990101-000000"] {
        let mut world = World::new();
        // What version 0.2 wrote: an entry of today, and one over HTTP.
        let list = json!({
            "months": [], "last_id": world.now.id(), "last_put_id": put, "retention_seconds": 94_608_000,
        });
        let batch = Batch::new().put(world.book.months(), Expect::Absent, list.to_string(), Ttl::Forever);
        let _ = world.store.commit(&batch).await.unwrap();
        world.given.extend([world.now.id(), put.to_owned()]);
        for offset in [-26 * 60 * MINUTE, 0, -7 * DAY, 1] {
            world.happens(&Op::Note(offset, 2, None)).await;
        }
        assert_eq!(world.kept().await, world.entries);
    }
}
