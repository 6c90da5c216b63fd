//! The benchmarked calls on onetap's own API. The store is opened as the Lambda functions open it.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onetap_bus::{Bus, Event, Published, Stages};
use onetap_config::Variables;
use onetap_idem::sqs::{Consumer, SqsEvent};
use onetap_idem::{EffectKeys, Failure, Idempotency};
use onetap_ledger::{Attempt, Book, Change, Config, Entry, Moment, Month, Patch, Statement};
use onetap_store::lease::{AcquireOutcome, ReleaseOutcome};
use onetap_store::{Batch, Commit, Expect, Keep, Key, Lease, Log, Record, Store, open, read_to_end};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::Result;
use crate::orders::Call;

const HOUR: Duration = Duration::from_secs(3600);
/// An arbitrary value.
const VALUE: &str = "0123456789abcdef0123456789abcdef";
const ENTRY: &str = r#"{"intent":"bookkeeping","日期":"2025-11-29","時間":"14:30","品項":"午餐","原幣別":"TWD","原幣金額":120,"匯率":1,"付款方式":"信用卡","交易ID":"20251129-143000","明細說明":"","分類":"飲食","專案":"日常","必要性":"必要","代墊狀態":"無","收款支付對象":"","附註":""}"#;

/// A message of SQS as the peers get it, about `ORDER`.
const MESSAGE: &str = include_str!("../peers/message.json");
/// Messages in a batch, and Lambda's default.
pub const MESSAGES: usize = 10;
/// What Lambda would give the invocation.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A month, and the number of its entries. It lies outside [`LEDGER_YEARS`], as those below do.
const SMALL_MONTH: (&str, usize) = ("2025-10", 100);
/// The same with more entries.
const MONTH: (&str, usize) = ("2025-11", 1_000);
/// The same with as many as a month holds at least.
const LARGE_MONTH: (&str, usize) = ("2025-12", 5_000);
/// A ledger of 36 months: as many as it keeps by default.
const LEDGER_YEARS: std::ops::Range<u32> = 2022..2025;
/// The day of every further entry, in the last of these months.
const LEDGER_DAY: &str = "2024-12-15";
/// How many records are appended in one batch.
const MAX_APPENDS: usize = 40;

/// The result of the idempotent function, here and in the compared libraries (`bench/peers`).
#[derive(Debug, Serialize, Deserialize)]
struct Receipt {
    order: String,
    charged: u32,
}

/// onetap's side of the benchmark: a store, and the engines on it.
#[derive(Debug)]
pub struct Ours {
    store: Arc<dyn Store>,
    idem: Idempotency,
    bus: Bus,
    orders: Consumer<Order>,
}

/// What a message is about.
#[derive(Debug, Deserialize)]
struct Order {
    id: String,
    #[allow(dead_code, reason = "a handler would want to know it")]
    item: String,
}

fn unexpected(what: &str) -> crate::Error {
    format!("unexpected result of {what}").into()
}

impl Ours {
    /// Opens the store that the variables of `lookup` describe.
    pub fn open(lookup: impl Fn(&str) -> Option<String>) -> Result<Ours> {
        let variables = Variables::from_lookup(lookup);
        let store = open(&onetap_store::Config::from_variables(&variables)?)?;
        let idem = Idempotency::new(Arc::clone(&store));
        let bus = Bus::new(Arc::clone(&store), onetap_bus::Config::from_variables(&variables)?);
        let orders = Consumer::json(Idempotency::new(Arc::clone(&store)), |order: &Order| order.id.clone());
        Ok(Ours { store, idem, bus, orders })
    }

    /// Writes the data that `call` needs.
    pub async fn prepare(&self, call: Call, id: &str) -> Result<()> {
        match call {
            Call::Get | Call::Delete => {
                let put = Batch::new().put(&key(id)?, Expect::AbsentOr(VALUE.to_owned()), VALUE, HOUR);
                applied(self.store.commit(&put).await?)
            }
            Call::Replay => self.execute(id).await,
            Call::Edit => self.put(ENTRY, id).await,
            Call::Put => self.put(&entry(LEDGER_DAY, 0), id).await,
            Call::PutAmongMonths => {
                for (year, month) in LEDGER_YEARS.flat_map(|year| (1..=12).map(move |month| (year, month))) {
                    self.put(&entry(&format!("{year}-{month:02}-15"), 0), id).await?;
                }
                Ok(())
            }
            Call::BatchAgain => self.handle(batch(id)?).await.map(drop),
            Call::SmallStatement => self.fill(id, SMALL_MONTH).await,
            Call::Month | Call::Statement => self.fill(id, MONTH).await,
            Call::LargeMonth | Call::LargeStatement => self.fill(id, LARGE_MONTH).await,
            Call::Set | Call::Lock | Call::Execute | Call::Publish | Call::PublishTen | Call::Batch => Ok(()),
        }
    }

