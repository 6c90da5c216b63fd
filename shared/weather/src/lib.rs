#![doc = include_str!("../README.md")]

pub mod forecast;
pub mod places;
pub mod provider;

mod cwa;
mod open_meteo;
mod sample;

pub use cwa::Cwa;
pub use forecast::{Forecast, Period, Sky};
pub use onetap_calendar::Moment;
pub use open_meteo::OpenMeteo;
pub use places::{Found, Place};
pub use provider::{Config, Error, Provider};
pub use sample::Sample;
