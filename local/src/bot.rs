//! The bot that the playground's phone talks to: the bundle's own, or any other.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use lambda_http::{Body, Request, Response};
use onetap_bot::Bot;
use onetap_config::{ConfigError, Variables};
use onetap_http::Client;
use onetap_store::Store;

/// The webhook of a bot, whichever it is.
#[async_trait]
pub(crate) trait AnyWebhook: Send + Sync {
    async fn handle(&self, request: Request) -> Response<Body>;
}

#[async_trait]
impl<B: Bot> AnyWebhook for onetap_bot::Webhook<B> {
    async fn handle(&self, request: Request) -> Response<Body> {
        onetap_bot::Webhook::handle(self, request).await
    }
}

#[async_trait]
impl AnyWebhook for webhook::Webhook {
    async fn handle(&self, request: Request) -> Response<Body> {
        webhook::Webhook::handle(self, request).await
    }
}

/// A webhook, and what it says to an event that finds the processing lock held.
pub(crate) struct Opened {
    pub(crate) webhook: Box<dyn AnyWebhook>,
    pub(crate) busy: Option<String>,
}

type Open =
    dyn FnOnce(Arc<dyn Store>, &Variables<'_>, &Client, onetap_bot::Config) -> Result<Opened, ConfigError>;

/// A bot of your own in the place of the bundle's.
pub struct OwnBot(Box<Open>);

impl OwnBot {
    /// The bot that `bot` makes of the variables and of the HTTP client that all functions share.
    pub fn new<B: Bot>(
        bot: impl FnOnce(&Variables<'_>, &Client) -> Result<B, ConfigError> + 'static,
    ) -> OwnBot {
        OwnBot(Box::new(|store, variables, http, config| {
            let webhook = onetap_bot::Webhook::new(store, bot(variables, http)?, http, config)?;
            let busy = webhook.busy_reply().and_then(|message| message.as_text().map(str::to_owned));
            Ok(Opened { webhook: Box::new(webhook), busy })
        }))
    }

    pub(crate) fn open(
        self,
        store: Arc<dyn Store>,
        variables: &Variables<'_>,
        http: &Client,
        config: onetap_bot::Config,
    ) -> Result<Opened, ConfigError> {
        (self.0)(store, variables, http, config)
    }
}

impl fmt::Debug for OwnBot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnBot")
    }
}
