//! What an erasure does besides the commit that hides everything from its readers.

use onetap_ledger::{Left, remove_hidden};
use onetap_store::{Batch, Edit, Error, edit};

use crate::session::Session;
use crate::user_edit::Erasure;

/// Hides the months that are more than one commit takes, so that one commit can hide the rest together with its marker.
pub(crate) async fn hide_surplus(session: &Session<'_>, erasure: &Erasure) -> Result<(), edit::Error<Error>> {
    let edit = erasure.edit().deadline(Some(session.before_reply()));
    let surplus = |there: &_| match erasure.step(there)? {
        (writes, Left::Months) => Ok((writes, true)),
        (_, Left::Hidden | Left::Nothing) => Ok((Batch::new(), false)),
    };
    while edit.apply(&session.store(), surplus).await? {}
    Ok(())
}

/// Removes what is hidden from the store, and returns whether nothing is left. What is left is removed by the next erasure.
pub(crate) async fn clean_up(session: &Session<'_>, erasure: &Erasure) -> bool {
    let book = &erasure.book;
    let edit = Edit::of(book.months()).idempotent().deadline(Some(session.before_reply()));
    loop {
        match edit.apply(&session.store(), |there| remove_hidden(book, there)).await {
            // An entry was made since: the records stay for the next erasure.
            Ok(Left::Nothing | Left::Months) => return true,
            Ok(Left::Hidden) => {}
            Err(error) => {
                tracing::warn!(%error, "records of an erased ledger are left");
                return false;
            }
        }
    }
}
