//! Payments with axum: one payment for each `Idempotency-Key`, however often its request is sent.
//!
//! ```sh
//! cargo run -p onetap-idem --features tower --example axum    # on port 3000, or: … --example axum -- 8080
//! curl -i localhost:3000/payments -H 'Idempotency-Key: 42' -H 'Content-Type: application/json' -d '{"amount":120}'
//! ```
//!
//! Send it again: the same payment, and `Idempotency-Replayed: true`. Send another amount with the same key: 422.
#![allow(clippy::print_stdout, reason = "it says where it listens")]

use std::error::Error;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::routing::post;
use axum::{Extension, Json, Router};
use onetap_idem::http::IdempotencyLayer;
use onetap_idem::{Caller, EffectKeys, Idempotency};
use onetap_store::Memory;
use onetap_store::lease::unique_token;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;

#[derive(Deserialize)]
struct Payment {
    amount: u64,
}

/// Each run has a payment id of its own. `charge` is what the bank would get as *its* idempotency key: if a run dies
/// halfway, the next one charges under the same key.
async fn pay(
    Extension(effects): Extension<EffectKeys>,
    Json(payment): Json<Payment>,
) -> (StatusCode, Json<Value>) {
    let charge = effects.key("charge").uuid();
    let paid = json!({"payment": unique_token(), "charge": charge, "amount": payment.amount});
    (StatusCode::CREATED, Json(paid))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // More than one process share a store: `onetap_store::open(&onetap_store::Config::from_env()?)?`.
    let idem = Idempotency::new(Arc::new(Memory::new()));
    // Nobody signs in here: whoever sends a key means the same payment.
    let layer = IdempotencyLayer::new(idem, Caller::anyone()).required();
    let app = Router::new().route("/payments", post(pay)).layer(layer);

    let port = std::env::args().nth(1).unwrap_or_else(|| "3000".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}
