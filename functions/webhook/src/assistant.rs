//! The bot: two skills, and the users who come and leave.

use std::sync::Arc;
use std::time::Duration;

use onetap_bot::{Answer, Bot, Context, Incoming, Key, Message, Messages, Overlap, Result};
use onetap_config::{ConfigError, Variables};
use onetap_http::Client;
use onetap_store::{WARM_UP_TIMEOUT, warm_up};
use onetap_weather::Forecasts;
use tokio::time::Instant;

use crate::ask::{Ask, ask};
use crate::profile::{self, ProfileChange};
use crate::{Config, Scope, replies};

/// A bot that knows the weather and keeps books.
#[derive(Debug)]
pub struct Assistant {
    pub(crate) forecasts: Arc<Forecasts>,
    pub(crate) forecast_timeout: Duration,
    pub(crate) ledger: onetap_ledger::Config,
    scope: Scope,
}

impl Assistant {
    /// The bot, with these forecasts.
    pub fn new(forecasts: Arc<Forecasts>, config: &Config) -> Assistant {
        let Config { scope, forecast_timeout, ledger, .. } = *config;
        Assistant { forecasts, forecast_timeout, ledger, scope }
    }

    /// The bot as the environment describes it.
    pub fn from_variables(variables: &Variables<'_>, http: &Client) -> Result<Assistant, ConfigError> {
        let config = Config::from_variables(variables)?;
        let forecasts = onetap_weather::Config::from_variables(variables)?.open(http);
        Ok(Assistant::new(Arc::new(forecasts), &config))
    }
}

impl Bot for Assistant {
    type Ask = Ask;

    fn ask(&self, incoming: &Incoming<'_>) -> Option<Ask> {
        ask(incoming)
    }

    fn overlap(&self, incoming: &Incoming<'_>, ask: &Ask) -> Overlap {
        if ask.locks(incoming.event, self.scope) { Overlap::Busy } else { Overlap::Concurrent }
    }

    fn reads(&self, incoming: &Incoming<'_>, ask: &Ask) -> Vec<Key> {
        match ask {
            Ask::Weather(ask) => ask.reads(incoming),
            Ask::Bookkeeping(ask) => self.reads_for_books(incoming, ask),
            Ask::Say(_) | Ask::Follow | Ask::Unfollow => Vec::new(),
        }
    }

    async fn answer(&self, context: &Context<'_>, ask: &Ask) -> Result {
        let at = context.incoming().at_ms;
        Ok(match ask {
            Ask::Weather(ask) => self.answer_weather(context, ask).await,
            Ask::Bookkeeping(ask) => self.answer_books(context, ask).await,
            Ask::Say(say) => Answer::say(say.messages()),
            Ask::Follow => {
                let welcome = replies::welcome();
                match profile::change(context, vec![ProfileChange::Activate(at)], Some(welcome.clone())) {
                    Some(change) => change.or_say(welcome).into(),
                    None => Answer::say(welcome),
                }
            }
            // It is written, or LINE delivers it again: nobody waits for an answer.
            Ask::Unfollow => match profile::change(context, vec![ProfileChange::Deactivate(at)], None) {
                Some(change) => change.or_again().into(),
                None => Answer::nothing(),
            },
        })
    }

    async fn after_commit(&self, context: &Context<'_>, ask: &Ask, messages: Messages) -> Messages {
        match ask {
            Ask::Bookkeeping(ask) => self.after_books(context, ask, messages).await,
            Ask::Weather(_) | Ask::Say(_) | Ask::Follow | Ask::Unfollow => messages,
        }
    }

    fn busy(&self) -> Messages {
        Message::text(replies::PROCESSING).into()
    }

    fn unavailable(&self) -> Messages {
        replies::unavailable()
    }

    fn key_kind(key: &Key) -> &'static str {
        let rest = key.as_str().strip_prefix("user:");
        let is_profile = rest.is_some_and(|rest| rest.ends_with(":profile"));
        if is_profile { "profile" } else { onetap_ledger::key_kind(key) }
    }

    async fn warm_up(&self) {
        let deadline = Instant::now() + WARM_UP_TIMEOUT;
        warm_up("weather", self.forecasts.connect(deadline)).await;
    }
}
