//! The engine's promises, on DynamoDB: dynoxide in this process.

use crate::support;

crate::idem_promises! {
    [#[tokio::test(flavor = "multi_thread")]]
    support::open_dynoxide()
}
