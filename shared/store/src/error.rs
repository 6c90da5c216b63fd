//! The error of a store call.

use std::borrow::Cow;
use std::fmt;

/// A store call that failed. A *refusal* is no error, but an answer: see [`Commit`](crate::Commit).
///
/// No variant contains a key, a value or a secret: errors are logged, and keys contain user ids.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The store was not reached, did not answer in time, or sent an invalid answer.
    ///
    /// The call may be retried. With `maybe_applied` the write may be applied already: retry with *the same* batch. A
    /// refusal whose stored value is the one that the batch writes means that it was applied.
    Unavailable {
        /// Whether the request may have reached the store.
        maybe_applied: bool,
        /// What happened. It may be logged.
        reason: Cow<'static, str>,
    },
    /// The store or this crate does not accept this call. A retry does not help.
    Rejected {
        /// What is wrong with it. It may be logged.
        reason: Cow<'static, str>,
    },
    /// A value or request is larger than this store takes; nothing was sent.
    TooLarge {
        /// The size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The stored data is of the other kind (a log instead of a value, or the reverse), or was written by another
    /// program in a form that this crate cannot read.
    Decode {
        /// What was expected. It may be logged.
        reason: Cow<'static, str>,
    },
}

impl Error {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Unavailable { .. })
    }

    /// Whether the call may have changed something although it failed.
    pub fn maybe_applied(&self) -> bool {
        matches!(self, Error::Unavailable { maybe_applied: true, .. })
    }

    /// The error of a second send, after the reply to the first one was lost: even if the second send was certainly not
    /// applied, the first one may be.
    #[must_use]
    pub fn after_a_lost_reply(self) -> Error {
        match self {
            // The second send can be rejected (the password was changed) although the first one was applied.
            Error::Unavailable { reason, .. } | Error::Rejected { reason } => {
                Error::Unavailable { maybe_applied: true, reason }
            }
            other => other,
        }
    }

    /// The call is not accepted. A retry does not help.
    pub fn rejected(reason: impl Into<Cow<'static, str>>) -> Error {
        Error::Rejected { reason: reason.into() }
    }

    /// The stored data cannot be read by this crate.
    pub fn decode(reason: impl Into<Cow<'static, str>>) -> Error {
        Error::Decode { reason: reason.into() }
    }

    /// The name of a key is that of a log, or the reverse.
    #[cfg(any(feature = "memory", feature = "upstash", feature = "redis", feature = "dynamodb"))]
    pub(crate) fn wrong_type() -> Error {
        Error::decode("WRONGTYPE: a key or log holds a value of another kind")
    }

    /// The request was not sent: sending it again cannot apply it twice.
    pub fn not_sent(reason: impl Into<Cow<'static, str>>) -> Error {
        Error::Unavailable { maybe_applied: false, reason: reason.into() }
    }

    /// The request was sent, and it is unknown whether it was applied.
    pub fn unknown(reason: impl Into<Cow<'static, str>>) -> Error {
        Error::Unavailable { maybe_applied: true, reason: reason.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unavailable { reason, .. } => write!(f, "the store is unavailable: {reason}"),
            Error::Rejected { reason } => write!(f, "the store rejects this: {reason}"),
            Error::TooLarge { size, limit } => {
                write!(f, "the store rejects this: {size} bytes is over its limit of {limit}")
            }
            Error::Decode { reason } => write!(f, "the store holds something unreadable: {reason}"),
        }
    }
}

impl std::error::Error for Error {}
