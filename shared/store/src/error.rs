//! The error of a store call.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// A store call that failed. A *refusal* is an answer, not an error: see [`Commit`](crate::Commit).
///
/// Neither an error nor its [source](StdError::source) (an error of the connection, of TLS or of the AWS SDK) contains a
/// key, a value or a secret: errors are logged, and keys contain user ids. (What a credentials provider of your own says,
/// under a client of your own, is passed on as it is.)
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    maybe_applied: bool,
    #[cfg_attr(
        not(any(feature = "upstash", feature = "redis", feature = "dynamodb")),
        allow(dead_code, reason = "only a connection breaks")
    )]
    interrupted: bool,
    reason: Cow<'static, str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// What kind of error it is ([`Error::kind`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store was not reached, did not answer in time, or sent an invalid answer.
    ///
    /// The call may be retried. If it [may have been applied](Error::maybe_applied), retry with *the same* batch: a refusal
    /// whose stored value is the one that the batch writes means that it was applied.
    Unavailable,
    /// The store or this crate does not accept this call. A retry does not help.
    Rejected,
    /// A value or request is larger than this store takes; nothing was sent.
    TooLarge,
    /// The stored data is of the other kind (a log instead of a value, or the reverse), or was written by another
    /// program in a form that this crate cannot read.
    Decode,
}

impl Error {
    fn new(kind: ErrorKind, maybe_applied: bool, reason: impl Into<Cow<'static, str>>) -> Error {
        Error { kind, maybe_applied, interrupted: false, reason: reason.into(), source: None }
    }

    /// The call is not accepted. A retry does not help.
    pub fn rejected(reason: impl Into<Cow<'static, str>>) -> Error {
        Error::new(ErrorKind::Rejected, false, reason)
    }

    /// A value or request of `size` bytes is over the store's limit. Nothing was sent.
    pub fn too_large(size: usize, limit: usize) -> Error {
        Error::new(ErrorKind::TooLarge, false, format!("{size} bytes is over its limit of {limit}"))
    }

    /// The stored data cannot be read by this crate.
    pub fn decode(reason: impl Into<Cow<'static, str>>) -> Error {
        Error::new(ErrorKind::Decode, false, reason)
    }

    /// The name of a key is that of a log, or the reverse.
    #[cfg(any(feature = "memory", feature = "upstash", feature = "redis", feature = "dynamodb"))]
    pub(crate) fn wrong_type() -> Error {
        Error::decode("WRONGTYPE: a key or log holds a value of another kind")
    }

    /// The request was not sent: sending it again cannot apply it twice.
    pub fn not_sent(reason: impl Into<Cow<'static, str>>) -> Error {
        Error::new(ErrorKind::Unavailable, false, reason)
    }

    /// The request was sent, and it is unknown whether it was applied.
    pub fn unknown(reason: impl Into<Cow<'static, str>>) -> Error {
        Error::new(ErrorKind::Unavailable, true, reason)
    }

    /// The connection broke. A repeatable request may be sent once more, over a new connection. (While a Lambda is frozen,
    /// the peer closes its pooled connections.)
    #[cfg(any(feature = "upstash", feature = "redis", feature = "dynamodb"))]
    pub(crate) fn interrupted(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        let error = Error::unknown("the connection broke before the answer was whole").with_source(cause);
        Error { interrupted: true, ..error }
    }

    /// The same error with the one that caused it, for those who implement [`Store`](crate::Store): an error of the connection,
    /// which must not quote a key, a value or a secret.
    #[must_use]
    pub fn with_source(self, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        Error { source: Some(Arc::from(cause.into())), ..self }
    }

    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.kind == ErrorKind::Unavailable
    }

    /// Whether the call may have changed something although it failed.
    pub fn maybe_applied(&self) -> bool {
        self.maybe_applied
    }

    #[cfg(any(feature = "upstash", feature = "redis", feature = "dynamodb"))]
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted
    }

    /// The error of a second send, after the reply to the first one was lost: even if the second send was certainly not
    /// applied, the first one may be. (It can be rejected, because the password was changed, although the first was applied.)
    #[must_use]
    pub fn after_a_lost_reply(self) -> Error {
        match self.kind {
            ErrorKind::Unavailable | ErrorKind::Rejected => {
                Error { kind: ErrorKind::Unavailable, maybe_applied: true, ..self }
            }
            ErrorKind::TooLarge | ErrorKind::Decode => self,
        }
    }

    /// The error of a read before a write: nothing was written.
    #[cfg(feature = "dynamodb")]
    pub(crate) fn before_a_write(self) -> Error {
        Error { maybe_applied: false, ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            ErrorKind::Unavailable => "the store is unavailable",
            ErrorKind::Rejected | ErrorKind::TooLarge => "the store rejects this",
            ErrorKind::Decode => "the store holds something unreadable",
        };
        write!(f, "{what}: {}", self.reason)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}
