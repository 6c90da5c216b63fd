//! The benchmarked calls on onetap's own API. The store is opened as the Lambda functions open it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use onetap_bus::{Bus, Event, Published, Stages};
use onetap_config::Variables;
use onetap_ledger::{Attempt, Book, Change, Config, Entry, Month, Patch, Statement};
use onetap_store::idem::Idempotency;
use onetap_store::lease::{Acquire, Release};
use onetap_store::{Batch, Commit, Expect, Keep, Key, Lease, Log, Record, Store, open, read_to_end};
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::orders::Call;

const HOUR: Duration = Duration::from_secs(3600);
/// An arbitrary value.
const VALUE: &str = "0123456789abcdef0123456789abcdef";
const ENTRY: &str = r#"{"intent":"bookkeeping","日期":"2025-11-29","時間":"14:30","品項":"午餐","原幣別":"TWD","原幣金額":120,"匯率":1,"付款方式":"信用卡","交易ID":"20251129-143000","明細說明":"","分類":"飲食","專案":"日常","必要性":"必要","代墊狀態":"無","收款支付對象":"","附註":""}"#;

/// A month, and the number of its entries.
const MONTH: (&str, usize) = ("2025-11", 1_000);
/// The same with as many as a month holds at least.
const LARGE_MONTH: (&str, usize) = ("2025-12", 5_000);
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
}

fn unexpected(what: &str) -> crate::Error {
    format!("unexpected result of {what}").into()
}

impl Ours {
    /// Opens the store that the variables of `lookup` describe.
    pub fn open(lookup: impl Fn(&str) -> Option<String>) -> Result<Ours> {
        let variables = Variables::from_lookup(lookup);
        let config = onetap_store::Config::from_variables(&variables)?;
        let store = open(&config)?;
        let idem = Idempotency::new(Arc::clone(&store));
        let bus = Bus::new(Arc::clone(&store), onetap_bus::Config::from_variables(&variables, &config)?);
        Ok(Ours { store, idem, bus })
    }

    /// Writes the data that `call` needs.
    pub async fn prepare(&self, call: Call, id: &str) -> Result<()> {
        match call {
            Call::Get | Call::Delete => {
                let put = Batch::new().put(&key(id)?, Expect::AbsentOr(VALUE.to_owned()), VALUE, HOUR);
                applied(self.store.commit(&put).await?)
            }
            Call::Replay => self.execute(id).await,
            Call::Edit => {
                let entry = Entry::from_body(ENTRY.as_bytes()).map_err(|_| unexpected("the entry"))?;
                self.change(Change::Put(entry), id).await
            }
            Call::Month | Call::Statement => self.fill(id, MONTH).await,
            Call::LargeMonth | Call::LargeStatement => self.fill(id, LARGE_MONTH).await,
            Call::Set | Call::Lock | Call::Execute | Call::Publish | Call::PublishTen => Ok(()),
        }
    }

    /// Makes the call; `n` counts the calls under this id.
    pub async fn make(&self, call: Call, id: &str, n: usize) -> Result<()> {
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
            Call::Publish => self.publish(&[event(id)?]).await,
            Call::PublishTen => {
                let events: Result<Vec<Event>> = (0..10).map(|n| event(&format!("{id}-{n}"))).collect();
                self.publish(&events?).await
            }
            Call::Month => counted(self.records(id, MONTH).await?.len(), MONTH),
            Call::LargeMonth => counted(self.records(id, LARGE_MONTH).await?.len(), LARGE_MONTH),
            Call::Statement => self.statement(id, MONTH).await,
            Call::LargeStatement => self.statement(id, LARGE_MONTH).await,
        }
    }

    async fn lock(&self, id: &str) -> Result<()> {
        let key = Key::new(format!("processing:user:{id}"))?;
        match Lease::acquire(&self.store, key).await? {
            Acquire::Acquired(lease) => match lease.release().await? {
                Release::Released => Ok(()),
                Release::Outlasted => Err(unexpected("a lock's release")),
            },
            Acquire::Held => Err(unexpected("a lock")),
        }
    }

    async fn execute(&self, id: &str) -> Result<()> {
        let charge = || async { Ok::<_, Infallible>(Receipt { order: id.to_owned(), charged: 120 }) };
        match self.idem.execute(id, charge).await {
            Ok(receipt) if receipt.order == id => Ok(()),
            _ => Err(unexpected("an idempotent call")),
        }
    }

    /// Alternates between two amounts, so that every edit changes the value.
    async fn edit(&self, id: &str, n: usize) -> Result<()> {
        let body: &[u8] =
            if n.is_multiple_of(2) { r#"{"原幣金額":150}"# } else { r#"{"原幣金額":120}"# }.as_bytes();
        let patch = Patch::from_body(body).map_err(|_| unexpected("the edit"))?;
        self.change(Change::Edit(patch), id).await
    }

    async fn change(&self, change: Change, id: &str) -> Result<()> {
        let (book, mut attempt) = (book(id)?, Attempt::new(change, None));
        let edit = attempt.edit(&book);
        let changed = edit.apply(&*self.store, |there| attempt.write(&book, there)).await;
        changed.map(drop).map_err(|_| unexpected("a change of the last transaction"))
    }

    /// Makes the entries of a month, unless they are there.
    async fn fill(&self, id: &str, (month, entries): (&str, usize)) -> Result<()> {
        let (month, log) = month_log(id, month)?;
        let there = read_to_end(&*self.store, &log).await?.len();
        for first in (there..entries).step_by(MAX_APPENDS) {
            let mut batch = Batch::new();
            for n in first..entries.min(first + MAX_APPENDS) {
                let date = format!("{month}-{:02}", n % 28 + 1);
                let entry =
                    ENTRY.replace("2025-11-29", &date).replace("20251129-143000", &format!("{n:015}"));
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
