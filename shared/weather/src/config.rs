//! Which providers are asked, and how long their forecasts are kept.

use std::sync::Arc;
use std::time::Duration;

use onetap_config::{ConfigError, Secret, Variables};

use crate::{Cwa, Forecasts, OpenMeteo, Provider, Sample};

/// The weather of a bot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `WEATHER_PROVIDER`
    pub provider: ProviderConfig,
    /// `WEATHER_FALLBACK_PROVIDER`: asked when the first provider fails or is late.
    pub fallback: Option<ProviderConfig>,
    /// How long forecasts are kept.
    pub keep: ForecastAges,
}

/// How long forecasts are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForecastAges {
    /// `WEATHER_FRESH_SECONDS`: a younger forecast is used without asking a provider.
    pub fresh: Duration,
    /// `WEATHER_STALE_SECONDS`: a younger forecast is used if no provider has one.
    pub stale: Duration,
}

impl Default for ForecastAges {
    fn default() -> ForecastAges {
        ForecastAges { fresh: Duration::from_secs(30 * 60), stale: Duration::from_secs(6 * 3600) }
    }
}

/// A provider, and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderConfig {
    /// The Central Weather Administration's open data.
    Cwa {
        /// `CWA_API_KEY`
        key: Secret,
        /// `CWA_API_BASE_URL`, else the public address.
        base_url: String,
    },
    /// Open-Meteo, which needs no key.
    OpenMeteo {
        /// `OPEN_METEO_BASE_URL`, else the public address.
        base_url: String,
    },
    /// Made-up weather, without a network.
    Sample,
}

impl Config {
    /// Reads `variables`.
    pub fn from_variables(variables: &Variables<'_>) -> Result<Config, ConfigError> {
        const FALLBACK: &str = "WEATHER_FALLBACK_PROVIDER";
        let name = variables.required("WEATHER_PROVIDER")?;
        let provider = ProviderConfig::named(&name, "WEATHER_PROVIDER", variables)?;
        let fallback = match variables.optional(FALLBACK)? {
            Some(fallback) if fallback == name => {
                return Err(ConfigError::new(FALLBACK, "is the same as WEATHER_PROVIDER"));
            }
            Some(fallback) => Some(ProviderConfig::named(&fallback, FALLBACK, variables)?),
            None => None,
        };
        let default = ForecastAges::default();
        let fresh = variables.seconds_or_zero("WEATHER_FRESH_SECONDS", default.fresh.as_secs())?;
        let stale = variables.seconds("WEATHER_STALE_SECONDS", default.stale.as_secs())?;
        if stale < fresh {
            return Err(ConfigError::new("WEATHER_STALE_SECONDS", "is less than WEATHER_FRESH_SECONDS"));
        }
        Ok(Config { provider, fallback, keep: ForecastAges { fresh, stale } })
    }

    /// The forecasts of these providers. Connects to nothing yet.
    pub fn open(&self, http: &onetap_http::Client) -> Forecasts {
        let fallback = self.fallback.as_ref().map(|fallback| fallback.open(http));
        Forecasts::new(self.provider.open(http), fallback, self.keep)
    }
}

impl ProviderConfig {
    /// The provider `name`, which `variable` was set to.
    fn named(name: &str, variable: &str, variables: &Variables<'_>) -> Result<ProviderConfig, ConfigError> {
        match name {
            "cwa" => Ok(ProviderConfig::Cwa {
                key: Secret::new(variables.required("CWA_API_KEY")?),
                base_url: variables
                    .base_url("CWA_API_BASE_URL")?
                    .unwrap_or_else(|| "https://opendata.cwa.gov.tw".to_owned()),
            }),
            "open-meteo" => Ok(ProviderConfig::OpenMeteo {
                base_url: variables
                    .base_url("OPEN_METEO_BASE_URL")?
                    .unwrap_or_else(|| "https://api.open-meteo.com".to_owned()),
            }),
            "sample" => Ok(ProviderConfig::Sample),
            _ => Err(ConfigError::new(variable, "is not one of cwa, open-meteo or sample")),
        }
    }

    /// The provider. Connects to nothing yet.
    pub fn open(&self, http: &onetap_http::Client) -> Arc<dyn Provider> {
        match self {
            ProviderConfig::Cwa { key, base_url } => Arc::new(Cwa::new(http.clone(), base_url, key.clone())),
            ProviderConfig::OpenMeteo { base_url } => Arc::new(OpenMeteo::new(http.clone(), base_url)),
            ProviderConfig::Sample => Arc::new(Sample::new()),
        }
    }
}
