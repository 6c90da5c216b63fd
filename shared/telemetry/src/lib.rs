#![doc = include_str!("../README.md")]

mod recorder;
mod service;

use std::sync::OnceLock;

pub use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

pub use recorder::Recorder;
pub use service::Service;

/// The program's recorder, once it is installed.
static RECORDER: OnceLock<Recorder> = OnceLock::new();
/// The service that the program is a part of, once the recorder is installed.
static SERVICE: OnceLock<Service> = OnceLock::new();

/// Sets up logs and metrics for a program on Lambda; a second call changes nothing.
///
/// Logs go to standard output, one JSON object a line. `RUST_LOG` (`info`, `onetap_store=debug,warn`, …) decides what is
/// logged, else Lambda's own `AWS_LAMBDA_LOG_LEVEL`, else it is `info`. A panic is logged by its place in the code, without its
/// message, which may quote what a user wrote.
pub fn init() {
    install(LevelFilter::INFO, BoxMakeWriter::new(std::io::stdout));
    std::panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(tracing::field::display);
        tracing::error!(location, "panic");
    }));
}

/// The same for a program at a terminal: logs go to standard error, and without `RUST_LOG` only warnings and errors are
/// logged, with `quiet` only errors.
pub fn init_terminal(quiet: bool) {
    let default = if quiet { LevelFilter::ERROR } else { LevelFilter::WARN };
    install(default, BoxMakeWriter::new(std::io::stderr));
}

/// The same with the logs in `writer`, at level `default` unless the environment sets another: for tests that search all
/// output.
pub fn init_with(default: LevelFilter, writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static) {
    install(default, BoxMakeWriter::new(writer));
}

fn install(default: LevelFilter, writer: BoxMakeWriter) {
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
    // At trace level dependencies log whole events, with what a user wrote: never allow it.
    let no_bodies = LevelFilter::DEBUG;
    // An error means that this process has a subscriber or a recorder already.
    let _ = tracing_subscriber::registry().with(filter).with(no_bodies).with(lines).try_init();
    let _ = metrics::set_global_recorder(RECORDER.get_or_init(Recorder::default));
    SERVICE.get_or_init(Service::from_env);
}

/// [`Recorder::prometheus`] of the program's recorder; nothing before `init…`.
pub fn prometheus() -> String {
    RECORDER.get().map(Recorder::prometheus).unwrap_or_default()
}

/// [`Recorder::emf`] of the program's recorder, with the [`Service`] that the environment names; nothing before `init…`.
pub fn emf() -> Vec<String> {
    RECORDER.get().zip(SERVICE.get()).map(|(recorder, service)| recorder.emf(service)).unwrap_or_default()
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
