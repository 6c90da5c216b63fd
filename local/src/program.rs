//! The program: arguments in, a page or a story out, and an exit code.

use std::io::Write;
use std::process::ExitCode;

use onetap_config::Variables;

use crate::arguments::{Command, HELP, Options};
use crate::{Local, demo};

/// Does what the arguments ask for: 0 when it was stopped or the demo was right, 1 when it could not start or the demo
/// was wrong, 2 when the arguments make no sense.
pub async fn main(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    let options = match Command::parse(arguments) {
        Ok(Command::Run(options)) => options,
        Ok(Command::Help) => {
            say(HELP.trim_end());
            return ExitCode::SUCCESS;
        }
        Err(wrong) => {
            eprintln!("{wrong}");
            return ExitCode::from(2);
        }
    };
    onetap_telemetry::init_terminal(options.demo);
    match run(&options).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options) -> Result<ExitCode, crate::StartError> {
    let interrupted = interruption();
    let local = Local::start(options, &Variables::from_env()).await?;
    let url = local.url();
    let code = if options.demo {
        tokio::select! {
            right = demo::run(&url, say) => if right { ExitCode::SUCCESS } else { ExitCode::FAILURE },
            () = interrupted => ExitCode::FAILURE,
        }
    } else {
        say(&local.greeting());
        interrupted.await;
        ExitCode::SUCCESS
    };
    local.stop().await;
    Ok(code)
}

/// Prints a line. A pipe that nobody reads any more is no reason to fail.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Ctrl-C, or another process that asks politely. Heeded from this call on, not only once somebody waits for it.
#[cfg(unix)]
fn interruption() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};

    // A signal that cannot be heeded ends the program as it always would.
    let [mut interrupt, mut terminate] =
        [SignalKind::interrupt(), SignalKind::terminate()].map(|kind| signal(kind).ok());
    async move {
        let came = async |signal: &mut Option<_>| match signal {
            Some(signal) => drop(tokio::signal::unix::Signal::recv(signal).await),
            None => std::future::pending().await,
        };
        tokio::select! { () = came(&mut interrupt) => {}, () = came(&mut terminate) => {} }
    }
}

#[cfg(not(unix))]
async fn interruption() {
    let _ = tokio::signal::ctrl_c().await;
}
