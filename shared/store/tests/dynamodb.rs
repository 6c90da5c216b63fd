//! The promises, on DynamoDB: dynoxide in this process.

mod support;

onetap_store::promises! {
    [#[tokio::test(flavor = "multi_thread")]]
    support::open_dynoxide()
}
