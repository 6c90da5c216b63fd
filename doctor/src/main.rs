//! `cargo doctor`: checks the services that the environment names.

use std::io;
use std::process::ExitCode;

use tokio::runtime::Runtime;

fn main() -> io::Result<ExitCode> {
    let runtime = Runtime::new()?;
    let code = runtime.block_on(onetap_doctor::main(std::env::args().skip(1)));
    // Tasks of promises that were given up, and look-ups of names, may still be waiting for an answer.
    runtime.shutdown_background();
    Ok(code)
}
