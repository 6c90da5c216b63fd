//! The error of a store call.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// A store call that failed. A *refusal* is no error, but an answer: see [`Commit`](crate::Commit).
///
/// Neither an error nor its [source](StdError::source) (an error of the connection, of TLS or of the AWS SDK) contains a
/// key, a value or a secret: errors are logged, and keys contain user ids. (What a credentials provider of your own says,
/// under a client of your own, is passed on as it is.) Two errors are equal whatever their sources are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The store was not reached, did not answer in time, or sent an invalid answer.
    ///
    /// The call may be retried. With `maybe_applied` the write may be applied already: retry with *the same* batch. A
    /// refusal whose stored value is the one that the batch writes means that it was applied.
    #[non_exhaustive]
    Unavailable {
        /// Whether the request may have reached the store.
        maybe_applied: bool,
        /// What happened. It may be logged.
        reason: Cow<'static, str>,
        /// The error that caused this one.
        source: Source,
    },
    /// The store or this crate does not accept this call. A retry does not help.
    #[non_exhaustive]
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
    #[non_exhaustive]
    Decode {
        /// What was expected, or what is wrong with it. It may be logged.
        reason: Cow<'static, str>,
    },
}

/// The error that caused another one, if there was one.
#[derive(Clone, Default)]
pub struct Source(Option<Arc<dyn StdError + Send + Sync>>);

impl PartialEq for Source {
    fn eq(&self, _: &Source) -> bool {
        true
    }
}

impl Eq for Source {}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(source) => source.fmt(f),
            None => f.write_str("none"),
        }
    }
}

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for Source {
    fn from(error: E) -> Source {
        Source(Some(Arc::from(error.into())))
    }
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
            Error::Unavailable { reason, source, .. } => {
                Error::Unavailable { maybe_applied: true, reason, source }
            }
            // The second send can be rejected (the password was changed) although the first one was applied.
            Error::Rejected { reason } => Error::unknown(reason),
            other => other,
        }
    }

    /// The same error with the one that caused it, for those who implement [`Store`](crate::Store): an error of the connection,
    /// which must not quote a key, a value or a secret. Only an unavailable store has one.
    #[must_use]
    pub fn with_source(mut self, cause: impl Into<Source>) -> Error {
        if let Error::Unavailable { source, .. } = &mut self {
            *source = cause.into();
        }
        self
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
        Error::Unavailable { maybe_applied: false, reason: reason.into(), source: Source::default() }
    }

    /// The request was sent, and it is unknown whether it was applied.
    pub fn unknown(reason: impl Into<Cow<'static, str>>) -> Error {
        Error::Unavailable { maybe_applied: true, reason: reason.into(), source: Source::default() }
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

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Error::Unavailable { source, .. } => Some(&**source.0.as_ref()?),
            _ => None,
        }
    }
}
