//! Pushes: messages to a user, group or room, without an event that they answer. They count against the quota.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response};
use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::client::{refusal, refused_properties, request_id};
use crate::{Client, Messages};

/// Oldest retry key that is sent. LINE forgets a key 24 hours after the first attempt with it, and would then send the messages
/// again; an hour is left for clocks that differ.
const MAX_KEY_AGE_MS: i64 = 23 * 3_600_000;

/// The result of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct Push {
    /// How it ended.
    pub outcome: PushOutcome,
    /// The response header `x-line-request-id`, for the log: LINE's support asks for it.
    pub request_id: Option<String>,
    /// With 409: the request id of the accepted push.
    pub accepted_request_id: Option<String>,
    /// With 400: up to five properties that LINE refuses, such as `messages[0].text`, for the log.
    pub properties: Vec<String>,
}

/// How a push ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushOutcome {
    /// LINE accepted it.
    Sent,
    /// LINE accepted a push with this retry key before (409), and did not send this one.
    AlreadyAccepted,
    /// The retry key is older than 23 hours, and nothing was sent: LINE may have forgotten the key, and would send the messages
    /// a second time.
    KeyExpired,
    /// LINE refuses this request, and would refuse it again.
    BadRequest,
    /// LINE refuses the channel access token (401).
    Unauthorized,
    /// LINE does not offer this call to the bot's account (403).
    Forbidden,
    /// Not enough of this month's messages are left for this push (429). A push to a group counts once for each member.
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

    /// Whether the user may have received the messages by this attempt. If so, send them again only with the same retry key, of
    /// which LINE takes one push in 24 hours.
    ///
    /// This says nothing about earlier attempts. Once the outcome of one was unknown, only [`Sent`](PushOutcome::Sent) or
    /// [`AlreadyAccepted`](PushOutcome::AlreadyAccepted) settles it: LINE may refuse a repeat, for example because the quota is
    /// used up, without looking at its retry key.
    pub fn maybe_sent(self) -> bool {
        let is_unknown =
            matches!(self, PushOutcome::ServerError | PushOutcome::Unreachable { maybe_sent: true });
        self.is_sent() || is_unknown
    }

    /// Whether the same push, with the same retry key, may succeed later: within 24 hours of the first attempt.
    pub fn is_transient(self) -> bool {
        matches!(self, PushOutcome::RateLimited | PushOutcome::ServerError | PushOutcome::Unreachable { .. })
    }

    /// Its name for logs and metrics.
    pub fn label(self) -> &'static str {
        match self {
            PushOutcome::Sent => "sent",
            PushOutcome::AlreadyAccepted => "already_accepted",
            PushOutcome::KeyExpired => "key_expired",
            PushOutcome::BadRequest => "bad_request",
            PushOutcome::Unauthorized => "unauthorized",
            PushOutcome::Forbidden => "forbidden",
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
    /// LINE accepts one push for each retry key in 24 hours. So choose the key before the first attempt, keep it and the time of
    /// that attempt with what is to be sent, and repeat the push with that key while its outcome is
    /// [transient](PushOutcome::is_transient), but no longer than 24 hours: after that LINE takes a repeat for a new push.
    pub async fn push(&self, to: &str, messages: &Messages, retry_key: &RetryKey, deadline: Instant) -> Push {
        let unsent =
            |outcome| Push { outcome, request_id: None, accepted_request_id: None, properties: Vec::new() };
        if retry_key.is_expired() {
            return unsent(PushOutcome::KeyExpired);
        }
        // These two cannot fail: a UUID is good for a header, and JSON always serializes.
        let Ok(uuid) = HeaderValue::try_from(retry_key.uuid_for(to)) else {
            return unsent(PushOutcome::BadRequest);
        };
        let body = serde_json::to_vec(&Body { to, messages }).unwrap_or_default();
        let header = (HeaderName::from_static("x-line-retry-key"), uuid);
        match self.post("/v2/bot/message/push", body, Some(header), deadline).await {
            Ok(response) => Push {
                outcome: outcome(&response),
                request_id: request_id(&response, "x-line-request-id"),
                accepted_request_id: request_id(&response, "x-line-accepted-request-id"),
                properties: refused_properties(&response),
            },
            Err(error) => unsent(PushOutcome::Unreachable { maybe_sent: !error.is_not_connected() }),
        }
    }
}

/// What makes a push one push, however often it is sent: LINE accepts one for each key in 24 hours. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct RetryKey {
    id: Id,
    since_ms: Option<i64>,
}

#[derive(Clone, PartialEq, Eq)]
enum Id {
    Name(String),
    Uuid(String),
}

impl RetryKey {
    /// The key of what `name` names. Each recipient has a key of its own under this name, so one name serves for all who get the
    /// same messages. A name that says what the push is about, such as `reminder:42:2026-01-31`, makes every process that sends it
    /// use the same keys.
    pub fn named(name: impl Into<String>) -> RetryKey {
        RetryKey { id: Id::Name(name.into()), since_ms: None }
    }

    /// This UUID, whoever the recipient is: use it for one recipient only. `None` if `text` is no UUID.
    pub fn from_uuid(text: &str) -> Option<RetryKey> {
        // In lower case: UUIDs are the same in either case, and LINE may compare texts.
        is_uuid(text).then(|| RetryKey { id: Id::Uuid(text.to_ascii_lowercase()), since_ms: None })
    }

    /// The same key, with which no push was sent before `at_ms`, in milliseconds since 1970: the time of the first attempt, or
    /// anything earlier, such as the time of the event that the push answers. After 23 hours it is
    /// [expired](PushOutcome::KeyExpired). A key without a time never is: then its caller must stop within 24 hours.
    #[must_use]
    pub fn since_ms(self, at_ms: i64) -> RetryKey {
        RetryKey { since_ms: Some(at_ms), ..self }
    }

    /// What LINE gets as the key of the push to this recipient.
    pub fn uuid_for(&self, to: &str) -> String {
        let name = match &self.id {
            Id::Uuid(uuid) => return uuid.clone(),
            Id::Name(name) => name,
        };
        let length = u64::try_from(to.len()).unwrap_or_default().to_be_bytes();
        let hash = [&length[..], to.as_bytes(), name.as_bytes()]
            .into_iter()
            .fold(Sha256::new(), Digest::chain_update);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        // A UUID of version 8, whose other bits mean what its maker wants.
        bytes[6] = bytes[6] & 0x0f | 0x80;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let hex = format!("{:032x}", u128::from_be_bytes(bytes));
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }

    fn is_expired(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ms = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        self.since_ms.is_some_and(|since_ms| now_ms.saturating_sub(since_ms) > MAX_KEY_AGE_MS)
    }
}

impl fmt::Debug for RetryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryKey").field("since_ms", &self.since_ms).finish_non_exhaustive()
    }
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
        401 => PushOutcome::Unauthorized,
        403 => PushOutcome::Forbidden,
        429 if refusal(response).as_deref() == Some("You have reached your monthly limit.") => {
            PushOutcome::QuotaUsedUp
        }
        429 => PushOutcome::RateLimited,
        500.. => PushOutcome::ServerError,
        _ => PushOutcome::BadRequest,
    }
}
