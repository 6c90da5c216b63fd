//! Secrets and people's words, planted everywhere they may stand, and looked for in everything that is shown: `Debug`,
//! errors, log lines of every level (those of the libraries included), metrics. A program of its own: the subscriber is
//! the process's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

use std::fmt::Debug;
use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use http::Method;
use onetap_bus::{Event, Job, Stages};
use onetap_config::{ConfigError, Secret, Variables};
use onetap_idem as idem;
use onetap_idem::Idempotency;
use onetap_line::testing::{Fault as LineFault, MessagingApi};
use onetap_servers::{Backend, Environment, Fault as ServerFault, HttpStub};
use onetap_store::testing::{Fault, TestStore};
use onetap_store::{
    Batch, Channel, Config, Expect, Keep, Key, Lease, Log, Memory, Observed, Record, Store, Ttl, open,
};
use onetap_telemetry::LevelFilter;
use onetap_tests::stage::{self, planted};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// In every planted text; no time stamp, number or word of ours holds it.
const MARK: &str = "PLANTED";
/// An amount longer than any time stamp, port or duration that a log line may rightly hold.
const AMOUNT: &str = "98765432109876";

fn shows_nothing(what: &str, text: &str) {
    for mark in [MARK, AMOUNT, "午餐", "永和"] {
        let line = text.lines().find(|line| line.contains(mark));
        assert_eq!(line, None, "{what} shows {mark}");
    }
}

fn hides(what: impl Debug) {
    shows_nothing("Debug", &format!("{what:?} {what:#?}"));
}

// --- configurations -------------------------------------------------------------------------------------------------

/// What holds a secret, and a good value with one in it.
const SECRETS: [(&str, &str); 11] = [
    ("UPSTASH_REDIS_REST_TOKEN", "PLANTED-upstash-token"),
    ("KV_REST_API_TOKEN", "PLANTED-kv-token"),
    ("REDIS_URL", "redis://default:PLANTED-password@127.0.0.1:1/0"),
    ("AWS_ACCESS_KEY_ID", "PLANTED-access-key"),
    ("AWS_SECRET_ACCESS_KEY", "PLANTED-secret-key"),
    ("AWS_SESSION_TOKEN", "PLANTED-session"),
    ("LINE_CHANNEL_SECRET", "PLANTED-one,PLANTED-two"),
    ("LINE_CHANNEL_ACCESS_TOKEN", "PLANTED-access-token"),
    ("EDIT_API_TOKEN", "PLANTED-edit-one,PLANTED-edit-two"),
    ("JOB_EVENTS_SECRET", "PLANTED-job-secret"),
    ("CWA_API_KEY", "PLANTED-cwa-key"),
];

const OTHERS: [(&str, &str); 6] = [
    ("UPSTASH_REDIS_REST_URL", "http://127.0.0.1:1"),
    ("DYNAMODB_TABLE", "onetap"),
    ("AWS_REGION", "us-east-1"),
    ("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1"),
    ("JOB_EVENTS_ALLOW_ORIGIN", "https://page.example"),
    ("WEATHER_PROVIDER", "cwa"),
];

/// Everything else that is read.
const NAMES: [&str; 26] = [
    "STORE",
    "STORE_TIMEOUT_MS",
    "SSE_POLL_MS",
    "KV_REST_API_URL",
    "AWS_ENDPOINT_URL",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
    "LINE_API_BASE_URL",
    "LINE_DATA_API_BASE_URL",
    "CWA_API_BASE_URL",
    "OPEN_METEO_BASE_URL",
    "PROCESSING_LOCK_ENABLED",
    "PROCESSING_LOCK_MESSAGE",
    "PROCESSING_LOCK_MIN_HOLD_MS",
    "PROCESSING_LOCK_SCOPE",
    "PROCESSING_LOCK_TIMEOUT_SECONDS",
    "LAST_TRANSACTION_TTL",
    "IDEM_DEFAULT_TTL_SECONDS",
    "IDEM_LOCK_TTL_SECONDS",
    "IDEM_WAIT_TIMEOUT_MS",
    "IDEM_WAIT_INTERVAL_MS",
    "SSE_MAX_SECONDS",
    "SSE_KEEPALIVE_SECONDS",
    "SSE_GRACE_SECONDS",
    "EVENT_SHARD_COUNT",
    "EVENT_STREAM_MAXLEN",
    "EVENT_STAGES",
];

