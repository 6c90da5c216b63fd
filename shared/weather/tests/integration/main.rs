//! Places, providers and the forecast's text.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod forecast;
mod forecasts;
mod places;
mod providers;
mod search;
