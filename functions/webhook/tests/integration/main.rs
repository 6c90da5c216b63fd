//! The webhook, by its requests, deliveries and processes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

/// A test of each of these for each backend.
macro_rules! on_every_backend {
    ($($promise:ident)*) => {
        mod on_memory { $(#[tokio::test] async fn $promise() {
            super::$promise(super::memory()).await
        })* }
        mod on_redis { $(#[tokio::test] #[ignore = "needs redis-server"] async fn $promise() {
            let (store, _servers) = super::start(super::Backend::Redis).await;
            super::$promise(store).await
        })* }
        mod on_upstash { $(#[tokio::test] #[ignore = "needs redis-server"] async fn $promise() {
            let (store, _servers) = super::start(super::Backend::Upstash).await;
            super::$promise(store).await
        })* }
        mod on_dynamodb { $(#[tokio::test] async fn $promise() {
            let (store, _servers) = super::start(super::Backend::DynamoDb).await;
            super::$promise(store).await
        })* }
        mod on_dynamodb_local { $(#[tokio::test] #[ignore = "needs DynamoDB Local"] async fn $promise() {
            let (store, _servers) = super::start(super::Backend::DynamoDbLocal).await;
            super::$promise(store).await
        })* }
    };
}

mod always_answers;
mod cargo_lambda;
mod chat_guide;
mod corpus;
mod delivery;
mod events;
mod ledger;
mod lock;
mod metrics;
mod plan;
mod processes;
mod request;
#[path = "../support/mod.rs"]
mod support;
mod warm_up;
