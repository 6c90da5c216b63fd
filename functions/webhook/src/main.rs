//! Reads the environment, builds the function, runs it.

use std::convert::Infallible;
use std::process::ExitCode;

use lambda_http::{Error, run as run_lambda, service_fn};
use onetap_config::Variables;
use webhook::Webhook;

async fn run() -> Result<(), Error> {
    let webhook = Webhook::from_variables(&Variables::from_env())?;
    webhook.warm_up().await;
    run_lambda(service_fn(async |request| Ok::<_, Infallible>(webhook.handle(request).await))).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    onetap_telemetry::init();
    run().await.inspect_err(|error| eprintln!("{error}")).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}
