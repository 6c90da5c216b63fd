//! What is to become of the last transaction, given what is there: one step, without the store.

use std::fmt;

use onetap_store::{Batch, Edit, Expect, Values};

use crate::chat::Note;
use crate::{ChangeError, Entry, IfMatch, Patch, Slot, etag};

/// What is asked for.
#[derive(Clone, Debug)]
pub enum Change {
    /// This entry becomes the last transaction, over whatever is there.
    Put(Entry),
    /// What was said in the chat becomes the last transaction, under an id later than that of the one before.
    Note(Note),
    /// The last transaction gets these fields.
    Edit(Patch),
    /// The last transaction goes.
    Delete,
}

/// One change on its way: it remembers which transaction it first met, so that it never moves on to another.
///
/// It is the step of an [edit](Attempt::edit) of the store, alone or recorded by a run:
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use onetap_ledger::{Attempt, Change, Entry, Slot};
/// # use onetap_store::{Memory, Store};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store: Arc<dyn Store> = Arc::new(Memory::new());
/// # let slot = Slot::new("U1", Duration::from_secs(3600)).ok_or("no user id")?;
/// # let entry = Entry::read(r#"{"交易ID":"20251129-143000"}"#).ok_or("no entry")?;
/// let mut attempt = Attempt::new(Change::Put(entry), None);
/// let step = attempt.edit(&slot).apply(&*store, |there| attempt.write(&slot, there)).await;
/// assert!(step.is_ok_and(|step| step.created()));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Attempt {
    change: Change,
    condition: Option<IfMatch>,
    /// The `交易ID` that was there first.
    target: Option<String>,
}

impl Attempt {
    /// An attempt at `change`, if the last transaction is as `condition` says.
    pub fn new(change: Change, condition: Option<IfMatch>) -> Attempt {
        Attempt { change, condition, target: None }
    }

    /// The edit of the store that makes the change, with [`write`](Attempt::write) as its step.
    pub fn edit(&self, slot: &Slot) -> Edit<'static> {
        let edit = Edit::of(slot.key());
        // A note has a new id each time it is taken; fields, a whole entry and a deletion can be written twice.
        let edit = if matches!(self.change, Change::Note(_)) { edit } else { edit.idempotent() };
        if self.reads_first() { edit } else { edit.guessing_absent() }
    }

    /// What to write over the values that are there, and what then is the last transaction.
    pub fn write(&mut self, slot: &Slot, there: &Values) -> Result<(Batch, Step), ChangeError> {
        let step = self.step(there.get(slot.key()))?;
        Ok((step.batch(slot), step))
    }

    /// Whether it must know what is there. What may be written over anything begins with the guess that there is
    /// nothing, and learns better from the refusal.
    fn reads_first(&self) -> bool {
        self.condition.is_some() || matches!(self.change, Change::Edit(_) | Change::Delete)
    }

    /// What to write where the store holds `there`, or why nothing may be.
    pub fn step(&mut self, there: Option<&str>) -> Result<Step, ChangeError> {
        let base = self.base(there)?;
        let (entries, made) = match (&self.change, &base) {
            (Change::Put(entry), _) => over(there, vec![entry.clone()]),
            (Change::Note(note), _) => over(there, note.entries(base.as_ref())),
            (Change::Edit(patch), Some(base)) => {
                let edited = patch.apply(base);
                // What stands there already was made by this edit, as far as anybody can tell.
                let made = edited.as_ref().is_ok_and(|edited| edited == base);
                self.permit(there, Some(base), made)?;
                (vec![edited.map_err(ChangeError::Invalid)?], made)
            }
            (Change::Delete, Some(_)) => (Vec::new(), false),
            (Change::Edit(_) | Change::Delete, None) => return Err(ChangeError::Missing),
        };
        self.permit(there, base.as_ref(), made)?;
        Ok(Step { before: there.map(str::to_owned), entries })
    }

    /// The transaction that is there. If it is to be edited or deleted, it must be the one that was there first.
    fn base(&mut self, there: Option<&str>) -> Result<Option<Entry>, ChangeError> {
        let base = there.and_then(Entry::read);
        if matches!(self.change, Change::Put(_) | Change::Note(_)) {
            return Ok(base);
        }
        match (there, base) {
            // To a deletion, gone is gone.
            (None, _) if self.target.is_some() && !matches!(self.change, Change::Delete) => {
                Err(ChangeError::Expired)
            }
            (None, _) => Err(ChangeError::Missing),
            (Some(_), None) => Err(ChangeError::Broken),
            (Some(_), Some(base)) if self.target.get_or_insert_with(|| base.id().to_owned()) == base.id() => {
                Ok(Some(base))
            }
            _ if self.condition.is_some() => Err(ChangeError::Stale),
            _ => Err(ChangeError::Replaced),
        }
    }

    /// Judges the condition; `made` says that what is there is what this change would make.
    fn permit(&self, there: Option<&str>, base: Option<&Entry>, made: bool) -> Result<(), ChangeError> {
        let Some(condition) = &self.condition else { return Ok(()) };
        let holds = there.is_some_and(|there| condition.holds(there, base.map(Entry::id)));
        if holds || made && condition.names_a_value() { Ok(()) } else { Err(ChangeError::Stale) }
    }
}

