//! The guide's programs, in crates that know nothing but the packaged libraries: `scripts/package` builds them.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use http::{Request, StatusCode};
use onetap_bot::testing::{redelivered, tap, text};
use onetap_config::Secret;
use onetap_line::testing::MessagingApi;
use onetap_servers::{Backend, Environment, RuntimeApi};
use onetap_tests::functions::{ACCESS_TOKEN, CHANNEL_SECRET, delivery, root};
use serde_json::{Value, json};

/// The program `name` of the outside crate `of`.
fn program(of: &str, name: &str) -> PathBuf {
    let path = root().join("target/outside/bin").join(format!("{of}-{name}"));
    assert!(path.is_file(), "{} is not there: run scripts/package", path.display());
    path
}

/// Runs a program to its end; returns what it printed.
fn output(of: &str, name: &str, variables: &[(&'static str, String)]) -> String {
    let mut command = Command::new(program(of, name));
    let output = command.env_clear().envs(variables.iter().cloned()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn memory() -> Vec<(&'static str, String)> {
    vec![("STORE", "memory".to_owned())]
}

/// What the guide says that its programs print.
fn the_guide_holds(of: &str, variables: &[(&'static str, String)]) {
    let once = "charging 120\nExecuted(\"receipt for 120\")\nReplayed(\"receipt for 120\")\n";
    assert_eq!(output(of, "once", variables), once);
    assert_eq!(output(of, "lease", variables), "a second caller: Held\nReleased\n");
    assert_eq!(output(of, "edit", variables), "Some(7) left, none of three lost\n");
}

#[test]
#[ignore = "needs scripts/package"]
fn the_guide_runs_outside_with_memory_alone() {
    the_guide_holds("memory", &memory());
}

async fn the_guide_runs_outside_on(of: &str, backend: Backend) {
    let environment = Environment::start(backend).await;
    the_guide_holds(of, environment.variables());
    // Another process finds the record.
    let again = "Replayed(\"receipt for 120\")\n".repeat(2);
    assert_eq!(output(of, "once", environment.variables()), again);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs scripts/package and redis-server"]
async fn the_guide_runs_outside_with_upstash_alone() {
    the_guide_runs_outside_on("upstash", Backend::Upstash).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs scripts/package and redis-server"]
async fn the_guide_runs_outside_with_redis_alone() {
    the_guide_runs_outside_on("redis", Backend::Redis).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs scripts/package"]
async fn the_guide_runs_outside_with_dynamodb_alone() {
    the_guide_runs_outside_on("dynamodb", Backend::DynamoDb).await;
}

#[test]
#[ignore = "needs scripts/package"]
fn an_outside_crate_without_the_backend_says_which_feature_it_needs() {
    let environment = [("STORE", "redis".to_owned()), ("REDIS_URL", "redis://localhost".to_owned())];
    let mut command = Command::new(program("memory", "once"));
    let output = command.env_clear().envs(environment).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("STORE") && said.contains("feature"), "{said}");
}

/// A server that ends with its test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
#[ignore = "needs scripts/package"]
async fn the_guides_http_program_answers_a_duplicate_from_the_record() {
    let mut command = Command::new(program("http", "http"));
    command.arg("127.0.0.1:0").env_clear().envs(memory()).stdout(Stdio::piped());
    let mut server = Server(command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on ").unwrap().to_owned();

    let client = onetap_http::Client::new();
    let pay = async |amount: &'static str| {
        let request = Request::post(format!("{address}/payments")).header("idempotency-key", "42");
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        let answer = client.send(request.body(amount.into()).unwrap(), deadline, 1 << 20).await.unwrap();
        let replayed = answer.headers().contains_key("idempotency-replayed");
        (answer.status(), replayed, String::from_utf8(answer.into_body().to_vec()).unwrap())
    };
    let (status, replayed, first) = pay("120").await;
    assert_eq!((status, replayed), (StatusCode::OK, false));
    assert!(first.starts_with("charged 120 as "), "{first}");
    assert_eq!(pay("120").await, (StatusCode::OK, true, first));
    assert_eq!(pay("999").await.0, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs scripts/package and redis-server"]
async fn the_guides_queue_handles_a_message_once() {
    let environment = Environment::start(Backend::Upstash).await;
    let api = RuntimeApi::start();
    let variables = environment.variables().iter().map(|(name, value)| (*name, value.as_str()));
    let function = api.run(&program("orders", "orders"), variables);
    let message =
        |id: &str, body: &str| json!({"messageId": id, "body": body, "eventSourceARN": "arn:aws:sqs:queue"});
    let batch = json!({"Records": [message("a", r#"{"id":7}"#), message("b", "no order"), message("c", r#"{"id":8}"#)]});
    for _ in 0..2 {
        let answer = api.invoke(batch.to_string(), Duration::from_secs(30)).await.unwrap();
        let answer: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(answer, json!({"batchItemFailures": [{"itemIdentifier": "b"}]}));
    }
    let printed = function.kill();
    for shipped in ["shipping 7 as ", "shipping 8 as "] {
        assert_eq!(printed.matches(shipped).count(), 1, "{printed}");
    }
}

#[test]
#[ignore = "needs scripts/package"]
fn an_outside_grpc_service_answers_a_duplicate_from_the_record() {
    assert_eq!(output("grpc", "grpc", &memory()), "executed\nreplayed\n");
}

/// The three programs of onetap-bot's front page, as Lambda functions.
#[tokio::test]
#[ignore = "needs scripts/package and redis-server"]
async fn the_bots_of_the_front_page_answer_each_event_once() {
    let environment = Environment::start(Backend::Redis).await;
    let line = MessagingApi::start(Secret::new(ACCESS_TOKEN)).unwrap();
    for (program_name, event, said) in [
        ("echo", text("U1", "hello"), "hello"),
        ("counter", text("U1", "hello"), "That was number 1."),
        ("buttons", tap("U1", "order=tea"), "One tea, order "),
        ("buttons", text("U1", "hello"), "What would you like?"),
    ] {
        let api = RuntimeApi::start();
        let channel = [
            ("LINE_CHANNEL_SECRET", CHANNEL_SECRET),
            ("LINE_CHANNEL_ACCESS_TOKEN", ACCESS_TOKEN),
            ("LINE_API_BASE_URL", &line.url()),
        ];
        let store = environment.variables().iter().map(|(name, value)| (*name, value.as_str()));
        let _function = api.run(&program("bots", program_name), store.chain(channel));
        for delivered in [&event, &redelivered(&event)] {
            let request = delivery(std::slice::from_ref(delivered)).to_string();
            let answer = api.invoke(request, Duration::from_secs(30)).await.unwrap();
            let answer: Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!(answer["statusCode"], 200, "{program_name}");
        }
        let replies = line.take_replies();
        assert_eq!(replies.len(), 1, "{program_name}");
        assert!(replies[0].text().starts_with(said), "{program_name}: {}", replies[0].text());
    }
}

#[test]
#[ignore = "needs scripts/package"]
fn a_bot_whose_variable_is_missing_says_so_in_one_line() {
    let mut command = Command::new(program("bots", "echo"));
    let output = command.env_clear().env("STORE", "redis").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "LINE_CHANNEL_SECRET: is not set\n");
}

#[test]
#[ignore = "needs scripts/package"]
fn every_archive_has_its_readme_its_changelog_and_its_licence() {
    let crates = root().join("target/outside/crates");
    let mut names = Vec::new();
    for folder in crates.read_dir().unwrap_or_else(|_| panic!("run scripts/package")) {
        let folder = folder.unwrap();
        for file in ["README.md", "CHANGELOG.md", "LICENSE", "Cargo.toml", "src/lib.rs"] {
            let text = std::fs::read_to_string(folder.path().join(file));
            assert!(text.is_ok_and(|text| text.len() > 100), "{file} of {:?}", folder.file_name());
        }
        names.push(folder.file_name().into_string().unwrap());
    }
    names.sort_unstable();
    let version = env!("CARGO_PKG_VERSION");
    let libraries = [
        "aws",
        "bot",
        "bus",
        "calendar",
        "config",
        "http",
        "idem",
        "ledger",
        "line",
        "store",
        "telemetry",
        "weather",
    ];
    let mut expected = libraries.map(|name| format!("onetap-{name}-{version}")).to_vec();
    expected.insert(0, format!("onetap-{version}"));
    assert_eq!(names, expected);
}