    /// Makes the call on what it is [`given`]; `n` counts the calls under this id.
    pub async fn make(&self, call: Call, id: &str, n: usize, given: SqsEvent) -> Result<()> {
        match call {
            Call::Get => match self.store.get(&key(id)?).await? {
                Some(_) => Ok(()),
                None => Err(unexpected("get")),
            },
            Call::Set => {
                applied(self.store.commit(&Batch::new().put(&key(id)?, Expect::Absent, VALUE, HOUR)).await?)
            }
            Call::Delete => applied(self.store.commit(&Batch::new().delete(&key(id)?, VALUE)).await?),
            Call::Lock => self.lock(id).await,
            Call::Execute | Call::Replay => self.execute(id).await,
            Call::Edit => self.edit(id, n).await,
            Call::Put | Call::PutAmongMonths => self.put(&entry(LEDGER_DAY, n + 1), id).await,
            Call::Batch => all_ran(self.handle(given).await?, MESSAGES),
            Call::BatchAgain => all_ran(self.handle(given).await?, 0),
            Call::Publish => self.publish(&[event(id)?]).await,
            Call::PublishTen => {
                let events: Result<Vec<Event>> = (0..10).map(|n| event(&format!("{id}-{n}"))).collect();
                self.publish(&events?).await
            }
            Call::Month => counted(self.records(id, MONTH).await?.len(), MONTH),
            Call::LargeMonth => counted(self.records(id, LARGE_MONTH).await?.len(), LARGE_MONTH),
            Call::SmallStatement => self.statement(id, SMALL_MONTH).await,
            Call::Statement => self.statement(id, MONTH).await,
            Call::LargeStatement => self.statement(id, LARGE_MONTH).await,
        }
    }

    async fn lock(&self, id: &str) -> Result<()> {
        let key = Key::new(format!("processing:user:{id}"))?;
        match Lease::acquire(self.store.clone(), key).await? {
            AcquireOutcome::Acquired(lease) => match lease.release().await? {
                ReleaseOutcome::Released => Ok(()),
                ReleaseOutcome::Outlasted => Err(unexpected("a lock's release")),
            },
            AcquireOutcome::Held { .. } => Err(unexpected("a lock")),
        }
    }

    async fn execute(&self, id: &str) -> Result<()> {
        let charge = || async { Ok::<_, Infallible>(Receipt { order: id.to_owned(), charged: 120 }) };
        match self.idem.execute(id, charge).await {
            Ok(receipt) if receipt.order == id => Ok(()),
            _ => Err(unexpected("an idempotent call")),
        }
    }

    /// Handles a batch of messages, none of which may fail; how many of them were new.
    async fn handle(&self, event: SqsEvent) -> Result<usize> {
        let ran = AtomicUsize::new(0);
        let handler = async |order: Order, _: EffectKeys| {
            ran.fetch_add(1, Ordering::Relaxed);
            if order.id.is_empty() { Err(Failure::Permanent("no order")) } else { Ok(()) }
        };
        let response = self.orders.handle(event, Instant::now() + TIMEOUT, handler).await;
        if response.batch_item_failures.is_empty() {
            Ok(ran.into_inner())
        } else {
            Err(unexpected("a batch"))
        }
    }

    /// Makes `entry` the last transaction.
    async fn put(&self, entry: &str, id: &str) -> Result<()> {
        let entry = Entry::from_body(entry.as_bytes()).map_err(|_| unexpected("the entry"))?;
        self.change(Change::Put(entry), id).await
    }

