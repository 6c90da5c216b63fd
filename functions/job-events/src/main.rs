//! Reads the environment, builds the function, runs it. Its connections are opened beside the first poll.

use std::process::ExitCode;

use job_events::{JobEvents, runtime};
use lambda_http::Error;
use onetap_config::Variables;

async fn run() -> Result<(), Error> {
    let gateway = JobEvents::from_variables(&Variables::from_env())?;
    tokio::join!(gateway.warm_up(), runtime::run(|request| gateway.invoke(request))).1
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    onetap_telemetry::init();
    run().await.inspect_err(|error| eprintln!("{error}")).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}
