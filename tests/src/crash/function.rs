//! The three functions as one thing that takes a request and gives an answer, in this process or in one to be killed.

use std::sync::Arc;
use std::time::Duration;

use aws_lambda_events::sqs::SqsEvent;
use edit_last_transaction::EditLastTransaction;
use lambda_http::Body;
use onetap_config::{Secret, Variables};
use onetap_line::signature::sign;
use onetap_store::{Store, open};
use queue_consumer::QueueConsumer;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;
use webhook::Webhook;

use super::gate::{Call, Gate, Point, gated_api, gated_store, gated_weather};
use crate::functions::patient_config;

#[path = "../../../shared/bot/examples/counter.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is an example, with a main of its own")]
mod counter;

/// The channel secret of every function here.
pub const CHANNEL_SECRET: &str = "crash-channel-secret";
/// Its access token.
pub const ACCESS_TOKEN: &str = "crash-access-token";
/// The bearer token of the API.
pub const API_TOKEN: &str = "crash-api-token";

/// What a platform hands to a function.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// LINE delivers these events.
    Delivery(Value),
    /// A client calls the API.
    Http {
        /// `PUT`, `PATCH`, `DELETE`
        method: String,
        /// Of the last transaction.
        path: String,
        /// Beside the bearer token.
        headers: Vec<(String, String)>,
        /// JSON, or nothing.
        body: String,
    },
    /// LINE delivers these events to the bot that counts, an example of `onetap-bot`.
    Counter(Value),
    /// SQS delivers these bodies in one batch.
    Queue(Vec<String>),
}

/// What the function answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The HTTP status; 200 for a batch without failures, else 500.
    pub status: u16,
    /// Whether an idempotency key was recognised.
    pub replayed: bool,
    /// The body.
    pub body: String,
}

/// A request, and where to die of it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// The request.
    pub request: Request,
    /// Nowhere, if the calls are to be counted.
    pub point: Option<Point>,
}

/// What a process that was let live says.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// Its answer.
    pub answer: Answer,
    /// The calls it made.
    pub calls: Vec<Call>,
}

/// Carries out an order, in the process that may die of it.
pub async fn carry_out(order: Order) -> Report {
    let gate = Gate::new(order.point);
    let lookup = |name: &str| std::env::var(name).ok();
    let answer = Functions::gated(&lookup, &gate).handle(&order.request).await;
    Report { answer, calls: gate.calls() }
}

/// The functions on one store.
#[derive(Debug)]
pub struct Functions {
    webhook: Webhook,
    counter: onetap_bot::Webhook<counter::Counter>,
    edit: EditLastTransaction,
    consumer: QueueConsumer,
}

impl Functions {
    /// The functions as these variables describe them, but with more time for a delivery than LINE gives: what a test shows
    /// must not depend on how quick its machine is.
    pub fn patient(lookup: &dyn Fn(&str) -> Option<String>) -> Functions {
        let variables = Variables::from_lookup(lookup);
        let store = open(&onetap_store::Config::from_variables(&variables).unwrap()).unwrap();
        let http = onetap_http::Client::new();
        let weather = Arc::new(onetap_weather::Config::from_variables(&variables).unwrap().open(&http));
        Functions {
            counter: counter(Arc::clone(&store), &http, patient_config(&variables)),
            webhook: webhook::on(store, weather, &http, patient_config(&variables)).unwrap(),
            edit: EditLastTransaction::from_variables(&variables).unwrap(),
            consumer: QueueConsumer::from_variables(&variables).unwrap(),
        }
    }

    /// The same with every way out through `gate`.
    fn gated(lookup: &dyn Fn(&str) -> Option<String>, gate: &Arc<Gate>) -> Functions {
        let line = gated_api(&lookup("LINE_API_BASE_URL").unwrap(), gate);
        let variables = Variables::from_lookup(|name| match name {
            "LINE_API_BASE_URL" => Some(line.clone()),
            _ => lookup(name),
        });
        let config = onetap_store::Config::from_variables(&variables).unwrap();
        let store = gated_store(open(&config).unwrap(), gate);
        let http = onetap_http::Client::new();
        let weather =
            gated_weather(&onetap_weather::Config::from_variables(&variables).unwrap(), &http, gate);
        let bot = patient_config(&variables);
        let edit = edit_last_transaction::Config::from_variables(&variables).unwrap();
        let bus = queue_consumer::Config::from_variables(&variables).unwrap();
        Functions {
            counter: counter(store.clone(), &http, bot.clone()),
            webhook: webhook::on(store.clone(), weather, &http, bot).unwrap(),
            edit: EditLastTransaction::new(store.clone(), edit),
            consumer: QueueConsumer::new(store, bus),
        }
    }

    /// Hands the request to the function that it is for.
    pub async fn handle(&self, request: &Request) -> Answer {
        match request {
            Request::Delivery(events) => delivered(self.webhook.handle(delivery(events)).await),
            Request::Counter(events) => delivered(self.counter.handle(delivery(events)).await),
            Request::Http { method, path, headers, body } => {
                let mut request = http::Request::builder()
                    .method(method.as_str())
                    .uri(path)
                    .header("authorization", format!("Bearer {API_TOKEN}"));
                for (name, value) in headers {
                    request = request.header(name, value);
                }
                let answer = self.edit.handle(request.body(body.clone()).unwrap()).await;
                let replayed = answer.headers().contains_key("idempotency-replayed");
                Answer { status: answer.status().as_u16(), replayed, body: answer.body().clone() }
            }
            Request::Queue(bodies) => {
                let answer =
                    self.consumer.handle(batch(bodies), Instant::now() + Duration::from_secs(60)).await;
                let failed = &answer.batch_item_failures;
                let status = if failed.is_empty() { 200 } else { 500 };
                let body = failed.iter().map(|failure| failure.item_identifier.as_str());
                Answer { status, replayed: false, body: body.collect::<Vec<_>>().join(" ") }
            }
        }
    }
}

fn counter(
    store: Arc<dyn Store>,
    http: &onetap_http::Client,
    config: webhook::Config,
) -> onetap_bot::Webhook<counter::Counter> {
    onetap_bot::Webhook::new(store, counter::Counter, http, config.bot).unwrap()
}

fn delivery(events: &Value) -> lambda_http::Request {
    let body = json!({"destination": "U0", "events": events}).to_string().into_bytes();
    let signature = sign(&Secret::new(CHANNEL_SECRET), &body);
    let request = http::Request::post("/line/webhook").header("x-line-signature", signature);
    request.body(Body::Binary(body)).unwrap()
}

fn delivered(answer: http::Response<Body>) -> Answer {
    Answer { status: answer.status().as_u16(), replayed: false, body: String::new() }
}

fn batch(bodies: &[String]) -> SqsEvent {
    let record = |(n, body): (usize, &String)| {
        json!({
            "messageId": format!("message-{n}"),
            "body": body,
            "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:jobs",
        })
    };
    let records: Vec<Value> = bodies.iter().enumerate().map(record).collect();
    serde_json::from_value(json!({"Records": records})).unwrap()
}
