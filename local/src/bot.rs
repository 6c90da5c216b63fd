//! The bot that the playground's phone talks to: the bundle's own, or any other.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use lambda_http::{Body, Request, Response};
use onetap_bot::{Bot, Webhook};
use onetap_config::{ConfigError, Variables};
use onetap_http::Client;
use onetap_store::Store;

/// The webhook of a bot, whichever it is.
#[async_trait]
pub(crate) trait AnyWebhook: Send + Sync {
    async fn handle(&self, request: Request) -> Response<Body>;

    /// The text of the reply to an event that finds the processing lock held.
    fn busy_text(&self) -> Option<String>;
}

#[async_trait]
impl<B: Bot> AnyWebhook for Webhook<B> {
    async fn handle(&self, request: Request) -> Response<Body> {
        Webhook::handle(self, request).await
    }

    fn busy_text(&self) -> Option<String> {
        self.busy_reply()?.as_slice().first()?.as_text().map(str::to_owned)
    }
}

type Open = dyn FnOnce(
    Arc<dyn Store>,
    &Variables<'_>,
    &Client,
    onetap_bot::Config,
) -> Result<Box<dyn AnyWebhook>, ConfigError>;

/// A bot of your own in the place of the bundle's.
pub struct OwnBot {
    open: Box<Open>,
    pub(crate) key_kind: fn(&onetap_store::Key) -> &'static str,
}

impl OwnBot {
    /// The bot that `bot` makes of the variables and of the HTTP client that all functions share.
    pub fn new<B: Bot>(
        bot: impl FnOnce(&Variables<'_>, &Client) -> Result<B, ConfigError> + 'static,
    ) -> OwnBot {
        let open = Box::new(
            |store: Arc<dyn Store>, variables: &Variables<'_>, http: &Client, config: onetap_bot::Config| {
                let webhook = Webhook::new(store, bot(variables, http)?, http, config)?;
                Ok(Box::new(webhook) as Box<dyn AnyWebhook>)
            },
        );
        OwnBot { open, key_kind: B::key_kind }
    }

    pub(crate) fn open(
        self,
        store: Arc<dyn Store>,
        variables: &Variables<'_>,
        http: &Client,
        config: onetap_bot::Config,
    ) -> Result<Box<dyn AnyWebhook>, ConfigError> {
        (self.open)(store, variables, http, config)
    }
}

impl fmt::Debug for OwnBot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnBot")
    }
}
