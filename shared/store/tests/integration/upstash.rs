//! The promises, over Upstash's REST API: our gateway in front of redis-server.

use crate::support;

onetap_store::promises! {
    [#[tokio::test(flavor = "multi_thread")] #[ignore = "needs redis-server"]]
    support::open_upstash()
}
