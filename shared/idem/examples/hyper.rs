//! Payments with bare hyper: one payment for each `Idempotency-Key`, however often its request is sent.
//!
//! ```sh
//! cargo run -p onetap-idem --features tower --example hyper    # on port 3000, or: … --example hyper -- 8080
//! curl -i localhost:3000/payments -H 'Idempotency-Key: 42' -d '{"amount":120}'
//! ```
//!
//! Send it again: the same payment, and `Idempotency-Replayed: true`. Send another amount with the same key: 422.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it says where it listens, and what broke")]

use std::error::Error;
use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use onetap_idem::http::IdempotencyLayer;
use onetap_idem::{Body, BodyError, Caller, EffectKeys, Idempotency};
use onetap_store::Memory;
use onetap_store::lease::unique_token;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use tower::ServiceBuilder;

#[derive(Deserialize)]
struct Payment {
    amount: u64,
}

/// Each run has a payment id of its own. `charge` is what the bank would get as *its* idempotency key: if a run dies
/// halfway, the next one charges under the same key.
async fn pay(request: Request<Body>) -> Result<Response<Body>, BodyError> {
    let (head, body) = request.into_parts();
    // A request without effect keys has no idempotency key, and the layer lets no POST without one through.
    let (Some(effects), &Method::POST, "/payments") =
        (head.extensions.get::<EffectKeys>(), &head.method, head.uri.path())
    else {
        return Ok(Response::builder().status(StatusCode::NOT_FOUND).body(Body::empty())?);
    };
    let Ok(payment) = serde_json::from_slice::<Payment>(&body.collect().await?.to_bytes()) else {
        return Ok(Response::builder().status(StatusCode::BAD_REQUEST).body(Body::empty())?);
    };
    let charge = effects.key("charge").uuid();
    let paid = json!({"payment": unique_token(), "charge": charge, "amount": payment.amount});
    let created = Response::builder().status(StatusCode::CREATED).header("content-type", "application/json");
    Ok(created.body(Body::from(paid.to_string()))?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // More than one process share a store: `onetap_store::open(&onetap_store::Config::from_env()?)?`.
    let idem = Idempotency::new(Arc::new(Memory::new()));
    let service = ServiceBuilder::new()
        .map_request(|request: Request<Incoming>| request.map(Body::new))
        // Nobody signs in here: whoever sends a key means the same payment.
        .layer(IdempotencyLayer::new(idem, Caller::anyone()).required())
        .service_fn(pay);

    let port = std::env::args().nth(1).unwrap_or_else(|| "3000".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            if let Err(error) = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await {
                eprintln!("{error}");
            }
        });
    }
}
