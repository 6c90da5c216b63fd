//! Pushes: messages to a user, group or room, without an event that they answer. They count against the quota.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response};
use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::client::{refusal, request_id};
use crate::{Client, Messages};

/// The result of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Push {
    /// How it ended.
    pub outcome: PushOutcome,
    /// The response header `x-line-request-id`, for the log: LINE's support asks for it.
    pub request_id: Option<String>,
    /// Of a push that LINE had accepted before: the request id of the accepted one.
    pub accepted_request_id: Option<String>,
}

/// How a push ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushOutcome {
    /// LINE accepted it.
    Sent,
    /// LINE accepted a push with this retry key before (409), and did not send this one.
    AlreadyAccepted,
    /// LINE refuses this request, and would refuse it again; or the retry key is no UUID, and nothing was sent.
    BadRequest,
    /// LINE refuses the channel access token (401, 403).
    Unauthorized,
    /// The messages of this month are used up (429).
    QuotaUsedUp,
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

impl PushOutcome {
    /// Whether LINE has accepted the messages, now or before.
    pub fn is_sent(self) -> bool {
        matches!(self, PushOutcome::Sent | PushOutcome::AlreadyAccepted)
    }

    /// Whether the user may have received the messages. If so, send them again only with the same retry key, of which LINE takes
    /// one push in 24 hours.
    pub fn maybe_sent(self) -> bool {
        let is_unknown =
            matches!(self, PushOutcome::ServerError | PushOutcome::Unreachable { maybe_sent: true });
        self.is_sent() || is_unknown
    }

    /// Whether the same push, with the same retry key, may succeed later.
    pub fn is_transient(self) -> bool {
        matches!(self, PushOutcome::RateLimited | PushOutcome::ServerError | PushOutcome::Unreachable { .. })
    }

    /// Its name for logs and metrics.
    pub fn label(self) -> &'static str {
        match self {
            PushOutcome::Sent => "sent",
            PushOutcome::AlreadyAccepted => "already_accepted",
            PushOutcome::BadRequest => "bad_request",
            PushOutcome::Unauthorized => "unauthorized",
            PushOutcome::QuotaUsedUp => "quota_used_up",
            PushOutcome::RateLimited => "rate_limited",
            PushOutcome::ServerError => "server_error",
            PushOutcome::Unreachable { maybe_sent: true } => "unknown",
            PushOutcome::Unreachable { maybe_sent: false } => "unreachable",
        }
    }
}

#[derive(Serialize)]
struct Body<'a> {
    to: &'a str,
    messages: &'a Messages,
}

impl Client {
    /// Sends messages to a user, group or room, before `deadline`.
    ///
    /// LINE accepts one push for each retry key in 24 hours. So choose the key before the first attempt, keep it with what is to
    /// be sent, and repeat the push with that key while its outcome is [transient](PushOutcome::is_transient):
    /// [`retry_key`] derives one from what the push is about. A key that is no UUID is refused, and nothing is sent.
    pub async fn push(&self, to: &str, messages: &Messages, retry_key: &str, deadline: Instant) -> Push {
        let refused = Push { outcome: PushOutcome::BadRequest, request_id: None, accepted_request_id: None };
        let Some(retry_key) = is_uuid(retry_key).then(|| HeaderValue::from_str(retry_key).ok()).flatten()
        else {
            return refused;
        };
        // This cannot fail: JSON always serializes.
        let body = serde_json::to_vec(&Body { to, messages }).unwrap_or_default();
        let header = (HeaderName::from_static("x-line-retry-key"), retry_key);
        match self.post("/v2/bot/message/push", body, Some(header), deadline).await {
            Ok(response) => Push {
                outcome: outcome(&response),
                request_id: request_id(&response, "x-line-request-id"),
                accepted_request_id: request_id(&response, "x-line-accepted-request-id"),
            },
            Err(error) => {
                let maybe_sent = !error.is_not_connected();
                Push { outcome: PushOutcome::Unreachable { maybe_sent }, ..refused }
            }
        }
    }
}

/// A retry key for the push that `name` names: the same for the same name, another for every other. A name that says what the
/// push is about, such as `reminder:42:2026-01-31`, makes every process that sends it use one key.
pub fn retry_key(name: &str) -> String {
    let hash = Sha256::digest(name.as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    // A UUID of version 8, whose other bits mean what its maker wants.
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

fn outcome(response: &Response<Bytes>) -> PushOutcome {
    match response.status().as_u16() {
        200..300 => PushOutcome::Sent,
        409 => PushOutcome::AlreadyAccepted,
        401 | 403 => PushOutcome::Unauthorized,
        429 if refusal(response).as_deref() == Some("You have reached your monthly limit.") => {
            PushOutcome::QuotaUsedUp
        }
        429 => PushOutcome::RateLimited,
        500.. => PushOutcome::ServerError,
        _ => PushOutcome::BadRequest,
    }
}
