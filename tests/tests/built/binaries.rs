//! The release builds themselves: what is in them, how they start, and what they answer through Lambda's runtime API.

use std::path::Path;

use onetap_config::Secret;
use onetap_line::testing::MessagingApi;
use onetap_servers::{Backend, Environment};
use onetap_tests::functions::{ACCESS_TOKEN, Function, Running, built};
use serde_json::{Value, json};

// In bytes, stripped: what a cold start has to load.
const WITH_DYNAMODB: usize = 7_000_000;
const WITH_UPSTASH_ALONE: usize = 4_500_000;
/// Amazon Linux 2023's C library, 2.34.
const NEWEST_GLIBC: u32 = 34;

/// A backend, and the four programs with what they need on it.
struct Bot {
    store: Environment,
    line: MessagingApi,
}

impl Bot {
    async fn on(backend: Backend) -> Bot {
        let line = MessagingApi::start(Secret::new(ACCESS_TOKEN)).unwrap();
        Bot { store: Environment::start(backend).await, line }
    }

    fn run(&self, function: Function) -> Running {
        let own = function.variables(&self.line.url());
        Running::start(
            function,
            self.store.variables().iter().chain(&own).map(|(name, value)| (*name, value)),
        )
    }
}

/// Fails unless `folder` has the four functions, stripped, for Amazon Linux, none with more bytes than `largest`.
fn four_small_functions_are_in(folder: &Path, largest: usize) {
    let built = folder.read_dir().unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut built: Vec<_> = built.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    built.sort_unstable();
    let mut functions = Function::ALL.map(Function::name);
    functions.sort_unstable();
    assert_eq!(built, functions);
    for name in functions {
        let bytes = std::fs::read(folder.join(name).join("bootstrap")).unwrap();
        assert!(bytes.starts_with(b"\x7fELF"), "{name}");
        assert!(bytes.len() <= largest, "{name} has {} bytes", bytes.len());
        assert!(!bytes.windows(8).any(|window| window == b".symtab\0"), "{name} is not stripped");
        assert!(newest_glibc(&bytes) <= NEWEST_GLIBC, "{name} wants glibc 2.{}", newest_glibc(&bytes));
        assert!(folder.join(name).join("bootstrap.zip").is_file(), "{name} is not zipped");
    }
}

#[test]
#[ignore = "needs scripts/build"]
fn four_functions_are_built_stripped_and_small_with_every_backend() {
    four_small_functions_are_in(&built(), WITH_DYNAMODB);
}

#[test]
#[ignore = "needs scripts/build --backend upstash"]
fn four_functions_are_built_stripped_and_smaller_with_upstash_alone() {
    four_small_functions_are_in(&built().with_file_name("lambda-upstash"), WITH_UPSTASH_ALONE);
}

/// The minor number of the newest `GLIBC_2.N` that a binary asks for.
fn newest_glibc(bytes: &[u8]) -> u32 {
    let prefix = b"GLIBC_2.";
    let minor = |rest: &[u8]| {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0, |number, digit| number * 10 + u32::from(digit - b'0'))
    };
    let starts = bytes.windows(prefix.len()).enumerate().filter(|(_, window)| window == prefix);
    starts.map(|(at, _)| minor(&bytes[at + prefix.len()..])).max().expect("a program of glibc's")
}

