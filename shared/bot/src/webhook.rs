//! The function: one request is one delivery of LINE.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use http::{Method, StatusCode, header};
use lambda_http::{Body, Request, Response};
use onetap_config::{ConfigError, Variables};
use onetap_idem::Idempotency;
use onetap_line::signature::{Verdict, verify};
use onetap_line::{Client, Messages, WebhookBody};
use onetap_store::lease::unique_token;
use onetap_store::{Store, WARM_UP_TIMEOUT, open_with_kinds, warm_up};
use tokio::time::Instant;
use tracing::Instrument;

use crate::delivery::{self, Ending, Endings};
use crate::locks::busy_reply;
use crate::session::{Engine, Session};
use crate::{Bot, Config};

/// No delivery is larger.
const MAX_BODY: usize = 1 << 20;

/// The webhook of a bot: `POST`, from LINE.
pub struct Webhook<B> {
    engine: Engine,
    bot: B,
}

impl<B: Bot> Webhook<B> {
    /// The webhook of `bot`, on this store.
    pub fn new(
        store: Arc<dyn Store>,
        bot: B,
        http: &onetap_http::Client,
        config: Config,
    ) -> Result<Webhook<B>, ConfigError> {
        let idem = Idempotency::with_config(Arc::clone(&store), config.idem.clone());
        let clients = config.channels.iter().map(|channel| Client::new(http.clone(), &channel.line));
        let clients = clients.collect::<Result<_, _>>()?;
        Ok(Webhook { engine: Engine { store, idem, config, clients, now_ms: Arc::new(now_ms) }, bot })
    }

    /// The webhook as the environment describes it, of the bot that `bot` makes of the variables and of the HTTP client that LINE's
    /// API uses too.
    pub fn from_variables(
        variables: &Variables<'_>,
        bot: impl FnOnce(&Variables<'_>, &onetap_http::Client) -> Result<B, ConfigError>,
    ) -> Result<Webhook<B>, ConfigError> {
        let http = onetap_http::Client::new();
        let bot = bot(variables, &http)?;
        let config = Config::from_variables(variables)?;
        let store = open_with_kinds(&onetap_store::Config::from_variables(variables)?, B::key_kind)?;
        Webhook::new(store, bot, &http, config)
    }

    /// The same with another clock in place of the system's, in milliseconds since 1970: for a test that simulates hours.
    #[must_use]
    pub fn with_clock(mut self, now_ms: impl Fn() -> i64 + Send + Sync + 'static) -> Webhook<B> {
        self.engine.now_ms = Arc::new(now_ms);
        self
    }

    /// The bot.
    pub fn bot(&self) -> &B {
        &self.bot
    }

    /// The reply to an event that finds the processing lock held; `None` if no lock is taken.
    pub fn busy_reply(&self) -> Option<Messages> {
        let lock = self.engine.config.lock.as_ref()?;
        Some(busy_reply(Some(lock), &self.bot))
    }

    /// Opens the connections that a delivery needs, all at once, while the function starts. Never fails. A delivery that comes
    /// meanwhile waits for the connection that it needs next, and for no other.
    pub async fn warm_up(&self) {
        let deadline = Instant::now() + WARM_UP_TIMEOUT;
        // The channels share one client, and so one connection.
        let line = async {
            match self.engine.clients.first() {
                Some(client) => client.connect(deadline).await,
                None => Ok(()),
            }
        };
        let store = warm_up("store", self.engine.store.connect());
        tokio::join!(store, warm_up("line", line), self.bot.warm_up());
    }

    /// One invocation of Lambda.
    pub async fn invoke(&self, request: Request) -> Result<Response<Body>, Infallible> {
        Ok(self.handle(request).await)
    }

    /// Answers a delivery: 200 if LINE need not send it again. The answer's extensions have the [`Endings`].
    pub async fn handle(&self, request: Request) -> Response<Body> {
        let deadline = Instant::now() + self.engine.config.times.delivery;
        // Random, and good for one delivery: it ties the lines of a log together, and nobody to them.
        let delivery = tracing::info_span!("delivery", correlation_id = &unique_token()[..12]);
        let answer = self.answer(&request, deadline).instrument(delivery).await;
        onetap_telemetry::flush();
        let (status, endings) =
            answer.map_or_else(|status| (status, Vec::new()), |endings| (status(&endings), endings));
        let mut response = Response::new(Body::Empty);
        *response.status_mut() = status;
        response.extensions_mut().insert(Endings(endings));
        if status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("POST"));
        }
        response
    }

    /// How each event ended, or what is wrong with the delivery.
    async fn answer(&self, request: &Request, deadline: Instant) -> Result<Vec<Ending>, StatusCode> {
        if request.method() != Method::POST {
            return Err(StatusCode::METHOD_NOT_ALLOWED);
        }
        let body: &[u8] = request.body().as_ref();
        if body.len() > MAX_BODY {
            tracing::warn!("a delivery is too large");
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        let signature = request.headers().get("x-line-signature").and_then(|value| value.to_str().ok());
        let Some(channel) = self.channel(body, signature) else {
            tracing::warn!("a delivery is not signed by LINE");
            return Err(StatusCode::UNAUTHORIZED);
        };
        let Ok(WebhookBody { events, destination, .. }) = WebhookBody::parse(body) else {
            tracing::warn!("a delivery is signed, and not JSON");
            return Err(StatusCode::BAD_REQUEST);
        };
        let own = self.engine.config.channels[channel].destination.as_deref();
        if own.is_some() && own != destination.as_deref() {
            tracing::warn!("a delivery is signed with the secret of another channel");
            return Err(StatusCode::UNAUTHORIZED);
        }
        let session = Session::new(&self.engine, channel, deadline);
        Ok(delivery::handle(&session, &self.bot, &events).await)
    }

    /// The channel that has signed the delivery.
    fn channel(&self, body: &[u8], signature: Option<&str>) -> Option<usize> {
        let channels = &self.engine.config.channels;
        channels.iter().position(|channel| verify(&channel.line.secrets, body, signature) == Verdict::Genuine)
    }
}

impl<B> fmt::Debug for Webhook<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("engine", &self.engine).finish_non_exhaustive()
    }
}

fn status(endings: &[Ending]) -> StatusCode {
    if endings.iter().any(|ending| ending.ended.comes_again()) {
        StatusCode::INTERNAL_SERVER_ERROR
    } else {
        StatusCode::OK
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
