//! Erasing a ledger: one commit hides it from all readers, a second one removes what is hidden from the store.

use onetap_store::{Batch, Error, Values};

use crate::{Book, Month, Months};

/// The most months of one commit: a batch has 50 writes, and other keys and the marker are among them.
const MAX_MONTHS: usize = 40;

/// What is left of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// Nothing that a reader sees. The store may still have records of the logs that were cleared.
    Hidden,
    /// Months that can be read.
    Months,
}

/// The writes that hide a ledger from all readers, from the values of [`Book::keys`], and what is left after them. More months
/// than one commit takes are left for the next one.
pub fn erase(book: &Book, there: &Values) -> Result<(Batch, Left), Error> {
    let mut batch = Batch::new();
    for key in [book.last_transaction(), book.pending()] {
        if let Some(text) = there.get(key) {
            batch = batch.delete(key, text);
        }
    }
    let mut months = Months { last_id: None, ..Months::read(there.get(book.months())) };
    let visible: Vec<Month> = months.latest_first().take(MAX_MONTHS).collect();
    for month in &visible {
        batch = batch.clear(&book.log(*month)?);
        months.with_log.remove(month);
        months.erased.insert(*month);
    }
    // Otherwise the list is as it was.
    Ok(if visible.is_empty() { (batch, left(&months)) } else { written(batch, book, there, &months) })
}

/// The writes that remove what is hidden from the store, from the value of [`Book::months`], and what is left after them.
///
/// A log that was cleared is cleared again, which means that none of its records is left: see [`Batch::clear`]. The list of
/// months stays until then, so that an erasure that was interrupted is finished by the next one. If an entry was made since, its
/// month can be read: then everything stays as it is.
pub fn remove_hidden(book: &Book, there: &Values) -> Result<(Batch, Left), Error> {
    let mut months = Months::read(there.get(book.months()));
    if !months.with_log.is_empty() || there.get(book.months()).is_none() {
        return Ok((Batch::new(), left(&months)));
    }
    let mut batch = Batch::new();
    let hidden: Vec<Month> = months.erased.iter().copied().take(MAX_MONTHS).collect();
    for month in hidden {
        batch = batch.clear(&book.log(month)?);
        months.erased.remove(&month);
    }
    Ok(written(batch, book, there, &months))
}

fn written(batch: Batch, book: &Book, there: &Values, months: &Months) -> (Batch, Left) {
    let left = left(months);
    let batch = match (left, there.get(book.months())) {
        (Left::Nothing, Some(stored)) => batch.delete(book.months(), stored),
        (Left::Nothing, None) => batch,
        _ => batch.put(book.months(), there.expect(book.months()), months.to_json(), book.retention()),
    };
    (batch, left)
}

fn left(months: &Months) -> Left {
    match (months.with_log.is_empty(), months.erased.is_empty()) {
        (true, true) => Left::Nothing,
        (true, false) => Left::Hidden,
        (false, _) => Left::Months,
    }
}
