//! Replies: messages that answer an event, with its reply token.

use bytes::Bytes;
use http::Response;
use serde::Serialize;
use tokio::time::Instant;

use crate::client::{refusal, refused_properties, request_id};
use crate::{Client, Messages};

/// The result of sending a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct Reply {
    /// How it ended.
    pub outcome: ReplyOutcome,
    /// The response header `x-line-request-id`, for the log: LINE's support asks for it.
    pub request_id: Option<String>,
    /// With 400: up to five properties that LINE refuses, such as `messages[0].text`, for the log.
    pub properties: Vec<String>,
}

/// How a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplyOutcome {
    /// LINE accepted it.
    Sent,
    /// The reply token was used before, has expired or is unknown: LINE will never accept a reply to this event.
    InvalidToken,
    /// LINE refuses this request, and would refuse it again.
    BadRequest,
    /// LINE refuses the channel access token (401).
    Unauthorized,
    /// LINE does not offer this call to the bot's account (403).
    Forbidden,
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

impl ReplyOutcome {
    /// Whether LINE has accepted the messages.
    pub fn is_sent(self) -> bool {
        self == ReplyOutcome::Sent
    }

    /// Whether the same reply, with the same token, may succeed later: as long as the token lives.
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            ReplyOutcome::RateLimited | ReplyOutcome::ServerError | ReplyOutcome::Unreachable { .. }
        )
    }

    /// Whether the user may have received the messages by this attempt. If so, send them again only with the same token, of which
    /// LINE takes one reply. After such an attempt, [`InvalidToken`](ReplyOutcome::InvalidToken) shows that it had arrived, unless the
    /// token has expired meanwhile.
    pub fn maybe_sent(self) -> bool {
        matches!(
            self,
            ReplyOutcome::Sent | ReplyOutcome::ServerError | ReplyOutcome::Unreachable { maybe_sent: true }
        )
    }

    /// Its name for logs and metrics.
    pub fn label(self) -> &'static str {
        match self {
            ReplyOutcome::Sent => "sent",
            ReplyOutcome::InvalidToken => "invalid_token",
            ReplyOutcome::BadRequest => "bad_request",
            // One name in the metrics: the channel may not send.
            ReplyOutcome::Unauthorized | ReplyOutcome::Forbidden => "unauthorized",
            ReplyOutcome::RateLimited => "rate_limited",
            ReplyOutcome::ServerError => "server_error",
            ReplyOutcome::Unreachable { maybe_sent: true } => "unknown",
            ReplyOutcome::Unreachable { maybe_sent: false } => "unreachable",
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
            Ok(response) => Reply {
                outcome: outcome(&response),
                request_id: request_id(&response, "x-line-request-id"),
                properties: refused_properties(&response),
            },
            Err(error) => {
                let maybe_sent = !error.is_not_connected();
                let outcome = ReplyOutcome::Unreachable { maybe_sent };
                Reply { outcome, request_id: None, properties: Vec::new() }
            }
        }
    }
}

fn outcome(response: &Response<Bytes>) -> ReplyOutcome {
    match response.status().as_u16() {
        200..300 => ReplyOutcome::Sent,
        400 if refusal(response).as_deref() == Some("Invalid reply token") => ReplyOutcome::InvalidToken,
        401 => ReplyOutcome::Unauthorized,
        403 => ReplyOutcome::Forbidden,
        429 => ReplyOutcome::RateLimited,
        500.. => ReplyOutcome::ServerError,
        _ => ReplyOutcome::BadRequest,
    }
}
