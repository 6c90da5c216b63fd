//! The program behind `cargo local`: it serves the page or runs the demo, and returns an exit code.

use std::io::Write;
use std::process::ExitCode;

use onetap_bot::Bot;
use onetap_config::{ConfigError, Variables};
use onetap_http::Client;

use crate::arguments::{Command, HELP, Options};
use crate::{Local, OwnBot, demo};

/// Runs the program. The exit code is 0 after a stop or a demo without mistakes, 1 if it cannot start or the demo finds
/// a mistake, 2 for wrong arguments.
pub async fn main(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    main_with(arguments, None).await
}

/// The same program, with the command line's arguments, where the phone talks to a bot of your own.
///
/// ```no_run
/// use onetap_bot::{Incoming, Message, reply_fn};
///
/// #[tokio::main]
/// async fn main() -> std::process::ExitCode {
///     onetap_local::run(reply_fn(|incoming: &Incoming<'_>| incoming.text().map(Message::text))).await
/// }
/// ```
pub async fn run(bot: impl Bot) -> ExitCode {
    run_with(|_, _| Ok(bot)).await
}

/// The same for a bot that has settings of its own, as `onetap_bot::run_with` takes it.
pub async fn run_with<B: Bot>(
    bot: impl FnOnce(&Variables<'_>, &Client) -> Result<B, ConfigError> + 'static,
) -> ExitCode {
    main_with(std::env::args().skip(1), Some(OwnBot::new(bot))).await
}

async fn main_with(arguments: impl IntoIterator<Item = String>, own_bot: Option<OwnBot>) -> ExitCode {
    let options = match Command::parse(arguments) {
        Ok(Command::Run(options)) => options,
        Ok(Command::Help) => {
            print(HELP.trim_end());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    if options.demo && own_bot.is_some() {
        eprintln!("--demo tells the story of the bundle's own bot");
        return ExitCode::from(2);
    }
    onetap_telemetry::init_terminal(options.demo);
    match serve(&options, own_bot).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(options: &Options, own_bot: Option<OwnBot>) -> Result<ExitCode, crate::StartError> {
    let interrupted = interruption();
    let local = Local::start_with(options, &Variables::from_env(), own_bot).await?;
    let url = local.url();
    let code = if options.demo {
        tokio::select! {
            right = demo::run(&url, print) => if right { ExitCode::SUCCESS } else { ExitCode::FAILURE },
            () = interrupted => ExitCode::FAILURE,
        }
    } else {
        print(&local.greeting());
        interrupted.await;
        ExitCode::SUCCESS
    };
    local.stop().await;
    Ok(code)
}

/// Prints a line. A closed pipe is no failure.
fn print(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Waits for Ctrl-C or SIGTERM. The handlers are installed by this call, not when the future is first polled.
#[cfg(unix)]
fn interruption() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};

    // A signal whose handler cannot be installed ends the program as usual.
    let [mut interrupt, mut terminate] =
        [SignalKind::interrupt(), SignalKind::terminate()].map(|kind| signal(kind).ok());
    async move {
        let received = async |signal: &mut Option<_>| match signal {
            Some(signal) => drop(tokio::signal::unix::Signal::recv(signal).await),
            None => std::future::pending().await,
        };
        tokio::select! { () = received(&mut interrupt) => {}, () = received(&mut terminate) => {} }
    }
}

#[cfg(not(unix))]
async fn interruption() {
    let _ = tokio::signal::ctrl_c().await;
}
