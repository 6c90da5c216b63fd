//! The engine's promises, over the Redis protocol.

mod idem_suite;
mod support;

idem_promises! {
    [#[tokio::test(flavor = "multi_thread")] #[ignore = "needs redis-server"]]
    support::open_redis()
}
