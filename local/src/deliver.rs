//! Webhook deliveries as LINE makes them: completed, signed and posted; and their outcomes.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use onetap_bot::{Ended, Ending};
use onetap_line::signature::sign;
use onetap_store::lease::unique_token;
use onetap_weather::ForecastOutcome;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::bounded_map::BoundedMap;
use crate::clock::now_ms;
use crate::response::Refusal;
use crate::runner::Runner;

/// The header by which the runner recognises its own deliveries: the delivery's id.
pub(crate) const DELIVERY_HEADER: &str = "x-playground-delivery";
/// Time limit for one delivery: more than the webhook takes.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Largest number of deliveries whose outcomes are kept, and of users whose last delivery is.
const MAX_DELIVERIES: usize = 1000;

/// The body of `POST /playground/deliver`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeliverCall {
    pub(crate) user: String,
    events: Vec<Map<String, Value>>,
    #[serde(default = "one")]
    pub(crate) times: usize,
    #[serde(default = "yes")]
    pub(crate) at_once: bool,
}

fn one() -> usize {
    1
}

fn yes() -> bool {
    true
}

/// The outcome of a delivery.
#[derive(Serialize)]
pub(crate) struct Delivered {
    id: String,
    /// 0 if there was no response.
    pub(crate) status: u16,
    ms: u64,
    events: Vec<DeliveredEvent>,
}

#[derive(Serialize)]
struct DeliveredEvent {
    id: Value,
    r#type: Value,
    path: &'static str,
    /// How the look-up of its forecast ended, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    forecast: Option<&'static str>,
}

impl DeliverCall {
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let hex =
            |id: &str| id.len() == 32 && id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if !self.user.strip_prefix('U').is_some_and(hex) {
            return Err(Refusal::bad("user is not U and 32 hexadecimal digits"));
        }
        if !(1..=50).contains(&self.times) {
            return Err(Refusal::bad("times is not 1 to 50"));
        }
        if !(1..=20).contains(&self.events.len()) {
            return Err(Refusal::bad("events are not 1 to 20"));
        }
        if !self.events.iter().all(|event| event.get("type").is_some_and(Value::is_string)) {
            return Err(Refusal::bad("an event has no type"));
        }
        Ok(())
    }

    /// The events of one delivery, each with an id and a reply token of its own.
    pub(crate) fn events(&self) -> Vec<Value> {
        let complete = |event: &Map<String, Value>| {
            let mut event = event.clone();
            let mut set = |name: &str, value: Value| drop(event.insert(name.to_owned(), value));
            // 26 characters, as LINE's.
            set("webhookEventId", format!("01{}", unique_token()[..24].to_uppercase()).into());
            set("timestamp", now_ms().into());
            set("mode", "active".into());
            set("source", json!({ "type": "user", "userId": self.user }));
            set("deliveryContext", json!({ "isRedelivery": false }));
            set("replyToken", unique_token().into());
            // LINE sends no reply token with these.
            if matches!(event.get("type").and_then(Value::as_str), Some("unfollow" | "leave")) {
                event.remove("replyToken");
            }
            if let Some(message) = event.get_mut("message").and_then(Value::as_object_mut) {
                message.entry("id").or_insert_with(|| now_ms().to_string().into());
            }
            Value::Object(event)
        };
        self.events.iter().map(complete).collect()
    }
}

/// The same events, marked as a redelivery.
pub(crate) fn redelivered(mut events: Vec<Value>) -> Vec<Value> {
    for event in &mut events {
        event["deliveryContext"]["isRedelivery"] = true.into();
    }
    events
}

/// The outcomes of the latest deliveries, and the last delivery of each user.
pub(crate) struct Deliveries {
    outcomes: Mutex<BoundedMap<Vec<Ending>>>,
    last_events: Mutex<BoundedMap<Vec<Value>>>,
}

impl Deliveries {
    pub(crate) fn new() -> Deliveries {
        let (outcomes, last_events) = (BoundedMap::new(MAX_DELIVERIES), BoundedMap::new(MAX_DELIVERIES));
        Deliveries { outcomes: Mutex::new(outcomes), last_events: Mutex::new(last_events) }
    }

    /// Keeps the outcomes of a delivery's events, in their order.
    pub(crate) fn ended(&self, delivery: String, outcomes: Vec<Ending>) {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).insert(delivery, outcomes);
    }

    fn outcomes(&self, delivery: &str) -> Vec<Ending> {
        let outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes.get(delivery).cloned().unwrap_or_default()
    }
}

impl Runner {
    /// Keeps the events of `user`'s last delivery, for a redelivery.
    pub(crate) fn remember(&self, user: &str, events: &[Value]) {
        let mut last = self.deliveries.last_events.lock().unwrap_or_else(PoisonError::into_inner);
        last.insert(user.to_owned(), events.to_vec());
    }

    pub(crate) fn last_of(&self, user: &str) -> Option<Vec<Value>> {
        self.deliveries.last_events.lock().unwrap_or_else(PoisonError::into_inner).get(user).cloned()
    }

    /// Posts a signed delivery to the runner's webhook, over HTTP as LINE would.
    pub(crate) async fn post(&self, events: &[Value]) -> Delivered {
        let start = Instant::now();
        let id = unique_token()[..12].to_owned();
        let body = json!({ "destination": "U0", "events": events }).to_string().into_bytes();
        let mut request = Request::new(Bytes::new());
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.webhook_uri.clone();
        let signature = self.line_secrets.first().map(|secret| sign(secret, &body)).unwrap_or_default();
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in [("x-line-signature", &signature), (DELIVERY_HEADER, &id)] {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        }
        *request.body_mut() = body.into();
        let response = self.http.send(request, start + DELIVERY_TIMEOUT, 64 << 10).await;
        let mut outcomes = self.deliveries.outcomes(&id).into_iter();
        let events = events.iter().map(|event| {
            let outcome = outcomes.next();
            DeliveredEvent {
                id: event["webhookEventId"].clone(),
                r#type: event["type"].clone(),
                path: path(outcome.as_ref().map(|ending| ending.ended)),
                forecast: outcome
                    .and_then(|ending| Some(ending.extensions.get::<ForecastOutcome>()?.label())),
            }
        });
        Delivered {
            status: response.map_or(0, |response| response.status().as_u16()),
            ms: u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
            events: events.collect(),
            id,
        }
    }
}

/// How the look-up of an event's forecast ended, if there was one.
pub(crate) fn forecast(ending: &Ending) -> Option<&'static str> {
    ending.extensions.get().map(|outcome: &ForecastOutcome| outcome.label())
}

/// The path that an event took. There is no outcome if the whole delivery was refused.
fn path(outcome: Option<Ended>) -> &'static str {
    match outcome {
        Some(Ended::Handled) => "handled",
        Some(Ended::Busy) => "busy",
        Some(Ended::Duplicate) => "deduped",
        Some(Ended::Ignored | Ended::Skipped) => "ignored",
        Some(Ended::Elsewhere | Ended::Failed) | None => "failed",
    }
}
