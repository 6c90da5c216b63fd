//! What an event writes, as a step from what is there to what will be: pure, so that it can be taken again from what a
//! refusal brings.

use std::time::Duration;

use onetap_ledger::{Attempt, Slot, texts};
use onetap_line::Messages;
use onetap_store::{Batch, Error, Expect, Key};

use crate::profile::{Edit, Profile};
use crate::talk;

/// What an event writes under its user's keys.
#[derive(Debug)]
pub(crate) enum Change {
    /// The profile, and what is said after it.
    Profile(Key, Vec<Edit>, Option<Messages>),
    /// The last transaction.
    Book(Slot, onetap_ledger::Change, Attempt),
    /// Everything goes.
    Erase(Vec<Key>),
}

/// One step: the writes, and what is said if they happen.
pub(crate) struct Step {
    pub(crate) writes: Batch,
    pub(crate) answer: Option<Messages>,
}

impl Change {
    pub(crate) fn profile(user: &str, edits: Vec<Edit>, answer: Option<Messages>) -> Result<Change, Error> {
        Ok(Change::Profile(profile_key(user)?, edits, answer))
    }

    pub(crate) fn book(user: &str, life: Duration, change: onetap_ledger::Change) -> Result<Change, Error> {
        let wrong = || Error::rejected("a user id that no key can hold");
        let slot = Slot::new(user, life).ok_or_else(wrong)?;
        Ok(Change::Book(slot, change.clone(), Attempt::new(change, None)))
    }

    pub(crate) fn erase(user: &str) -> Result<Change, Error> {
        Ok(Change::Erase(vec![profile_key(user)?, Key::new(format!("user:{user}:last_transaction"))?]))
    }

    /// The keys whose values the step is taken from.
    pub(crate) fn keys(&self) -> Vec<Key> {
        match self {
            Change::Profile(key, ..) => vec![key.clone()],
            Change::Book(slot, ..) => vec![slot.key().clone()],
            Change::Erase(keys) => keys.clone(),
        }
    }

    /// Whether the step can do without a look: a new entry begins with the guess that there is none.
    pub(crate) fn reads_first(&self) -> bool {
        match self {
            Change::Profile(..) | Change::Erase(_) => true,
            Change::Book(_, _, attempt) => attempt.reads_first(),
        }
    }

    /// The step from what is there, a value for each of [`keys`](Change::keys).
    pub(crate) fn step(&self, there: &[Option<String>]) -> Step {
        match self {
            Change::Profile(key, edits, answer) => {
                let there = there.first().and_then(Option::as_deref);
                let profile = edits.iter().fold(Profile::read(there), Profile::with);
                let new = profile.to_json();
                // An unfollow that counts changes the profile at least by its time, and so gives it its expiry.
                let unchanged = there == Some(new.as_str());
                // Of a user who leaves and never kept anything, nothing is kept.
                let needless = there.is_none() && matches!(edits.as_slice(), [Edit::Deactivate(_)]);
                let put = || Batch::new().put(key, expect(there), new.as_str(), profile.ttl());
                let writes = if unchanged || needless { Batch::new() } else { put() };
                Step { writes, answer: answer.clone() }
            }
            Change::Book(slot, change, attempt) => {
                match attempt.step(there.first().and_then(Option::as_deref)) {
                    Ok(step) => {
                        let answer = match change {
                            onetap_ledger::Change::Edit(edit) => texts::edited(edit, &step),
                            onetap_ledger::Change::Delete => texts::DELETED.to_owned(),
                            _ => texts::noted(step.entries()),
                        };
                        Step { writes: step.batch(slot), answer: Some(talk::text(answer)) }
                    }
                    Err(failure) => {
                        let answer = texts::failure(&failure, slot.life());
                        Step { writes: Batch::new(), answer: Some(talk::text(answer)) }
                    }
                }
            }
            Change::Erase(keys) => {
                let there = keys.iter().zip(there);
                let writes = there.filter_map(|(key, text)| Some((key, text.as_deref()?)));
                let writes = writes.fold(Batch::new(), |batch, (key, text)| batch.delete(key, text));
                Step { writes, answer: Some(talk::erased()) }
            }
        }
    }
}

/// Where a user's profile is kept.
pub(crate) fn profile_key(user: &str) -> Result<Key, Error> {
    Key::new(format!("user:{user}:profile"))
}

fn expect(there: Option<&str>) -> Expect {
    there.map_or(Expect::Absent, |text| Expect::Is(text.to_owned()))
}
