//! Bots of one's own: the examples, and bots that misbehave.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

/// A test of each of these for each backend.
macro_rules! on_every_backend {
    ($($promise:ident)*) => {$(
        mod $promise {
            use crate::support::start;
            use onetap_servers::Backend;

            #[tokio::test]
            async fn on_memory() {
                super::$promise(std::sync::Arc::new(onetap_store::Memory::new())).await;
            }

            #[tokio::test]
            #[ignore = "needs redis-server"]
            async fn on_redis() {
                let (store, _servers) = start(Backend::Redis).await;
                super::$promise(store).await;
            }

            #[tokio::test]
            #[ignore = "needs redis-server"]
            async fn on_upstash() {
                let (store, _servers) = start(Backend::Upstash).await;
                super::$promise(store).await;
            }

            #[tokio::test]
            async fn on_dynamodb() {
                let (store, _servers) = start(Backend::DynamoDb).await;
                super::$promise(store).await;
            }

            #[tokio::test]
            #[ignore = "needs DynamoDB Local"]
            async fn on_dynamodb_local() {
                let (store, _servers) = start(Backend::DynamoDbLocal).await;
                super::$promise(store).await;
            }
        }
    )*};
}

mod channels;
mod examples;
mod failures;
mod state;
mod support;
