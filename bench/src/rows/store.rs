//! Single operations through our API, against the same bytes over a bare socket; and the seeds' own figures.

use std::collections::HashMap;

use super::Bench;
use crate::Result;
use crate::orders::{Call, Measure, Measured, Side};
use crate::report::{Row, Target, Unit};
use crate::stats::Spread;

const SECTION: &str = "store";
const LEDGER: &str = "ledger";
const SEEDS: &str = "seeds";
const CALLS: [Call; 11] = [
    Call::Get,
    Call::Set,
    Call::Delete,
    Call::Lock,
    Call::Execute,
    Call::Replay,
    Call::Edit,
    Call::Publish,
    Call::PublishTen,
    Call::Batch,
    Call::BatchAgain,
];

/// What the row is called.
fn title(call: Call) -> &'static str {
    match call {
        Call::Lock => "lock, acquire + release",
        Call::Execute => "execute, first",
        Call::Replay => "execute, replay",
        Call::PublishTen => "publish, ten at once",
        Call::Batch => "SQS batch of ten",
        Call::BatchAgain => "SQS batch of ten, again",
        Call::Month => "a month of 1 000 entries",
        Call::LargeMonth => "a month of 5 000 entries",
        Call::SmallStatement => "a month of 100 entries, folded",
        Call::Statement => "a month of 1 000 entries, folded",
        Call::LargeStatement => "a month of 5 000 entries, folded",
        other => other.name(),
    }
}

/// Measures every operation on every store, round by round.
pub fn run(bench: &mut Bench) -> Result<()> {
    let calls = |bench: &Bench, store: &str| {
        let (fast, slow) = ((100, 8), (40, 3));
        // Amazon's local edition takes ten times as long, and needs longer to warm up.
        bench.options.either((50, 4), if store == "dynamodb-local" { slow } else { fast })
    };
    let aim = |call| match call {
        // Ten idempotent calls in the round trips of one: most of it is the records', which the bare side does not look at.
        Call::Batch | Call::BatchAgain => None,
        _ => Some(Target::RatioAtMost(1.15)),
    };
    compare(bench, SECTION, &CALLS, calls, aim)
}

/// Measures how a month of the ledger is read, and how it is read and folded. Most of that is the reading of what came back,
/// of which the bare side does nothing: there is no aim.
pub fn months(bench: &mut Bench) -> Result<()> {
    let calls = [Call::Month, Call::SmallStatement, Call::Statement, Call::LargeMonth, Call::LargeStatement];
    // To fill the large ones takes longer than a quick run has.
    let calls = bench.options.either(&calls[..3], &calls[..]);
    compare(bench, LEDGER, calls, |bench, _| bench.options.either((4, 2), (6, 3)), |_| None)
}

/// Measures calls against the bare round trips, by so many calls and blocks on each store.
fn compare(
    bench: &mut Bench,
    section: &str,
    calls: &[Call],
    size: fn(&Bench, &str) -> (usize, usize),
    aim: fn(Call) -> Option<Target>,
) -> Result<()> {
    let mut wanted = Vec::new();
    for store in bench.stores() {
        let wants = |call: &Call| {
            // On DynamoDB ten events or messages are ten requests side by side, which one bare connection is not; and an edit
            // names the position of the record before its own, which no recording knows.
            let unlike = matches!(call, Call::PublishTen | Call::Batch | Call::BatchAgain | Call::Edit);
            let apart = unlike && store.starts_with("dynamodb");
            !apart && bench.wants(section, &format!("{store}: {}", title(*call)))
        };
        wanted.extend(calls.iter().copied().filter(wants).map(|call| (store, call)));
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let mut worker = bench.worker(HashMap::new())?;
    let mut rounds: Vec<Vec<(Measured, Measured)>> = vec![Vec::new(); wanted.len()];
    for round in 0..bench.options.either(3, 7) {
        bench.say(&format!("{section}, ours and bare in turns: round {}", round + 1));
        for ((store, call), rounds) in wanted.iter().zip(&mut rounds) {
            if *store == "dynamodb-local" && round >= 5 {
                continue;
            }
            let (calls, blocks) = size(bench, store);
            let sides = vec![Side::Ours, Side::Bare];
            let order = Measure { call: *call, store: (*store).to_owned(), callers: 1, calls, blocks, sides };
            if let [ours, bare] = worker.measure(order)?.as_slice() {
                rounds.push((*ours, *bare));
            }
        }
    }
    for ((store, call), rounds) in wanted.into_iter().zip(rounds) {
        let name = format!("{store}: {}", title(call));
        let both = |figure: fn(&Measured) -> f64| -> Vec<(f64, f64)> {
            rounds.iter().map(|(ours, bare)| (figure(ours), figure(bare))).collect()
        };
        let row = Row::compared(section, name, Unit::Micros, "bare", &both(|measured| measured.p50))
            .detail("p99", Unit::Micros, &both(|measured| measured.p99))
            .detail("CPU for 1 000", Unit::CpuSeconds, &both(Measured::cpu_per_thousand));
        bench.rows.push(row.maybe_target(aim(call)));
    }
    Ok(())
}

/// The figures that the seeds promise, on a local Redis.
pub fn seeds(bench: &mut Bench) -> Result<()> {
    let call = |worker: &mut crate::contestant::Contestant, call: Call| -> Result<Measured> {
        let calls = 500;
        let order = Measure {
            call,
            store: "redis".to_owned(),
            callers: 1,
            calls,
            blocks: 1,
            sides: vec![Side::Ours],
        };
        worker.measure(order)?.pop().ok_or_else(|| "no measure".into())
    };
    let millis = |measured: &[Measured]| Spread::of(measured.iter().map(|one| one.p95 / 1000.0)).median;
    let rates = |measured: &[Measured]| Spread::of(measured.iter().map(Measured::rate)).median;
    if !bench.wants(SEEDS, "redis: lock get set delete reads writes") {
        return Ok(());
    }
    bench.say("the seeds' own figures, on Redis");
    let mut worker = bench.worker(HashMap::new())?;
    let calls = [Call::Lock, Call::Get, Call::Set, Call::Delete];
    let mut measured: HashMap<Call, Vec<Measured>> = HashMap::new();
    for _ in 0..bench.options.either(2, 5) {
        for one in calls {
            measured.entry(one).or_default().push(call(&mut worker, one)?);
        }
    }
    let [lock, get, set, delete] = calls.map(|call| measured.remove(&call).unwrap_or_default());
    let mut add = |name: &str, unit, ours, target| {
        bench.rows.push(Row::new(SEEDS, format!("redis: {name}"), unit, ours).target(target));
    };
    add("lock, acquire + release, p95", Unit::Millis, millis(&lock), Target::AtMost(1.0));
    add("get, p95", Unit::Millis, millis(&get), Target::AtMost(20.0));
    add("set, p95", Unit::Millis, millis(&set), Target::AtMost(30.0));
    add("delete, p95", Unit::Millis, millis(&delete), Target::AtMost(20.0));
    add("reads, one caller", Unit::PerSecond, rates(&get), Target::AtLeast(1000.0));
    add("writes, one caller", Unit::PerSecond, rates(&set), Target::AtLeast(500.0));
    Ok(())
}
