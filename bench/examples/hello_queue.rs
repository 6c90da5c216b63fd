//! The floor of a queue's function: `lambda_runtime`, and nothing done.

use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    run(service_fn(async |_: LambdaEvent<Value>| Ok::<_, Error>(json!({ "batchItemFailures": [] })))).await
}
