//! The ways in which a call ends without a value.

use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

/// Why a call has no value to return, or only one with a reservation.
///
/// `T` is the function's value and `E` its error; plain `Error` is one that carries neither, because no function
/// was run. [`Display`](fmt::Display) and [`Debug`](fmt::Debug) show no key, payload or value; the function's own
/// error shows what it will.
///
/// It is a [`std::error::Error`], so that `?` works, if `E` is one. `lambda_runtime::Error` (a `Box<dyn Error>`),
/// `anyhow::Error` and `String` are none: for these there is [`boxed`](Error::boxed).
///
/// ```
/// # use std::sync::Arc;
/// # use onetap_idem::{Error, Idempotency};
/// # use onetap_store::Memory;
/// # type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// # async fn charge() -> Result<u32, BoxError> { Ok(120) }
/// # async fn pay(idem: &Idempotency) -> Result<u32, BoxError> {
/// let charged = idem.execute("order:42", charge).await.map_err(Error::boxed)?;
/// # Ok(charged) }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
/// # assert_eq!(pay(&Idempotency::new(Arc::new(Memory::new()))).await?, 120);
/// # Ok(()) }
/// ```
#[non_exhaustive]
pub enum Error<T = Infallible, E = Infallible> {
    /// The key is empty or over 256 bytes, or contains U+001F. Nothing was asked or run.
    InvalidKey,
    /// The payload cannot be written as JSON. Nothing was asked or run.
    InvalidPayload,
    /// The deadline had passed before the function could start. It was not run.
    DeadlinePassed,
    /// The key belongs to another payload, finished or running. Nothing was run or changed.
    Mismatch,
    /// Another caller is running it, and did not end within the wait limit or the deadline. Not run here.
    InProgress {
        /// The claim that was seen ends after this time, unless it is renewed. Its owner may end sooner.
        left: Duration,
    },
    /// It was done before, but its result was not kept: it was too large, or could not be read back. Not run again.
    NotKept,
    /// Its owner has neither ended nor renewed its claim in time, and under [`Policy::AtMostOnce`](super::Policy)
    /// nobody runs it again before it is [resolved](super::Idempotency::resolve). Not run.
    Unknown,
    /// The store gave no usable answer. The function was not run; where it was, in a `transact` or an `edit`, none of its writes
    /// is known to have been made. To call again with the same key is safe, and tells.
    Store(onetap_store::Error),
    /// The function ran, but its lease had ended and another owner has taken over. The result was refused; the other owner's
    /// is or will be the one that is replayed. Of a `transact` or an `edit` nothing was written.
    LostLease {
        /// What the function returned: there may be something to undo.
        value: T,
    },
    /// The function ran, and the store did not confirm its result. Until the claim is over callers find it in
    /// progress; then the policy decides.
    Unrecorded {
        /// What the function returned.
        value: T,
        /// What the store said.
        error: onetap_store::Error,
    },
    /// The function's own error, whatever else went wrong.
    Function(E),
}

impl Error {
    /// The same error, where a function could have been run.
    pub fn widen<T, E>(self) -> Error<T, E> {
        self.map(|value| match value {}, |error| match error {})
    }
}

impl<T, E> Error<T, E> {
    fn map<U, F>(self, value: impl FnOnce(T) -> U, function: impl FnOnce(E) -> F) -> Error<U, F> {
        match self {
            Error::InvalidKey => Error::InvalidKey,
            Error::InvalidPayload => Error::InvalidPayload,
            Error::DeadlinePassed => Error::DeadlinePassed,
            Error::Mismatch => Error::Mismatch,
            Error::InProgress { left } => Error::InProgress { left },
            Error::NotKept => Error::NotKept,
            Error::Unknown => Error::Unknown,
            Error::Store(error) => Error::Store(error),
            Error::LostLease { value: late } => Error::LostLease { value: value(late) },
            Error::Unrecorded { value: done, error } => Error::Unrecorded { value: value(done), error },
            Error::Function(error) => Error::Function(function(error)),
        }
    }

