//! The same idempotent call by several callers, and the same batches of SQS messages: ours, Powertools in Python and in
//! JavaScript, on the same servers; and the lock of seed 000.

use std::collections::HashMap;

use super::Bench;
use crate::Result;
use crate::contestant::Contestant;
use crate::orders::{Call, Measure, Measured, Side};
use crate::ours::MESSAGES;
use crate::report::{Row, Target, Unit};

const SECTION: &str = "throughput";
const PYTHON: &str = "Powertools Python";
const TYPESCRIPT: &str = "Powertools TypeScript";
const REDIS_PY: &str = "redis-py";
const BARE: &str = "bare";
const MULTIPLEXED: &str = "the redis crate";

/// Who takes part in a race, with what each round showed.
struct Race {
    store: &'static str,
    call: Call,
    callers: usize,
    rivals: Vec<&'static str>,
    ours: Vec<Measured>,
    theirs: Vec<Vec<Measured>>,
}

impl Race {
    fn name(&self) -> String {
        let call = match self.call {
            Call::Execute => "execute, first",
            Call::Replay => "execute, replay",
            // A function gets one batch at a time.
            Call::Batch => return format!("{}: SQS messages in batches of ten", self.store),
            Call::BatchAgain => return format!("{}: SQS messages in batches of ten, again", self.store),
            Call::Get => "get",
            Call::Set => "set",
            _ => "lock, acquire + release",
        };
        let callers =
            if self.callers == 1 { "1 caller".to_owned() } else { format!("{} callers", self.callers) };
        format!("{}: {call}, {callers}", self.store)
    }

    /// What is counted: messages of a batch, otherwise calls.
    fn pieces(&self) -> usize {
        if matches!(self.call, Call::Batch | Call::BatchAgain) { MESSAGES } else { 1 }
    }
}

fn races(bench: &Bench) -> Vec<Race> {
    let peers = [PYTHON, TYPESCRIPT];
    let mut races = Vec::new();
    for (store, call, rivals) in [
        ("redis", Call::Get, &[MULTIPLEXED][..]),
        ("redis", Call::Set, &[MULTIPLEXED][..]),
        ("redis", Call::Execute, &[PYTHON, TYPESCRIPT, BARE, MULTIPLEXED][..]),
        ("dynamodb", Call::Execute, &[PYTHON, TYPESCRIPT, BARE][..]),
        ("upstash", Call::Execute, &[BARE][..]),
        ("redis", Call::Replay, &peers[..]),
        ("dynamodb", Call::Replay, &peers[..]),
        ("redis", Call::Lock, &[REDIS_PY][..]),
        ("redis", Call::Batch, &peers[..]),
        ("dynamodb", Call::Batch, &peers[..]),
        ("redis", Call::BatchAgain, &peers[..]),
        ("dynamodb", Call::BatchAgain, &peers[..]),
    ] {
        for callers in [1, 8, 64] {
            let rivals = rivals.to_vec();
            let race = Race { store, call, callers, rivals, ours: Vec::new(), theirs: vec![Vec::new(); 4] };
            let shown = match call {
                // A replay is shown where it is hardest.
                Call::Replay => callers == 64,
                Call::Batch | Call::BatchAgain => callers == 1,
                _ => true,
            };
            if shown && bench.wants(SECTION, &race.name()) {
                races.push(race);
            }
        }
    }
    races
}

/// Runs every race, its contestants in turns.
pub fn run(bench: &mut Bench) -> Result<()> {
    let mut races = races(bench);
    if races.is_empty() {
        return Ok(());
    }
    let variables = bench.peer_variables()?;
    let mut worker = bench.worker(HashMap::new())?;
    let (mut python, mut node) = (bench.python(&variables)?, bench.node(&variables)?);
    for round in 0..bench.options.either(2, 5) {
        bench.say(&format!("throughput, ours and the peers in turns: round {}", round + 1));
        for race in &mut races {
            // Rates differ by a factor of fifty: so do the numbers of calls.
            let (fast, slow) = bench.options.either((1_000, 128), (4_000, 256));
            // Batches are slower than calls, but not ten times.
            let (fast, slow) = if race.pieces() == 1 { (fast, slow) } else { (fast / 5, slow / 5) };
            let measure = |who: &mut Contestant, calls: usize, side: Side| -> Result<Measured> {
                let (call, store, callers) = (race.call, race.store.to_owned(), race.callers);
                let order = Measure { call, store, callers, calls, blocks: 1, sides: vec![side] };
                who.measure(order)?.pop().ok_or_else(|| "no measure".into())
            };
            let calls = if race.store == "redis" { fast } else { fast / 4 };
            race.ours.push(measure(&mut worker, calls, Side::Ours)?);
            for (rival, theirs) in race.rivals.iter().zip(&mut race.theirs) {
                theirs.push(match *rival {
                    BARE => measure(&mut worker, calls, Side::Bare)?,
                    MULTIPLEXED => measure(&mut worker, calls, Side::Multiplexed)?,
                    TYPESCRIPT => measure(&mut node, slow * 2, Side::Ours)?,
                    _ => measure(&mut python, slow, Side::Ours)?,
                });
            }
        }
    }
    for race in &races {
        for (rival, theirs) in race.rivals.iter().zip(&race.theirs) {
            add(bench, race, rival, theirs);
        }
    }
    Ok(())
}

fn add(bench: &mut Bench, race: &Race, rival: &str, theirs: &[Measured]) {
    let both = |figure: &dyn Fn(&Measured) -> f64| -> Vec<(f64, f64)> {
        race.ours.iter().zip(theirs).map(|(ours, theirs)| (figure(ours), figure(theirs))).collect()
    };
    let pieces = race.pieces() as f64;
    let rates = both(&|measured| measured.rate() * pieces);
    let row = Row::compared(SECTION, race.name(), Unit::PerSecond, rival, &rates)
        .detail("p50", Unit::Micros, &both(&|measured| measured.p50))
        .detail("p99", Unit::Micros, &both(&|measured| measured.p99))
        .detail("CPU for 1 000", Unit::CpuSeconds, &both(&|measured| measured.cpu_per_thousand() / pieces));
    let judged =
        matches!((race.call, race.callers), (Call::Execute, 64) | (Call::Batch | Call::BatchAgain, _));
    bench.rows.push(match rival {
        PYTHON if judged => row.target(Target::RatioAtLeast(10.0)),
        TYPESCRIPT if judged => row.target(Target::RatioAtLeast(4.0)),
        // Over one connection as well: at one caller this is the time, at 64 the throughput.
        MULTIPLEXED => row.target(Target::RatioAtLeast(0.9)),
        _ => row,
    });
}
