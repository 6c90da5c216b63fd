//! What is exact: round trips and bytes of a call, and the instructions and allocations that it costs.

use std::collections::HashMap;
use std::process::Command;

use super::{Bench, example};
use crate::Result;
use crate::contestant::Contestant;
use crate::orders::{Call, Measure, Side};
use crate::recorder::{Recorder, counted};
use crate::report::{Row, Target, Unit};

const SECTION: &str = "counts";
const STORES: [&str; 3] = ["redis", "upstash", "dynamodb"];

/// The round trips that a call may take; none is said of what is no single call.
fn budget(call: Call, store: &str) -> f64 {
    match call {
        Call::Lock | Call::Execute | Call::Edit | Call::Batch => 2.0,
        Call::Publish if store == "dynamodb" => 2.0,
        _ => 1.0,
    }
}

/// What the row is called.
fn title(call: Call) -> &'static str {
    match call {
        Call::Batch => "SQS batch of ten",
        Call::BatchAgain => "SQS batch of ten, again",
        other => other.name(),
    }
}

/// Counts.
pub fn run(bench: &mut Bench) -> Result<()> {
    round_trips(bench)?;
    peers(bench)?;
    work(bench)
}

fn round_trips(bench: &mut Bench) -> Result<()> {
    let calls = [
        Call::Lock,
        Call::Execute,
        Call::Replay,
        Call::Edit,
        Call::Publish,
        Call::PublishTen,
        Call::Batch,
        Call::BatchAgain,
    ];
    let mut worker = None;
    for store in STORES {
        for call in calls {
            let name = format!("{store}: {}", title(call));
            // There ten events or messages are ten requests, side by side.
            let apart =
                store == "dynamodb" && matches!(call, Call::PublishTen | Call::Batch | Call::BatchAgain);
            if apart || !bench.wants(SECTION, &format!("{name}, round trips bytes")) {
                continue;
            }
            let worker = match &mut worker {
                Some(worker) => worker,
                none => {
                    bench.say("round trips and bytes");
                    none.insert(bench.worker(HashMap::new())?)
                }
            };
            let counted = worker.count(call, store)?;
            let trips =
                Row::new(SECTION, format!("{name}, round trips"), Unit::Pieces, counted.round_trips as f64);
            bench.rows.push(trips.target(Target::AtMost(budget(call, store))));
            let sent = Row::new(SECTION, format!("{name}, bytes sent"), Unit::Bytes, counted.sent as f64);
            let against = format!("{} received", Unit::Bytes.show(counted.received as f64));
            bench.rows.push(Row { against, ..sent });
        }
    }
    Ok(())
}

/// How many round trips the peers take for an idempotent call and for a batch of messages. Where requests are made side by side,
/// each of them counts.
fn peers(bench: &mut Bench) -> Result<()> {
    for (store, place) in [("redis", "REDIS_URL"), ("dynamodb", "AWS_ENDPOINT_URL_DYNAMODB")] {
        let name = |call| {
            let what = if call == Call::Execute || store == "redis" { "round trips" } else { "requests" };
            format!("{store}: {}, {what} of Powertools", title(call))
        };
        let mut calls = vec![Call::Execute, Call::Batch, Call::BatchAgain];
        calls.retain(|call| bench.wants(SECTION, &name(*call)));
        if calls.is_empty() {
            continue;
        }
        bench.say(&format!("round trips of the peers on {store}"));
        let mut worker = bench.worker(HashMap::new())?;
        let mut variables = bench.peer_variables()?;
        let address = variables.iter_mut().find(|(known, _)| known == place).ok_or("no address")?;
        let (scheme, server) = address.1.split_once("://").ok_or("an address without a scheme")?;
        let recorder = Recorder::start(server)?;
        address.1 = format!("{scheme}://{}", recorder.address());
        let mut peers = [("Python", bench.python(&variables)?), ("TypeScript", bench.node(&variables)?)];
        for call in calls {
            let ours = worker.count(call, store)?.round_trips as f64;
            for (peer, contestant) in &mut peers {
                let each = round_trips_of(contestant, &recorder, call, store)?;
                bench.rows.push(Row::compared(SECTION, name(call), Unit::Pieces, peer, &[(ours, each)]));
            }
        }
    }
    Ok(())
}

/// The round trips of a peer's call, seen by the recorder between it and its server.
fn round_trips_of(peer: &mut Contestant, recorder: &Recorder, call: Call, store: &str) -> Result<f64> {
    let calls = 10;
    let sides = vec![Side::Ours];
    let order = Measure { call, store: store.to_owned(), callers: 1, calls, blocks: 1, sides };
    // The first time it connects.
    peer.measure(order.clone())?;
    recorder.take();
    peer.measure(order)?;
    let tape = recorder.take();
    // One block warms up, one is measured: both were recorded. What comes again is made once more in each.
    let made = 2 * if call == Call::BatchAgain { calls + 1 } else { calls };
    Ok(counted(&tape).round_trips as f64 / made as f64)
}

/// Instructions and allocations, of a process that makes many calls less those of one that makes few.
fn work(bench: &mut Bench) -> Result<()> {
    let calls = bench.options.either(&[Call::Lock][..], &[Call::Lock, Call::Execute, Call::Replay][..]);
    for store in bench.options.either(&STORES[..1], &STORES[..]) {
        for call in calls {
            let name = format!("{store}: {}", call.name());
            if !bench.wants(SECTION, &format!("{name}, instructions allocations")) {
                continue;
            }
            bench.say(&format!("instructions and allocations of {name}"));
            let count = |tool, side| per_call(bench, tool, *call, side, store);
            let (ours, bare) = (count(Tool::Instructions, "ours")?, count(Tool::Instructions, "bare")?);
            let (heap, bare_heap) = (count(Tool::Allocations, "ours")?, count(Tool::Allocations, "bare")?);
            let row = |what: &str, ours: f64, bare: f64| {
                let row = Row::new(SECTION, format!("{name}, {what}"), Unit::Pieces, ours.round());
                Row { against: "bare".to_owned(), other: Some(bare.round()), ..row }
            };
            let rows = [row("instructions", ours, bare), row("allocations", heap, bare_heap)];
            bench.rows.extend(rows);
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Tool {
    Instructions,
    Allocations,
}

fn per_call(bench: &Bench, tool: Tool, call: Call, side: &str, store: &str) -> Result<f64> {
    let (few, many) = (20, 220);
    let count = |calls: usize| -> Result<f64> {
        let (name, option) = match tool {
            Tool::Instructions => ("--tool=callgrind", "--callgrind-out-file=/dev/null"),
            Tool::Allocations => ("--tool=memcheck", "--undef-value-errors=no"),
        };
        let output = Command::new("valgrind")
            .args([name, option])
            .arg(example("worker"))
            .args([call.name(), side, store, &calls.to_string()])
            .envs(bench.worker_variables(HashMap::new())?)
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            let last = said.lines().rfind(|line| !line.starts_with("==")).unwrap_or_default();
            return Err(format!("under valgrind: {last}").into());
        }
        let found = said.lines().find_map(|line| match tool {
            Tool::Instructions => line.split_once("Collected :").map(|(_, rest)| rest.trim().to_owned()),
            Tool::Allocations => {
                let (_, rest) = line.split_once("total heap usage: ")?;
                Some(rest.split_once(" allocs")?.0.replace(',', ""))
            }
        });
        Ok(found.ok_or("valgrind counted nothing")?.parse()?)
    };
    Ok((count(many)? - count(few)?) / (many - few) as f64)
}
