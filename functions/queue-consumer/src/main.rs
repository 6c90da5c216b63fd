//! Reads the environment, builds the function, runs it.

use std::process::ExitCode;

use lambda_runtime::{Error, service_fn};
use onetap_config::Variables;
use queue_consumer::QueueConsumer;

async fn run() -> Result<(), Error> {
    let consumer = QueueConsumer::from_variables(&Variables::from_env())?;
    consumer.warm_up().await;
    lambda_runtime::run(service_fn(|event| consumer.invoke(event))).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    onetap_telemetry::init();
    run().await.inspect_err(|error| eprintln!("{error}")).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}
