//! Why SQS did not do what a call asks for, or is not known to have done it.

use std::fmt;

use http::Response;
use onetap_http::Bytes;
use serde::Deserialize;

use super::InvalidMessage;

/// Longest error code that is kept. SQS's have 40 characters at most.
const MAX_CODE_LEN: usize = 64;

/// What the codes of a throttled request begin with.
const THROTTLED: &[&str] = &["Throttl", "RequestThrottl", "KmsThrottl", "TooManyRequests", "OverLimit"];

/// What the codes begin with that refuse the credentials or their rights, and may come with any status.
const UNAUTHORIZED: &[&str] = &[
    "AccessDenied",
    "AuthFailure",
    "ExpiredToken",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSecurity",
    "InvalidSignature",
    "KmsAccessDenied",
    "MissingAuthenticationToken",
    "NotAuthorized",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "UnrecognizedClient",
];

/// Why SQS did not do what a call asks for, or is not known to have done it. A code is SQS's own, such as
/// `InvalidParameterValue`. Neither `Debug` nor `Display` shows anything of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// The message is outside of SQS's limits. Nothing was sent.
    Invalid(InvalidMessage),
    /// SQS may not have an earlier message of the same group, which another attempt can send. Nothing was sent, so that the
    /// order is kept.
    HeldBack,
    /// SQS refuses this request, and would refuse it again.
    Refused(String),
    /// SQS refuses the credentials, or does not allow this call.
    Unauthorized(String),
    /// There is no such queue in this region.
    QueueNotFound,
    /// Too many requests, or too many messages in flight.
    Throttled,
    /// SQS failed at this entry of a batch, and says so.
    EntryFailed(String),
    /// SQS failed, or a proxy in front of it (5xx, 408).
    ServerError,
    /// The answer is not one of SQS's.
    NotUnderstood,
    /// There was no complete answer.
    Unreachable {
        /// Whether the request may have arrived.
        maybe_sent: bool,
    },
}

impl CallError {
    /// Whether SQS may have done it nevertheless. If not, it certainly has not.
    pub fn is_unknown(&self) -> bool {
        matches!(
            self,
            CallError::ServerError | CallError::NotUnderstood | CallError::Unreachable { maybe_sent: true }
        )
    }

    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            CallError::HeldBack
                | CallError::Throttled
                | CallError::EntryFailed(_)
                | CallError::ServerError
                | CallError::Unreachable { .. }
        )
    }

    /// Its name for logs and metrics.
    pub fn label(&self) -> &'static str {
        match self {
            CallError::Invalid(_) => "invalid",
            CallError::HeldBack => "held_back",
            CallError::Refused(_) => "refused",
            CallError::Unauthorized(_) => "unauthorized",
            CallError::QueueNotFound => "queue_not_found",
            CallError::Throttled => "throttled",
            CallError::EntryFailed(_) => "entry_failed",
            CallError::ServerError => "server_error",
            CallError::NotUnderstood => "not_understood",
            CallError::Unreachable { maybe_sent: true } => "unknown",
            CallError::Unreachable { maybe_sent: false } => "unreachable",
        }
    }

    /// Of an answer that is no success.
    pub(super) fn of(response: &Response<Bytes>) -> CallError {
        let status = response.status().as_u16();
        let code = code(response);
        match (status, code) {
            (_, Some(code)) if is_throttled(&code) => CallError::Throttled,
            (429, _) => CallError::Throttled,
            // 408: a server gave up waiting, perhaps for the one behind it.
            (408 | 500.., _) => CallError::ServerError,
            (401 | 403, Some(code)) => CallError::Unauthorized(code),
            (400..500, Some(code)) => CallError::refusal(code),
            // From a proxy or a captive portal, which does not say what became of the request.
            _ => CallError::NotUnderstood,
        }
    }

    /// Of a failed entry of a batch.
    pub(super) fn of_entry(code: &str, is_senders_fault: bool) -> CallError {
        match plain(code) {
            Some(code) if is_throttled(&code) => CallError::Throttled,
            Some(code) if is_senders_fault => CallError::refusal(code),
            code => CallError::EntryFailed(code.unwrap_or_default()),
        }
    }

    /// Of a code that blames the request.
    fn refusal(code: String) -> CallError {
        match &*code {
            "QueueDoesNotExist" | "AWS.SimpleQueueService.NonExistentQueue" => CallError::QueueNotFound,
            _ if begins_with(UNAUTHORIZED, &code) => CallError::Unauthorized(code),
            _ => CallError::Refused(code),
        }
    }
}

/// The error code of an answer: `QueueDoesNotExist` of `com.amazonaws.sqs#QueueDoesNotExist`.
fn code(response: &Response<Bytes>) -> Option<String> {
    #[derive(Deserialize)]
    struct Failure {
        #[serde(rename = "__type")]
        kind: String,
    }
    let failure: Failure = serde_json::from_slice(response.body()).ok()?;
    plain(&failure.kind)
}

/// A code without its namespace, if it looks like one: arbitrary text must not get into a log.
fn plain(code: &str) -> Option<String> {
    // `namespace#Code:address`
    let code = code.split(':').next().unwrap_or_default();
    let code = code.rsplit('#').next().unwrap_or_default();
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'.' || b == b'_' || b == b'-';
    ((1..=MAX_CODE_LEN).contains(&code.len()) && code.bytes().all(is_plain)).then(|| code.to_owned())
}

fn is_throttled(code: &str) -> bool {
    begins_with(THROTTLED, code)
}

fn begins_with(list: &[&str], code: &str) -> bool {
    list.iter().any(|beginning| code.starts_with(beginning))
}

impl From<onetap_http::Error> for CallError {
    fn from(error: onetap_http::Error) -> CallError {
        match error {
            // SQS's answers are smaller than that.
            onetap_http::Error::TooLarge => CallError::NotUnderstood,
            error => CallError::Unreachable { maybe_sent: !error.is_not_connected() },
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            CallError::Invalid(invalid) => {
                return write!(f, "the message is outside of SQS's limits: {invalid}");
            }
            CallError::Refused(code) => return write!(f, "SQS refuses the request ({code})"),
            CallError::Unauthorized(code) => {
                return write!(f, "SQS refuses the credentials or does not allow the call ({code})");
            }
            CallError::EntryFailed(code) => return write!(f, "SQS failed at this entry ({code})"),
            CallError::HeldBack => "an earlier message of the group could not be sent",
            CallError::QueueNotFound => "there is no such queue",
            CallError::Throttled => "SQS was asked too often",
            CallError::ServerError => "SQS fails",
            CallError::NotUnderstood => "the answer is not one of SQS's",
            CallError::Unreachable { maybe_sent: true } => "no complete answer from SQS",
            CallError::Unreachable { maybe_sent: false } => "SQS cannot be reached",
        };
        f.write_str(text)
    }
}

impl std::error::Error for CallError {}
