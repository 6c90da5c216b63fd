#![doc = include_str!("../README.md")]

pub mod forecast;
pub mod places;
pub mod provider;

mod cwa;
mod open_meteo;
mod sample;
mod taipei;

pub use cwa::Cwa;
pub use forecast::{Forecast, Period, Sky};
pub use open_meteo::OpenMeteo;
pub use places::{Found, Place};
pub use provider::{Config, Error, Provider};
pub use sample::Sample;
pub use taipei::Taipei;
