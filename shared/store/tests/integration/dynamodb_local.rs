//! The promises, on DynamoDB: Amazon's own DynamoDB Local.

use crate::support;

onetap_store::promises! {
    [#[tokio::test(flavor = "multi_thread")] #[ignore = "needs DynamoDB Local"]]
    support::open_dynamodb_local()
}
