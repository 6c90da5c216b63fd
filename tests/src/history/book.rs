//! What a client does to the ledgers that all clients share: as the functions do, with an idempotency key or without.

use std::sync::Arc;
use std::time::Duration;

use onetap_idem as idem;
use onetap_idem::Idempotency;
use onetap_ledger::chat::{Habits, Sentence, parse};
use onetap_ledger::{
    Attempt, Book, Change, ChangeError, Config, Entry, Moment, Patch, Step, erase, remove_hidden,
};
use onetap_store::{Batch, Edit, Store, Values, edit};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::sleep;

use super::event::{self, Answer, Call, Expected, Layer};
use super::journal::Journal;

/// Part of the name of every idempotency key of the ledger.
pub const BOOK_KEY_PART: &str = "/book/";

/// When every text of the chat was written: the `交易ID`s of a ledger count on from here, so that they are contended. An edit
/// or a deletion at this time leaves the list of months as it is, unless the entry moves to another month.
const NOW: i64 = 1_764_397_800;

/// How often a call with a key comes again after an unknown outcome.
const REPEATS: u32 = 3;

/// What is asked for. An item is used by nobody else, and tells the entry wherever it is found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// Entries of one text of the chat.
    Note(Vec<String>),
    /// An entry over HTTP.
    Put {
        /// Its item.
        item: String,
        /// Its `交易ID`.
        id: String,
        /// Its date.
        date: String,
    },
    /// The last transaction gets this remark.
    Remark(String),
    /// The last transaction moves to this date.
    Date(String),
    /// The last transaction is deleted.
    Delete,
    /// Everything is erased.
    Erase,
}

/// What the answer to it says: the entry before, and those after it, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// What was the last transaction.
    pub before: Option<String>,
    /// What was made.
    pub entries: Vec<String>,
}

/// Whether a commit that edits or deletes an entry within its month writes the list of months too; `None` for any other.
pub fn writes_months(changes: &[event::Change]) -> Option<bool> {
    let id = |entry: &str| Entry::read(entry).map(|entry| entry.id().to_owned());
    let stays = |change: &event::Change| match change {
        event::Change::Delete { key, .. } => key.ends_with(":last_transaction"),
        event::Change::Put { key, expect: Expected::Is(before), value: Some(after), .. } => {
            key.ends_with(":last_transaction") && id(before) == id(after)
        }
        _ => false,
    };
    let is_list =
        |change: &event::Change| matches!(change, event::Change::Put { key, .. } if key.ends_with(":ledger"));
    // An entry that moves to another month has a record in both.
    let records = changes.iter().filter(|change| matches!(change, event::Change::Append { .. })).count();
    (records == 1 && changes.iter().any(stays)).then(|| changes.iter().any(is_list))
}

/// A word that the grammar of the chat takes for an item, a different one for every text.
pub fn item(text: &str) -> String {
    const DIGITS: [char; 10] = ['甲', '乙', '丙', '丁', '戊', '己', '庚', '辛', '壬', '癸'];
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let digits = hash.to_string().bytes().map(|digit| DIGITS[usize::from(digit - b'0')]).collect::<String>();
    format!("物{digits}")
}

/// The last second of a number of entries that came over HTTP, which are all older than those of the chat.
pub fn id(number: u64) -> String {
    let seconds = 1_000_000_000 + i64::try_from(number % 500_000_000).unwrap_or(0);
    Moment::from_unix(seconds).expect("a moment of this century").id()
}

/// A call for a user's ledger.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) user: String,
    pub(super) asked: Asked,
    pub(super) key: Option<String>,
    /// Whether it comes at a time when edits and deletions renew the TTL of their month, and so write the list of months.
    pub(super) renews: bool,
}

impl Request {
    /// Makes the call, and again while its key allows and nothing is known.
    pub(super) async fn make(
        self,
        store: &Arc<dyn Store>,
        idem: &Idempotency,
        journal: &Journal,
        pause: Duration,
    ) {
        for _ in 0..if self.key.is_some() { REPEATS } else { 1 } {
            let Request { user, asked, key, .. } = &self;
            let call = Call::Ledger { user: user.clone(), asked: asked.clone(), key: key.clone() };
            let call_id = journal.call(Layer::Api, call);
            let answer = match key {
                Some(key) => self.once(key, idem).await,
                None => self.plain(&**store).await,
            };
            let is_known = matches!(answer, Answer::Result(_));
            journal.answer(call_id, answer);
            if is_known {
                break;
            }
            sleep(pause).await;
        }
        if let Asked::Erase = self.asked {
            let book = self.book();
            let edit = Edit::of(book.months()).idempotent();
            let _ = edit.apply(&**store, |there| remove_hidden(&book, there)).await;
        }
    }

