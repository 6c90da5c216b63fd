//! Why a change was not made.

use onetap_store::{Error, ErrorKind, edit};

use crate::{Entry, Invalid};

/// Why a change was not made. [`texts::failure`](crate::texts::failure) has the message for the user.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ChangeError {
    /// There is no last transaction.
    Missing,
    /// Another transaction took its place during the change.
    Replaced,
    /// The stored value is not, or no longer, what `If-Match` names.
    Stale,
    /// The change concerns another entry than this one, which is the last transaction.
    NotThisOne(Box<Entry>),
    /// The transaction expired during the change.
    Expired,
    /// The stored value is not an entry. It is left as it is.
    Broken,
    /// The request is not valid.
    Invalid(Invalid),
    /// The entry is larger than the store takes.
    TooLarge,
    /// The store could not be read.
    Unreadable(Error),
    /// The store could not be written. If the error is [`maybe_applied`](Error::maybe_applied), the change may have been
    /// made nevertheless.
    Unwritable(Error),
    /// Other writers changed the value first, more often than the change is repeated.
    Outrun,
}

impl From<edit::Error<ChangeError>> for ChangeError {
    fn from(error: edit::Error<ChangeError>) -> ChangeError {
        match error {
            edit::Error::Step(failure) => failure,
            edit::Error::Unread(error) | edit::Error::Unwritten(error)
                // A value of another type is as broken as any other nonsense.
                if error.kind() == ErrorKind::Decode =>
            {
                ChangeError::Broken
            }
            edit::Error::Unwritten(error) if error.kind() == ErrorKind::TooLarge => ChangeError::TooLarge,
            edit::Error::Unread(error) => ChangeError::Unreadable(error),
            edit::Error::Unwritten(error) => ChangeError::Unwritable(error),
            _ => ChangeError::Outrun,
        }
    }
}
