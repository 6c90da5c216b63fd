//! `cargo local`: the whole bundle on this machine, and a page to play on.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    onetap_local::main(std::env::args().skip(1)).await
}
