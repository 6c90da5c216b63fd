//! `cargo doctor`: checks the services that the environment names.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    onetap_doctor::main(std::env::args().skip(1)).await
}
