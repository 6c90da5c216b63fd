//! The engine's promises, on DynamoDB: Amazon's own DynamoDB Local.

use crate::support;

crate::idem_promises! {
    [#[tokio::test(flavor = "multi_thread")] #[ignore = "needs DynamoDB Local"]]
    support::open_dynamodb_local()
}