type Reader = fn(&Variables<'_>) -> Result<String, ConfigError>;

/// Everything that is built from variables, shown.
fn readers() -> Vec<Reader> {
    fn shown(what: impl Debug) -> String {
        format!("{what:?} {what:#?}")
    }
    vec![
        |v| Ok(shown(Config::from_variables(v)?)),
        |v| Ok(shown(open(&Config::from_variables(v)?)?)),
        |v| Ok(shown(idem::Config::from_variables(v)?)),
        |v| Ok(shown(onetap_line::Config::from_variables(v)?)),
        |v| {
            let config = onetap_line::Config::from_variables(v)?;
            Ok(shown(onetap_line::Client::new(onetap_http::Client::new(), &config)?))
        },
        |v| Ok(shown(onetap_weather::Config::from_variables(v)?)),
        |v| Ok(shown(onetap_weather::Config::from_variables(v)?.open(&onetap_http::Client::new()))),
        |v| Ok(shown(onetap_bus::Config::from_variables(v)?)),
        |v| Ok(shown(webhook::Config::from_variables(v)?)),
        |v| Ok(shown(webhook::from_variables(v)?)),
        |v| Ok(shown(edit_last_transaction::Config::from_variables(v)?)),
        |v| Ok(shown(edit_last_transaction::EditLastTransaction::from_variables(v)?)),
        |v| Ok(shown(job_events::Config::from_variables(v)?)),
        |v| Ok(shown(job_events::JobEvents::from_variables(v)?)),
        |v| Ok(shown(queue_consumer::QueueConsumer::from_variables(v)?)),
        |v| Ok(shown(v)),
    ]
}

/// The good variables, with one of them changed.
fn read(reader: Reader, store: &str, change: Option<(&str, &str)>) -> Result<String, ConfigError> {
    let good = [("STORE", store)].into_iter().chain(SECRETS).chain(OTHERS);
    let all: Vec<(&str, &str)> = change.into_iter().chain(good).collect();
    let lookup =
        |name: &str| all.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    reader(&Variables::from_lookup(lookup))
}

const STORES: [&str; 4] = ["upstash", "redis", "dynamodb", "memory"];

#[test]
fn no_configuration_and_nothing_that_is_built_from_one_shows_a_secret() {
    for store in STORES {
        for reader in readers() {
            shows_nothing(store, &read(reader, store, None).unwrap());
        }
    }
    hides(Secret::new("PLANTED-secret"));
}

#[test]
fn no_error_of_a_configuration_repeats_what_was_set() {
    let forms = [
        "PLANTED value",
        "PLANTED-\u{1}",
        "PLANTED密碼",
        "https://name:PLANTED-password@host.example",
        "redis://:PLANTED-password@host.example:99999",
        "rediss://PLANTED password@",
        "http://host.example/?key=PLANTED",
        "https://host.example/PLANTED path",
        "-PLANTED",
        "99999999999999999999",
    ];
    let names = SECRETS.iter().chain(&OTHERS).map(|(name, _)| *name).chain(NAMES);
    let (mut refused, mut taken) = (0, 0);
    for name in names {
        let is_secret = SECRETS.iter().any(|(secret, _)| *secret == name);
        for form in forms {
            for store in STORES {
                for reader in readers() {
                    match read(reader, store, Some((name, form))) {
                        Err(error) => {
                            refused += 1;
                            shows_nothing(name, &format!("{error} {error:?}"));
                        }
                        // An address or a table's name is no secret; a password in one is, and so are the secrets.
                        Ok(shown) if is_secret || form.contains('@') => {
                            taken += 1;
                            shows_nothing(name, &shown);
                        }
                        Ok(_) => {}
                    }
                }
            }
        }
    }
    assert!(refused > 500 && taken > 500, "{refused} refused, {taken} taken");
}

// --- stores ---------------------------------------------------------------------------------------------------------

fn key(name: &str) -> Key {
    Key::new(format!("user:PLANTED-{name}:profile")).unwrap()
}

/// Every call, with planted names and words, and everything that it says.
async fn call_all(store: &Arc<dyn Store>) -> Vec<String> {
    let (log, channel) = (Log::new("PLANTED:log").unwrap(), Channel::new("PLANTED:channel").unwrap());
    let hour = Duration::from_secs(3600);
    let put = Batch::new().put(&key("a"), Expect::Absent, "PLANTED-value", hour);
    let many = Batch::new()
        .put(&key("b"), Expect::Is("PLANTED-old".to_owned()), "PLANTED-new", hour)
        .delete(&key("c"), "PLANTED-gone")
        .put_if_newer(&key("d"), 7, r#"{"seq":7,"data":"PLANTED"}"#, hour)
        .append(&log, "PLANTED-record", Keep::all_for(Ttl::Forever))
        .clear(&Log::new("PLANTED:cleared").unwrap())
        .publish(&channel, "PLANTED-text");
    let bad = Batch::new().put_if_newer(&key("e"), 7, "PLANTED", hour);
    let large = "PLANTED".repeat(store.max_value() / 7 + 1);
    let large = Batch::new().put(&key("f"), Expect::Absent, large.as_str(), hour);
    hides((&put, &many, &log, &channel, key("a"), store));
    let mut said = Vec::new();
    said.push(format!("{:?}", store.get(&key("a")).await.map(drop)));
    for batch in [&put, &many, &bad, &large] {
        let answer = store.commit(batch).await;
        hides(&answer);
        said.extend(answer.err().map(|error| format!("{error} {error:?}")));
    }
    for answer in store.commit_each(&[put, many, bad]).await {
        hides(&answer);
        said.extend(answer.err().map(|error| format!("{error} {error:?}")));
    }
    let records = store.read(&log, None, 10).await;
    hides(&records);
    said.extend(records.err().map(|error| error.to_string()));
    said.extend(store.watch(&channel).await.err().map(|error| error.to_string()));
    match Lease::acquire(store.clone(), key("lock")).await {
        Ok(lease) => hides(lease),
        Err(error) => said.push(format!("{error} {error:?}")),
    }
    said
}

/// A Redis that says `answer` to whatever it is asked.
async fn broken_redis(answer: &'static [u8]) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://:PLANTED-password@{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                while matches!(stream.read(&mut [0; 4096]).await, Ok(1..))
                    && stream.write_all(answer).await.is_ok()
                {}
            });
        }
    });
    url
}