    fn book(&self) -> Book {
        Book::new(&self.user, Config::default()).expect("a plain user id")
    }

    /// The edit, at `NOW` or as many hours later as it takes until the book renews, or does not.
    fn work(&self) -> Work {
        let book = self.book();
        let mut times = (0..).filter_map(|hour: i64| Moment::from_unix(NOW + hour * 3600));
        let time = times.find(|time| book.renews_at(*time) == self.renews);
        Work::new(&self.asked, time.expect("a book renews at some times and not at others"))
    }

    /// With a key. A failure says nothing of the others that have the key, and so nothing of what became of it.
    async fn once(&self, key: &str, idem: &Idempotency) -> Answer {
        let (book, mut work) = (self.book(), self.work());
        let made: Result<Told, idem::Error<Told, _>> =
            idem.edit(key, work.edit(&book), |there| work.step(&book, there)).await;
        match made {
            Ok(told) => answer(&told),
            Err(_) => Answer::Unknown,
        }
    }

    async fn plain(&self, store: &dyn Store) -> Answer {
        let (book, mut work) = (self.book(), self.work());
        match work.edit(&book).apply(store, |there| work.step(&book, there)).await {
            Ok(told) => answer(&told),
            // It was computed from what is there, and never sent. (A step that was taken again may follow one that was
            // applied, if twice is as good as once.)
            Err(edit::Error::Unread(_)) => Answer::NotSent,
            Err(edit::Error::Unwritten(error)) if !error.maybe_applied() && !work.repeats() => {
                Answer::NotSent
            }
            Err(_) => Answer::Unknown,
        }
    }
}

fn answer(told: &Told) -> Answer {
    Answer::Result(serde_json::to_string(told).expect("an answer is JSON"))
}

/// The edit that is asked for.
enum Work {
    Change(Box<Attempt>, bool),
    Erase,
}

impl Work {
    /// The edit at `time`.
    fn new(asked: &Asked, time: Moment) -> Work {
        let now = Moment::from_unix(NOW).expect("a moment of this century");
        let change = match asked {
            Asked::Note(items) => {
                let lines: Vec<String> = items.iter().map(|item| format!("{item} 5 現金")).collect();
                match parse(&lines.join("\n"), now, &Habits::default()) {
                    Sentence::Note(note) => Change::Note(note),
                    other => panic!("{lines:?} is {other:?}"),
                }
            }
            Asked::Put { item, id, date } => {
                let entry = json!({
                    "intent": "bookkeeping", "日期": date, "時間": "12:30", "品項": item, "原幣別": "TWD", "原幣金額": 7,
                    "匯率": 1, "付款方式": "現金", "交易ID": id, "明細說明": "", "分類": "其他", "專案": "日常",
                    "必要性": "必要", "代墊狀態": "無", "收款支付對象": "", "附註": "",
                });
                Change::Put(Entry::from_body(entry.to_string().as_bytes()).expect("an entry"))
            }
            Asked::Remark(text) => patch(&json!({ "附註": text })),
            Asked::Date(date) => patch(&json!({ "日期": date })),
            Asked::Delete => Change::Delete,
            Asked::Erase => return Work::Erase,
        };
        let repeats = !matches!(change, Change::Note(_));
        Work::Change(Box::new(Attempt::new(change, None).at(time)), repeats)
    }

    /// Whether it is made again after a lost reply.
    fn repeats(&self) -> bool {
        matches!(self, Work::Change(_, true) | Work::Erase)
    }

    fn edit(&self, book: &Book) -> Edit<'static> {
        match self {
            Work::Change(attempt, _) => attempt.edit(book),
            Work::Erase => Edit::of_all(book.keys()).idempotent(),
        }
    }

    fn step(&mut self, book: &Book, there: &Values) -> Result<(Batch, Told), ChangeError> {
        match self {
            Work::Change(attempt, _) => {
                let (writes, step) = attempt.write(book, there)?;
                Ok((writes, told(&step)))
            }
            Work::Erase => {
                let (writes, _) = erase(book, there).map_err(ChangeError::Unwritable)?;
                Ok((writes, Told { before: None, entries: Vec::new() }))
            }
        }
    }
}

fn told(step: &Step) -> Told {
    let entries = step.entries().iter().map(Entry::to_json).collect();
    Told { before: step.before().as_ref().map(Entry::to_json), entries }
}

fn patch(fields: &serde_json::Value) -> Change {
    Change::Edit(Patch::from_body(fields.to_string().as_bytes()).expect("a patch"))
}
