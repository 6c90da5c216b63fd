//! The engine's promises, over the Redis protocol.

use crate::support;

crate::idem_promises! {
    [#[tokio::test(flavor = "multi_thread")] #[ignore = "needs redis-server"]]
    support::open_redis()
}
