//! Computes the new last transaction from the stored one, and the records of the journal. This module does no I/O.

use std::fmt;

use onetap_store::{Batch, Edit, Error, Expect, Key, Log, Values};

use crate::chat::{Note, Target};
use crate::journal::{LedgerRecord, records};
use crate::{Book, ChangeError, Entry, Field, IfMatch, Invalid, Moment, Month, Months, Patch, etag};

/// A requested change of the last transaction.
#[derive(Clone, Debug)]
pub enum Change {
    /// This entry becomes the last transaction, and overwrites any other.
    Put(Entry),
    /// All entries of a chat message are recorded. The last of them becomes the last transaction. No entry had one of their ids
    /// before.
    Note(Note),
    /// These fields of the last transaction change.
    Edit(Patch),
    /// The last transaction is deleted.
    Delete,
}

/// One change with its retries. It stores the id of the first transaction that it read, so that a retry never changes
/// another transaction.
///
/// It is the step of an [`Edit`](Attempt::edit) of the store, alone or in an idempotent call:
///
/// ```
/// # use std::sync::Arc;
/// # use onetap_ledger::{Attempt, Book, Change, Config, Entry};
/// # use onetap_store::{Memory, Store};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store: Arc<dyn Store> = Arc::new(Memory::new());
/// # let book = Book::new("U1", Config::default()).ok_or("no user id")?;
/// # let entry = Entry::read(r#"{"交易ID":"20251129-143000"}"#).ok_or("no entry")?;
/// let mut attempt = Attempt::new(Change::Put(entry), None);
/// let step = attempt.edit(&book).apply(&*store, |there| attempt.write(&book, there)).await;
/// assert!(step.is_ok_and(|step| step.created()));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Attempt {
    change: Change,
    condition: Option<IfMatch>,
    /// When it is made, if that is known.
    now: Option<Moment>,
    /// The group or room in which it is made: a hash of its id.
    chat: Option<String>,
    /// Which entry an edit or a deletion is meant for.
    meant_for: Target,
    /// The `交易ID` of the first transaction that was read.
    target: Option<String>,
}

impl Attempt {
    /// An attempt at `change`, on condition that the last transaction matches `condition`.
    pub fn new(change: Change, condition: Option<IfMatch>) -> Attempt {
        Attempt { change, condition, now: None, chat: None, meant_for: Target::default(), target: None }
    }

    /// The same attempt, made at `now`. Then most edits and deletions cost less: they leave the TTL of the month as it is,
    /// because it was set a short time ago. Without a time each of them renews it.
    #[must_use]
    pub fn at(self, now: Moment) -> Attempt {
        Attempt { now: Some(now), ..self }
    }

    /// The same attempt, made in the group or room with this hash; `None` for a chat with the bot alone. In a group or room an edit
    /// or deletion concerns only an entry that was entered there: any other is [`Missing`](ChangeError::Missing).
    #[must_use]
    pub fn in_chat(self, chat: Option<String>) -> Attempt {
        Attempt { chat, ..self }
    }

    /// The same attempt, for an edit or a deletion that is meant for this entry: any other is
    /// [`NotThisOne`](ChangeError::NotThisOne).
    #[must_use]
    pub fn meant_for(self, meant_for: Target) -> Attempt {
        Attempt { meant_for, ..self }
    }

    /// Whether it was said in a group.
    pub fn is_in_group(&self) -> bool {
        self.chat.is_some()
    }

    /// The change.
    pub fn change(&self) -> &Change {
        &self.change
    }

    /// The keys whose values its step needs.
    pub fn keys(&self, book: &Book) -> Vec<Key> {
        let months = (!self.leaves_months(book)).then(|| book.months().clone());
        [book.last_transaction().clone()].into_iter().chain(months).collect()
    }

