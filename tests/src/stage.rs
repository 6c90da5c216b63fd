//! The functions, built over a store of the test's choice, and requests to them as their callers would send them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test support: what cannot be built fails its test"
)]

use std::sync::Arc;
use std::time::Duration;

use aws_lambda_events::sqs::{SqsEvent, SqsMessage};
use edit_last_transaction::EditLastTransaction;
use http::{HeaderMap, Method, Request, StatusCode};
use job_events::JobEvents;
use lambda_http::Body;
use onetap_bus::Job;
use onetap_config::{Secret, Variables};
use onetap_line::signature::sign;
use onetap_store::Store;
use onetap_weather::{ForecastAges, Forecasts, Sample};
use queue_consumer::QueueConsumer;
use tokio::time::Instant;
use webhook::Webhook;

/// Secrets and tokens that cannot occur by chance, so that finding one anywhere is finding it there.
pub mod planted {
    /// `LINE_CHANNEL_SECRET`
    pub const CHANNEL_SECRET: &str = "PLANTED-channel-secret-7f3a";
    /// `LINE_CHANNEL_ACCESS_TOKEN`
    pub const ACCESS_TOKEN: &str = "PLANTED-access-token-91bc";
    /// `EDIT_API_TOKEN`
    pub const EDIT_TOKEN: &str = "PLANTED-edit-token-c0de";
    /// `JOB_EVENTS_SECRET`
    pub const JOB_SECRET: &str = "PLANTED-job-secret-5eed";
}

/// No token here ends before the year 3000.
const EXPIRY: u64 = 32_503_680_000;

/// The webhook, which replies to a Messaging API at `line`.
pub fn webhook(store: Arc<dyn Store>, http: &onetap_http::Client, line: &str) -> Webhook {
    let lookup = |name: &str| {
        let value = match name {
            "LINE_CHANNEL_SECRET" => planted::CHANNEL_SECRET,
            "LINE_CHANNEL_ACCESS_TOKEN" => planted::ACCESS_TOKEN,
            "LINE_API_BASE_URL" => line,
            "PROCESSING_LOCK_SCOPE" => "all",
            _ => return None,
        };
        Some(value.to_owned())
    };
    let config = webhook::Config::from_variables(&Variables::from_lookup(lookup)).unwrap();
    let weather = Forecasts::new(Arc::new(Sample::new()), None, ForecastAges::default());
    webhook::on(store, Arc::new(weather), http, config).unwrap()
}

/// Delivers a body with LINE's signature.
pub async fn deliver(webhook: &Webhook, body: &[u8]) -> StatusCode {
    deliver_signed(webhook, body, sign(&Secret::new(planted::CHANNEL_SECRET), body).as_bytes()).await
}

/// Delivers a body with this signature, if a header can hold it.
pub async fn deliver_signed(webhook: &Webhook, body: &[u8], signature: &[u8]) -> StatusCode {
    let mut request = Request::new(Body::Binary(body.to_vec()));
    *request.method_mut() = Method::POST;
    if let Ok(value) = http::HeaderValue::from_bytes(signature) {
        request.headers_mut().insert("x-line-signature", value);
    }
    webhook.handle(request).await.status()
}

/// The edit function.
pub fn edit(store: Arc<dyn Store>) -> EditLastTransaction {
    let lookup = |name: &str| match name {
        "EDIT_API_TOKEN" => Some(planted::EDIT_TOKEN.to_owned()),
        // No invocation's deadline ends the waiting here, and a broken store may say for ever that somebody is at it.
        "IDEM_WAIT_TIMEOUT_MS" => Some("200".to_owned()),
        _ => None,
    };
    let config = edit_last_transaction::Config::from_variables(&Variables::from_lookup(lookup)).unwrap();
    EditLastTransaction::new(store, config)
}

/// What can be asked of a user's ledger: the method, and the last part of the path.
pub fn user_routes() -> [(Method, &'static str); 5] {
    [
        (Method::GET, "last-transaction"),
        (Method::GET, "transactions"),
        (Method::PUT, "last-transaction"),
        (Method::PATCH, "last-transaction"),
        (Method::DELETE, "last-transaction"),
    ]
}

/// A request to the edit function, with its token. `None` where HTTP itself has no such path or header.
pub async fn ask(
    edit: &EditLastTransaction,
    method: Method,
    path: &str,
    headers: &[(&'static str, &[u8])],
    body: &[u8],
) -> Option<edit_last_transaction::Answer> {
    let mut request = Request::new(body.to_vec());
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().ok()?;
    let bearer = format!("Bearer {}", planted::EDIT_TOKEN);
    request.headers_mut().insert(http::header::AUTHORIZATION, bearer.parse().ok()?);
    for (name, value) in headers {
        request.headers_mut().append(*name, http::HeaderValue::from_bytes(value).ok()?);
    }
    Some(edit.handle(request).await)
}

/// The consumer.
pub fn consumer(store: Arc<dyn Store>) -> QueueConsumer {
    QueueConsumer::new(store, queue_consumer::Config::default())
}

/// Hands bodies over as one batch; the numbers of those that failed.
pub async fn consume(consumer: &QueueConsumer, bodies: &[&str]) -> Vec<usize> {
    let mut event = SqsEvent::default();
    for (n, body) in bodies.iter().enumerate() {
        let mut message = SqsMessage::default();
        message.message_id = Some(n.to_string());
        message.body = Some((*body).to_owned());
        event.records.push(message);
    }
    let answer = consumer.handle(event, Instant::now() + Duration::from_secs(30)).await;
    answer.batch_item_failures.iter().map(|failure| failure.item_identifier.parse().unwrap()).collect()
}

/// The gateway, with streams that end as soon as everything there was told.
pub fn gateway(store: Arc<dyn Store>) -> JobEvents {
    let config = job_events::Config {
        secrets: vec![Secret::new(planted::JOB_SECRET)],
        allow_origin: http::HeaderValue::from_static("https://page.example"),
        max: Duration::from_millis(20),
        keepalive: Duration::from_secs(15),
        grace: Duration::from_millis(20),
        stages: onetap_bus::Stages::default(),
    };
    JobEvents::new(store, config)
}

/// A token for a job, good for longer than any test.
pub fn job_token(job: &Job) -> String {
    job_events::token(&Secret::new(planted::JOB_SECRET), job, EXPIRY)
}

/// What the gateway answers: the status, the headers and the whole body. `None` where HTTP itself has no such target.
pub async fn follow(
    gateway: &JobEvents,
    target: &str,
    last_event_id: Option<&[u8]>,
) -> Option<(StatusCode, HeaderMap, String)> {
    let mut request = Request::new(());
    *request.uri_mut() = target.parse().ok()?;
    if let Some(id) = last_event_id {
        request.headers_mut().insert("last-event-id", http::HeaderValue::from_bytes(id).ok()?);
    }
    let (head, body) = gateway.handle(request).await.into_parts();
    let body = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
    Some((head.status, head.headers, String::from_utf8_lossy(&body).into_owned()))
}
