//! A bot as a Lambda function.

use lambda_http::service_fn;
use onetap_config::{ConfigError, Variables};
use onetap_http::Client;
use onetap_store::open;

use crate::{Bot, Config, Error, Webhook};

/// Runs `bot` as a Lambda function: logs and metrics are set up, the settings are read from the environment, and connections are
/// opened beside the first poll. Returns only if a variable is missing or wrong, or Lambda's runtime ends.
pub async fn run(bot: impl Bot) -> Result<(), Error> {
    run_with(|_, _| Ok(bot)).await
}

/// The same for a bot that has settings of its own, or calls other services over the HTTP client that LINE's API uses too.
pub async fn run_with<B: Bot>(
    bot: impl FnOnce(&Variables<'_>, &Client) -> Result<B, ConfigError>,
) -> Result<(), Error> {
    onetap_telemetry::init();
    let (variables, http) = (Variables::from_env(), Client::new());
    let config = Config::from_variables(&variables)?;
    let store = open(&onetap_store::Config::from_variables(&variables)?)?;
    let webhook = Webhook::new(store, bot(&variables, &http)?, &http, config)?;
    let service = service_fn(|request| webhook.invoke(request));
    tokio::join!(webhook.warm_up(), lambda_http::run(service)).1
}
