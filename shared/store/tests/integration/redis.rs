//! The promises, over the Redis protocol.

use crate::support;

onetap_store::promises! {
    [#[tokio::test(flavor = "multi_thread")] #[ignore = "needs redis-server"]]
    support::open_redis()
}