/// Entries that may go over anything, and whether they are there already.
fn over(there: Option<&str>, entries: Vec<Entry>) -> (Vec<Entry>, bool) {
    let made = there.is_some() && entries.last().map(Entry::to_json).as_deref() == there;
    (entries, made)
}

/// One write, from what was there to what will be. `Debug` shows neither.
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
    /// The write: refused unless the store still holds what the step was made from.
    fn batch(&self, slot: &Slot) -> Batch {
        let (key, life) = (slot.key(), slot.life());
        match (&self.before, self.after()) {
            (None, Some(after)) => Batch::new().put(key, Expect::Absent, after, life),
            (Some(before), Some(after)) => Batch::new().put(key, Expect::Is(before.clone()), after, life),
            (Some(before), None) => Batch::new().delete(key, before.as_str()),
            (None, None) => Batch::new(),
        }
    }

    /// Whether there was nothing before.
    pub fn created(&self) -> bool {
        self.before.is_none()
    }

    /// The entry that was there before, if it could be read.
    pub fn before(&self) -> Option<Entry> {
        self.before.as_deref().and_then(Entry::read)
    }

    /// The last transaction after it; `None` if it was deleted.
    pub fn entry(&self) -> Option<&Entry> {
        self.entries.last()
    }

    /// All entries that were noted, the last of which is the last transaction.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entity tag of what will be stored.
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
        assert_eq!(attempt.step(None), Err(ChangeError::Missing));
        attempt.step(Some(LUNCH)).unwrap();
        let winner = LUNCH.replace("飲食", "教育");
        assert_eq!(
            attempt.step(Some(&winner)).unwrap().entry().unwrap().to_json(),
            winner.replace("午餐", "宵夜")
        );
        assert_eq!(attempt.step(Some(DINNER)), Err(ChangeError::Replaced));
        assert_eq!(attempt.step(None), Err(ChangeError::Expired));
        assert_eq!(attempt.step(Some("broken")), Err(ChangeError::Broken));
    }

    #[test]
    fn a_condition_is_judged_on_every_value() {
        let mut attempt = attempt(edit(r#"{"品項":"宵夜"}"#), Some(&etag(LUNCH)));
        attempt.step(Some(LUNCH)).unwrap();
        assert_eq!(attempt.step(Some(&LUNCH.replace("飲食", "教育"))), Err(ChangeError::Stale));
        assert_eq!(attempt.step(Some(DINNER)), Err(ChangeError::Stale));
        // What it would make is there: it, or its like, has landed.
        attempt.step(Some(&LUNCH.replace("午餐", "宵夜"))).unwrap();
    }

    #[test]
    fn a_named_transaction_may_change_but_not_be_another() {
        let named = || attempt(edit(r#"{"品項":"晚餐"}"#), Some("20251129-143000"));
        named().step(Some(&LUNCH.replace("飲食", "教育"))).unwrap();
        // Even where the edit would change nothing: it was meant for another.
        assert_eq!(named().step(Some(DINNER)), Err(ChangeError::Stale));
        assert_eq!(named().step(None), Err(ChangeError::Missing));
        let mut any = attempt(edit(r#"{"品項":"晚餐"}"#), Some("*"));
        any.step(Some(LUNCH)).unwrap();
        assert_eq!(any.step(Some(DINNER)), Err(ChangeError::Stale));
    }

    #[test]
    fn a_put_goes_over_anything_its_condition_allows() {
        assert!(attempt(put(LUNCH), None).step(None).unwrap().created());
        for there in [DINNER, "broken", LUNCH] {
            assert!(!attempt(put(LUNCH), None).step(Some(there)).unwrap().created());
        }
        let conditional = || attempt(put(LUNCH), Some(&etag("broken")));
        conditional().step(Some("broken")).unwrap();
        conditional().step(Some(LUNCH)).unwrap();
        assert_eq!(conditional().step(None), Err(ChangeError::Stale));
        assert_eq!(conditional().step(Some(DINNER)), Err(ChangeError::Stale));
    }

    #[test]
    fn what_is_deleted_is_what_was_met() {
        let mut attempt = attempt(Change::Delete, None);
        assert_eq!(attempt.step(None), Err(ChangeError::Missing));
        assert_eq!(attempt.step(Some(LUNCH)).unwrap().entry(), None);
        assert_eq!(attempt.step(Some(DINNER)), Err(ChangeError::Replaced));
        assert_eq!(attempt.step(None), Err(ChangeError::Missing));
        assert_eq!(attempt.step(Some("{}")), Err(ChangeError::Broken));
    }

    #[test]
    fn a_step_shows_no_words_in_debug() {
        let step = attempt(put(LUNCH), None).step(Some(DINNER)).unwrap();
        assert_eq!(format!("{step:?}"), "Step { created: false, entries: [Entry(16 fields)] }");
    }
}
