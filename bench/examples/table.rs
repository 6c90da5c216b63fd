//! The table: starts the servers and the contestants, measures, prints. `scripts/bench` builds and runs it.
#![allow(clippy::print_stdout, reason = "the table is what it is for")]

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};

use onetap_bench::Result;
use onetap_bench::report::Report;
use onetap_bench::rows::{
    Bench, Options, counts, first_byte, first_tap, scale, start, store, streams, throughput, warm,
};
use onetap_bench::{chart, summary};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the benchmark stopped: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut options = Options::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => options.quick = true,
            "--redraw" => return redraw(),
            "--only" => options.only = Some(arguments.next().ok_or("--only needs a part of a row's name")?),
            other => return Err(format!("unknown argument {other}; see scripts/bench --help").into()),
        }
    }
    let mut bench = Bench::start(options.clone())?;
    // What is exact comes first.
    for section in [
        counts::run,
        store::run,
        store::months,
        throughput::run,
        start::run,
        first_tap::run,
        warm::run,
        first_byte::run,
        scale::run,
        streams::run,
        store::seeds,
    ] {
        section(&mut bench)?;
    }
    let (seconds, rows) = (bench.seconds(), std::mem::take(&mut bench.rows));
    if rows.is_empty() {
        return Err("no row has such a name".into());
    }
    let report = Report { machine: machine(), quick: options.quick, seconds, rows };
    print!("{}", report.table());
    match options {
        Options { only: Some(_), .. } => Ok(()),
        Options { quick: true, .. } => write(&report, "target/bench/results.json", "target/bench/bench.svg"),
        Options { .. } => {
            write(&report, RESULTS, PICTURE)?;
            into_readme(&report)
        }
    }
}

const RESULTS: &str = "bench/results.json";
const PICTURE: &str = "docs/bench.svg";

fn write(report: &Report, results: &str, picture: &str) -> Result<()> {
    std::fs::write(results, serde_json::to_string_pretty(report)? + "\n")?;
    std::fs::write(picture, chart::draw(report))?;
    println!("written to {results} and {picture}");
    Ok(())
}

fn into_readme(report: &Report) -> Result<()> {
    let readme = std::fs::read_to_string("README.md")?;
    let readme = summary::placed(&readme, &summary::table(report));
    Ok(std::fs::write("README.md", readme.ok_or("README.md keeps no place for the table")?)?)
}

/// The picture and the README's table again, from what was measured last.
fn redraw() -> Result<()> {
    let report: Report = serde_json::from_str(&std::fs::read_to_string(RESULTS)?)?;
    std::fs::write(PICTURE, chart::draw(&report))?;
    into_readme(&report)
}

/// What it was measured on.
fn machine() -> BTreeMap<String, String> {
    let said = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let cpu = std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    let python = "import importlib.metadata as m; print(', '.join(f'{p} {m.version(p)}' for p in \
        ['aws-lambda-powertools', 'boto3', 'redis', 'awslambdaric']))";
    let cores = std::thread::available_parallelism().map(|cores| cores.to_string()).ok();
    [
        ("processor", cpu),
        ("cores", cores),
        (
            "redis",
            said("redis-server", &["--version"])
                .and_then(|text| Some(text.split_whitespace().nth(2)?.to_owned())),
        ),
        ("node", said("node", &["--version"])),
        ("python", said("target/tools/bench/bin/python", &["--version"])),
        ("python packages", said("target/tools/bench/bin/python", &["-c", python])),
        ("rust", said("rustc", &["--version"])),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.to_owned(), value?)))
    .collect()
}
