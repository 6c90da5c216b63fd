//! Why there is no response.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// Why there is no complete response. Neither it nor its [source](StdError::source) contains a path, a header or a body:
/// they can hold secrets. (A source may name the server.)
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// There is no connection: refused, broken or timed out during name look-up, TCP or TLS. Nothing of the request was
    /// sent.
    NotConnected(Source),
    /// The connection broke before the response was complete; the request may have been carried out.
    Interrupted(Source),
    /// The deadline passed after the request was handed to a connection; it may have been carried out.
    TimedOut,
    /// The response is larger than the caller allows.
    TooLarge,
}

/// The error that caused another one, if there was one.
#[derive(Clone, Default)]
pub struct Source(Option<Arc<dyn StdError + Send + Sync>>);

impl Error {
    pub(crate) fn not_connected(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        Error::NotConnected(Source::of(source))
    }

    pub(crate) fn interrupted(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        Error::Interrupted(Source::of(source))
    }

    /// Whether nothing of the request was sent.
    pub fn is_not_connected(&self) -> bool {
        matches!(self, Error::NotConnected(_))
    }
}

impl Source {
    fn of(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Source {
        Source(Some(Arc::from(source.into())))
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(source) => source.fmt(f),
            None => f.write_str("none"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::NotConnected(_) => "no connection",
            Error::Interrupted(_) => "the connection broke before the answer was whole",
            Error::TimedOut => "no answer in time",
            Error::TooLarge => "the answer is too large",
        })
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Error::NotConnected(source) | Error::Interrupted(source) => Some(&**source.0.as_ref()?),
            Error::TimedOut | Error::TooLarge => None,
        }
    }
}