fn opened(store: &str, changes: &[(&str, &str)]) -> Arc<dyn Store> {
    let good = [("STORE", store), ("STORE_TIMEOUT_MS", "100")].into_iter().chain(SECRETS).chain(OTHERS);
    let all: Vec<(&str, &str)> = changes.iter().copied().chain(good).collect();
    let lookup =
        |name: &str| all.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    open(&Config::from_lookup(lookup).unwrap()).unwrap()
}

/// Stores of every backend that fail, each in the ways of its kind; their servers quote what they were sent.
async fn failing() -> Vec<(Arc<dyn Store>, Option<HttpStub>)> {
    let mut all: Vec<(Arc<dyn Store>, Option<HttpStub>)> = vec![
        (TestStore::faulty(Arc::new(Memory::new()), |_| Fault::NotSent), None),
        (TestStore::faulty(Arc::new(Memory::new()), |_| Fault::ReplyLost), None),
        (
            TestStore::faulty(Arc::new(Memory::new()), |call| {
                if call % 2 == 0 { Fault::ReplyLost } else { Fault::Pass }
            }),
            None,
        ),
    ];
    for store in ["upstash", "redis", "dynamodb"] {
        all.push((opened(store, &[]), None));
    }
    for answer in [
        &b"-ERR PLANTED words\r\n"[..],
        b"-WRONGPASS PLANTED\r\n",
        b"-WRONGTYPE PLANTED\r\n",
        b"+PLANTED\r\n",
        b"$7\r\nPLANTED\r\n",
        b"PLANTED nonsense\r\n",
    ] {
        all.push((opened("redis", &[("REDIS_URL", &broken_redis(answer).await)]), None));
    }
    let typed = |name: &str| {
        json!({"__type": format!("com.amazonaws.dynamodb.v20120810#{name}"), "message": "PLANTED words"})
            .to_string()
    };
    for fault in [
        ServerFault::Status(400, json!({"error": "ERR PLANTED words"}).to_string()),
        ServerFault::Status(401, json!({"error": "WRONGPASS PLANTED words"}).to_string()),
        ServerFault::Status(200, json!({"result": "PLANTED"}).to_string()),
        ServerFault::Status(500, "PLANTED words".to_owned()),
        ServerFault::Status(400, typed("ValidationException")),
        ServerFault::Status(400, typed("UnrecognizedClientException")),
        ServerFault::Status(400, typed("ConditionalCheckFailedException")),
        ServerFault::Html,
        ServerFault::HalfBody,
        ServerFault::Close,
    ] {
        for (store, variable) in
            [("upstash", "UPSTASH_REDIS_REST_URL"), ("dynamodb", "AWS_ENDPOINT_URL_DYNAMODB")]
        {
            let server = HttpStub::always(fault.clone());
            all.push((opened(store, &[(variable, &server.url())]), Some(server)));
        }
    }
    all
}

