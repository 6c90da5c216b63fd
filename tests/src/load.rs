//! Load: many clients for a time, what they got, and what it cost the process that served them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: what goes wrong fails its test on the spot and says why"
)]

mod function;
mod runner;
mod usage;

use std::future::Future;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

pub use function::Fleet;
pub use runner::{Listeners, Runner};
pub use usage::{Cost, Usage};

/// Number of clients that ask at the same time.
pub const CLIENTS: usize = 64;

/// How long the clients go on, and how they take their time.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// From the end of the warm-up on.
    pub time: Duration,
    /// Between two requests of one client.
    pub pause: Duration,
}

impl Plan {
    /// As long as `ONETAP_LOAD_SECONDS` says, without a pause; without it short, and with a pause that leaves something
    /// of the machine to others.
    pub fn from_env() -> Plan {
        match std::env::var("ONETAP_LOAD_SECONDS") {
            Ok(seconds) => {
                let seconds = seconds.parse().expect("ONETAP_LOAD_SECONDS is a whole number");
                Plan { time: Duration::from_secs(seconds), pause: Duration::ZERO }
            }
            Err(_) => Plan { time: Duration::from_secs(4), pause: Duration::from_millis(50) },
        }
    }

    /// The part of it before anything is measured: pools fill, allocators grow to what they need.
    pub fn warm_up(self) -> Plan {
        Plan { time: (self.time / 4).max(Duration::from_secs(2)), ..self }
    }
}

/// What the clients got.
#[derive(Debug)]
pub struct Tally {
    /// Number of answers.
    pub requests: usize,
    /// What was wrong with the bad ones.
    pub errors: Vec<String>,
    /// Time from the first request to the last answer.
    pub time: Duration,
}

impl Tally {
    /// Nothing went wrong, and something was done.
    pub fn assert_good(&self, what: &str) {
        let some: Vec<_> = self.errors.iter().take(5).collect();
        assert!(
            self.errors.is_empty(),
            "{what}: {} of {} failed: {some:#?}",
            self.errors.len(),
            self.requests
        );
        assert!(self.requests > 0, "{what}: nothing was asked");
    }
}

/// Has `count` clients ask one thing after the other, `request(client, number)`, until the time is over.
pub async fn clients<F>(count: usize, plan: Plan, request: impl Fn(usize, usize) -> F) -> Tally
where
    F: Future<Output = Result<(), String>>,
{
    let (number, errors, start) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Instant::now());
    let client = async |client| {
        while start.elapsed() < plan.time {
            let answer = request(client, number.fetch_add(1, Ordering::Relaxed)).await;
            if let Err(error) = answer {
                errors.lock().unwrap().push(error);
            }
            sleep(plan.pause).await;
        }
    };
    join_all((0..count).map(client)).await;
    Tally { requests: number.into_inner(), errors: errors.into_inner().unwrap(), time: start.elapsed() }
}

/// One row of the table that `scripts/load` prints.
pub fn row(name: &str, tally: &Tally, cost: &Cost) -> String {
    let rate = tally.requests as f64 / tally.time.as_secs_f64();
    let Cost { before, after } = cost;
    format!(
        "load| {name:<34} {:>9} {:>7} {rate:>9.0} {:>9} {:>9} {:>6} {:>6}",
        tally.requests,
        tally.errors.len(),
        before.memory_kib,
        after.memory_kib,
        before.descriptors,
        after.descriptors,
    )
}
