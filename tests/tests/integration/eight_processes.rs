//! Eight processes at once for one user: they enter, edit, move and delete, in the chat and over HTTP. At the end the
//! ledger is what the answers said.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use futures_util::future::join_all;
use onetap_config::Secret;
use onetap_ledger::{Book, Config, Entry, Field, LedgerRecord, Month, Months, Statement, texts};
use onetap_line::testing::MessagingApi;
use onetap_servers::{Backend, Environment, heavy_test};
use onetap_store::{Store, read_to_end};
use onetap_tests::crash::{ACCESS_TOKEN, API_TOKEN, Answer, CHANNEL_SECRET, Request};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::sleep;

const USER: &str = "U1";
/// Of each process.
const ROUNDS: u32 = 25;

/// A process that answers requests.
struct Worker {
    number: u32,
    tell: ChildStdin,
    hear: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Worker {
    fn start(number: u32, environment: &Environment) -> Worker {
        let tests = std::env::current_exe().unwrap();
        let folder = tests.parent().and_then(|deps| deps.parent()).unwrap();
        let mut child = Command::new::<PathBuf>(folder.join("examples/request_worker"))
            .env_clear()
            .envs(environment.variables().iter().map(|(name, value)| (*name, value.as_str())))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the example `request_worker`: built with all tests, or by `cargo build --examples`");
        let (tell, hear) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Worker { number, tell, hear: BufReader::new(hear).lines(), _child: child }
    }

    /// The answer to a request that may come again, and does while it is told to.
    async fn ask(&mut self, request: &Request) -> Answer {
        loop {
            let answer = self.ask_once(request).await;
            let under_way = answer.status == 409 && answer.body.contains("正在處理中");
            if !under_way && !matches!(answer.status, 500 | 503) {
                return answer;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn ask_once(&mut self, request: &Request) -> Answer {
        let line = serde_json::to_string(request).unwrap() + "\n";
        self.tell.write_all(line.as_bytes()).await.unwrap();
        let answer = self.hear.next_line().await.unwrap().expect("the worker answers");
        serde_json::from_str(&answer).unwrap()
    }

    /// What the bot replies to these words.
    async fn say(&mut self, round: u32, words: &str, line: &MessagingApi) -> String {
        let token = format!("reply-{}-{round}", self.number);
        let event = json!({
            "webhookEventId": format!("event-{}-{round}", self.number),
            "deliveryContext": {"isRedelivery": false},
            "timestamp": 1_700_000_000_000_i64,
            "mode": "active",
            "replyToken": token,
            "source": {"type": "user", "userId": USER},
            "type": "message",
            "message": {"type": "text", "id": "1", "text": words},
        });
        assert_eq!(self.ask(&Request::Delivery(json!([event]))).await.status, 200);
        let replies: Vec<_> = line.replies().into_iter().filter(|reply| reply.reply_token == token).collect();
        assert_eq!(replies.len(), 1, "{words}");
        replies[0].text().to_owned()
    }

    /// A call of the API, with a key if there is a number for it.
    async fn call(&mut self, method: &str, body: &Value, if_match: Option<&str>, key: Option<u32>) -> Answer {
        let mut headers = Vec::new();
        headers.extend(if_match.map(|id| ("if-match".to_owned(), id.to_owned())));
        headers.extend(key.map(|n| ("idempotency-key".to_owned(), format!("key-{}-{n}", self.number))));
        let request = Request::Http {
            method: method.to_owned(),
            path: format!("/users/{USER}/last-transaction"),
            headers,
            body: if body.is_null() { String::new() } else { body.to_string() },
        };
        self.ask(&request).await
    }
}

/// What the answers of a process said.
#[derive(Default)]
struct Told {
    /// By their item, which nobody else has: the amounts of the entries.
    entered: BTreeMap<String, u64>,
    /// The items of entries that were deleted by name.
    deleted: BTreeSet<String>,
    /// How many more were deleted, whichever they were.
    deletions: usize,
    /// Entry and field, and the value that this process gave it last. No other process writes this field.
    edited: BTreeMap<(String, &'static str), String>,
    /// Amounts that an entry was given, whichever it was.
    amounts: BTreeSet<u64>,
    /// How many records all this is.
    records: usize,
}

/// A name that no word of the grammar is a part of.
fn item(worker: u32, n: u32) -> String {
    const DIGITS: [char; 10] = ['甲', '乙', '丙', '丁', '戊', '己', '庚', '辛', '壬', '癸'];
    let digits = [worker, n / 10, n % 10].map(|digit| DIGITS[digit as usize]);
    format!("物{}", String::from_iter(digits))
}

fn entry(worker: u32, round: u32) -> Value {
    json!({
        "intent": "bookkeeping", "日期": "2025-11-05", "時間": "12:30", "品項": item(worker, round),
        "原幣別": "TWD", "原幣金額": 7, "匯率": 1, "付款方式": "現金",
        "交易ID": format!("20251105-{worker:02}{round:02}00"), "明細說明": "", "分類": "其他", "專案": "日常",
        "必要性": "必要", "代墊狀態": "無", "收款支付對象": "", "附註": "",
    })
}

/// Enters one thing, or three, in the chat.
async fn enter(worker: &mut Worker, line: &MessagingApi, told: &mut Told, round: u32, things: u32) {
    let items: Vec<String> = (0..things).map(|thing| item(worker.number, round * 3 + thing)).collect();
    let lines: Vec<String> = items.iter().map(|item| format!("{item} 5 現金")).collect();
    let reply = worker.say(round, &lines.join("\n"), line).await;
    if reply.starts_with("已記帳：") {
        assert!(items.iter().all(|item| reply.contains(item)), "{reply}");
        told.records += items.len();
        told.entered.extend(items.into_iter().map(|item| (item, 5)));
    }
}

/// Puts an entry of its own; its id.
async fn put(worker: &mut Worker, told: &mut Told, round: u32) -> String {
    let entry = entry(worker.number, round);
    let answer = worker.call("PUT", &entry, None, Some(round * 10)).await;
    assert!(matches!(answer.status, 200 | 201), "{answer:?}");
    told.entered.insert(item(worker.number, round), 7);
    told.records += 1;
    entry["交易ID"].as_str().unwrap().to_owned()
}

/// Gives a field of the last transaction a value, or of the one that is named.
async fn edit(
    worker: &mut Worker,
    told: &mut Told,
    (field, value): (Field, String),
    if_match: Option<&str>,
    key: Option<u32>,
) -> bool {
    let answer = worker.call("PATCH", &json!({ field.name(): value }), if_match, key).await;
    if answer.status != 200 {
        // There is none, another took its place, or it is not the one that was named.
        assert!(matches!(answer.status, 404 | 409 | 410 | 412), "{answer:?}");
        return false;
    }
    let answer: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(answer["updated_tx"][field.name()], value);
    let id = answer["updated_tx"]["交易ID"].as_str().unwrap().to_owned();
    told.edited.insert((id, field.name()), value);
    told.records += 1;
    true
}

/// What the process with this number does in a round.
async fn act(worker: &mut Worker, line: &MessagingApi, told: &mut Told, round: u32) {
    match worker.number {
        0 => enter(worker, line, told, round, 1).await,
        1 => enter(worker, line, told, round, 3).await,
        2 => {
            let amount = 1000 + u64::from(round);
            let reply = worker.say(round, &format!("修改金額 {amount}"), line).await;
            if reply.starts_with(texts::EDITED) {
                told.amounts.insert(amount);
                told.records += 1;
            }
        }
        3 if round.is_multiple_of(2) => enter(worker, line, told, round, 1).await,
        3 => {
            if worker.say(round, "刪除上一筆", line).await.starts_with(texts::DELETED) {
                told.deletions += 1;
                told.records += 1;
            }
        }
        4 => {
            let id = put(worker, told, round).await;
            let answer = worker.call("DELETE", &Value::Null, Some(&id), None).await;
            if answer.status == 204 {
                told.deleted.insert(item(worker.number, round));
                told.records += 1;
            }
        }
        5 => _ = edit(worker, told, (Field::Remark, round.to_string()), None, Some(round)).await,
        6 => _ = edit(worker, told, (Field::Detail, round.to_string()), None, None).await,
        _ => {
            let id = put(worker, told, round).await;
            for (n, date) in [(1, "2025-12-01"), (2, "2025-12-02"), (3, "2025-10-31")] {
                let moved =
                    edit(worker, told, (Field::Date, date.to_owned()), Some(&id), Some(round * 10 + n)).await;
                if !moved {
                    break;
                }
                // It is deleted in one month and put into another, unless it stays in its month.
                told.records += usize::from(n != 2);
            }
        }
    }
}

/// The whole ledger: the entries with the number of records, by month.
async fn ledger(store: &dyn Store) -> (Vec<(Month, Entry)>, Vec<LedgerRecord>) {
    let book = Book::new(USER, Config::default()).unwrap();
    let months = Months::read(store.get(book.months()).await.unwrap().as_deref());
    let (mut entries, mut records) = (Vec::new(), Vec::new());
    for month in months.latest_first() {
        let log = read_to_end(store, &book.log(month).unwrap()).await.unwrap();
        let statement = Statement::fold(month, log.iter().map(|record| record.text.as_str()));
        entries.extend(statement.entries().map(|entry| (month, entry.clone())));
        records.extend(log.iter().map(|record| LedgerRecord::read(&record.text).expect("a record")));
    }
    (entries, records)
}

fn text(entry: &Entry, field: Field) -> String {
    entry.get(field).unwrap_or_default()
}

async fn eight_at_once(backend: Backend) {
    let _heavy = heavy_test();
    let line = MessagingApi::start(Secret::new(ACCESS_TOKEN)).unwrap();
    let environment = Environment::start(backend)
        .await
        .with("LINE_API_BASE_URL", line.url())
        .with("LINE_CHANNEL_SECRET", CHANNEL_SECRET)
        .with("LINE_CHANNEL_ACCESS_TOKEN", ACCESS_TOKEN)
        .with("EDIT_API_TOKEN", API_TOKEN)
        .with("WEATHER_PROVIDER", "sample");
    let (line, environment) = (&line, &environment);
    let told = join_all((0..8).map(|number| async move {
        let (mut worker, mut told) = (Worker::start(number, environment), Told::default());
        for round in 0..ROUNDS {
            act(&mut worker, line, &mut told, round).await;
        }
        told
    }))
    .await;

    let (entries, records) = ledger(&*environment.store()).await;
    let entered: BTreeMap<String, u64> = told.iter().flat_map(|told| told.entered.clone()).collect();
    let amounts: BTreeSet<u64> = told.iter().flat_map(|told| told.amounts.clone()).collect();
    eprintln!("{} entries, of which {} are left; {} records", entered.len(), entries.len(), records.len());
    assert!(entered.len() > 100, "most of what was asked for was done");

    // Every entry that was confirmed is there once, unless a deletion was confirmed too; and nothing else is.
    let there: BTreeSet<String> = entries.iter().map(|(_, entry)| text(entry, Field::Item)).collect();
    let ids: BTreeSet<&str> = entries.iter().map(|(_, entry)| entry.id()).collect();
    assert_eq!((there.len(), ids.len()), (entries.len(), entries.len()), "none is there twice");
    let gone: BTreeSet<&String> = entered.keys().filter(|item| !there.contains(*item)).collect();
    assert!(there.iter().all(|item| entered.contains_key(item)), "{there:?}");
    let deleted: BTreeSet<&String> = told.iter().flat_map(|told| &told.deleted).collect();
    assert!(deleted.is_subset(&gone), "what was deleted is gone: {deleted:?}");
    let deletions: usize = told.iter().map(|told| told.deletions).sum();
    assert_eq!(gone.len(), deleted.len() + deletions, "and nothing else is: {gone:?}");

    // It is as its last edit left it, in the month of its date.
    let edited: BTreeMap<_, _> = told.iter().flat_map(|told| told.edited.clone()).collect();
    for (month, entry) in &entries {
        for (field, before) in [(Field::Remark, Some("")), (Field::Detail, Some("")), (Field::Date, None)] {
            match (edited.get(&(entry.id().to_owned(), field.name())), before) {
                (Some(value), _) => assert_eq!(&text(entry, field), value, "{field:?}"),
                (None, Some(before)) => assert_eq!(text(entry, field), before, "{field:?}"),
                (None, None) => {}
            }
        }
        assert!(text(entry, Field::Date).starts_with(&month.to_string()), "in its month");
        let amount: u64 = text(entry, Field::Amount).parse().unwrap();
        assert!(amount == entered[&text(entry, Field::Item)] || amounts.contains(&amount), "{amount}");
    }
    for amount in amounts {
        let edited = |record: &LedgerRecord| match record {
            LedgerRecord::Put(entry) if text(entry, Field::Amount) == amount.to_string() => {
                Some(entry.id().to_owned())
            }
            _ => None,
        };
        let edited: BTreeSet<String> = records.iter().filter_map(edited).collect();
        assert_eq!(edited.len(), 1, "one entry was given the amount {amount}");
    }
    // Nothing was recorded twice.
    assert_eq!(records.len(), told.iter().map(|told| told.records).sum::<usize>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs redis-server"]
async fn the_ledger_is_what_eight_processes_were_told_on_redis() {
    eight_at_once(Backend::Redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs redis-server"]
async fn the_ledger_is_what_eight_processes_were_told_on_upstash() {
    eight_at_once(Backend::Upstash).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ledger_is_what_eight_processes_were_told_on_dynamodb() {
    eight_at_once(Backend::DynamoDb).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs DynamoDB Local"]
async fn the_ledger_is_what_eight_processes_were_told_on_dynamodb_local() {
    eight_at_once(Backend::DynamoDbLocal).await;
}