#[tokio::test]
async fn no_error_and_no_value_of_a_store_shows_a_name_a_word_or_a_secret() {
    let mut errors = 0;
    for (store, _server) in failing().await {
        for said in call_all(&store).await {
            errors += 1;
            shows_nothing("an error", &said);
        }
    }
    assert!(errors > 100, "{errors} errors");
    let memory: Arc<dyn Store> = Arc::new(Memory::new());
    call_all(&memory).await;
    let wrong = Key::new("PLANTED".repeat(400)).unwrap_err();
    shows_nothing("a name that is too long", &format!("{wrong} {wrong:?}"));
    hides(Record { position: "1-1".parse().unwrap(), text: "PLANTED".to_owned() });
}

#[tokio::test]
async fn nothing_of_the_idempotency_engine_shows_a_key_a_payload_or_a_value() {
    for failing in 1..8 {
        for fault in [Fault::NotSent, Fault::ReplyLost] {
            let plan = move |call| if call == failing { fault.clone() } else { Fault::Pass };
            let store: Arc<dyn Store> = TestStore::faulty(Arc::new(Memory::new()), plan);
            let config = idem::Config::default().wait_timeout(Duration::from_millis(20));
            let engine = Idempotency::with_config(Arc::clone(&store), config);
            hides(&engine);
            let call = |payload: &str| engine.call("PLANTED-key").fingerprint(payload);
            hides(call("PLANTED-payload"));
            for payload in ["PLANTED-payload", "PLANTED-payload", "PLANTED-other"] {
                let run = || async { Ok::<_, std::io::Error>("PLANTED-value".to_owned()) };
                let ended = call(payload).execute(run).await;
                let ended = ended.map(|value| assert_eq!(value.into_value(), "PLANTED-value"));
                hides(&ended);
                ended.err().into_iter().for_each(|error| shows_nothing("an error", &error.to_string()));
            }
            let put = |_| async {
                let put =
                    Batch::new().put(&key("a"), Expect::Absent, "PLANTED-effect", Duration::from_secs(60));
                Ok::<_, std::io::Error>((put, "PLANTED-value".to_owned()))
            };
            hides(engine.call("PLANTED-transaction").transact(put).await.map(drop));
            let claim = engine.call("PLANTED-claim").claim().unwrap();
            hides(&claim);
            let sent = tokio::time::Instant::now();
            if let Ok(answer) = store.commit(&claim.batch()).await {
                hides(claim.outcome(sent, answer));
            }
        }
    }
    let too_long = Idempotency::new(Arc::new(Memory::new()));
    let error = too_long.call(&"PLANTED".repeat(100)).claim().unwrap_err();
    shows_nothing("an invalid key", &format!("{error} {error:?}"));
}

