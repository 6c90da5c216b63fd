//! A batch of SQS messages whose orders are shipped once each, and what a redelivery does.
//!
//! ```sh
//! cargo run -p onetap-idem --features sqs --example sqs_batch
//! ```
//!
//! As a Lambda function (feature `lambda` too) its `main` would be:
//!
//! ```ignore
//! let orders = sqs::Consumer::json(idem, |order: &Order| format!("order:{}", order.id));
//! lambda_runtime::run(service_fn(|event| orders.invoke(event, |order, effects| carrier.ship(order, effects)))).await
//! ```
#![allow(clippy::print_stdout, unreachable_pub, reason = "it prints what happens; the tests use its parts")]

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onetap_idem::sqs::{Consumer, SqsEvent};
use onetap_idem::{EffectKeys, Failure, Idempotency};
use onetap_store::Memory;
use serde_json::json;
use tokio::time::Instant;

#[derive(serde::Deserialize)]
struct Order {
    id: u32,
    item: String,
}

/// The one who ships. It is out of reach the first time that it is asked for a bicycle.
#[derive(Default)]
struct Carrier {
    asked: Mutex<HashSet<String>>,
}

impl Carrier {
    async fn ship(&self, order: Order, effects: EffectKeys) -> Result<String, Failure<&'static str>> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        // A real carrier is sent this key, and does not ship twice under it.
        let first = asked.insert(effects.key("ship").uuid());
        match order.item.as_str() {
            "bicycle" if first => Err(Failure::Transient("the carrier is out of reach")),
            "" => Err(Failure::Permanent("there is nothing to ship")),
            item => Ok(format!("shipped order {}: {item}", order.id)),
        }
    }
}

/// Delivers a made-up batch twice, and says what happens.
pub async fn demo(mut say: impl FnMut(String)) -> Result<(), serde_json::Error> {
    let idem = Idempotency::new(Arc::new(Memory::new()));
    let orders = Consumer::json(idem, |order: &Order| format!("order:{}", order.id));
    let event: SqsEvent = serde_json::from_value(json!({"Records": [
        {"messageId": "a", "body": r#"{"id":1,"item":"book"}"#},
        {"messageId": "b", "body": r#"{"id":2,"item":"bicycle"}"#},
        {"messageId": "c", "body": r#"{"id":1,"item":"book"}"#}, // its producer has sent it twice
        {"messageId": "d", "body": "not an order"},
        {"messageId": "e", "body": r#"{"id":3,"item":""}"#},
    ]}))?;
    let carrier = Carrier::default();
    for delivery in ["first delivery", "second delivery"] {
        say(format!("{delivery}:"));
        let said = Mutex::new(Vec::new());
        let handler = async |order: Order, effects: EffectKeys| {
            let shipped = carrier.ship(order, effects).await?;
            said.lock().unwrap_or_else(PoisonError::into_inner).push(shipped);
            Ok::<_, Failure<&str>>(())
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        let response = orders.handle(event.clone(), deadline, handler).await;
        for shipped in said.into_inner().unwrap_or_else(PoisonError::into_inner) {
            say(format!("  {shipped}"));
        }
        let failed: Vec<&str> =
            response.batch_item_failures.iter().map(|failure| failure.item_identifier.as_str()).collect();
        say(format!("  to be delivered again: {}", failed.join(", ")));
    }
    Ok(())
}

#[tokio::main]
#[allow(dead_code, reason = "the tests use `demo` alone")]
async fn main() -> Result<(), serde_json::Error> {
    demo(|line| println!("{line}")).await
}
