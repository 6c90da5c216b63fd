#![doc = include_str!("../README.md")]

pub mod ask;
mod assistant;
pub mod bookkeeping;
mod config;
pub mod profile;
pub mod replies;
mod small_talk;
pub mod weather;

use std::convert::Infallible;
use std::sync::Arc;

use lambda_http::{Body, Request, Response};
use onetap_config::{ConfigError, Variables};
use onetap_ledger::Moment;
use onetap_line::Message;
use onetap_store::{Key, Store, open_with_kinds};
use onetap_weather::Forecasts;

pub use assistant::Assistant;
pub use config::{Config, Scope, Times};
pub use onetap_bot::{Ended, Ending, Endings};

/// The function: the [`Assistant`], as a bot.
#[derive(Debug)]
pub struct Webhook(onetap_bot::Webhook<Assistant>);

impl Webhook {
    /// The function, on this store and this weather.
    pub fn new(
        store: Arc<dyn Store>,
        weather: Arc<Forecasts>,
        http: &onetap_http::Client,
        config: Config,
    ) -> Result<Webhook, ConfigError> {
        let assistant = Assistant::new(weather, &config);
        Ok(Webhook(onetap_bot::Webhook::new(store, assistant, http, config.bot)?))
    }

    /// The same with another clock in place of the system's, for a test that simulates hours.
    #[must_use]
    pub fn with_clock(self, clock: fn() -> Moment) -> Webhook {
        Webhook(self.0.with_clock(move || clock().unix().saturating_mul(1000)))
    }

    /// The function as the environment describes it.
    pub fn from_variables(variables: &Variables<'_>) -> Result<Webhook, ConfigError> {
        let config = Config::from_variables(variables)?;
        let weather = onetap_weather::Config::from_variables(variables)?;
        let store = open_with_kinds(&onetap_store::Config::from_variables(variables)?, key_kind)?;
        let http = onetap_http::Client::new();
        Webhook::new(store, Arc::new(weather.open(&http)), &http, config)
    }

    /// The reply to an event that finds the processing lock held; `None` if no lock is taken.
    pub fn busy_reply(&self) -> Option<Message> {
        self.0.busy_reply()
    }

    /// Opens the connections that a delivery needs, all at once, while the function starts. Never fails.
    pub async fn warm_up(&self) {
        self.0.warm_up().await;
    }

    /// One invocation of Lambda.
    pub async fn invoke(&self, request: Request) -> Result<Response<Body>, Infallible> {
        self.0.invoke(request).await
    }

    /// Answers a delivery: 200 if LINE need not send it again. The answer's extensions have the [`Endings`].
    pub async fn handle(&self, request: Request) -> Response<Body> {
        self.0.handle(request).await
    }
}

/// What a key holds, for the store's metrics: `profile`, `transaction` or `other`.
pub fn key_kind(key: &Key) -> &'static str {
    let rest = key.as_str().strip_prefix("user:");
    if rest.is_some_and(|rest| rest.ends_with(":profile")) { "profile" } else { onetap_ledger::key_kind(key) }
}
