#![doc = include_str!("../README.md")]

pub mod ask;
mod assistant;
pub mod bookkeeping;
mod config;
pub mod profile;
pub mod replies;
mod small_talk;
pub mod weather;

use std::sync::Arc;

use onetap_config::{ConfigError, Variables};
use onetap_store::Store;
use onetap_weather::Forecasts;

pub use assistant::Assistant;
pub use config::{Config, Scope, Times};
pub use onetap_bot::{Ended, Ending, Endings};

/// The function: the [`Assistant`], as a bot.
pub type Webhook = onetap_bot::Webhook<Assistant>;

/// The function as the environment describes it.
pub fn from_variables(variables: &Variables<'_>) -> Result<Webhook, ConfigError> {
    Webhook::from_variables(variables, Assistant::from_variables)
}

/// The function on this store and this weather.
pub fn on(
    store: Arc<dyn Store>,
    weather: Arc<Forecasts>,
    http: &onetap_http::Client,
    config: Config,
) -> Result<Webhook, ConfigError> {
    Webhook::new(store, Assistant::new(weather, &config), http, config.bot)
}
