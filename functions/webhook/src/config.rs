//! The settings that the function reads from its environment.

use std::time::Duration;

use onetap_config::{ConfigError, Variables};

/// The settings of a [`Webhook`](crate::Webhook).
#[derive(Clone, Debug)]
pub struct Config {
    /// Those of every bot: its channels, its lock, its markers, its time limits.
    pub bot: onetap_bot::Config,
    /// `PROCESSING_LOCK_SCOPE`: which events take the processing lock.
    pub scope: Scope,
    /// Time limit for one forecast, so that the reply still fits into the delivery.
    pub forecast_timeout: Duration,
    /// How long the ledger keeps what (`LAST_TRANSACTION_TTL`, `LEDGER_RETENTION_DAYS`).
    pub ledger: onetap_ledger::Config,
}

/// Which events take the processing lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Buttons that can be tapped twice in a second: the saved places' forecasts and the recent places.
    Selective,
    /// Every text, location and button.
    All,
}

/// The time limits of a delivery, for a caller that stands in for LINE, and waits longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Time limit for a whole delivery.
    pub delivery: Duration,
    /// Time limit for one forecast.
    pub forecast: Duration,
    /// Time limit for one reply.
    pub reply: Duration,
}

impl Default for Times {
    fn default() -> Times {
        let onetap_bot::Times { delivery, reply } = onetap_bot::Times::default();
        Times { delivery, forecast: Duration::from_secs(1), reply }
    }
}

impl Config {
    /// Reads `variables`.
    pub fn from_variables(variables: &Variables<'_>) -> Result<Config, ConfigError> {
        let scope = match variables.optional("PROCESSING_LOCK_SCOPE")?.as_deref() {
            None | Some("selective") => Scope::Selective,
            Some("all") => Scope::All,
            Some(_) => return Err(ConfigError::new("PROCESSING_LOCK_SCOPE", "is not selective or all")),
        };
        Ok(Config {
            bot: onetap_bot::Config::from_variables(variables)?,
            scope,
            forecast_timeout: Times::default().forecast,
            ledger: onetap_ledger::Config::from_variables(variables)?,
        })
    }

    /// The same with these time limits.
    #[must_use]
    pub fn with_times(mut self, times: Times) -> Config {
        let Times { delivery, forecast, reply } = times;
        self.bot.times = onetap_bot::Times { delivery, reply };
        Config { forecast_timeout: forecast, ..self }
    }
}
