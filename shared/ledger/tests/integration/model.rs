//! Whatever happens to a ledger, its months are those of a model that keeps no records: a map of entries.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bigdecimal::BigDecimal;
use onetap_idem as idem;
use onetap_idem::Idempotency;
use onetap_ledger::chat::{Answer, Habits, Pending, PendingByChat, Sentence, parse};
use onetap_ledger::{
    Attempt, Book, Change, ChangeError, Config, Entry, Field, Moment, Month, Months, Patch, Statement, Step,
    Total, erase, remove_hidden,
};
use onetap_store::{Edit, Memory, Store, Values, read_to_end};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value};
use tokio::time::advance;

/// The day of the first operation, some seconds before a year begins.
const START: i64 = 1_767_196_780;
const DATES: [&str; 6] = ["2024-02-29", "2025-11-29", "2025-11-30", "2025-12-01", "2025-12-31", "2026-01-01"];

/// One thing that happens.
#[derive(Clone, Debug)]
enum Op {
    /// A text of the chat with these entries: a date, if it is said, and an amount.
    Note(Vec<(Option<&'static str>, String)>),
    /// An entry over HTTP: which one it replaces, if there are any; its date, amount and rate.
    Put(Option<Index>, &'static str, String, String),
    /// An edit of one field.
    Edit(Field, String),
    Delete,
    /// The last transaction expires.
    Expire,
    /// An entry without the way to pay.
    HalfSay(String),
    /// What completes it, if it is still remembered.
    Complete,
    Erase,
}

/// An operation, how many seconds after the one before it, and how it is made.
#[derive(Clone, Debug)]
struct Happening {
    op: Op,
    after: i64,
    /// With an idempotency key, and twice.
    keyed: bool,
}

fn amount() -> impl Strategy<Value = String> {
    prop_oneof![
        (0_u32..100_000).prop_map(|n| n.to_string()),
        (0_u32..1000, 0_u32..100).prop_map(|(whole, cents)| format!("{whole}.{cents:02}")),
        Just("999999999999999999.99999999".to_owned()),
    ]
}

fn rate() -> impl Strategy<Value = String> {
    prop_oneof![Just("1".to_owned()), Just("31.5".to_owned()), Just("0.00000001".to_owned())]
}

fn op() -> impl Strategy<Value = Op> {
    let chat_amount = (1_u32..10_000, 0_u32..100).prop_map(|(whole, cents)| format!("{whole}.{cents:02}"));
    let line = (proptest::option::of(select(&DATES[..])), chat_amount.clone());
    let date = || select(&DATES[..]);
    let field = prop_oneof![
        3 => date().prop_map(|date| (Field::Date, date.to_owned())),
        2 => amount().prop_map(|amount| (Field::Amount, amount)),
        1 => rate().prop_map(|rate| (Field::Rate, rate)),
        1 => select(&["飲食", "教育", "其他", "收入"][..]).prop_map(|name| (Field::Category, name.to_owned())),
        1 => "[a-z]{0,3}".prop_map(|text| (Field::Remark, text)),
    ];
    prop_oneof![
        5 => proptest::collection::vec(line, 1..4).prop_map(|mut lines| {
            // Entries of one text share a date that only one of them says.
            if lines.iter().any(|(date, _)| date.is_none()) {
                lines.iter_mut().for_each(|(date, _)| *date = None);
            }
            Op::Note(lines)
        }),
        3 => (proptest::option::of(any::<Index>()), date(), amount(), rate())
            .prop_map(|(which, date, amount, rate)| Op::Put(which, date, amount, rate)),
        5 => field.prop_map(|(field, value)| Op::Edit(field, value)),
        2 => Just(Op::Delete),
        1 => Just(Op::Expire),
        1 => chat_amount.prop_map(Op::HalfSay),
        1 => Just(Op::Complete),
        1 => Just(Op::Erase),
    ]
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let happening =
        (op(), 0_i64..4, any::<bool>()).prop_map(|(op, after, keyed)| Happening { op, after, keyed });
    proptest::collection::vec(happening, 1..30)
}

/// The texts of an entry, by field.
type Fields = BTreeMap<&'static str, String>;

/// What a ledger is, without records.
#[derive(Debug, Default)]
struct Model {
    entries: BTreeMap<String, Fields>,
    /// The `交易ID` of the last transaction, while it can be edited.
    last: Option<String>,
    /// The amount of an entry that lacks something, and when it was said.
    pending: Option<(String, Moment)>,
    /// Every id since the last erasure, also of what was deleted.
    given: BTreeSet<String>,
}

fn fields(id: &str, date: &str, now: Moment, amount: &str, rate: &str) -> Fields {
    let text = |field: Field| match field {
        Field::Intent => "bookkeeping".to_owned(),
        Field::Date => date.to_owned(),
        Field::Time => now.time(),
        Field::Item => "午餐".to_owned(),
        Field::Currency => "TWD".to_owned(),
        Field::Amount => amount.to_owned(),
        Field::Rate => rate.to_owned(),
        Field::Payment => "現金".to_owned(),
        Field::Id => id.to_owned(),
        Field::Category => "飲食".to_owned(),
        Field::Project => "日常".to_owned(),
        Field::Necessity => "必要".to_owned(),
        Field::Advance => "無".to_owned(),
        Field::Detail | Field::Party | Field::Remark => String::new(),
    };
    Field::ALL.into_iter().map(|field| (field.name(), text(field))).collect()
}

fn entry(fields: &Fields) -> Entry {
    let json = |(name, text): (&&'static str, &String)| match *name {
        "原幣金額" | "匯率" => format!(r#""{name}":{text}"#),
        _ => format!(r#""{name}":{}"#, Value::from(text.as_str())),
    };
    let body = fields.iter().map(json).collect::<Vec<_>>().join(",");
    Entry::from_body(format!("{{{body}}}").as_bytes()).unwrap()
}

impl Model {
    /// The entries that a text made, with the ids that the answer gives them: none of them was given before.
    fn note(&mut self, step: &Step, lines: &[(Option<&str>, String)], now: Moment) {
        assert_eq!(step.entries().len(), lines.len());
        let today = now.date().to_string();
        for (entry, (date, amount)) in step.entries().iter().zip(lines) {
            let id = entry.id().to_owned();
            assert!(self.given.insert(id.clone()), "{id} was given before");
            let fields = fields(&id, date.unwrap_or(&today), now, amount, "1");
            self.entries.insert(id.clone(), fields);
            self.last = Some(id);
        }
    }

    /// The months that have entries, each in the order of a statement.
    fn months(&self) -> BTreeMap<Month, Vec<&Fields>> {
        let mut months: BTreeMap<Month, Vec<&Fields>> = BTreeMap::new();
        for fields in self.entries.values() {
            months.entry(Month::parse(&fields["日期"][..7]).unwrap()).or_default().push(fields);
        }
        for entries in months.values_mut() {
            entries.sort_by_key(|fields| (&fields["日期"], &fields["時間"], &fields["交易ID"]));
        }
        months
    }
}

fn sum<'a>(entries: impl Iterator<Item = &'a &'a Fields>) -> BigDecimal {
    let number = |fields: &Fields, name: &str| BigDecimal::from_str(&fields[name]).unwrap();
    entries.map(|fields| number(fields, "原幣金額") * number(fields, "匯率")).sum()
}

fn exact(total: Total) -> BigDecimal {
    BigDecimal::from_str(&total.to_string()).unwrap()
}

/// The ledger and its model.
struct World {
    store: Arc<dyn Store>,
    idem: Idempotency,
    book: Book,
    model: Model,
    now: Moment,
    calls: u32,
}

impl World {
    fn new() -> World {
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        World {
            idem: Idempotency::new(Arc::clone(&store)),
            store,
            book: Book::new("U1", Config::default()).unwrap(),
            model: Model::default(),
            now: Moment::from_unix(START).unwrap(),
            calls: 0,
        }
    }

    async fn happens(&mut self, Happening { op, after, keyed }: &Happening) {
        self.now = Moment::from_unix(self.now.unix() + after).unwrap();
        match op {
            Op::Note(lines) => {
                let words: Vec<String> = lines
                    .iter()
                    .map(|(date, amount)| format!("{} 午餐 {amount} 現金", date.unwrap_or_default()))
                    .collect();
                let Sentence::Note(note) = parse(&words.join("\n"), self.now, &Habits::default()) else {
                    panic!("{words:?}")
                };
                let step = self.make(Change::Note(note), *keyed).await.unwrap();
                self.model.note(&step, lines, self.now);
            }
            Op::Put(which, date, amount, rate) => self.put(which.as_ref(), date, amount, rate, *keyed).await,
            Op::Edit(field, value) => {
                let json = match field {
                    Field::Amount | Field::Rate => format!(r#"{{"{}":{value}}}"#, field.name()),
                    _ => Value::from(Map::from_iter([(field.name().to_owned(), value.as_str().into())]))
                        .to_string(),
                };
                let patch = Patch::from_body(json.as_bytes()).unwrap();
                let made = self.make(Change::Edit(patch), *keyed).await;
                match &self.model.last {
                    Some(id) => {
                        assert_eq!(made.unwrap().entry().unwrap().id(), id);
                        self.model.entries.get_mut(id).unwrap().insert(field.name(), value.clone());
                    }
                    None => assert!(matches!(made, Err(ChangeError::Missing))),
                }
            }
            Op::Delete => {
                let made = self.make(Change::Delete, *keyed).await;
                match self.model.last.take() {
                    Some(id) => {
                        assert_eq!(made.unwrap().before().unwrap().id(), id);
                        self.model.entries.remove(&id);
                    }
                    None => assert!(matches!(made, Err(ChangeError::Missing))),
                }
            }
            Op::Expire => {
                advance(self.book.life() + Duration::from_secs(1)).await;
                (self.model.last, self.model.pending) = (None, None);
            }
            Op::HalfSay(amount) => {
                let Sentence::HalfSaid(pending, _) =
                    parse(&format!("午餐 {amount}"), self.now, &Habits::default())
                else {
                    panic!()
                };
                self.remember(&pending).await;
                self.model.pending = Some((amount.clone(), self.now));
            }
            Op::Complete => {
                let step = self.complete().await;
                match self.model.pending.take() {
                    Some((amount, at)) => self.model.note(&step.unwrap(), &[(None, amount)], at),
                    None => assert_eq!(step, None),
                }
            }
            Op::Erase => {
                let edit = Edit::of_all(self.book.keys()).idempotent();
                edit.apply(&*self.store, |there| erase(&self.book, there)).await.unwrap();
                let edit = Edit::of(self.book.months()).idempotent();
                edit.apply(&*self.store, |there| remove_hidden(&self.book, there)).await.unwrap();
                self.model = Model::default();
            }
        }
    }

    /// Puts a new entry, or one in the place of another. Only the last transaction can go to another month: of others the
    /// function does not know where they are.
    async fn put(&mut self, which: Option<&Index>, date: &str, amount: &str, rate: &str, keyed: bool) {
        let ids: Vec<String> = self.model.entries.keys().cloned().collect();
        let replaced = which.filter(|_| !ids.is_empty()).map(|which| which.get(&ids).clone());
        let (id, date) = match replaced {
            Some(id) if self.model.last.as_ref() == Some(&id) => (id, date.to_owned()),
            Some(id) => {
                let date = self.model.entries[&id]["日期"].clone();
                (id, date)
            }
            None => (self.unused_id(), date.to_owned()),
        };
        let fields = fields(&id, &date, self.now, amount, rate);
        self.make(Change::Put(entry(&fields)), keyed).await.unwrap();
        self.model.given.insert(id.clone());
        self.model.entries.insert(id.clone(), fields);
        self.model.last = Some(id);
    }

    /// The id of a client that counts its entries, now and then at the end of time.
    fn unused_id(&mut self) -> String {
        self.calls += 1;
        let last = format!("99991231-2359{:02}", 60 - self.calls % 60 - 1);
        match self.calls.is_multiple_of(3) && !self.model.given.contains(&last) {
            true => last,
            false => Moment::from_unix(START - 1_000_000 + i64::from(self.calls)).unwrap().id(),
        }
    }

    /// Makes a change, with a key twice: what comes again changes nothing, and is told the same.
    async fn make(&mut self, change: Change, keyed: bool) -> Result<Step, ChangeError> {
        let mut attempt = Attempt::new(change.clone(), None).at(self.now);
        let (store, book) = (&*self.store, &self.book);
        if !keyed {
            return Ok(attempt.edit(book).apply(store, |there| attempt.write(book, there)).await?);
        }
        self.calls += 1;
        let key = format!("key {}", self.calls);
        let mut first = None;
        let once = |there: &Values, attempt: &mut Attempt, first: &mut Option<Step>| {
            let (writes, step) = attempt.write(book, there)?;
            let told: Vec<String> = step.entries().iter().map(Entry::to_json).collect();
            *first = Some(step);
            Ok::<_, ChangeError>((writes, told))
        };
        let edit = attempt.edit(book);
        let told = self.idem.edit(&key, edit, |there| once(there, &mut attempt, &mut first)).await;
        let told = match told {
            Ok(told) => told,
            Err(idem::Error::Function(error)) => return Err(error.into()),
            Err(error) => panic!("{error:?}"),
        };
        let mut again = Attempt::new(change, None).at(self.now);
        let replay = self.idem.edit(&key, again.edit(book), |there| once(there, &mut again, &mut None)).await;
        assert_eq!(replay.unwrap(), told);
        Ok(first.unwrap())
    }

    /// As the webhook keeps what lacks something.
    async fn remember(&self, pending: &Pending) {
        let key = self.book.pending();
        let edit = Edit::of(key);
        let keep = |there: &Values| {
            let mut all = PendingByChat::default();
            all.put(pending, None, self.now);
            let json = serde_json::to_string(&all).unwrap();
            let writes = onetap_store::Batch::new().put(key, there.expect(key), json, PendingByChat::TTL);
            Ok::<_, ChangeError>((writes, ()))
        };
        edit.apply(&*self.store, keep).await.unwrap();
    }

    /// As the webhook completes it.
    async fn complete(&self) -> Option<Step> {
        let book = &self.book;
        let complete = |there: &Values| {
            let stored = there.get(book.pending());
            let habits = Habits::default();
            let all: PendingByChat =
                stored.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
            let pending = all.get(None, &habits, self.now);
            let Some(Answer::Complete(note)) = pending.map(|pending| pending.answer("現金", &habits))
            else {
                return Ok((onetap_store::Batch::new(), None));
            };
            let (writes, step) = Attempt::new(Change::Note(note), None).write(book, there)?;
            Ok::<_, ChangeError>((writes.delete(book.pending(), stored.unwrap()), Some(step)))
        };
        Edit::of_all(book.keys()).apply(&*self.store, complete).await.unwrap()
    }

    /// Every month is that of the model, entry by entry, and its sums are exact.
    async fn agrees(&self) {
        let months = self.model.months();
        let listed = Months::read(self.store.get(self.book.months()).await.unwrap().as_deref());
        let listed: BTreeSet<Month> = listed.latest_first().collect();
        assert!(months.keys().all(|month| listed.contains(month)), "every month is listed");
        let possible = DATES.iter().map(|date| Month::parse(&date[..7]).unwrap());
        for month in possible.chain(listed).collect::<BTreeSet<Month>>() {
            let records = read_to_end(&*self.store, &self.book.log(month).unwrap()).await.unwrap();
            let statement = Statement::fold(month, records.iter().map(|record| record.text.as_str()));
            let none = Vec::new();
            let expected = months.get(&month).unwrap_or(&none);
            assert_eq!(statement.unreadable(), 0);
            let found: Vec<Fields> = statement
                .entries()
                .map(|entry| Field::ALL.into_iter().map(|it| (it.name(), entry.get(it).unwrap())).collect())
                .collect();
            assert_eq!(found.iter().collect::<Vec<_>>(), *expected, "{month}");
            let (income, spending): (Vec<&Fields>, Vec<&Fields>) =
                expected.iter().copied().partition(|fields| fields["分類"] == "收入");
            assert_eq!(exact(statement.total()), sum(spending.iter()), "{month}");
            assert_eq!(exact(statement.income()), sum(income.iter()), "{month}");
            let mut counted = 0;
            for category in statement.by_category() {
                let of_it: Vec<&Fields> =
                    spending.iter().filter(|fields| fields["分類"] == category.name).copied().collect();
                assert_eq!((category.count, exact(category.total)), (of_it.len(), sum(of_it.iter())));
                counted += category.count;
            }
            assert_eq!((counted, statement.income_count()), (spending.len(), income.len()));
        }
        let last = self.store.get(self.book.last_transaction()).await.unwrap();
        assert_eq!(last.and_then(|text| Some(Entry::read(&text)?.id().to_owned())), self.model.last);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_folded_months_are_those_of_a_model(happenings in happenings()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let mut world = World::new();
            for happening in &happenings {
                world.happens(happening).await;
                world.agrees().await;
            }
        });
    }
}
