//! What is to become of the last transaction, given what is there: one step, without the store.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use onetap_store::{Batch, Expect};
use tokio::time::Instant;

use crate::chat::Note;
use crate::{ChangeError as Failure, Entry, IfMatch, Patch, Slot, etag};

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
/// Ask it for a [`step`](Attempt::step) for what the store holds, commit the step's [`batch`](Step::batch) (alone, or
/// in one batch with whatever must happen with it), and if it is refused, ask for the next step from the value that the
/// refusal brought. [`run`](crate::run) is that loop.
#[derive(Debug)]
pub struct Attempt {
    change: Change,
    condition: Option<IfMatch>,
    /// The `交易ID` that was there first.
    target: OnceLock<String>,
    /// How many steps were asked for.
    steps: AtomicU32,
    deadline: Option<Instant>,
}

impl Attempt {
    /// An attempt at `change`, if the last transaction is as `condition` says.
    pub fn new(change: Change, condition: Option<IfMatch>) -> Attempt {
        Attempt { change, condition, target: OnceLock::new(), steps: AtomicU32::new(0), deadline: None }
    }

    /// The same attempt, which waits for the store until `deadline` and no longer.
    #[must_use]
    pub fn by(self, deadline: Option<Instant>) -> Attempt {
        Attempt { deadline, ..self }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether it must know what is there. What may be written over anything begins with the guess that there is
    /// nothing, and learns better from the refusal.
    pub fn reads_first(&self) -> bool {
        self.condition.is_some() || matches!(self.change, Change::Edit(_) | Change::Delete)
    }

    pub(crate) fn steps(&self) -> u32 {
        self.steps.load(Ordering::Relaxed)
    }

    /// What to write where the store holds `there`, or why nothing may be.
    pub fn step(&self, there: Option<&str>) -> Result<Step, Failure> {
        self.steps.fetch_add(1, Ordering::Relaxed);
        let entries = match &self.change {
            Change::Put(entry) => self.over(there, vec![entry.clone()])?,
            Change::Note(note) => self.over(there, note.entries(there.and_then(Entry::read).as_ref()))?,
            Change::Edit(edit) => {
                let base = self.base(there)?;
                let edited = edit.apply(&base);
                // What stands there already was made by this edit, as far as anybody can tell.
                let made = edited.as_ref().is_ok_and(|edited| *edited == base);
                self.permit(there, Some(&base), made)?;
                vec![edited.map_err(Failure::Invalid)?]
            }
            Change::Delete => {
                self.permit(there, Some(&self.base(there)?), false)?;
                Vec::new()
            }
        };
        Ok(Step { before: there.map(str::to_owned), entries })
    }

    /// The transaction to change, which must be the one that was there first.
    fn base(&self, there: Option<&str>) -> Result<Entry, Failure> {
        let Some(there) = there else {
            // To whom it was deleting, gone is gone.
            let expired = self.target.get().is_some() && !matches!(self.change, Change::Delete);
            return Err(if expired { Failure::Expired } else { Failure::Missing });
        };
        let base = Entry::read(there).ok_or(Failure::Broken)?;
        if self.target.get_or_init(|| base.id().to_owned()) == base.id() {
            return Ok(base);
        }
        Err(if self.condition.is_some() { Failure::Stale } else { Failure::Replaced })
    }

    fn over(&self, there: Option<&str>, entries: Vec<Entry>) -> Result<Vec<Entry>, Failure> {
        let made = there.is_some() && entries.last().map(Entry::to_json).as_deref() == there;
        self.permit(there, there.and_then(Entry::read).as_ref(), made)?;
        Ok(entries)
    }

    /// Judges the condition; `made` says that what is there is what this change would make.
    fn permit(&self, there: Option<&str>, base: Option<&Entry>, made: bool) -> Result<(), Failure> {
        let Some(condition) = &self.condition else { return Ok(()) };
        let holds = there.is_some_and(|there| condition.holds(there, base.map(Entry::id)));
        if holds || made && condition.names_a_value() { Ok(()) } else { Err(Failure::Stale) }
    }
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
    pub fn batch(&self, slot: &Slot) -> Batch {
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

    /// Whether what is there is what this step would have made.
    pub(crate) fn made(&self, there: Option<&str>) -> bool {
        self.after().as_deref() == there
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
        let attempt = attempt(edit(r#"{"品項":"宵夜"}"#), None);
        assert_eq!(attempt.step(None), Err(Failure::Missing));
        attempt.step(Some(LUNCH)).unwrap();
        let winner = LUNCH.replace("飲食", "教育");
        assert_eq!(
            attempt.step(Some(&winner)).unwrap().entry().unwrap().to_json(),
            winner.replace("午餐", "宵夜")
        );
        assert_eq!(attempt.step(Some(DINNER)), Err(Failure::Replaced));
        assert_eq!(attempt.step(None), Err(Failure::Expired));
        assert_eq!(attempt.step(Some("broken")), Err(Failure::Broken));
    }

    #[test]
    fn a_condition_is_judged_on_every_value() {
        let attempt = attempt(edit(r#"{"品項":"宵夜"}"#), Some(&etag(LUNCH)));
        attempt.step(Some(LUNCH)).unwrap();
        assert_eq!(attempt.step(Some(&LUNCH.replace("飲食", "教育"))), Err(Failure::Stale));
        assert_eq!(attempt.step(Some(DINNER)), Err(Failure::Stale));
        // What it would make is there: it, or its like, has landed.
        attempt.step(Some(&LUNCH.replace("午餐", "宵夜"))).unwrap();
    }

    #[test]
    fn a_named_transaction_may_change_but_not_be_another() {
        let named = || attempt(edit(r#"{"品項":"晚餐"}"#), Some("20251129-143000"));
        named().step(Some(&LUNCH.replace("飲食", "教育"))).unwrap();
        // Even where the edit would change nothing: it was meant for another.
        assert_eq!(named().step(Some(DINNER)), Err(Failure::Stale));
        assert_eq!(named().step(None), Err(Failure::Missing));
        let any = attempt(edit(r#"{"品項":"晚餐"}"#), Some("*"));
        any.step(Some(LUNCH)).unwrap();
        assert_eq!(any.step(Some(DINNER)), Err(Failure::Stale));
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
        assert_eq!(conditional().step(None), Err(Failure::Stale));
        assert_eq!(conditional().step(Some(DINNER)), Err(Failure::Stale));
    }

    #[test]
    fn what_is_deleted_is_what_was_met() {
        let attempt = attempt(Change::Delete, None);
        assert_eq!(attempt.step(None), Err(Failure::Missing));
        assert_eq!(attempt.step(Some(LUNCH)).unwrap().entry(), None);
        assert_eq!(attempt.step(Some(DINNER)), Err(Failure::Replaced));
        assert_eq!(attempt.step(None), Err(Failure::Missing));
        assert_eq!(attempt.step(Some("{}")), Err(Failure::Broken));
    }

    #[test]
    fn a_step_shows_no_words_in_debug() {
        let step = attempt(put(LUNCH), None).step(Some(DINNER)).unwrap();
        assert_eq!(format!("{step:?}"), "Step { created: false, entries: [Entry(16 fields)] }");
    }
}
