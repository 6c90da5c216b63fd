//! From exec to the first poll and the first answer, memory once warm, and the size of the file.

use std::collections::BTreeMap;
use std::path::Path;

use onetap_config::Secret;
use onetap_line::testing::MessagingApi;

use super::{Bench, PEERS, PROGRAMS, PYTHON, UPSTASH_PROGRAMS, example};
use crate::Result;
use crate::programs::{ACCESS_TOKEN, Numbers, Program, event, function, hello, messages, tap};
use crate::report::{Row, Target, Unit};
use crate::stats::Spread;

const SECTION: &str = "start";
const FUNCTIONS: [&str; 4] = ["webhook", "edit-last-transaction", "queue-consumer", "job-events"];
/// Calls after which a function counts as warm.
const WARM: u64 = 100;

/// What is started, and what was seen of it, round by round.
struct Entrant {
    name: String,
    program: Program,
    kind: Kind,
    /// By round: to the first poll and to the first answer, in milliseconds.
    starts: BTreeMap<usize, (f64, f64)>,
    /// Resident and at most, in megabytes.
    memory: Vec<(f64, f64)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Hello,
    Upstash,
    UpstashAlone,
    DynamoDb,
    Peer,
}

impl Entrant {
    fn new(name: impl Into<String>, program: Program, kind: Kind) -> Entrant {
        let name = name.into();
        Entrant { name, program, kind, starts: BTreeMap::new(), memory: Vec::new() }
    }

    /// Starts it once; in the first rounds it is kept until it is warm.
    fn enter(&mut self, round: usize) -> Result<()> {
        let complaint = |error| format!("{}: {error}", self.name);
        let mut function = self.program.start().map_err(complaint)?;
        let poll = function.first_poll().map_err(complaint)?.as_secs_f64() * 1e3;
        let answer = function.first_answer().map_err(complaint)?.as_secs_f64() * 1e3;
        self.starts.insert(round, (poll, answer));
        if self.memory.len() < 3 {
            function.invoke(&self.workday()?).map_err(complaint)?;
            let (resident, peak) = function.memory()?;
            self.memory.push((resident as f64 / 1e6, peak as f64 / 1e6));
        }
        Ok(())
    }

    /// What makes it warm: events that reach the store, where its first one does not.
    fn workday(&self) -> Result<Vec<Vec<u8>>> {
        let first = Numbers::Start.first() + self.memory.len() as u64 * WARM;
        let numbers = first..first + WARM;
        match self.name.split(',').next() {
            Some("webhook") => numbers.map(tap).collect(),
            Some("queue-consumer") => numbers.map(|number| messages(number, 1)).collect(),
            _ => Ok(numbers.map(|_| self.program.event.clone()).collect()),
        }
    }

    /// Both figures of all rounds in which both were started.
    fn beside(&self, other: &Entrant, figure: fn(&(f64, f64)) -> f64) -> Vec<(f64, f64)> {
        let both = self
            .starts
            .iter()
            .filter_map(|(round, ours)| Some((figure(ours), figure(other.starts.get(round)?))));
        both.collect()
    }
}

/// Starts everything, in turns.
pub fn run(bench: &mut Bench) -> Result<()> {
    if !bench.wants(SECTION, "poll answer resident peak size webhook edit queue job python node hello") {
        return Ok(());
    }
    let line = MessagingApi::start(Secret::new(ACCESS_TOKEN))?;
    let mut entrants = entrants(bench, &line.url())?;
    let rounds = bench.options.either(6, 20);
    for round in 0..rounds {
        if round % 5 == 0 {
            bench.say(&format!("starts, all programs in turns: round {} of {rounds}", round + 1));
        }
        for entrant in &mut entrants {
            // A start in Python takes as long as all of ours together.
            if entrant.kind != Kind::Peer || round % 3 == 0 {
                entrant.enter(round)?;
            }
        }
    }
    report(bench, &entrants)
}

