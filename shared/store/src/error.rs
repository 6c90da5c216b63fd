//! What can go wrong between the store and us.

use std::borrow::Cow;
use std::fmt;

/// A store call that gave no answer. A *refusal* is an answer, and no error: see [`Commit`](crate::Commit).
///
/// No variant ever carries a key, a value or a secret: errors end up in logs, and keys hold user ids.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The store was not reached, did not answer in time, or answered what no store answers.
    ///
    /// Worth another try. With `maybe_applied` the write may have landed all the same: try again with *the same*
    /// batch, and a refusal that brings back what it was writing says that it had.
    Unavailable {
        /// Whether the request may have reached the store.
        maybe_applied: bool,
        /// What happened, fit for a log.
        reason: Cow<'static, str>,
    },
    /// The store, or this crate before it, will not take this call, however often it comes.
    Rejected {
        /// What is wrong with it, fit for a log.
        reason: Cow<'static, str>,
    },
    /// A value or request is larger than this store takes; nothing was sent.
    TooLarge {
        /// What there is, in bytes.
        size: usize,
        /// What there may be, in bytes.
        limit: usize,
    },
    /// The store holds something under this name that is of another kind than was asked for (a log for a value, or the
    /// reverse), or that this crate did not write and cannot read.
    Decode {
        /// What was expected instead, fit for a log.
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

    /// The same error of a call that was sent before, and whose first reply was lost: although this send has certainly
    /// not landed, that one may have.
    #[must_use]
    pub fn after_a_lost_reply(self) -> Error {
        match self {
            // Rejected this time (a password that was changed meanwhile) says nothing of the first.
            Error::Unavailable { reason, .. } | Error::Rejected { reason } => {
                Error::Unavailable { maybe_applied: true, reason }
            }
            other => other,
        }
    }

    /// This call will not be taken, however often it comes.
    pub fn rejected(reason: impl Into<Cow<'static, str>>) -> Error {
        Error::Rejected { reason: reason.into() }
    }

    /// What is there was not written by this crate.
    pub fn decode(reason: impl Into<Cow<'static, str>>) -> Error {
        Error::Decode { reason: reason.into() }
    }

    /// A key names a log, or a log's name a value.
    #[cfg(any(feature = "memory", feature = "upstash", feature = "redis", feature = "dynamodb"))]
    pub(crate) fn wrong_type() -> Error {
        Error::decode("WRONGTYPE: a key or log holds a value of another kind")
    }

    /// The request never left: sending it again cannot double anything.
    pub fn not_sent(reason: impl Into<Cow<'static, str>>) -> Error {
        Error::Unavailable { maybe_applied: false, reason: reason.into() }
    }

    /// The request left and its fate is unknown.
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
