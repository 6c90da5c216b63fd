//! Reads the environment, builds the function, runs it. Its connections are opened beside the first poll.

use std::process::ExitCode;

use lambda_http::{Error, service_fn};
use onetap_config::Variables;
use webhook::Webhook;

async fn run() -> Result<(), Error> {
    let webhook = Webhook::from_variables(&Variables::from_env())?;
    let service = service_fn(|event| webhook.invoke(event));
    tokio::join!(webhook.warm_up(), lambda_http::run(service)).1
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    onetap_telemetry::init();
    run().await.inspect_err(|error| eprintln!("{error}")).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}
