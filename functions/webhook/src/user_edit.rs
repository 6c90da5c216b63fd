//! What an event writes for its user: a pure step from what is there, so that it can be taken again from what a refusal
//! brings.

use onetap_ledger::{Attempt, Book, Change, Config, texts};
use onetap_line::Messages;
use onetap_store::{Batch, Edit, Error, Key, Values};

use crate::profile::{Profile, ProfileChange};
use crate::replies;

/// An edit of what is kept under a user's keys.
#[derive(Debug)]
pub(crate) enum UserEdit {
    /// Of the profile, and the answer to it.
    Profile(Key, Vec<ProfileChange>, Option<Messages>),
    /// Of the last transaction.
    Book(Book, Change, Attempt),
    /// Everything goes.
    Erase(Vec<Key>),
}

impl UserEdit {
    pub(crate) fn profile(
        user: &str,
        changes: Vec<ProfileChange>,
        answer: Option<Messages>,
    ) -> Result<UserEdit, Error> {
        Ok(UserEdit::Profile(profile_key(user)?, changes, answer))
    }

    pub(crate) fn book(user: &str, config: Config, change: Change) -> Result<UserEdit, Error> {
        let wrong = || Error::rejected("a user id that no key can hold");
        let book = Book::new(user, config).ok_or_else(wrong)?;
        Ok(UserEdit::Book(book, change.clone(), Attempt::new(change, None)))
    }

    pub(crate) fn erase(user: &str) -> Result<UserEdit, Error> {
        Ok(UserEdit::Erase(vec![profile_key(user)?, Key::new(format!("user:{user}:last_transaction"))?]))
    }

    /// The edit of the store, with [`step`](UserEdit::step) as its step.
    pub(crate) fn edit(&self) -> Edit<'static> {
        match self {
            UserEdit::Profile(key, ..) => Edit::of(key).idempotent(),
            UserEdit::Book(book, _, attempt) => attempt.edit(book),
            UserEdit::Erase(keys) => Edit::of_all(keys.clone()).idempotent(),
        }
    }

    /// The writes over what is there, and the answer if they are applied.
    pub(crate) fn step(&mut self, there: &Values) -> (Batch, Option<Messages>) {
        match self {
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
            UserEdit::Book(book, change, attempt) => {
                let (writes, answer) = match attempt.write(book, there) {
                    Ok((writes, step)) => match change {
                        Change::Edit(edit) => (writes, texts::edited(edit, &step)),
                        Change::Delete => (writes, texts::DELETED.to_owned()),
                        Change::Put(_) | Change::Note(_) => (writes, texts::noted(step.entries())),
                    },
                    Err(failure) => (Batch::new(), texts::failure(&failure, book.life())),
                };
                (writes, Some(replies::text(answer)))
            }
            UserEdit::Erase(keys) => {
                let there = keys.iter().filter_map(|key| Some((key, there.get(key)?)));
                let writes = there.fold(Batch::new(), |batch, (key, text)| batch.delete(key, text));
                (writes, Some(replies::erased()))
            }
        }
    }
}

/// Where a user's profile is kept.
pub(crate) fn profile_key(user: &str) -> Result<Key, Error> {
    Key::new(format!("user:{user}:profile"))
}
