//! Reads the environment, builds the function, runs it.

use std::convert::Infallible;
use std::process::ExitCode;

use edit_last_transaction::{EditLastTransaction, LambdaAnswer};
use lambda_http::{Error, Request, run, service_fn};
use onetap_config::Variables;

async fn start() -> Result<(), Error> {
    let function = EditLastTransaction::from_variables(&Variables::from_env())?;
    function.warm_up().await;
    let answer = async |request: Request| Ok::<_, Infallible>(LambdaAnswer(function.handle(request).await));
    run(service_fn(answer)).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    onetap_telemetry::init();
    start().await.inspect_err(|error| eprintln!("{error}")).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}
