//! The function as a process of its own, to be killed: for every batch it is told on standard input, one line of JSON,
//! it prints its answer.
//!
//! ```text
//! STORE=redis REDIS_URL=… consumer_worker
//! ```
#![allow(clippy::print_stdout, reason = "its answers go to standard output")]

use std::error::Error;
use std::io::BufRead;
use std::time::Duration;

use onetap_config::Variables;
use queue_consumer::QueueConsumer;
use tokio::time::Instant;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let consumer = QueueConsumer::from_variables(&Variables::from_env())?;
    for line in std::io::stdin().lock().lines() {
        let batch = serde_json::from_str(&line?)?;
        let answer = consumer.handle(batch, Instant::now() + Duration::from_secs(60)).await;
        println!("{}", serde_json::to_string(&answer)?);
    }
    Ok(())
}
