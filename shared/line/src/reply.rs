//! Sends replies through LINE's Messaging API.

use std::fmt;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, Uri, header};
use onetap_config::ConfigError;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::{Config, Messages};

/// Limit for a response. The Messaging API's responses are far shorter.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// Sends replies.
///
/// A reply token is valid for one reply, so a reply that may have arrived can be sent again with the same token: LINE takes one of
/// the two, and refuses the other as [`InvalidToken`](Outcome::InvalidToken). Each call is one request. The HTTP client retries
/// only if it has written no byte of it.
pub struct Client {
    http: onetap_http::Client,
    uri: Uri,
    authorization: HeaderValue,
}

/// The result of sending a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Reply {
    /// How it ended.
    pub outcome: Outcome,
    /// The response header `x-line-request-id`, for the log: LINE's support asks for it.
    pub request_id: Option<String>,
}

/// How a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// LINE accepted it.
    Sent,
    /// The reply token was used before, has expired or is unknown: LINE will never accept a reply to this event.
    InvalidToken,
    /// LINE refuses this request, and would refuse it again.
    BadRequest,
    /// LINE refuses the channel access token (401, 403).
    Unauthorized,
    /// Too many requests (429).
    RateLimited,
    /// LINE failed (5xx). It may have delivered the messages.
    ServerError,
    /// There was no complete response.
    Unreachable {
        /// Whether the request may have arrived. If so, the outcome is unknown, and its label is `unknown`.
        maybe_sent: bool,
    },
}

impl Outcome {
    /// Whether the user may have received the messages. If so, send them again only with the same token, of which LINE takes one
    /// reply.
    pub fn maybe_sent(self) -> bool {
        matches!(self, Outcome::Sent | Outcome::ServerError | Outcome::Unreachable { maybe_sent: true })
    }

    /// Its name for logs and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Outcome::Sent => "sent",
            Outcome::InvalidToken => "invalid_token",
            Outcome::BadRequest => "bad_request",
            Outcome::Unauthorized => "unauthorized",
            Outcome::RateLimited => "rate_limited",
            Outcome::ServerError => "server_error",
            Outcome::Unreachable { maybe_sent: true } => "unknown",
            Outcome::Unreachable { maybe_sent: false } => "unreachable",
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    reply_token: &'a str,
    messages: &'a Messages,
}

impl Client {
    /// A client for the channel that `config` describes. Does not connect yet.
    pub fn new(http: onetap_http::Client, config: &Config) -> Result<Client, ConfigError> {
        Ok(Client { http, uri: config.reply_uri()?, authorization: config.authorization()? })
    }

    /// Opens a connection for the first reply. Nothing is sent.
    pub async fn connect(&self, deadline: Instant) -> Result<(), onetap_http::Error> {
        self.http.connect(&self.uri, deadline).await
    }

    /// Replies to the event that `reply_token` came with, before `deadline`.
    pub async fn reply(&self, reply_token: &str, messages: &Messages, deadline: Instant) -> Reply {
        // This cannot fail: strings and lists of strings always serialize.
        let body = serde_json::to_vec(&Body { reply_token, messages }).unwrap_or_default();
        let mut request = Request::new(Bytes::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        request.headers_mut().insert(header::AUTHORIZATION, self.authorization.clone());
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match self.http.send(request, deadline, MAX_RESPONSE_BYTES).await {
            Ok(response) => Reply { outcome: outcome(&response), request_id: request_id(&response) },
            Err(error) => {
                let maybe_sent = !error.is_not_connected();
                Reply { outcome: Outcome::Unreachable { maybe_sent }, request_id: None }
            }
        }
    }
}

fn outcome(response: &Response<Bytes>) -> Outcome {
    #[derive(Deserialize)]
    struct Refusal {
        message: String,
    }
    match response.status().as_u16() {
        200..300 => Outcome::Sent,
        400 => match serde_json::from_slice::<Refusal>(response.body()) {
            Ok(refusal) if refusal.message == "Invalid reply token" => Outcome::InvalidToken,
            _ => Outcome::BadRequest,
        },
        401 | 403 => Outcome::Unauthorized,
        429 => Outcome::RateLimited,
        500.. => Outcome::ServerError,
        _ => Outcome::BadRequest,
    }
}

/// The request id, if it looks like one: an arbitrary header must not get into a log.
fn request_id(response: &Response<Bytes>) -> Option<String> {
    let id = response.headers().get("x-line-request-id")?.to_str().ok()?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    ((1..=64).contains(&id.len()) && id.bytes().all(plain)).then(|| id.to_owned())
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("uri", &self.uri).finish_non_exhaustive()
    }
}
