//! What an event writes for its user: a pure step from what is there, so that it can be taken again from what a refusal
//! brings.

use onetap_ledger::{Book, Remaining, erase};
use onetap_line::Messages;
use onetap_store::{Batch, Edit, Error, Expect, Key, Values};

use crate::bookkeeping::Bookkeeping;
use crate::profile::{Profile, ProfileChange};
use crate::replies;

/// An edit of what is kept under a user's keys.
#[derive(Debug)]
pub(crate) enum UserEdit {
    /// Of the profile, and the answer to it.
    Profile(Key, Vec<ProfileChange>, Option<Messages>),
    /// Of the ledger, the half-said entry and the habits.
    Ledger(Box<Bookkeeping>),
    /// Everything goes.
    Erase(Erasure),
}

impl UserEdit {
    pub(crate) fn profile(
        user: &str,
        changes: Vec<ProfileChange>,
        answer: Option<Messages>,
    ) -> Result<UserEdit, Error> {
        Ok(UserEdit::Profile(profile_key(user)?, changes, answer))
    }

    /// The edit of the store, with [`step`](UserEdit::step) as its step.
    pub(crate) fn edit(&self) -> Edit<'static> {
        match self {
            UserEdit::Profile(key, ..) => Edit::of(key).idempotent(),
            UserEdit::Ledger(bookkeeping) => bookkeeping.edit(),
            UserEdit::Erase(erasure) => erasure.edit(),
        }
    }

    /// The writes over what is there, and the answer if they are applied.
    pub(crate) fn step(&mut self, there: &Values) -> Result<(Batch, Option<Messages>), Error> {
        Ok(match self {
            UserEdit::Profile(key, changes, answer) => {
                let text = there.get(key);
                let profile = changes.iter().fold(Profile::read(text), Profile::with);
                let new = profile.to_json();
                // An unfollow that counts changes the profile at least by its time, and so gives it its expiry.
                let unchanged = text == Some(new.as_str());
                // Of a user who leaves and never kept anything, nothing is kept.
                let needless = text.is_none() && matches!(changes.as_slice(), [ProfileChange::Deactivate(_)]);
                let writes = match unchanged || needless {
                    true => Batch::new(),
                    false => Batch::new().put(key, there.expect(key), new, profile.ttl()),
                };
                (writes, answer.clone())
            }
            UserEdit::Ledger(bookkeeping) => {
                let (writes, answer) = bookkeeping.step(there);
                (writes, Some(answer))
            }
            UserEdit::Erase(erasure) => (erasure.step(there)?.0, Some(replies::erased())),
        })
    }
}

/// The removal of everything that is kept for a user.
#[derive(Clone, Debug)]
pub(crate) struct Erasure {
    pub(crate) book: Book,
    pub(crate) profile: Key,
}

impl Erasure {
    pub(crate) fn edit(&self) -> Edit<'static> {
        let keys = self.book.keys().into_iter().chain([self.profile.clone()]);
        Edit::of_all(keys).idempotent()
    }

    /// The writes over what is there, and what remains after them.
    pub(crate) fn step(&self, there: &Values) -> Result<(Batch, Remaining), Error> {
        let (writes, remaining) = erase(&self.book, there)?;
        Ok(match there.get(&self.profile) {
            Some(text) => (writes.delete(&self.profile, text), remaining),
            None => (writes.check(&self.profile, Expect::Absent), remaining),
        })
    }
}

/// Where a user's profile is kept.
pub(crate) fn profile_key(user: &str) -> Result<Key, Error> {
    Key::new(format!("user:{user}:profile"))
}

/// What a key holds, for the store's metrics: `profile`, `transaction` or `other`.
pub fn key_kind(key: &Key) -> &'static str {
    let rest = key.as_str().strip_prefix("user:");
    if rest.is_some_and(|rest| rest.ends_with(":profile")) { "profile" } else { onetap_ledger::key_kind(key) }
}
