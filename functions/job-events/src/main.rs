//! Reads the environment, builds the function, runs it.

use std::process::ExitCode;

use job_events::JobEvents;
use lambda_http::{Error, run_with_streaming_response, service_fn};
use onetap_config::Variables;

async fn run() -> Result<(), Error> {
    let gateway = JobEvents::from_variables(&Variables::from_env())?;
    gateway.warm_up().await;
    run_with_streaming_response(service_fn(|request| gateway.invoke(request))).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    onetap_telemetry::init();
    run().await.inspect_err(|error| eprintln!("{error}")).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}
