//! Erasing a ledger: in one commit for its readers, and then from the tables of the store.

use onetap_store::{Batch, Error, Values};

use crate::{Book, Month, Months};

/// The most months that one commit erases: a batch has 50 writes, and other keys and the marker are among them.
const MAX_MONTHS: usize = 40;

/// What is left of a ledger after an erasure was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// Nothing that a reader sees. The store may still have records of the logs that were cleared: erase again.
    Records,
    /// More months than one commit erases: erase again.
    Months,
}

/// The writes that erase a ledger, from the values of [`Book::keys`], and what is left after them.
///
/// Its readers see nothing of the ledger after the first commit, or after the first that leaves no [`Left::Months`]. The list
/// of months stays until a second commit has cleared the logs again, which means that none of their records is left: see
/// [`Batch::clear`]. So an erasure that was interrupted is finished by the next one.
pub fn erase(book: &Book, there: &Values) -> Result<(Batch, Left), Error> {
    let mut batch = Batch::new();
    for key in [book.last_transaction(), book.pending()] {
        if let Some(text) = there.get(key) {
            batch = batch.delete(key, text);
        }
    }
    let Some(stored) = there.get(book.months()) else { return Ok((batch, Left::Nothing)) };

    let mut rest = Months { last_id: None, ..Months::read(Some(stored)) };
    let is_visible = !rest.with_log.is_empty();
    let cleared: Vec<Month> = match is_visible {
        true => rest.latest_first().take(MAX_MONTHS).collect(),
        false => rest.erased.iter().copied().take(MAX_MONTHS).collect(),
    };
    for month in cleared {
        batch = batch.clear(&book.log(month)?);
        rest.with_log.remove(&month);
        if is_visible {
            rest.erased.insert(month);
        } else {
            rest.erased.remove(&month);
        }
    }
    let left = match (rest.with_log.is_empty(), rest.erased.is_empty()) {
        (true, true) => Left::Nothing,
        (true, false) => Left::Records,
        (false, _) => Left::Months,
    };
    let batch = match left {
        Left::Nothing => batch.delete(book.months(), stored),
        _ => batch.put(book.months(), there.expect(book.months()), rest.to_json(), book.retention()),
    };
    Ok((batch, left))
}
