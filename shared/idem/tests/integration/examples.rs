//! The examples, as programs: each is started, and asked over HTTP or Lambda's runtime API.

use crate::support;

use std::convert::Infallible;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use onetap_idem::http::IdempotencyLayer;
use onetap_idem::{Body, Caller, Idempotency};
use onetap_servers::runtime::Unanswered;
use onetap_servers::{Dynamo, RuntimeApi, create_table};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tower::{Layer, ServiceExt};

/// What each example does, whatever it is built on: `send` posts a payment with a key, and answers with the status, whether it was
/// replayed, and the body.
async fn a_payment_is_made_once(send: impl AsyncFn(Option<&str>, &str) -> (u16, bool, Value)) {
    let (status, replayed, first) = send(Some("42"), r#"{"amount":120}"#).await;
    assert_eq!((status, replayed, &first["amount"]), (201, false, &json!(120)), "{first}");
    for _ in 0..2 {
        assert_eq!(send(Some("42"), r#"{"amount":120}"#).await, (201, true, first.clone()));
    }
    let (status, _, problem) = send(Some("42"), r#"{"amount":121}"#).await;
    assert_eq!((status, &problem["status"]), (422, &json!(422)), "{problem}");
    let (status, replayed, other) = send(Some("43"), r#"{"amount":120}"#).await;
    assert_eq!((status, replayed), (201, false));
    assert!(other["payment"] != first["payment"] && other["charge"] != first["charge"], "{other}");
    assert_eq!(send(None, r#"{"amount":120}"#).await.0, 400, "a payment needs a key");
}

/// `target/<profile>/examples/<name>`, from `target/<profile>/deps/<this test>`.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("examples").join(name)
}

/// An example that serves HTTP, until it is dropped.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    /// Starts it on a free port, and waits until it says where it listens.
    fn start(name: &str) -> Server {
        let mut command = Command::new(program(name));
        let mut process = command.arg("0").stdout(Stdio::piped()).spawn().expect("the examples are built");
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").expect(&line).to_owned();
        Server { process, address }
    }

    fn post(&self, key: Option<&str>, body: &str) -> (u16, bool, Value) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let key = key.map(|key| format!("idempotency-key: {key}\r\n")).unwrap_or_default();
        let length = body.len();
        let head = "POST /payments HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json";
        write!(stream, "{head}\r\n{key}content-length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let replayed = head.to_lowercase().contains("\r\nidempotency-replayed: true");
        (status, replayed, serde_json::from_str(body).unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn the_axum_example_makes_a_payment_once() {
    let server = Server::start("axum");
    a_payment_is_made_once(async |key, body| server.post(key, body)).await;
}

#[tokio::test]
async fn the_hyper_example_makes_a_payment_once() {
    let server = Server::start("hyper");
    a_payment_is_made_once(async |key, body| server.post(key, body)).await;
}

/// A request as an HTTP API sends it to a function.
fn event(key: Option<&str>, body: &str) -> String {
    let mut headers = json!({"host": "localhost", "content-type": "application/json"});
    if let Some(key) = key {
        headers["idempotency-key"] = json!(key);
    }
    let http = json!({"method": "POST", "path": "/payments", "protocol": "HTTP/1.1"});
    let context = json!({"http": http, "stage": "$default", "timeEpoch": 0});
    json!({
        "version": "2.0", "routeKey": "$default", "rawPath": "/payments", "rawQueryString": "", "headers": headers,
        "requestContext": context, "body": body, "isBase64Encoded": false,
    })
    .to_string()
}

/// Status, headers and body of a function's answer, in the format of an HTTP API.
fn answer(answer: &[u8]) -> (u16, bool, Value) {
    let answer: Value = serde_json::from_slice(answer).unwrap();
    let replayed = answer["headers"].get("idempotency-replayed").is_some();
    let status = answer["statusCode"].as_u64().unwrap();
    (
        u16::try_from(status).unwrap(),
        replayed,
        serde_json::from_str(answer["body"].as_str().unwrap()).unwrap(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lambda_http_example_makes_a_payment_once() {
    let dynamo = Dynamo::start().await;
    create_table(&dynamo.url(), "onetap").await;
    let api = RuntimeApi::start();
    let start = || api.run(&program("lambda_http"), support::dynamodb(dynamo.url(), support::PATIENT));
    let _instances = [start(), start()];
    a_payment_is_made_once(async |key, body| {
        answer(&api.invoke(event(key, body), Duration::from_secs(30)).await.unwrap().body)
    })
    .await;
}

/// The first request is this process's, through the same layer on the same store; it never ends. The second is the example's.
#[tokio::test(flavor = "multi_thread")]
async fn on_lambda_a_waiting_duplicate_gets_its_409_through_the_runtime_api_in_time() {
    let dynamo = Dynamo::start().await;
    create_table(&dynamo.url(), "onetap").await;
    let variables = support::dynamodb(dynamo.url(), support::PATIENT);
    let begun = Arc::new(Notify::new());
    let running = Arc::clone(&begun);
    let service = tower::service_fn(move |_: Request<Body>| {
        running.notify_one();
        std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>()
    });
    let layer = IdempotencyLayer::new(Idempotency::new(support::store(&variables)), Caller::anyone());
    let first = Request::post("/payments").header("idempotency-key", "42").body("{}".into()).unwrap();
    let first = tokio::spawn(layer.layer(service).oneshot(first));
    begun.notified().await;

    let api = RuntimeApi::start();
    let _instance = api.run(&program("lambda_http"), variables);
    api.polled(1).await;
    // `invoke` waits no longer than Lambda would. The layer answers 300 ms early, which a busy machine may miss once or twice.
    let mut second = Err(Unanswered);
    for seconds in [2, 4, 8] {
        if second.is_err() {
            second = api.invoke(event(Some("42"), "{}"), Duration::from_secs(seconds)).await;
        }
    }
    let (status, _, problem) = answer(&second.expect("answered before the invocation's end").body);
    assert_eq!((status, &problem["status"]), (409, &json!(409)), "{problem}");
    first.abort();
}