    /// The read-modify-write on the store that makes the change. Its step is [`write`](Attempt::write).
    pub fn edit(&self, book: &Book) -> Edit<'static> {
        let edit = Edit::of_all(self.keys(book));
        // A note gets a new id on every retry, so it is not idempotent. The other changes are.
        let edit = if matches!(self.change, Change::Note(_)) { edit } else { edit.idempotent() };
        if self.reads_first() { edit } else { edit.guessing_absent() }
    }

    /// Whether the stored values must be read first. A change that may overwrite any value first assumes that there is
    /// none; if that is wrong, the refusal contains the values.
    fn reads_first(&self) -> bool {
        self.condition.is_some() || matches!(self.change, Change::Edit(_) | Change::Delete)
    }

    /// Whether it neither reads nor writes the list of months: the entry stays in its month, and nothing is renewed.
    fn leaves_months(&self, book: &Book) -> bool {
        let stays = match &self.change {
            Change::Edit(patch) => patch.fields().all(|field| field != Field::Date),
            Change::Delete => true,
            Change::Put(_) | Change::Note(_) => false,
        };
        stays && self.chat.is_none() && self.now.is_some_and(|now| !book.renews_at(now))
    }

    /// The batch to commit over the stored values, and the step that it makes.
    pub fn write(&mut self, book: &Book, there: &Values) -> Result<(Batch, Step), ChangeError> {
        let mut months = Months::read(there.get(book.months()));
        // Clocks can be wrong and events can be late, so the later of the two times is used.
        let now = match &self.change {
            Change::Note(note) => self.now.max(Some(note.now())),
            Change::Put(entry) => self.now.or_else(|| Moment::parse_id(entry.id())),
            Change::Edit(_) | Change::Delete => None,
        };
        if let Some(now) = now {
            months.keep_ids(now);
        }
        let step = self.step(there.get(book.last_transaction()), &months)?;
        // Another program may have written the entry that a note overwrites.
        let overwritten = step.before().and_then(|entry| Moment::parse_id(entry.id()));
        if let (Change::Note(_), Some(id), Some(now)) = (&self.change, overwritten, now) {
            months.add_foreign_id(id, now);
        }
        let mut adds_id = false;
        let ids = step.entries.iter().filter_map(|entry| Moment::parse_id(entry.id()));
        for (id, now) in ids.filter_map(|id| Some((id, now?))) {
            adds_id |= !months.given_ids(now).contains(id);
            match &self.change {
                Change::Put(_) => months.add_put_id(id, now),
                _ => months.add_id(id, now),
            }
        }
        if let (Change::Put(_) | Change::Note(_), Some(entry)) = (&self.change, step.entry()) {
            months.set_chat(entry.id(), self.chat.as_deref());
        }
        let leaves_months = self.leaves_months(book);
        let batch = step.batch(book, there, months, leaves_months, adds_id);
        Ok((batch.map_err(ChangeError::Unwritable)?, step))
    }

    /// The step from the stored value `there`, or why the change is not allowed.
    pub fn step(&mut self, there: Option<&str>, months: &Months) -> Result<Step, ChangeError> {
        let is_first = self.target.is_none();
        let current = self.current(there)?;
        if let (Change::Edit(_) | Change::Delete, Some(chat), Some(current)) =
            (&self.change, &self.chat, &current)
            && !months.is_made_in(current.id(), chat)
        {
            return Err(ChangeError::Missing);
        }
        // A retry may find what its first try has written.
        if let Some(current) = current.as_ref().filter(|current| is_first && !self.meant_for.is(current)) {
            self.target = None;
            return Err(ChangeError::NotThisOne(Box::new(current.clone())));
        }
        let (entries, already_applied) = match (&self.change, &current) {
            (Change::Put(entry), _) => overwrite(there, vec![entry.clone()]),
            (Change::Note(note), _) => overwrite(there, note.entries(current.as_ref(), months)),
            (Change::Edit(patch), Some(current)) => {
                let edited = patch.apply(current);
                // An edit that changes nothing counts as already applied: the value may be the result of its first try.
                let already_applied = edited.as_ref().is_ok_and(|edited| edited == current);
                (edited.map(|edited| vec![edited]), already_applied)
            }
            (Change::Delete, Some(_)) => (Ok(Vec::new()), false),
            (Change::Edit(_) | Change::Delete, None) => return Err(ChangeError::Missing),
        };
        // Before the error of the patch: a stale transaction is reported as stale, also if the patch is invalid.
        self.check_condition(there, current.as_ref(), already_applied)?;
        let entries = entries.map_err(ChangeError::Invalid)?;
        Ok(Step { before: there.map(str::to_owned), entries })
    }

    /// The stored transaction. For an edit or a deletion it must be the one that was read first.
    fn current(&mut self, there: Option<&str>) -> Result<Option<Entry>, ChangeError> {
        let current = there.and_then(Entry::read);
        if matches!(self.change, Change::Put(_) | Change::Note(_)) {
            return Ok(current);
        }
        match (there, current) {
            // It was there and is gone. A deletion reports that as missing, not as expired.
            (None, _) if self.target.is_some() && !matches!(self.change, Change::Delete) => {
                Err(ChangeError::Expired)
            }
            (None, _) => Err(ChangeError::Missing),
            (Some(_), None) => Err(ChangeError::Broken),
            (Some(_), Some(current))
                if self.target.get_or_insert_with(|| current.id().to_owned()) == current.id() =>
            {
                Ok(Some(current))
            }
            _ if self.condition.is_some() => Err(ChangeError::Stale),
            _ => Err(ChangeError::Replaced),
        }
    }

    /// Checks the condition (`If-Match`). `already_applied`: the stored value is the result of this change.
    fn check_condition(
        &self,
        there: Option<&str>,
        current: Option<&Entry>,
        already_applied: bool,
    ) -> Result<(), ChangeError> {
        let Some(condition) = &self.condition else { return Ok(()) };
        let holds = there.is_some_and(|there| condition.holds(there, current.map(Entry::id)));
        if holds || already_applied && condition.names_a_value() { Ok(()) } else { Err(ChangeError::Stale) }
    }
}

