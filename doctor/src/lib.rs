#![doc = include_str!("../README.md")]
//!
//! Layout: a [`Finding`] is the result of a check, a [`Report`] collects and shows them. Each other file has the checks of
//! one service or concern: `variables`; `store`, with `promises` over `store_record`, and `clock`; `redis`, which is
//! Upstash too; `dynamodb`; `line`; `weather`.

mod arguments;
mod clock;
mod dynamodb;
mod finding;
pub mod line;
mod promises;
mod redis;
mod report;
mod store;
mod store_record;
mod variables;
pub mod weather;

use std::cell::Cell;
use std::future::pending;
use std::io::{IsTerminal, Write, stdout};
use std::process::ExitCode;
use std::time::Duration;

use onetap_config::Variables;
use tokio::signal::ctrl_c;
use tokio::time::Instant;

pub use arguments::{Command, HELP, Options};
pub use dynamodb::{RIGHTS, Right};
pub use finding::{Finding, Status, limited};
pub use report::{Format, Report};

/// Runs the program. The exit code is 0, or 1 if anything is wrong, or 2 for wrong arguments, or 130 after Ctrl-C.
pub async fn main(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    let options = match Command::parse(arguments) {
        Ok(Command::Examine(options)) => options,
        Ok(Command::Help) => {
            // A closed pipe is no failure.
            let _ = stdout().write_all(HELP.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let mut report = Report::new(format(&options), stdout());
    let variables = Variables::from_env();
    let interrupted = Cell::new(false);
    let interruption = async {
        if ctrl_c().await.is_err() {
            pending::<()>().await;
        }
        interrupted.set(true);
        promises::stop().await;
    };
    tokio::select! {
        () = examine(&variables, &options, &mut report) => {}
        () = interruption => {}
    }
    if interrupted.get() { ExitCode::from(130) } else { report.finish() }
}

/// Colours are for terminals, and not for people who set `NO_COLOR`.
fn format(options: &Options) -> Format {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if options.json { Format::Json } else { Format::Text { coloured: stdout().is_terminal() && !plain } }
}

/// Checks everything that `variables` name: the store, LINE and the weather at the same time, shown one after the other.
pub async fn examine(variables: &Variables<'_>, options: &Options, report: &mut Report) {
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let functions = variables::examine(variables, report);
    let (mut line, mut weather) = (Report::silent(), Report::silent());
    tokio::join!(
        store::examine(variables, &functions, end, report),
        line::examine(variables, options.send, &mut line),
        weather::examine(variables, &mut weather),
    );
    [line, weather].into_iter().for_each(|silent| report.extend(silent));
}