#[tokio::test]
async fn nothing_that_was_read_from_a_request_shows_its_words() {
    let body = delivery("午餐 98765432109876 信用卡", "PLANTED-id").to_string();
    hides(onetap_line::WebhookBody::parse(body.as_bytes()).unwrap());
    hides(onetap_line::WebhookBody::parse(b"PLANTED").unwrap_err());
    hides(onetap_ledger::Entry::from_body(entry().as_bytes()).unwrap());
    hides(onetap_ledger::Entry::from_body(br#"{"PLANTED":1}"#).unwrap_err());
    hides(onetap_ledger::Patch::from_body(r#"{"附註":"PLANTED"}"#.as_bytes()).unwrap());
    hides(onetap_ledger::IfMatch::parse("PLANTED"));
    hides(onetap_ledger::Book::new("U-PLANTED", onetap_ledger::Config::default()).unwrap());
    hides(Job::new("scan", "PLANTED-job").unwrap());
    let stages = Stages::default();
    hides(Event::parse(job_event(10), &stages).unwrap());
    let malformed = Event::parse(job_event(99), &stages).unwrap_err();
    shows_nothing("a malformed event", &format!("{malformed} {malformed:?}"));
    for words in ["午餐 98765432109876 信用卡", "修改附註 PLANTED", "PLANTED 120", "永和"] {
        let now = onetap_ledger::Moment::from_unix(1_764_397_800).unwrap();
        hides(onetap_ledger::chat::parse(words, now, &onetap_ledger::chat::Habits::default()));
    }
}

// --- functions ------------------------------------------------------------------------------------------------------

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// Everything that is logged from now on, at every level and from every library.
    fn all() -> &'static Lines {
        static LINES: OnceLock<Lines> = OnceLock::new();
        LINES.get_or_init(|| {
            let lines = Lines::default();
            let written = lines.clone();
            onetap_telemetry::init_with(LevelFilter::TRACE, move || written.clone());
            lines
        })
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

fn entry() -> String {
    r#"{"intent":"bookkeeping","日期":"2025-11-29","時間":"14:30","品項":"午餐","原幣別":"TWD","原幣金額":98765432109876,"匯率":1.0,"付款方式":"信用卡","交易ID":"20251129-143000","明細說明":"PLANTED","分類":"飲食","專案":"日常","必要性":"必要","代墊狀態":"無","收款支付對象":"","附註":""}"#.to_owned()
}

fn job_event(seq: u64) -> String {
    json!({"job_id": "PLANTED-job", "domain": "scan", "stage": "vision", "seq": seq, "data": {"name": "PLANTED"},
        "timestamp": "2025-11-03T08:15:30Z"})
    .to_string()
}

fn delivery(words: &str, id: &str) -> serde_json::Value {
    json!({"destination": "PLANTED-bot", "events": [{
        "type": "message", "mode": "active", "webhookEventId": id, "replyToken": format!("PLANTED-reply-{id}"),
        "source": {"type": "group", "groupId": "PLANTED-group", "userId": "U-PLANTED-user"},
        "message": {"type": "text", "id": "PLANTED-message", "text": format!("記帳 {words}")}}]})
}

/// The same user confirms an erasure.
fn confirmed_erasure() -> serde_json::Value {
    let mut delivery = delivery("", "PLANTED-erasure");
    let data =
        webhook::bookkeeping::confirmation::button_data("U-PLANTED-user", onetap_ledger::Moment::now());
    delivery["events"][0]["type"] = "postback".into();
    delivery["events"][0]["postback"] = json!({ "data": data });
    delivery
}

/// Everything that the functions do, on this store, with planted words in all of it.
async fn exercise(store: &Arc<dyn Store>, line: &MessagingApi) {
    let webhook = stage::webhook(store.clone(), &onetap_http::Client::new(), &line.url());
    let words = [
        "設定住家 永和區",
        "永和",
        "午餐 98765432109876 信用卡",
        "修改附註 PLANTED",
        "PLANTED 120",
        "刪除上一筆",
        "刪除我的資料",
    ];
    for (n, words) in words.iter().enumerate() {
        let body = delivery(words, &format!("PLANTED-{n}")).to_string();
        for _ in 0..2 {
            stage::deliver(&webhook, body.as_bytes()).await;
        }
    }
    stage::deliver(&webhook, confirmed_erasure().to_string().as_bytes()).await;
    stage::deliver(&webhook, b"PLANTED").await;
    stage::deliver_signed(&webhook, b"{}", b"PLANTED-signature").await;

    let edit = stage::edit(store.clone());
    let path = "/users/U-PLANTED-user/last-transaction";
    let key: &[(&str, &[u8])] = &[("idempotency-key", b"PLANTED-key"), ("if-match", b"\"PLANTED\"")];
    for (method, headers, body) in [
        (Method::PUT, &[][..], entry()),
        (Method::PUT, key, entry()),
        (Method::GET, &[], String::new()),
        (Method::PATCH, &[], r#"{"附註":"PLANTED"}"#.to_owned()),
        (Method::PATCH, key, r#"{"PLANTED":"PLANTED"}"#.to_owned()),
        (Method::DELETE, &[], String::new()),
    ] {
        stage::ask(&edit, method, path, headers, body.as_bytes()).await.unwrap();
    }
    stage::ask(&edit, Method::GET, "/users/PLANTED%20user/last-transaction", &[], b"").await.unwrap();

    let consumer = stage::consumer(store.clone());
    let events = [job_event(10), job_event(10), job_event(99), "PLANTED".to_owned()];
    stage::consume(&consumer, &events.each_ref().map(String::as_str)).await;

    let gateway = stage::gateway(store.clone());
    let token = stage::job_token(&Job::new("scan", "PLANTED-job").unwrap());
    for target in [
        format!("/jobs/PLANTED-job/events?domain=scan&token={token}"),
        format!("/jobs/PLANTED-job?domain=scan&token={token}"),
        "/jobs/PLANTED-job?domain=scan&token=PLANTED".to_owned(),
    ] {
        stage::follow(&gateway, &target, Some(b"1-1")).await.unwrap();
    }
}

/// Exercises the functions on every one of these, and looks through all that was said.
async fn nothing_is_said(stores: Vec<Arc<dyn Store>>) {
    let lines = Lines::all();
    let line = MessagingApi::start(Secret::new(planted::ACCESS_TOKEN)).unwrap();
    for store in &stores {
        exercise(store, &line).await;
    }
    for fault in [
        LineFault::Status(400, r#"{"message":"PLANTED"}"#.to_owned()),
        LineFault::Status(401, "PLANTED".to_owned()),
        LineFault::Status(500, "PLANTED".to_owned()),
        LineFault::Close,
    ] {
        line.fail_always(Some(fault));
        exercise(&stores[0], &line).await;
    }
    let (text, metrics) = (lines.text(), onetap_telemetry::prometheus());
    assert!(text.contains("\"answered\"") && text.contains("correlation_id"), "the log has something to say");
    assert!(metrics.contains("line_reply_total"), "and so have the metrics");
    shows_nothing("the log", &text);
    shows_nothing("a metric", &metrics);
    // The tests of this program share one recorder: what one takes from it, the others look through too.
    static EMF: Mutex<String> = Mutex::new(String::new());
    let mut emf = EMF.lock().unwrap();
    *emf += &onetap_telemetry::emf().join("\n");
    assert!(!emf.is_empty());
    shows_nothing("a metric", &emf);
}

fn observed(store: Arc<dyn Store>) -> Arc<dyn Store> {
    Arc::new(Observed::new(store))
}

#[tokio::test]
async fn no_log_line_or_metric_shows_a_secret_or_a_word_on_stores_that_fail() {
    let failing = failing().await;
    let mut stores: Vec<Arc<dyn Store>> = vec![observed(Arc::new(Memory::new()))];
    // Every third: that is every backend and most ways to fail, in a third of the time.
    stores.extend(failing.iter().step_by(3).map(|(store, _)| observed(store.clone())));
    nothing_is_said(stores).await;
    assert!(Lines::all().text().contains("kv_error"));
}

async fn on(backend: Backend) {
    let environment = Environment::start(backend).await;
    let store = environment.store();
    nothing_is_said(vec![store]).await;
    assert!(Lines::all().text().contains("kv_set"));
}

#[tokio::test]
async fn no_log_line_or_metric_shows_a_secret_or_a_word_on_dynamodb() {
    on(Backend::DynamoDb).await;
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn no_log_line_or_metric_shows_a_secret_or_a_word_on_redis() {
    on(Backend::Redis).await;
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn no_log_line_or_metric_shows_a_secret_or_a_word_on_upstash() {
    on(Backend::Upstash).await;
}
