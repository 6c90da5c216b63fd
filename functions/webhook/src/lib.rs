#![doc = include_str!("../README.md")]

mod bookkeeping;
mod claims;
mod config;
pub mod confirmation;
mod delivery;
mod erasing;
mod look_up;
pub mod plan;
pub mod profile;
mod recall;
pub mod replies;
mod reply;
mod session;
mod small_talk;
mod user_edit;
mod work;

use std::convert::Infallible;
use std::sync::Arc;

use http::{Method, StatusCode, header};
use lambda_http::{Body, Request, Response};
use onetap_config::{ConfigError, Variables};
use onetap_idem::Idempotency;
use onetap_line::signature::{Verdict, verify};
use onetap_line::{Client, WebhookBody};
use onetap_store::lease::unique_token;
use onetap_store::{Store, WARM_UP_TIMEOUT, open_with_kinds, warm_up};
use onetap_weather::{Forecasts, Moment};
use tokio::time::Instant;
use tracing::Instrument;

pub use config::{Config, Lock, Times};
pub use delivery::{Ended, Ending, Endings};
pub use plan::Scope;
pub use user_edit::key_kind;

use session::Session;

/// No delivery is larger.
const MAX_BODY: usize = 1 << 20;

/// The function.
#[derive(Debug)]
pub struct Webhook {
    store: Arc<dyn Store>,
    idem: Idempotency,
    weather: Arc<Forecasts>,
    line: Client,
    config: Config,
    clock: fn() -> Moment,
}

impl Webhook {
    /// The function, on this store and this weather.
    pub fn new(
        store: Arc<dyn Store>,
        weather: Arc<Forecasts>,
        http: &onetap_http::Client,
        config: Config,
    ) -> Result<Webhook, ConfigError> {
        let idem = Idempotency::with_config(Arc::clone(&store), config.idem.clone());
        let line = Client::new(http.clone(), &config.line)?;
        Ok(Webhook { store, idem, weather, line, config, clock: Moment::now })
    }

    /// The same with another clock in place of the system's, for a test that simulates hours.
    #[must_use]
    pub fn with_clock(mut self, clock: fn() -> Moment) -> Webhook {
        self.clock = clock;
        self
    }

    /// The function as the environment describes it.
    pub fn from_variables(variables: &Variables<'_>) -> Result<Webhook, ConfigError> {
        let config = Config::from_variables(variables)?;
        let weather = onetap_weather::Config::from_variables(variables)?;
        let store = open_with_kinds(&onetap_store::Config::from_variables(variables)?, key_kind)?;
        let http = onetap_http::Client::new();
        Webhook::new(store, Arc::new(weather.open(&http)), &http, config)
    }

    /// Opens the connections that a delivery needs, all at once, while the function starts. Never fails. A delivery that comes
    /// meanwhile waits for the connection that it needs next, and for no other.
    pub async fn warm_up(&self) {
        let deadline = Instant::now() + WARM_UP_TIMEOUT;
        tokio::join!(
            warm_up("store", self.store.connect()),
            warm_up("line", self.line.connect(deadline)),
            warm_up("weather", self.weather.connect(deadline)),
        );
    }

    /// One invocation of Lambda.
    pub async fn invoke(&self, request: Request) -> Result<Response<Body>, Infallible> {
        Ok(self.handle(request).await)
    }

    /// Answers a delivery: 200 if LINE need not send it again. The answer's extensions have the [`Endings`].
    pub async fn handle(&self, request: Request) -> Response<Body> {
        let deadline = Instant::now() + self.config.times.delivery;
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
        if verify(&self.config.line.secrets, body, signature) != Verdict::Genuine {
            tracing::warn!("a delivery is not signed by LINE");
            return Err(StatusCode::UNAUTHORIZED);
        }
        let Ok(WebhookBody { events }) = WebhookBody::parse(body) else {
            tracing::warn!("a delivery is signed, and not JSON");
            return Err(StatusCode::BAD_REQUEST);
        };
        Ok(delivery::handle(&Session::new(self, deadline), &events).await)
    }
}

fn status(endings: &[Ending]) -> StatusCode {
    if endings.iter().any(|ending| ending.ended.comes_again()) {
        StatusCode::INTERNAL_SERVER_ERROR
    } else {
        StatusCode::OK
    }
}
