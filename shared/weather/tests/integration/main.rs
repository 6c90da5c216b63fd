//! Places, providers and the forecast's text.

mod forecast;
mod places;
mod providers;
mod support;
