//! Payments in a Lambda function behind an HTTP API: one payment for each `Idempotency-Key`, however often its request is
//! sent. With the feature `lambda` a duplicate that waits for the first is answered 409 before the invocation ends.
//!
//! ```sh
//! export STORE=redis REDIS_URL=redis://localhost    # what all instances share; in AWS also `dynamodb` or `upstash`
//! cargo lambda watch -p onetap-idem --features lambda --example lambda_http
//! curl -i localhost:9000/payments -H 'Idempotency-Key: 42' -d '{"amount":120}'
//! ```
//!
//! Send it again: the same payment, and `Idempotency-Replayed: true`. Send another amount with the same key: 422.

use lambda_http::http::{Method, StatusCode};
use lambda_http::{Error, Request, Response};
use onetap_idem::http::IdempotencyLayer;
use onetap_idem::{Caller, EffectKeys, Idempotency};
use onetap_store::lease::unique_token;
use serde::Deserialize;
use serde_json::json;
use tower::ServiceBuilder;

#[derive(Deserialize)]
struct Payment {
    amount: u64,
}

/// Each run has a payment id of its own. `charge` is what the bank would get as *its* idempotency key: if a run dies
/// halfway, the next one charges under the same key.
async fn pay(request: Request) -> Result<Response<String>, Error> {
    // A request without effect keys has no idempotency key, and the layer lets no POST without one through.
    let (Some(effects), &Method::POST, "/payments") =
        (request.extensions().get::<EffectKeys>(), request.method(), request.uri().path())
    else {
        return Ok(Response::builder().status(StatusCode::NOT_FOUND).body(String::new())?);
    };
    let Ok(payment) = serde_json::from_slice::<Payment>(request.body()) else {
        return Ok(Response::builder().status(StatusCode::BAD_REQUEST).body(String::new())?);
    };
    let charge = effects.key("charge").uuid();
    let paid = json!({"payment": unique_token(), "charge": charge, "amount": payment.amount});
    let created = Response::builder().status(StatusCode::CREATED).header("content-type", "application/json");
    Ok(created.body(paid.to_string())?)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let store = onetap_store::open(&onetap_store::Config::from_env()?)?;
    // Nobody signs in here: whoever sends a key means the same payment.
    let layer = IdempotencyLayer::new(Idempotency::new(store), Caller::anyone()).required();
    lambda_http::run(ServiceBuilder::new().layer(layer).service_fn(pay)).await
}