fn entrants(bench: &Bench, line_api: &str) -> Result<Vec<Entrant>> {
    let verify = event("webhook/verify.json")?;
    let floor = hello(example("hello"), r#""statusCode":200"#, verify);
    let mut entrants = vec![Entrant::new("hello", floor, Kind::Hello)];
    for name in FUNCTIONS {
        for (kind, store, folder, label) in [
            (Kind::Upstash, "upstash", PROGRAMS, "Upstash"),
            (Kind::UpstashAlone, "upstash", UPSTASH_PROGRAMS, "built for Upstash alone"),
            (Kind::DynamoDb, "dynamodb", PROGRAMS, "DynamoDB"),
        ] {
            let program = function(name, Path::new(folder), &bench.variables(store)?, line_api)?;
            entrants.push(Entrant::new(format!("{name}, {label}"), program, kind));
        }
    }
    for (name, path, arguments) in [
        ("Python + Powertools", PYTHON, &["-m", "awslambdaric", "function.handler"][..]),
        ("Node + Powertools", "node", &["function.mjs"][..]),
    ] {
        let mut arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        if path == "node" {
            arguments[0] = format!("{PEERS}/{}", arguments[0]);
        }
        let (path, variables, event) =
            (path.into(), bench.peer_variables()?, br#"{"id":"order-1"}"#.to_vec());
        let program = Program { path, arguments, variables, good: "charged", event };
        entrants.push(Entrant::new(name, program, Kind::Peer));
    }
    Ok(entrants)
}

fn report(bench: &mut Bench, entrants: &[Entrant]) -> Result<()> {
    let Some((hello, rest)) = entrants.split_first() else { return Ok(()) };
    let find = |name: &str| entrants.iter().find(|entrant| entrant.name.starts_with(name));
    let (Some(python), Some(node)) = (find("Python"), find("Node")) else { return Ok(()) };
    let median = |values: &[f64]| Spread::of(values.iter().copied()).median;
    let to_poll = |start: &(f64, f64)| start.0;
    let to_answer = |start: &(f64, f64)| start.1;
    let mut rows = Vec::new();
    for entrant in rest.iter().filter(|entrant| entrant.kind != Kind::Peer) {
        let most = if entrant.kind == Kind::DynamoDb { 2.0 } else { 1.5 };
        let row = |against: &str, other: &Entrant| {
            let name = format!("{}: exec to first poll", entrant.name);
            Row::compared(SECTION, name, Unit::Millis, against, &entrant.beside(other, to_poll)).detail(
                "first answer",
                Unit::Millis,
                &entrant.beside(other, to_answer),
            )
        };
        rows.push(row("hello", hello).target(Target::RatioAtMost(most)));
        rows.push(row("Python", python).target(Target::RatioAtMost(0.1)));
        rows.push(row("Node", node));
    }
    for entrant in entrants {
        let (resident, peak): (Vec<f64>, Vec<f64>) = entrant.memory.iter().copied().unzip();
        let row = Row::new(
            SECTION,
            format!("{}: resident, warm", entrant.name),
            Unit::Megabytes,
            median(&resident),
        );
        let row = Row { against: format!("peak {}", Unit::Megabytes.show(median(&peak))), ..row };
        rows.push(match entrant.kind {
            Kind::Upstash | Kind::UpstashAlone => row.target(Target::AtMost(10.0)),
            Kind::DynamoDb => row.target(Target::AtMost(16.0)),
            Kind::Hello | Kind::Peer => row,
        });
    }
    for entrant in entrants.iter().filter(|entrant| !matches!(entrant.kind, Kind::Peer | Kind::Upstash)) {
        let bytes = std::fs::metadata(&entrant.program.path)?.len();
        let row = Row::new(
            SECTION,
            format!("{}: size of the binary", entrant.name),
            Unit::Megabytes,
            bytes as f64 / 1e6,
        );
        rows.push(match entrant.kind {
            Kind::UpstashAlone => row.target(Target::AtMost(4.0)),
            Kind::DynamoDb => row.target(Target::AtMost(7.0)),
            _ => row,
        });
    }
    rows.retain(|row| bench.wants(SECTION, &row.name));
    bench.rows.extend(rows);
    Ok(())
}
