#![doc = include_str!("../README.md")]

pub mod forecast;
pub mod forecasts;
pub mod places;
pub mod provider;

mod config;
mod cwa;
mod kept;
mod open_meteo;
mod sample;
mod upstream;

pub use config::{Config, ForecastAges, ProviderConfig};
pub use cwa::Cwa;
pub use forecast::{Forecast, Period, Sky};
pub use forecasts::{ForecastOutcome, Forecasts, LookedUp, ToStore};
pub use onetap_calendar::Moment;
pub use open_meteo::OpenMeteo;
pub use places::{Found, Place, Search};
pub use provider::{Error, Provider};
pub use sample::Sample;
