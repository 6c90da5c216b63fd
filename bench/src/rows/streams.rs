//! How soon a client has what was published, against the bare pub/sub of the same server; and what a long log costs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onetap_bus::{Bus, Config, Job, Published};
use onetap_config::Variables;
use onetap_store::lease::unique_token;
use onetap_store::{Batch, Commit, Keep, Log, Store};
use tokio::time::sleep;

use super::{Bench, number};
use crate::Result;
use crate::audience::{Audience, stages, token_event};
use crate::report::{Row, Target, Unit};
use crate::stats::{median, quantile};

const SECTION: &str = "streams";
const CLIENTS: [usize; 3] = [1, 50, 500];
/// How often clients of DynamoDB poll, on both sides: the default of `SSE_POLL_MS`.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Events in a long log, and in a short one.
const LONG: u64 = 10_000;
const SHORT: u64 = 10;
const MAX_APPENDS: u64 = 25;
const FLAT: Target = Target::RatioAtMost(1.1);

/// Measures both.
pub fn run(bench: &mut Bench) -> Result<()> {
    for name in ["redis", "upstash", "dynamodb"] {
        for clients in CLIENTS {
            latency(bench, name, clients)?;
        }
        length(bench, name)?;
    }
    Ok(())
}

fn open(bench: &Bench, store: &str) -> Result<(Arc<dyn Store>, Config)> {
    let variables = bench.variables(store)?;
    let lookup =
        |name: &str| variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    let variables = Variables::from_lookup(lookup);
    let config = onetap_store::Config::from_variables(&variables)?.poll_interval(POLL_INTERVAL);
    let bus = Config { stages: stages()?, ..Config::from_variables(&variables)? };
    Ok((onetap_store::open(&config)?, bus))
}

fn latency(bench: &mut Bench, store: &str, clients: usize) -> Result<()> {
    let noun = if clients == 1 { "client" } else { "clients" };
    let name = format!("{store}: from publish to client, {} {noun}", number(clients));
    if !bench.wants(SECTION, &name) {
        return Ok(());
    }
    bench.say(&name);
    let (client, bus) = open(bench, store)?;
    let polls = !client.capabilities().pub_sub;
    let against = if polls { "bare polling" } else { "bare pub/sub" };
    let variable = |name: &str| bench.variable(store, name);
    let (mut ours, mut bare) = bench.block_on(async {
        let ours = Audience::of_gateway(client, bus, clients).await?;
        let bare = match store {
            "redis" => {
                Audience::of_redis(variable("REDIS_URL")?.trim_start_matches("redis://"), clients).await?
            }
            "upstash" => {
                let (url, token) =
                    (variable("UPSTASH_REDIS_REST_URL")?, variable("UPSTASH_REDIS_REST_TOKEN")?);
                Audience::of_upstash(&url, &token, clients).await?
            }
            _ => {
                let (url, table) = (variable("AWS_ENDPOINT_URL_DYNAMODB")?, variable("DYNAMODB_TABLE")?);
                Audience::of_dynamodb(&url, &table, POLL_INTERVAL, clients).await?
            }
        };
        Ok::<_, crate::Error>((ours, bare))
    })?;
    let bursts = match (polls, clients) {
        (false, 1) => 200,
        (false, 50) => 40,
        (false, _) => 10,
        (true, 1) => 12,
        (true, _) => 4,
    };
    let (unit, micros) = if polls { (Unit::Millis, 1000.0) } else { (Unit::Micros, 1.0) };
    let (mut medians, mut tails) = (Vec::new(), Vec::new());
    for round in 0..bench.options.either(3, 7) {
        // Who goes first alternates.
        let [first, second] = if round % 2 == 0 { [&mut ours, &mut bare] } else { [&mut bare, &mut ours] };
        let mut times = bench.block_on(async {
            Ok::<_, crate::Error>([heard(first, bursts, polls).await?, heard(second, bursts, polls).await?])
        })?;
        if round % 2 == 1 {
            times.swap(0, 1);
        }
        let [ours, bare] = &mut times;
        let of_both = |part: f64, ours: &mut [f64], bare: &mut [f64]| {
            (quantile(ours, part) / micros, quantile(bare, part) / micros)
        };
        medians.push(of_both(0.5, ours, bare));
        tails.push(of_both(0.99, ours, bare));
    }
    let row = Row::compared(SECTION, name, unit, against, &medians);
    bench.rows.push(row.detail("p99", unit, &tails));
    Ok(())
}

async fn heard(audience: &mut Audience, bursts: usize, polls: bool) -> Result<Vec<f64>> {
    let mut times = audience.burst().await?;
    times.clear();
    for burst in 0..bursts {
        if polls {
            // At any moment between two polls.
            sleep(POLL_INTERVAL.mul_f64((burst as f64 * 0.618_034).fract())).await;
        }
        times.extend(audience.burst().await?);
    }
    Ok(times)
}

/// One event more, in a log of ten and in one of ten thousand.
fn length(bench: &mut Bench, store: &str) -> Result<()> {
    let name = format!("{store}: publish, events in the job's log: {}", number(LONG as usize));
    if !bench.wants(SECTION, &name) {
        return Ok(());
    }
    bench.say(&name);
    let (client, config) = open(bench, store)?;
    let calls = bench.options.either(60, 200);
    let count = bench.options.either(3, 7);
    let rounds = bench.block_on(async {
        let bus = Bus::new(client.clone(), config.clone());
        let (long, mut next) = (filled(&*client, LONG).await?, LONG);
        let mut rounds = Vec::new();
        for _ in 0..count {
            let (mut in_short, mut in_long) = (Vec::new(), Vec::new());
            for _ in 0..calls {
                // A new one each time, so that it stays short.
                let short = filled(&*client, SHORT).await?;
                in_short.push(publish(&bus, &short, SHORT).await?);
                in_long.push(publish(&bus, &long, next).await?);
                next += 1;
            }
            rounds.push((median(&mut in_long), median(&mut in_short)));
        }
        Ok::<_, crate::Error>(rounds)
    })?;
    let short = format!("{SHORT} events");
    bench.rows.push(Row::compared(SECTION, name, Unit::Micros, &short, &rounds).target(FLAT));
    Ok(())
}

/// A new job with so many events in its log.
async fn filled(store: &dyn Store, events: u64) -> Result<Job> {
    let (job, stages) = (Job::new("bench", &unique_token()[..12])?, stages()?);
    let log = Log::new(format!("bench:job:{}", job.id()))?;
    for first in (0..events).step_by(MAX_APPENDS as usize) {
        let mut batch = Batch::new();
        for n in first..events.min(first + MAX_APPENDS) {
            let event = token_event(&job, n, &stages)?;
            batch = batch.append(&log, event.text(), Keep::all_for(Duration::from_secs(7200)));
        }
        match store.commit(&batch).await? {
            Commit::Applied(_) => {}
            Commit::Refused(_) => return Err("a log cannot be filled".into()),
        }
    }
    Ok(job)
}

/// The time of publishing one event, in microseconds.
async fn publish(bus: &Bus, job: &Job, n: u64) -> Result<f64> {
    let event = token_event(job, n, bus.stages())?;
    let start = Instant::now();
    match bus.publish(&event).await? {
        Published::New(_) => Ok(start.elapsed().as_secs_f64() * 1e6),
        other => Err(format!("{other:?}").into()),
    }
}
