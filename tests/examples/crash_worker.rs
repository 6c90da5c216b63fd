//! A process that handles one request and dies of it: an order as JSON on standard input, and if it lives, a report as
//! JSON on standard output. Configured as the functions are, by the environment.
#![allow(clippy::print_stdout, reason = "its report goes to standard output")]

use std::error::Error;

use onetap_tests::crash::{Order, carry_out};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let order: Order = serde_json::from_reader(std::io::stdin().lock())?;
    println!("{}", serde_json::to_string(&carry_out(order).await)?);
    Ok(())
}
