//! A job that publishes its own events, without a queue. However often it is run, each event is published once.
//!
//! ```sh
//! export STORE=redis REDIS_URL=redis://localhost
//! export EVENT_STAGES='[{"stage":"plan","first":0,"last":9},{"stage":"token","first":1000,"last":999999,"state":false},{"stage":"done","first":10,"last":19,"ends":10}]'
//! cargo run -p onetap-bus --example publish -- job-1
//! ```
//!
//! Run it again: every event is a duplicate. Kill it halfway and run it again: what is left is new.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it says what happens")]

use std::time::Duration;

use onetap_bus::{Bus, Config, Error, Event, Job, Published};
use onetap_config::Variables;
use onetap_store::open;
use serde::Serialize;
use serde_json::json;
use tokio::time::sleep;

/// Pauses before the attempts after the first: from this one, doubling, up to that one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_millis(1600);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let id = std::env::args().nth(1).ok_or("usage: publish JOB_ID")?;
    let variables = Variables::from_env();
    let store = open(&onetap_store::Config::from_variables(&variables)?)?;
    let bus = Bus::new(store, Config::from_variables(&variables)?);
    let job = Job::new("chat", id)?;
    for stage in ["plan", "token", "done"] {
        if bus.stages().iter().all(|entry| entry.name() != stage) {
            return Err(format!("EVENT_STAGES has no stage {stage}").into());
        }
    }

    let answer = "One tap, one effect, however often it is sent: 一次點擊，一個效果 🎯";
    publish(&bus, &job, "plan", 0, &json!({"question": "What is onetap?"})).await?;
    for (nth, word) in (0..).zip(answer.split_inclusive(' ')) {
        publish(&bus, &job, "token", nth, &word).await?;
    }
    publish(&bus, &job, "done", 0, &json!({"answer": answer})).await
}

/// Publishes the `nth` event of a stage, and again while the store fails.
///
/// If an attempt was applied and its reply was lost, the next one answers `Duplicate`: both mean that it is published.
async fn publish(
    bus: &Bus,
    job: &Job,
    stage: &str,
    nth: u64,
    data: &impl Serialize,
) -> Result<(), Box<dyn std::error::Error>> {
    let seq = bus.stages().seq(stage, nth).ok_or_else(|| format!("{stage} has no number for event {nth}"))?;
    let event = Event::new(bus.stages(), job, stage, seq, data)?;
    let mut pause = FIRST_PAUSE;
    let published = loop {
        match bus.publish(&event).await {
            Err(Error::Store(error)) if error.is_retryable() && pause <= LAST_PAUSE => {
                eprintln!("{stage} {seq}: {error}, trying again");
                sleep(pause).await;
                pause *= 2;
            }
            ended => break ended?,
        }
    };
    match published {
        Published::New(position) => println!("{stage} {seq} new at {position}"),
        Published::Routed => println!("{stage} {seq} routed"),
        Published::Duplicate(_) => println!("{stage} {seq} duplicate"),
    }
    Ok(())
}