#[test]
#[ignore = "needs scripts/build"]
fn a_missing_or_wrong_variable_ends_the_start_with_one_line_that_names_it() {
    let on_redis = [("STORE", "redis"), ("REDIS_URL", "redis://127.0.0.1:1")];
    let every = [
        ("STORE", ""),
        ("STORE", "paper"),
        ("STORE", "memory"),
        ("REDIS_URL", "http://planted-host"),
        ("STORE_TIMEOUT_MS", "soon"),
    ];
    let too_long = "planted".repeat(1000);
    let own: [&[(&str, &str)]; 4] = [
        &[
            ("LINE_CHANNEL_SECRET", ""),
            ("LINE_CHANNEL_ACCESS_TOKEN", ""),
            ("LINE_CHANNEL_ACCESS_TOKEN", "planted\u{7f}token"),
            ("LINE_API_BASE_URL", "planted.example"),
            ("WEATHER_PROVIDER", ""),
            ("WEATHER_PROVIDER", "planted"),
            ("PROCESSING_LOCK_TIMEOUT_SECONDS", "-5"),
            ("PROCESSING_LOCK_ENABLED", "perhaps"),
            ("PROCESSING_LOCK_SCOPE", "planted"),
            ("PROCESSING_LOCK_MIN_HOLD_MS", "a moment"),
            ("PROCESSING_LOCK_MESSAGE", &too_long),
            ("LAST_TRANSACTION_TTL", "0"),
        ],
        &[("EDIT_API_TOKEN", ""), ("EDIT_API_TOKEN", "planted token"), ("IDEM_LOCK_TTL_SECONDS", "x")],
        &[
            ("EVENT_SHARD_COUNT", "0"),
            ("EVENT_STREAM_MAXLEN", "-1"),
            ("EVENT_PUBLISHED_TTL_SECONDS", "x"),
            ("EVENT_STAGES", r#"[{"stage":"planted","first":0,"last":9}]"#),
        ],
        &[
            ("JOB_EVENTS_SECRET", ""),
            ("JOB_EVENTS_ALLOW_ORIGIN", ""),
            ("JOB_EVENTS_ALLOW_ORIGIN", "planted.example"),
            ("SSE_MAX_SECONDS", "0"),
            ("SSE_GRACE_SECONDS", "soon"),
            ("SSE_POLL_MS", "often"),
            ("EVENT_STAGES", "planted"),
        ],
    ];
    for (function, own) in Function::ALL.into_iter().zip(own) {
        for (name, value) in every.iter().chain(own) {
            let good = function.variables("http://127.0.0.1:1");
            let good = good.iter().map(|(name, value)| (*name, value.as_str())).chain(on_redis);
            let variables = good.filter(|(known, _)| known != name).chain([(*name, *value)]);
            let (code, said) = Running::start(function, variables).ended();
            let what = format!("{}, {name}={value:?}: {said}", function.name());
            assert_eq!(code, Some(1), "{what}");
            assert_eq!(said.lines().count(), 1, "{what}");
            assert!(said.starts_with(&format!("{name}: ")) && !said.contains("planted"), "{what}");
        }
    }
}

/// cargo-lambda would build with `panic = "abort"`, and then one bad record ended its whole batch. lambda_http panics
/// at a host that is none, which is as good a panic as any.
#[tokio::test]
#[ignore = "needs scripts/build and redis-server"]
async fn a_panic_costs_its_invocation_and_not_the_process() {
    let bot = Bot::on(Backend::Redis).await;
    let webhook = bot.run(Function::Webhook);
    let mut event = Function::Webhook.event("verify");
    event["headers"]["host"] = "not a host".into();
    let answer = webhook.answer(&event).await;
    assert!(answer.failed, "{:?}", answer.body);
    assert_eq!(webhook.invoke(&Function::Webhook.event("verify")).await["statusCode"], 200);
}

async fn deliveries_are_answered_each_once(backend: Backend) {
    let bot = Bot::on(backend).await;
    let webhook = bot.run(Function::Webhook);
    for (scenario, status, reply) in [
        ("verify", 200, None),
        ("wrong-signature", 401, None),
        ("not-json", 400, None),
        ("set-home", 200, Some("已將住家設定為新北市永和區")),
        ("tap-home", 200, Some("新北市永和區（範例資料）")),
        ("redelivery", 200, None),
        ("entry", 200, Some("已記帳")),
        ("entry", 200, None),
        ("base64", 200, Some("新北市板橋區（範例資料）")),
    ] {
        let answer = webhook.invoke(&Function::Webhook.event(scenario)).await;
        assert_eq!(answer["statusCode"], status, "{scenario}: {answer}");
        let said = bot.line.take_replies();
        assert_eq!(said.len(), usize::from(reply.is_some()), "{scenario}");
        assert!(said.iter().all(|said| said.text().starts_with(reply.unwrap())), "{scenario}");
    }
}

async fn an_entry_is_recorded_read_edited_and_deleted(backend: Backend) {
    let bot = Bot::on(backend).await;
    let edit = bot.run(Function::Edit);
    for (scenario, status, amount) in [
        ("unauthorized", 401, None),
        ("read", 404, None),
        ("record", 201, None),
        ("read", 200, Some("100.10")),
        ("edit", 200, Some("150")),
        ("edit-invalid", 422, None),
        ("edit-of-another", 412, None),
        ("read", 200, Some("150")),
        ("month", 200, Some("150")),
        ("month-wrong", 400, None),
        ("delete", 204, None),
        ("read", 404, None),
    ] {
        let answer = edit.invoke(&Function::Edit.event(scenario)).await;
        assert_eq!(answer["statusCode"], status, "{scenario}: {answer}");
        if let Some(amount) = amount {
            let amount = format!(r#""原幣金額":{amount}"#);
            assert!(answer["body"].as_str().unwrap().contains(&amount), "{scenario}: {answer}");
        }
    }
    let csv = edit.invoke(&Function::Edit.event("month-csv")).await;
    assert_eq!((&csv["statusCode"], &csv["isBase64Encoded"]), (&json!(200), &json!(false)), "{csv}");
    assert!(csv["body"].as_str().unwrap().starts_with("\u{feff}intent,日期,"), "{csv}");
}

async fn a_batch_fails_by_the_record_and_a_job_is_streamed(backend: Backend) {
    let bot = Bot::on(backend).await;
    let consumer = bot.run(Function::Consumer);
    let failed = |numbers: &[u32]| {
        let id = |n: &u32| json!({ "itemIdentifier": format!("3b5a7d0e-0000-4000-8000-{n:012}") });
        json!({ "batchItemFailures": numbers.iter().map(id).collect::<Vec<_>>() })
    };
    for (scenario, numbers) in [
        ("malformed", &[2, 3, 4][..]),
        ("duplicates", &[]),
        ("fifo-malformed-alone", &[2]),
        ("whole-job", &[]),
    ] {
        let answer = consumer.invoke(&Function::Consumer.event(scenario)).await;
        assert_eq!(answer, failed(numbers), "{scenario}");
    }

    let gateway = bot.run(Function::Gateway);
    let refused = gateway.answer(&Function::Gateway.event("without-a-token")).await;
    assert_eq!(streamed(&refused.body).0["statusCode"], 401);
    let answer = gateway.answer(&Function::Gateway.event("follow-a-job")).await;
    assert_eq!(answer.headers["lambda-runtime-function-response-mode"], "streaming");
    let (prelude, stream) = streamed(&answer.body);
    assert_eq!(prelude["statusCode"], 200);
    assert_eq!(prelude["headers"]["content-type"], "text/event-stream");
    let told: Vec<u64> = stream
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|event| serde_json::from_str::<Value>(event).unwrap()["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(told, [10, 12, 20, 0, 11, 30, 40, 51], "{stream}");
    let (prelude, state) = streamed(&gateway.answer(&Function::Gateway.event("state")).await.body);
    assert_eq!(prelude["statusCode"], 200);
    assert_eq!(serde_json::from_str::<Value>(&state).unwrap()["stage"], "done");
}

/// A streamed answer's parts: its head, eight zeros, its body.
fn streamed(answer: &[u8]) -> (Value, String) {
    let answer = String::from_utf8(answer.to_vec()).unwrap();
    let (prelude, body) = answer.split_once("\0\0\0\0\0\0\0\0").expect("a prelude");
    (serde_json::from_str(prelude).unwrap(), body.to_owned())
}

#[tokio::test]
#[ignore = "needs scripts/build and redis-server"]
async fn deliveries_are_answered_each_once_on_upstash() {
    deliveries_are_answered_each_once(Backend::Upstash).await;
}

#[tokio::test]
#[ignore = "needs scripts/build"]
async fn deliveries_are_answered_each_once_on_dynamodb() {
    deliveries_are_answered_each_once(Backend::DynamoDb).await;
}

#[tokio::test]
#[ignore = "needs scripts/build and redis-server"]
async fn an_entry_is_recorded_read_edited_and_deleted_on_upstash() {
    an_entry_is_recorded_read_edited_and_deleted(Backend::Upstash).await;
}

#[tokio::test]
#[ignore = "needs scripts/build"]
async fn an_entry_is_recorded_read_edited_and_deleted_on_dynamodb() {
    an_entry_is_recorded_read_edited_and_deleted(Backend::DynamoDb).await;
}

#[tokio::test]
#[ignore = "needs scripts/build and redis-server"]
async fn a_batch_fails_by_the_record_and_a_job_is_streamed_on_upstash() {
    a_batch_fails_by_the_record_and_a_job_is_streamed(Backend::Upstash).await;
}

#[tokio::test]
#[ignore = "needs scripts/build"]
async fn a_batch_fails_by_the_record_and_a_job_is_streamed_on_dynamodb() {
    a_batch_fails_by_the_record_and_a_job_is_streamed(Backend::DynamoDb).await;
}
