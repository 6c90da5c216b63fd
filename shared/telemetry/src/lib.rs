#![doc = include_str!("../README.md")]

mod metrics;

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

pub use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use metrics::Registry;

fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(Registry::default)
}

/// Logs to standard output, one JSON object a line. `RUST_LOG` (`info`, `onetap_store=debug,warn`, …) decides what is
/// logged, else Lambda's own `AWS_LAMBDA_LOG_LEVEL`, else it is `info`. A second call changes nothing.
pub fn init() {
    log(LevelFilter::INFO, BoxMakeWriter::new(std::io::stdout));
}

/// The same for a program that talks to somebody at a terminal: logs go to standard error, and it is for `RUST_LOG` to
/// ask for more than warnings; with `quiet`, more than errors.
pub fn init_terminal(quiet: bool) {
    let default = if quiet { LevelFilter::ERROR } else { LevelFilter::WARN };
    log(default, BoxMakeWriter::new(std::io::stderr));
}

/// The same to a `writer` of the caller's, at `default` unless the environment asks for something else: for tests that
/// look through everything that is said.
pub fn init_with(default: LevelFilter, writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static) {
    log(default, BoxMakeWriter::new(writer));
}

fn log(default: LevelFilter, writer: BoxMakeWriter) {
    let level =
        |name: &str| std::env::var(name).ok().and_then(|value| value.to_lowercase().parse::<Targets>().ok());
    let filter = level("RUST_LOG")
        .or_else(|| level("AWS_LAMBDA_LOG_LEVEL"))
        .unwrap_or_else(|| Targets::new().with_default(default));
    let lines = tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .with_current_span(true)
        .with_span_list(false)
        .with_writer(writer);
    // Below debug the crates underneath log whole events, and a user's words with them: that is never asked for.
    let no_bodies = LevelFilter::DEBUG;
    // An error says that somebody, a test perhaps, has set up logging already.
    let _ = tracing_subscriber::registry().with(filter).with(no_bodies).with(lines).try_init();
}

/// One more of `name`.
pub fn count(name: &'static str, labels: &[(&'static str, &str)]) {
    add(name, labels, 1);
}

/// `n` more of `name`. 0 is told too, so that a metric can be there before anything was counted.
pub fn add(name: &'static str, labels: &[(&'static str, &str)], n: u64) {
    registry().add(name, labels, n);
}

/// One more measurement of `name`, kept in seconds.
pub fn observe(name: &'static str, labels: &[(&'static str, &str)], took: Duration) {
    registry().observe(name, labels, took.as_secs_f64());
}

/// Everything since the process began, in Prometheus' text format.
pub fn prometheus() -> String {
    registry().prometheus()
}

/// Everything since the last call, as lines of CloudWatch's embedded metric format.
pub fn emf() -> Vec<String> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    registry().emf(u64::try_from(now.as_millis()).unwrap_or_default())
}

/// At the end of an invocation: prints [`emf`] where CloudWatch reads it, which is inside Lambda.
#[allow(clippy::print_stdout, reason = "on Lambda, standard output is where CloudWatch takes metrics from")]
pub fn flush() {
    static ON_LAMBDA: OnceLock<bool> = OnceLock::new();
    if *ON_LAMBDA.get_or_init(|| std::env::var_os("AWS_LAMBDA_FUNCTION_NAME").is_some()) {
        for line in emf() {
            println!("{line}");
        }
    }
}
