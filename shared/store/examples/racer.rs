//! A process that races for keys: for every key it is told on standard input it sends so many claims at once, and
//! prints how many of them won. Several of these, told the same key, have one winner between them.
//!
//! ```text
//! STORE=redis REDIS_URL=… racer 25
//! ```
#![allow(clippy::print_stdout, reason = "its answers go to standard output")]

use std::error::Error;
use std::io::BufRead;
use std::sync::Arc;

use futures_util::future::join_all;
use onetap_store::lease::AcquireOutcome;
use onetap_store::{Config, Key, Lease, open};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let claims: usize = std::env::args().nth(1).ok_or("how many claims?")?.parse()?;
    let store = open(&Config::from_env()?)?;
    for line in std::io::stdin().lock().lines() {
        let key = Key::new(line?)?;
        let race = (0..claims).map(|_| {
            let (store, key) = (Arc::clone(&store), key.clone());
            tokio::spawn(async move { Lease::acquire(store, key).await })
        });
        let mut won = 0;
        for claim in join_all(race.collect::<Vec<_>>()).await {
            if matches!(claim??, AcquireOutcome::Acquired(_)) {
                won += 1;
            }
        }
        println!("{won}");
    }
    Ok(())
}
