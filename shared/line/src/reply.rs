//! Replies: messages that answer an event, with its reply token.

use bytes::Bytes;
use http::Response;
use serde::Serialize;
use tokio::time::Instant;

use crate::client::{refusal, request_id};
use crate::{Client, Messages};

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
    /// Replies to the event that `reply_token` came with, before `deadline`.
    pub async fn reply(&self, reply_token: &str, messages: &Messages, deadline: Instant) -> Reply {
        // This cannot fail: JSON always serializes.
        let body = serde_json::to_vec(&Body { reply_token, messages }).unwrap_or_default();
        match self.post("/v2/bot/message/reply", body, None, deadline).await {
            Ok(response) => {
                Reply { outcome: outcome(&response), request_id: request_id(&response, "x-line-request-id") }
            }
            Err(error) => {
                let maybe_sent = !error.is_not_connected();
                Reply { outcome: Outcome::Unreachable { maybe_sent }, request_id: None }
            }
        }
    }
}

fn outcome(response: &Response<Bytes>) -> Outcome {
    match response.status().as_u16() {
        200..300 => Outcome::Sent,
        400 if refusal(response).as_deref() == Some("Invalid reply token") => Outcome::InvalidToken,
        401 | 403 => Outcome::Unauthorized,
        429 => Outcome::RateLimited,
        500.. => Outcome::ServerError,
        _ => Outcome::BadRequest,
    }
}
