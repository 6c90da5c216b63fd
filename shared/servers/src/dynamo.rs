//! DynamoDB, in process or Amazon's own local edition.

use std::time::Duration;

use bytes::Bytes;
use dynoxide::{Database, server::serve_on};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::background::{Background, loopback};
use crate::http::client;

/// dynoxide, a DynamoDB in memory and in process: ready in milliseconds, gone when dropped.
#[derive(Debug)]
pub struct Dynamo {
    url: String,
    _background: Background,
}

impl Dynamo {
    /// Starts an empty DynamoDB on a free loopback port.
    pub async fn start() -> Dynamo {
        let database = Database::memory().expect("a database in memory");
        let (listener, addr) = loopback();
        let background = Background::new();
        background.spawn(async move {
            serve_on(tokio::net::TcpListener::from_std(listener).expect("a listening socket"), database)
                .await;
        });
        Dynamo { url: format!("http://{addr}"), _background: background }
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        self.url.clone()
    }
}

/// The URL of Amazon's DynamoDB Local, which is too slow to start for each test.
pub fn dynamodb_local() -> String {
    std::env::var("ONETAP_DYNAMODB_LOCAL").unwrap_or_else(|_| {
        panic!(
            "DynamoDB Local is not running: run scripts/test, which starts it and sets ONETAP_DYNAMODB_LOCAL"
        )
    })
}

/// Creates a table with the string keys `pk` and `sk` and waits until it is active.
///
/// A table of that name may exist already: processes that race for it share it.
pub async fn create_table(endpoint: &str, table: &str) {
    let definition = json!({
        "TableName": table,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [
            { "AttributeName": "pk", "AttributeType": "S" },
            { "AttributeName": "sk", "AttributeType": "S" },
        ],
        "KeySchema": [
            { "AttributeName": "pk", "KeyType": "HASH" },
            { "AttributeName": "sk", "KeyType": "RANGE" },
        ],
    });
    let (status, answer) = call(endpoint, "CreateTable", &definition).await;
    let exists = answer["__type"].as_str().is_some_and(|kind| kind.ends_with("ResourceInUseException"));
    assert!(status == 200 || exists, "the table {table} cannot be created: {status} {answer}");

    for _ in 0..1000 {
        let (_, answer) = call(endpoint, "DescribeTable", &json!({ "TableName": table })).await;
        if answer["Table"]["TableStatus"] == "ACTIVE" {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("the table {table} is not active after ten seconds");
}

/// Calls one DynamoDB operation with plain JSON and returns the HTTP status and the JSON answer.
///
/// The signature is a dummy: the test servers ask for one but do not check it.
pub async fn call(endpoint: &str, operation: &str, input: &Value) -> (u16, Value) {
    let request = Request::post(endpoint)
        .header("content-type", "application/x-amz-json-1.0")
        .header("x-amz-target", format!("DynamoDB_20120810.{operation}"))
        .header("x-amz-date", "20260101T000000Z")
        .header(
            "authorization",
            "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0",
        )
        .body(Full::new(Bytes::from(input.to_string())))
        .expect("a request");
    let answer = client().request(request).await.expect("DynamoDB answers");
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.expect("DynamoDB finishes its answer").to_bytes();
    (status, serde_json::from_slice(&body).expect("DynamoDB speaks JSON"))
}
