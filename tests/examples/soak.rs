//! Histories for as long as one likes: see `scripts/soak`.
#![allow(clippy::print_stdout, reason = "a program for a person at a terminal")]

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onetap_tests::history::seed::Seed;
use onetap_tests::history::table::{Table, Total};
use onetap_tests::history::{Backend, Outcome, on_memory, on_servers};

const RUN: Duration = Duration::from_secs(40);
const USAGE: &str = "usage: scripts/soak [--minutes N] [--backend memory|redis|upstash|dynamodb|dynamodb_local|all] [--seed S]";

struct Settings {
    minutes: f64,
    length: Duration,
    backends: Vec<Backend>,
    seed: u64,
}

impl Settings {
    /// The command that repeats the run.
    fn command(&self) -> String {
        let backend = match self.backends.as_slice() {
            [one] => one.name(),
            _ => "all",
        };
        format!("scripts/soak --minutes {} --backend {backend} --seed {}", self.minutes, self.seed)
    }
}

fn settings() -> Option<Settings> {
    let mut settings = Settings {
        minutes: 10.0,
        length: Duration::from_secs(600),
        backends: Backend::ALL.to_vec(),
        seed: Seed::from_env(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(option) = arguments.next() {
        let value = arguments.next()?;
        match option.as_str() {
            "--minutes" => {
                settings.minutes = value.parse().ok()?;
                settings.length = Duration::try_from_secs_f64(settings.minutes * 60.0).ok()?;
            }
            "--seed" => settings.seed = value.parse().ok()?,
            "--backend" if value == "all" => {}
            "--backend" => settings.backends.retain(|backend| backend.name() == value),
            _ => return None,
        }
    }
    Some(settings).filter(|settings| !settings.backends.is_empty())
}

#[tokio::main]
async fn main() -> ExitCode {
    let Some(settings) = settings() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    println!("{}", settings.command());
    let (table, started) = (Arc::new(Mutex::new(Table::default())), Instant::now());
    let mut soaks = tokio::task::JoinSet::new();
    for backend in settings.backends.clone() {
        let (end, table) = (started + settings.length, Arc::clone(&table));
        // A thread each: what tests await is not made to move between threads.
        soaks.spawn_blocking(move || {
            let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
            runtime.block_on(soak(backend, settings.seed, end, table));
            Ok::<(), String>(())
        });
    }
    let mut ticks = tokio::time::interval(Duration::from_secs(10));
    loop {
        tokio::select! {
            ended = soaks.join_next() => match ended {
                Some(Ok(Ok(()))) => {}
                Some(_) => return ExitCode::FAILURE,
                None => break,
            },
            _ = ticks.tick() => progress(&table, &settings.backends, started),
        }
    }
    progress(&table, &settings.backends, started);
    let Ok(table) = table.lock() else { return ExitCode::FAILURE };
    let page = table.page(&settings.command());
    println!("\n{page}");
    if let Err(error) = std::fs::write("target/soak.md", page) {
        eprintln!("target/soak.md cannot be written: {error}");
    }
    let sound = settings.backends.iter().all(|backend| table.total(*backend).cell.violations == 0);
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Run after run, each from a seed of its own, until the time is up.
async fn soak(backend: Backend, first: u64, end: Instant, table: Arc<Mutex<Table>>) {
    for seed in first.. {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        // No run is too short for each fault to happen.
        let length = RUN.min(left.max(RUN / 2));
        let outcome = match backend {
            Backend::Memory => {
                let run = tokio::task::spawn_blocking(move || on_memory(seed, RUN, None)).await;
                // A run on a paused clock computes all the time. The pause leaves the processors to the runs on servers.
                tokio::time::sleep(Duration::from_secs(2).min(left)).await;
                run.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
            }
            _ => on_servers(backend, seed, length).await,
        };
        tell(&outcome);
        if let Ok(mut table) = table.lock() {
            table.add(&outcome);
        }
    }
}

fn tell(outcome: &Outcome) {
    if outcome.report.violations.is_empty() {
        return;
    }
    println!(
        "VIOLATION on {}, seed {}, history in {}",
        outcome.backend.name(),
        outcome.seed,
        outcome.save().display()
    );
    for violation in &outcome.report.violations {
        println!("{violation}");
    }
}

fn progress(table: &Mutex<Table>, backends: &[Backend], started: Instant) {
    let Ok(table) = table.lock() else { return };
    let line: Vec<String> = backends
        .iter()
        .map(|backend| {
            let Total { cell, unknown, runs } = table.total(*backend);
            let (calls, bad) = (cell.calls, cell.violations);
            format!("{} {runs} runs, {calls} calls, {unknown} unknown, {bad} violations", backend.name())
        })
        .collect();
    println!("{:>4} s  {}", started.elapsed().as_secs(), line.join("; "));
}