    /// The error in a word, for logs and counters.
    pub fn outcome(&self) -> &'static str {
        match self {
            Error::InvalidKey => "invalid_key",
            Error::InvalidPayload => "invalid_payload",
            Error::DeadlinePassed => "deadline_passed",
            Error::Mismatch => "mismatch",
            Error::InProgress { .. } => "in_progress",
            Error::NotKept => "not_kept",
            Error::Unknown => "unknown",
            Error::Store(_) => "store_error",
            Error::LostLease { .. } => "lost_lease",
            Error::Unrecorded { .. } => "unrecorded",
            Error::Function(_) => "failed",
        }
    }
}

impl<T, E> Error<T, E>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// The error in a box: the function's own error as it is, any other without the function's value.
    pub fn boxed(self) -> Box<dyn std::error::Error + Send + Sync> {
        match self {
            Error::Function(error) => error.into(),
            // No other variant holds an error of the function.
            other => Box::new(other.map(drop, |_| fmt::Error)),
        }
    }
}

impl From<onetap_store::Error> for Error {
    fn from(error: onetap_store::Error) -> Error {
        Error::Store(error)
    }
}

impl<T, E: fmt::Debug> fmt::Debug for Error<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::InvalidKey => f.write_str("InvalidKey"),
            Error::InvalidPayload => f.write_str("InvalidPayload"),
            Error::DeadlinePassed => f.write_str("DeadlinePassed"),
            Error::Mismatch => f.write_str("Mismatch"),
            Error::InProgress { left } => f.debug_struct("InProgress").field("left", left).finish(),
            Error::NotKept => f.write_str("NotKept"),
            Error::Unknown => f.write_str("Unknown"),
            Error::Store(error) => f.debug_tuple("Store").field(error).finish(),
            Error::LostLease { .. } => f.debug_struct("LostLease").finish_non_exhaustive(),
            Error::Unrecorded { error, .. } => {
                f.debug_struct("Unrecorded").field("error", error).finish_non_exhaustive()
            }
            Error::Function(error) => f.debug_tuple("Function").field(error).finish(),
        }
    }
}

impl<T, E: fmt::Display> fmt::Display for Error<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::InvalidKey => f.write_str("an idempotency key has 1 to 256 bytes and no U+001F"),
            Error::InvalidPayload => f.write_str("the payload cannot be written as JSON"),
            Error::DeadlinePassed => f.write_str("the deadline passed before the function could start"),
            Error::Mismatch => f.write_str("the idempotency key belongs to another payload"),
            Error::InProgress { .. } => f.write_str("it is being done elsewhere"),
            Error::NotKept => f.write_str("it was done before, and its result was not kept"),
            Error::Unknown => f.write_str("it was begun before, and what became of it is unknown"),
            Error::Store(error) => error.fmt(f),
            Error::LostLease { .. } => {
                f.write_str("it took longer than its lease, and somebody else has taken over")
            }
            Error::Unrecorded { error, .. } => write!(f, "it is done, but not recorded: {error}"),
            Error::Function(error) => error.fmt(f),
        }
    }
}

impl<T, E: std::error::Error + 'static> std::error::Error for Error<T, E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // `Display` has said what they say: next comes what they stand on.
            Error::Store(error) | Error::Unrecorded { error, .. } => error.source(),
            Error::Function(error) => error.source(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type BoxError = Box<dyn std::error::Error + Send + Sync>;

    #[test]
    fn a_boxed_error_is_the_functions_own_or_keeps_its_source() {
        let own: Error<u32, BoxError> = Error::Function("sold out".into());
        assert_eq!(own.boxed().to_string(), "sold out");

        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let store = onetap_store::Error::not_sent("no connection").with_source(refused);
        let error: Error<u32, BoxError> = Error::Unrecorded { value: 7, error: store };
        let text = error.to_string();
        let boxed = error.boxed();
        assert_eq!(boxed.to_string(), text);
        assert!(boxed.source().is_some());
    }
}