/// Entries that overwrite any value, and whether the stored value is already the last of them.
fn overwrite(there: Option<&str>, entries: Vec<Entry>) -> (Result<Vec<Entry>, Invalid>, bool) {
    let already_applied = there.is_some() && entries.last().map(Entry::to_json).as_deref() == there;
    (Ok(entries), already_applied)
}

/// One write: the stored value before it, and the entries after it. `Debug` shows no values, only counts.
#[derive(Clone, PartialEq, Eq)]
pub struct Step {
    before: Option<String>,
    entries: Vec<Entry>,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step").field("created", &self.created()).field("entries", &self.entries).finish()
    }
}

impl Step {
    /// The batch: the last transaction, the records of the journal and the months that have a log. It is refused unless the
    /// last transaction and the months are still those that the step was computed from.
    ///
    /// `adds_id`: an entry has an id that the months did not have. With `leaves_months` the months are left out. Then the log of
    /// the entry must exist: if another program wrote the entry, there may be none, and the refusal says so.
    fn batch(
        &self,
        book: &Book,
        there: &Values,
        mut months: Months,
        leaves_months: bool,
        adds_id: bool,
    ) -> Result<Batch, Error> {
        let key = book.last_transaction();
        let after = self.after();
        let mut batch = match (&self.before, &after) {
            (before, Some(after)) => {
                let expect = before.clone().map_or(Expect::Absent, Expect::Is);
                Batch::new().put(key, expect, after.as_str(), book.life())
            }
            (Some(before), None) => Batch::new().delete(key, before.as_str()),
            (None, None) => Batch::new(),
        };
        let records = records(self.before().as_ref(), &self.entries);
        // The stored value is already this one, as for a request that was repeated: there is nothing to record. (If the list was
        // read and does not have the month or the id, another program wrote the value, and it is recorded.)
        let is_known = |(month, _): &(Month, _)| leaves_months || months.with_log.contains(month);
        if self.before == after && !adds_id && records.iter().all(is_known) {
            return Ok(batch);
        }
        if leaves_months && !there.knows(book.months()) {
            let logs = records.iter().map(|(month, _)| book.log(*month)).collect::<Result<Vec<Log>, _>>()?;
            let is_missing = |log| there.knows(&Key::from(log));
            if !logs.iter().any(is_missing) {
                let append = |batch: Batch, (log, (_, record)): (&Log, &(_, LedgerRecord))| {
                    batch.append_to_existing(log, record.to_json())
                };
                return Ok(logs.iter().zip(&records).fold(batch, append));
            }
        }
        for (month, record) in records {
            months.add(month);
            batch = batch.append(&book.log(month)?, record.to_json(), book.keep());
        }
        let ttl = months.extend(book.retention());
        Ok(batch.put(book.months(), there.expect(book.months()), months.to_json(), ttl))
    }

    /// Whether there was no value before.
    pub fn created(&self) -> bool {
        self.before.is_none()
    }

    /// The entry before the write, if the stored value could be read.
    pub fn before(&self) -> Option<Entry> {
        self.before.as_deref().and_then(Entry::read)
    }

    /// The last transaction after the write; `None` if it was deleted.
    pub fn entry(&self) -> Option<&Entry> {
        self.entries.last()
    }

    /// All new entries. The last of them is the last transaction.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entity tag of the new value.
    pub fn etag(&self) -> Option<String> {
        self.after().as_deref().map(etag)
    }

