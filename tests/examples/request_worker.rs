//! A process that answers one request after the other: a request as a line of JSON on standard input, its answer as a line
//! of JSON on standard output. Configured as the functions are, by the environment, but with more time for a delivery
//! than LINE gives: what a test shows must not depend on how quick its machine is.
#![allow(clippy::print_stdout, reason = "its answers go to standard output")]

use std::error::Error;

use onetap_tests::crash::Functions;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let functions = Functions::patient(&|name| std::env::var(name).ok());
    for line in std::io::stdin().lines() {
        let answer = functions.handle(&serde_json::from_str(&line?)?).await;
        println!("{}", serde_json::to_string(&answer)?);
    }
    Ok(())
}
