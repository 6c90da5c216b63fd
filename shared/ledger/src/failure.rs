//! Why a change did not happen.

use onetap_store::{Error, edit};

use crate::Invalid;

/// Why nothing is known to have been written. What people are told is in [`texts::failure`](crate::texts::failure).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There is no last transaction.
    Missing,
    /// Another transaction took its place meanwhile.
    Replaced,
    /// It is not, or no longer, what `If-Match` names.
    Stale,
    /// It was there, and is gone.
    Expired,
    /// What the store holds is no entry. It was left as it is.
    Broken,
    /// What was asked for is not valid.
    Invalid(Invalid),
    /// The entry would be larger than the store takes.
    TooLarge,
    /// The store could not be read.
    Unreadable(Error),
    /// The store could not be written; with [`maybe_applied`](Error::maybe_applied) it may have been all the same.
    Unwritable(Error),
    /// Others kept changing it first.
    Outrun,
}

impl From<edit::Error<Failure>> for Failure {
    fn from(error: edit::Error<Failure>) -> Failure {
        match error {
            edit::Error::Step(failure) => failure,
            // A value of another type is as broken as any other nonsense.
            edit::Error::Unread(Error::Decode { .. }) | edit::Error::Unwritten(Error::Decode { .. }) => {
                Failure::Broken
            }
            edit::Error::Unwritten(Error::TooLarge { .. }) => Failure::TooLarge,
            edit::Error::Unread(error) => Failure::Unreadable(error),
            edit::Error::Unwritten(error) => Failure::Unwritable(error),
            _ => Failure::Outrun,
        }
    }
}
