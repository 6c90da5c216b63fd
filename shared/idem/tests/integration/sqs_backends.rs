//! The consumer's promises on servers.

mod redis {
    crate::sqs_promises! {
        [#[tokio::test(flavor = "multi_thread")] #[ignore = "needs redis-server"]]
        crate::support::open_redis()
    }
}

mod upstash {
    use std::sync::Arc;

    use onetap_servers::{Redis, Upstash};
    use onetap_store::Store;

    use crate::idem_suite::{LONG, engine};
    use crate::sqs_suite::{Handled, bodies, deliver, standard};
    use crate::support;

    crate::sqs_promises! {
        [#[tokio::test(flavor = "multi_thread")] #[ignore = "needs redis-server"]]
        support::open_upstash()
    }

    #[tokio::test]
    #[ignore = "needs redis-server"]
    async fn ten_records_are_two_requests_at_the_server() {
        let redis = Redis::start().await;
        let gateway = Upstash::start(&redis.url()).await;
        let environment = support::upstash(gateway.url(), gateway.token(), support::PATIENT);
        let store: Arc<dyn Store> = support::store(&environment);
        // The first batch sends the script.
        for n in [10, 10] {
            let (requests, handled) = (gateway.requests(), Handled::default());
            assert_eq!(deliver(engine(&store, LONG), standard(&bodies(n)), &handled).await.len(), 0);
            assert_eq!((gateway.requests() - requests, handled.all().len()), (2, n));
        }
    }
}

mod dynamodb {
    crate::sqs_promises! {
        [#[tokio::test(flavor = "multi_thread")]]
        crate::support::open_dynoxide()
    }
}

mod dynamodb_local {
    crate::sqs_promises! {
        [#[tokio::test(flavor = "multi_thread")] #[ignore = "needs DynamoDB Local"]]
        crate::support::open_dynamodb_local()
    }
}
