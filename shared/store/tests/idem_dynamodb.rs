//! The engine's promises, on DynamoDB: dynoxide in this process.

mod idem_suite;
mod support;

idem_promises! {
    [#[tokio::test(flavor = "multi_thread")]]
    support::open_dynoxide()
}
