//! The steps of an erasure before and after the commit that hides the user's data.

use onetap_ledger::{Remaining, remove_hidden};
use onetap_store::{Batch, Edit, Error, edit};

use crate::session::Session;
use crate::user_edit::Erasure;

/// Hides the months that are more than one commit takes, so that one commit can hide the rest together with its marker.
pub(crate) async fn hide_surplus(session: &Session<'_>, erasure: &Erasure) -> Result<(), edit::Error<Error>> {
    let edit = erasure.edit().deadline(Some(session.before_reply()));
    let surplus = |there: &_| match erasure.step(there)? {
        (writes, Remaining::Visible) => Ok((writes, true)),
        (_, Remaining::Hidden | Remaining::Nothing) => Ok((Batch::new(), false)),
    };
    while edit.apply(&session.store(), surplus).await.inspect_err(|error| session.note_failed_edit(error))? {}
    Ok(())
}

/// Whether the hidden records are removed from the store.
pub(crate) enum Removal {
    /// They are.
    Complete,
    /// Perhaps not all of them: the time did not suffice. The next erasure removes the rest.
    Unfinished,
}

/// Removes the hidden records from the store.
pub(crate) async fn remove_hidden_records(session: &Session<'_>, erasure: &Erasure) -> Removal {
    let book = &erasure.book;
    let edit = Edit::of(book.months()).idempotent().deadline(Some(session.before_reply()));
    loop {
        match edit.apply(&session.store(), |there| remove_hidden(book, there)).await {
            // In a month in which an entry was made since, the store removes the rest by itself.
            Ok(Remaining::Nothing | Remaining::Visible) => return Removal::Complete,
            Ok(Remaining::Hidden) => {}
            Err(error) => {
                session.note_failed_edit(&error);
                tracing::warn!(%error, "records of an erased ledger are left in the store");
                return Removal::Unfinished;
            }
        }
    }
}
