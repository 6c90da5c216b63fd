//! The engine's promises, over Upstash's REST API: our gateway in front of redis-server.

use crate::support;

crate::idem_promises! {
    [#[tokio::test(flavor = "multi_thread")] #[ignore = "needs redis-server"]]
    support::open_upstash()
}