    fn after(&self) -> Option<String> {
        self.entry().map(Entry::to_json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{DINNER, LUNCH};

    fn edit(body: &str) -> Change {
        Change::Edit(Patch::from_body(body.as_bytes()).unwrap())
    }

    fn attempt(change: Change, if_match: Option<&str>) -> Attempt {
        Attempt::new(change, if_match.map(IfMatch::parse))
    }

    fn put(text: &str) -> Change {
        Change::Put(Entry::from_body(text.as_bytes()).unwrap())
    }

    #[test]
    fn an_edit_stays_with_the_transaction_it_first_met() {
        let mut attempt = attempt(edit(r#"{"品項":"宵夜"}"#), None);
        assert!(matches!(attempt.step(None, &Months::default()), Err(ChangeError::Missing)));
        attempt.step(Some(LUNCH), &Months::default()).unwrap();
        let winner = LUNCH.replace("飲食", "教育");
        assert_eq!(
            attempt.step(Some(&winner), &Months::default()).unwrap().entry().unwrap().to_json(),
            winner.replace("午餐", "宵夜")
        );
        assert!(matches!(attempt.step(Some(DINNER), &Months::default()), Err(ChangeError::Replaced)));
        assert!(matches!(attempt.step(None, &Months::default()), Err(ChangeError::Expired)));
        assert!(matches!(attempt.step(Some("broken"), &Months::default()), Err(ChangeError::Broken)));
    }

    #[test]
    fn a_condition_is_judged_on_every_value() {
        let mut attempt = attempt(edit(r#"{"品項":"宵夜"}"#), Some(&etag(LUNCH)));
        attempt.step(Some(LUNCH), &Months::default()).unwrap();
        assert!(matches!(
            attempt.step(Some(&LUNCH.replace("飲食", "教育")), &Months::default()),
            Err(ChangeError::Stale)
        ));
        assert!(matches!(attempt.step(Some(DINNER), &Months::default()), Err(ChangeError::Stale)));
        // The stored value is the result of the edit: it counts as already applied.
        attempt.step(Some(&LUNCH.replace("午餐", "宵夜")), &Months::default()).unwrap();
    }

    #[test]
    fn a_named_transaction_may_change_but_not_be_another() {
        let named = || attempt(edit(r#"{"品項":"晚餐"}"#), Some("20251129-143000"));
        named().step(Some(&LUNCH.replace("飲食", "教育")), &Months::default()).unwrap();
        // Also if the edit would change nothing: it names another transaction.
        assert!(matches!(named().step(Some(DINNER), &Months::default()), Err(ChangeError::Stale)));
        assert!(matches!(named().step(None, &Months::default()), Err(ChangeError::Missing)));
        let mut any = attempt(edit(r#"{"品項":"晚餐"}"#), Some("*"));
        any.step(Some(LUNCH), &Months::default()).unwrap();
        assert!(matches!(any.step(Some(DINNER), &Months::default()), Err(ChangeError::Stale)));
    }

    #[test]
    fn a_put_goes_over_anything_its_condition_allows() {
        assert!(attempt(put(LUNCH), None).step(None, &Months::default()).unwrap().created());
        for there in [DINNER, "broken", LUNCH] {
            assert!(!attempt(put(LUNCH), None).step(Some(there), &Months::default()).unwrap().created());
        }
        let conditional = || attempt(put(LUNCH), Some(&etag("broken")));
        conditional().step(Some("broken"), &Months::default()).unwrap();
        conditional().step(Some(LUNCH), &Months::default()).unwrap();
        assert!(matches!(conditional().step(None, &Months::default()), Err(ChangeError::Stale)));
        assert!(matches!(conditional().step(Some(DINNER), &Months::default()), Err(ChangeError::Stale)));
    }

    #[test]
    fn what_is_deleted_is_what_was_met() {
        let mut attempt = attempt(Change::Delete, None);
        assert!(matches!(attempt.step(None, &Months::default()), Err(ChangeError::Missing)));
        assert_eq!(attempt.step(Some(LUNCH), &Months::default()).unwrap().entry(), None);
        assert!(matches!(attempt.step(Some(DINNER), &Months::default()), Err(ChangeError::Replaced)));
        assert!(matches!(attempt.step(None, &Months::default()), Err(ChangeError::Missing)));
        assert!(matches!(attempt.step(Some("{}"), &Months::default()), Err(ChangeError::Broken)));
    }

    #[test]
    fn a_step_shows_no_words_in_debug() {
        let step = attempt(put(LUNCH), None).step(Some(DINNER), &Months::default()).unwrap();
        assert_eq!(format!("{step:?}"), "Step { created: false, entries: [Entry(16 fields)] }");
    }
}