    /// Sets another amount every time, so that every edit changes the value.
    async fn edit(&self, id: &str, n: usize) -> Result<()> {
        let body = format!(r#"{{"原幣金額":{}}}"#, 200 + n % 700);
        let patch = Patch::from_body(body.as_bytes()).map_err(|_| unexpected("the edit"))?;
        self.change(Change::Edit(patch), id).await
    }

    async fn change(&self, change: Change, id: &str) -> Result<()> {
        let (book, mut attempt) = (book(id)?, Attempt::new(change, None).at(Moment::now()));
        let edit = attempt.edit(&book);
        let changed = edit.apply(&*self.store, |there| attempt.write(&book, there)).await;
        changed.map(drop).map_err(|_| unexpected("a change of the last transaction"))
    }

    /// How many months the ledger has.
    #[cfg(test)]
    pub(crate) async fn months(&self, id: &str) -> Result<usize> {
        let list = self.store.get(book(id)?.months()).await?;
        Ok(onetap_ledger::Months::read(list.as_deref()).latest_first().count())
    }

    /// Makes the entries of a month, unless they are there.
    async fn fill(&self, id: &str, (month, entries): (&str, usize)) -> Result<()> {
        let (month, log) = month_log(id, month)?;
        let there = read_to_end(&*self.store, &log).await?.len();
        for first in (there..entries).step_by(MAX_APPENDS) {
            let mut batch = Batch::new();
            for n in first..entries.min(first + MAX_APPENDS) {
                let entry = entry(&format!("{month}-{:02}", n % 28 + 1), n);
                batch = batch.append(&log, format!(r#"{{"op":"put","tx":{entry}}}"#), Keep::all_for(HOUR));
            }
            applied(self.store.commit(&batch).await?)?;
        }
        Ok(())
    }

    async fn records(&self, id: &str, (month, _): (&str, usize)) -> Result<Vec<Record>> {
        Ok(read_to_end(&*self.store, &month_log(id, month)?.1).await?)
    }

    /// Reads a month and folds it.
    async fn statement(&self, id: &str, month: (&str, usize)) -> Result<()> {
        let records = self.records(id, month).await?;
        let texts = records.iter().map(|record| record.text.as_str());
        counted(Statement::fold(month_log(id, month.0)?.0, texts).count(), month)
    }

    async fn publish(&self, events: &[Event]) -> Result<()> {
        let published = self.bus.publish_each(events).await;
        let all = published.iter().all(|outcome| matches!(outcome, Ok(Published::New(_))));
        if all && published.len() == events.len() { Ok(()) } else { Err(unexpected("publishing")) }
    }
}

fn applied(commit: Commit) -> Result<()> {
    match commit {
        Commit::Applied(_) => Ok(()),
        Commit::Refused(_) => Err(unexpected("a commit")),
    }
}

/// What a call is given, made before the clock runs: the event of a batch, for other calls an empty one.
pub fn given(call: Call, id: &str) -> Result<SqsEvent> {
    if matches!(call, Call::Batch | Call::BatchAgain) { batch(id) } else { Ok(SqsEvent::default()) }
}

/// A batch of messages about orders of their own.
fn batch(id: &str) -> Result<SqsEvent> {
    let message = |n| Ok(serde_json::from_str(&MESSAGE.replace("ORDER", &format!("{id}-{n}")))?);
    let mut event = SqsEvent::default();
    event.records = (0..MESSAGES).map(message).collect::<Result<_>>()?;
    Ok(event)
}

fn all_ran(ran: usize, expected: usize) -> Result<()> {
    if ran == expected { Ok(()) } else { Err(unexpected("a batch's messages")) }
}

/// The entry of this day whose id names the second `n` of it.
fn entry(date: &str, n: usize) -> String {
    let id = format!("{}-{:02}{:02}{:02}", date.replace('-', ""), n / 3600, n / 60 % 60, n % 60);
    ENTRY.replace("2025-11-29", date).replace("20251129-143000", &id)
}

fn key(id: &str) -> Result<Key> {
    Ok(Key::new(format!("value:{id}"))?)
}

fn book(id: &str) -> Result<Book> {
    Book::new(id, Config::default()).ok_or_else(|| unexpected("a user's id"))
}

fn counted(entries: usize, (_, expected): (&str, usize)) -> Result<()> {
    if entries == expected { Ok(()) } else { Err(unexpected("reading a month")) }
}

fn month_log(id: &str, month: &str) -> Result<(Month, Log)> {
    let month = Month::parse(month).ok_or_else(|| unexpected("a month"))?;
    Ok((month, book(id)?.log(month)?))
}

fn event(job: &str) -> Result<Event> {
    let text = format!(
        r#"{{"job_id":"{job}","domain":"scan","stage":"vision","seq":10,"data":{{"status":"done"}},"timestamp":"2025-11-03T08:15:30.123456"}}"#
    );
    Ok(Event::parse(text, &Stages::default())?)
}
