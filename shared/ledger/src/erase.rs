//! Erasing a ledger: one commit hides it from all readers, a second one removes what is hidden from the store.

use onetap_store::{Batch, Error, Expect, Values};

use crate::{Book, Month, Months};

/// A batch has at most 50 writes. The other keys and the marker need some of them.
const MAX_MONTHS_PER_COMMIT: usize = 40;

/// What remains of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remaining {
    /// Nothing.
    Nothing,
    /// Nothing that a reader sees. The store may still have records of the logs that were cleared.
    Hidden,
    /// Months that can be read.
    Visible,
}

/// The writes that hide a ledger from all readers, from the values of [`Book::keys`], and what remains after them. More months
/// than one commit takes remain for the next one.
pub fn erase(book: &Book, there: &Values) -> Result<(Batch, Remaining), Error> {
    let mut batch = Batch::new();
    // The keys were not read as of one commit: a key that is absent is compared too.
    for key in [book.last_transaction(), book.pending()] {
        batch = match there.get(key) {
            Some(text) => batch.delete(key, text),
            None => batch.check(key, Expect::Absent),
        };
    }
    let mut months = Months::read(there.get(book.months())).without_entries();
    let visible: Vec<Month> = months.latest_first().take(MAX_MONTHS_PER_COMMIT).collect();
    for month in &visible {
        batch = batch.clear(&book.log(*month)?);
        months.with_log.remove(month);
        months.hidden.insert(*month);
    }
    Ok(match visible.is_empty() {
        true => (batch.check(book.months(), there.expect(book.months())), remaining(&months)),
        false => with_list(batch, book, there, months),
    })
}

/// The writes that remove what is hidden from the store, from the value of [`Book::months`], and what remains after them.
///
/// A log that was cleared is cleared again, which means that none of its records is left: see [`Batch::clear`]. The list of
/// months stays until then, so that an erasure that was interrupted is finished by the next one. A month in which an entry was
/// made since is not touched ([`Remaining::Visible`]): the store removes what is hidden of it after that entry.
pub fn remove_hidden(book: &Book, there: &Values) -> Result<(Batch, Remaining), Error> {
    let mut months = Months::read(there.get(book.months()));
    let removable =
        |months: &Months| months.hidden.difference(&months.with_log).copied().collect::<Vec<Month>>();
    let mut batch = Batch::new();
    for month in removable(&months).into_iter().take(MAX_MONTHS_PER_COMMIT) {
        batch = batch.clear(&book.log(month)?);
        months.hidden.remove(&month);
    }
    let remaining = match months.hidden.is_empty() {
        true => Remaining::Nothing,
        false if removable(&months).is_empty() => Remaining::Visible,
        false => Remaining::Hidden,
    };
    Ok(match batch.writes().is_empty() {
        true => (batch, remaining),
        false => (with_list(batch, book, there, months).0, remaining),
    })
}

/// The batch with the new list of months, or with its removal if the list is empty.
fn with_list(batch: Batch, book: &Book, there: &Values, mut months: Months) -> (Batch, Remaining) {
    let remaining = remaining(&months);
    let batch = match (remaining, there.get(book.months())) {
        (Remaining::Nothing, Some(stored)) => batch.delete(book.months(), stored),
        (Remaining::Nothing, None) => batch,
        _ => {
            let ttl = months.extend(book.retention());
            batch.put(book.months(), there.expect(book.months()), months.to_json(), ttl)
        }
    };
    (batch, remaining)
}

fn remaining(months: &Months) -> Remaining {
    match (months.with_log.is_empty(), months.hidden.is_empty()) {
        (true, true) => Remaining::Nothing,
        (true, false) => Remaining::Hidden,
        (false, _) => Remaining::Visible,
    }
}
