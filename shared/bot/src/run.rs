//! A bot as a Lambda function.

use std::process::ExitCode;

use lambda_http::service_fn;
use onetap_config::{ConfigError, Variables};
use onetap_http::Client;

use crate::{Bot, Error, Webhook};

/// Runs `bot` as a Lambda function: logs and metrics are set up, the settings are read from the environment, and connections are
/// opened beside the first poll. Returns only if a variable is missing or wrong, after a line that names it, or if Lambda's
/// runtime ends.
pub async fn run(bot: impl Bot) -> ExitCode {
    run_with(|_, _| Ok(bot)).await
}

/// The same for a bot that has settings of its own, or calls other services over the HTTP client that LINE's API uses too.
#[allow(clippy::print_stderr, reason = "Lambda logs what a program prints before it ends")]
pub async fn run_with<B: Bot>(
    bot: impl FnOnce(&Variables<'_>, &Client) -> Result<B, ConfigError>,
) -> ExitCode {
    onetap_telemetry::init();
    let ended = async {
        let webhook = Webhook::from_variables(&Variables::from_env(), bot)?;
        let service = service_fn(|request| webhook.invoke(request));
        let ((), ended) = tokio::join!(webhook.warm_up(), lambda_http::run(service));
        ended as Result<(), Error>
    };
    match ended.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
