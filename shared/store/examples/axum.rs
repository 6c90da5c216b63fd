//! An axum service whose orders are charged once per `Idempotency-Key`, however often they are sent.
//!
//! ```sh
//! cargo run -p onetap-store --features tower --example axum
//! curl -i localhost:3000/orders -H 'Idempotency-Key: 42' -H 'Content-Type: application/json' -d '{"amount":120}'
//! ```
#![allow(clippy::print_stdout, unreachable_pub, reason = "it says where it listens; the tests use its parts")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use onetap_store::idem::Idempotency;
use onetap_store::idem::http::IdempotencyLayer;
use onetap_store::{Memory, Store};
use serde_json::{Value, json};

/// How often somebody was charged.
pub type Charges = Arc<AtomicU64>;

async fn order(State(charges): State<Charges>, Json(order): Json<Value>) -> (StatusCode, Json<Value>) {
    match order["amount"].as_u64() {
        Some(amount) if amount > 0 => {
            let number = charges.fetch_add(1, Ordering::SeqCst) + 1;
            (StatusCode::CREATED, Json(json!({"order": number, "charged": amount})))
        }
        _ => (StatusCode::UNPROCESSABLE_ENTITY, Json(json!({"error": "amount must be a positive number"}))),
    }
}

/// The service, on any store.
pub fn app(store: Arc<dyn Store>, charges: Charges) -> Router {
    let idempotency = IdempotencyLayer::new(Idempotency::new(store));
    Router::new().route("/orders", post(order)).layer(idempotency).with_state(charges)
}

#[tokio::main]
#[allow(dead_code, reason = "the tests use `app` alone")]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, app(Arc::new(Memory::new()), Charges::default())).await?)
}
