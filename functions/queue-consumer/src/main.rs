//! Reads the environment, builds the function, runs it. Its connections are opened beside the first poll.

use std::process::ExitCode;

use lambda_runtime::{Error, service_fn};
use onetap_config::Variables;
use queue_consumer::QueueConsumer;

async fn run() -> Result<(), Error> {
    let consumer = QueueConsumer::from_variables(&Variables::from_env())?;
    let service = service_fn(|event| consumer.invoke(event));
    tokio::join!(consumer.warm_up(), lambda_runtime::run(service)).1
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    onetap_telemetry::init();
    run().await.inspect_err(|error| eprintln!("{error}")).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}
