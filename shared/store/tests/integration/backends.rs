//! The promises, on every backend.

/// The store in this process. Its clock is tokio's, so that nothing waits.
mod memory {
    use std::sync::Arc;

    use onetap_store::{Memory, Store};

    onetap_store::promises! { [#[tokio::test(start_paused = true)]] async { (Arc::new(Memory::new()) as Arc<dyn Store>, ()) } }
}

/// Over the Redis protocol.
mod redis {
    onetap_store::promises! {
        [#[tokio::test(flavor = "multi_thread")] #[ignore = "needs redis-server"]]
        crate::support::open_redis()
    }
}

/// Over Upstash's REST API: our gateway in front of redis-server.
mod upstash {
    onetap_store::promises! {
        [#[tokio::test(flavor = "multi_thread")] #[ignore = "needs redis-server"]]
        crate::support::open_upstash()
    }
}

/// On DynamoDB: dynoxide in this process.
mod dynamodb {
    onetap_store::promises! {
        [#[tokio::test(flavor = "multi_thread")]]
        crate::support::open_dynoxide()
    }
}

/// On DynamoDB: Amazon's own DynamoDB Local.
mod dynamodb_local {
    onetap_store::promises! {
        [#[tokio::test(flavor = "multi_thread")] #[ignore = "needs DynamoDB Local"]]
        crate::support::open_dynamodb_local()
    }
}
