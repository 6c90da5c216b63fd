//! Reads the environment, builds the function, runs it. Its connections are opened beside the first poll.

use std::process::ExitCode;

use edit_last_transaction::EditLastTransaction;
use lambda_http::{Error, service_fn};
use onetap_config::Variables;

async fn run() -> Result<(), Error> {
    let function = EditLastTransaction::from_variables(&Variables::from_env())?;
    let service = service_fn(|event| function.invoke(event));
    tokio::join!(function.warm_up(), lambda_http::run(service)).1
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    onetap_telemetry::init();
    run().await.inspect_err(|error| eprintln!("{error}")).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}
