//! Invocations of a warm function, one after the other through the runtime API, against a function that does nothing.

use std::path::Path;

use onetap_config::Secret;
use onetap_line::testing::MessagingApi;

use super::{Bench, PROGRAMS, example};
use crate::Result;
use crate::programs::{ACCESS_TOKEN, Numbers, edit, event, function, hello, messages, tap};
use crate::report::{Row, Target, Unit};
use crate::runtime_api::Function;

const SECTION: &str = "warm";
/// Where the functions keep what they are told.
const STORE: &str = "upstash";
/// An invocation that calls nobody.
const ALONE: &str = "webhook, LINE's verify button (no outside call)";

/// A kind of invocation, of a function of ours and of the floor.
struct Lap {
    name: &'static str,
    ours: usize,
    floor: usize,
    event: fn(u64) -> Result<Vec<u8>>,
    rounds: Vec<(f64, f64)>,
}

/// Runs the laps, ours and the floor in turns.
pub fn run(bench: &mut Bench) -> Result<()> {
    let lap = |name, ours, floor, event: fn(u64) -> Result<Vec<u8>>| Lap {
        name,
        ours,
        floor,
        event,
        rounds: Vec::new(),
    };
    let mut laps = vec![
        lap(ALONE, 2, 0, |_| event("webhook/verify.json")),
        lap("webhook, a tap (dedupe, lock, profile, reply)", 2, 0, tap),
        lap("edit-last-transaction, GET", 3, 0, |_| event("edit-last-transaction/read.json")),
        lap("edit-last-transaction, PATCH", 3, 0, edit),
        lap("queue-consumer, one event", 4, 1, |number| messages(number, 1)),
        lap("queue-consumer, ten events", 4, 1, |number| messages(number, 10)),
    ];
    laps.retain(|lap| bench.wants(SECTION, lap.name));
    if laps.is_empty() {
        return Ok(());
    }
    let line = MessagingApi::start(Secret::new(ACCESS_TOKEN))?;
    let ours = |name| function(name, Path::new(PROGRAMS), &bench.variables(STORE)?, &line.url());
    let verify = event("webhook/verify.json")?;
    let programs = [
        hello(example("hello"), r#""statusCode":200"#, verify),
        hello(example("hello_queue"), r#""batchItemFailures":[]"#, event("queue-consumer/one-event.json")?),
        ours("webhook")?,
        ours("edit-last-transaction")?,
        ours("queue-consumer")?,
    ];
    let mut functions: Vec<Function> =
        programs.iter().map(crate::programs::Program::start).collect::<Result<_>>()?;
    for function in &mut functions {
        function.first_answer()?;
    }
    let events = bench.options.either(400, 1000);
    // The first round warms up.
    let mut number = Numbers::Warm.first();
    for round in 0..=bench.options.either(5, 9) {
        bench.say(&format!("warm invocations, ours and the floor in turns: round {round}"));
        for lap in &mut laps {
            let made: Vec<Vec<u8>> = (0..events).map(|n| (lap.event)(number + n)).collect::<Result<_>>()?;
            number += events;
            let mut rate = |which: usize| -> Result<f64> {
                let took =
                    functions[which].invoke(&made).map_err(|error| format!("{}: {error}", lap.name))?;
                Ok(events as f64 / took.as_secs_f64())
            };
            let both = (rate(lap.ours)?, rate(lap.floor)?);
            if round > 0 {
                lap.rounds.push(both);
            }
        }
    }
    for lap in laps {
        let row = Row::compared(SECTION, lap.name, Unit::PerSecond, "hello", &lap.rounds);
        bench.rows.push(if lap.name == ALONE { row.target(Target::RatioAtLeast(0.7)) } else { row });
    }
    Ok(())
}
