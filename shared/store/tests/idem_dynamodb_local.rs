//! The engine's promises, on DynamoDB: Amazon's own DynamoDB Local.

mod idem_suite;
mod support;

idem_promises! {
    [#[tokio::test(flavor = "multi_thread")] #[ignore = "needs DynamoDB Local"]]
    support::open_dynamodb_local()
}
