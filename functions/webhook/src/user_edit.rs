//! What an event writes for its user: a pure step from what is there, so that it can be taken again from what a refusal
//! brings.

use onetap_ledger::chat::{self, Pending, Sentence};
use onetap_ledger::{Attempt, Book, Change, Moment, Remaining, erase, texts};
use onetap_line::Messages;
use onetap_store::{Batch, Edit, Error, Expect, Key, Values};

use crate::plan::Words;
use crate::profile::{Profile, ProfileChange};
use crate::replies;

/// An edit of what is kept under a user's keys.
#[derive(Debug)]
pub(crate) enum UserEdit {
    /// Of the profile, and the answer to it.
    Profile(Key, Vec<ProfileChange>, Option<Messages>),
    /// Of the ledger.
    Book(Book, Attempt),
    /// Of a half-said entry, the answer if these words neither complete one nor are one, and the function's time.
    HalfSaid(Book, Words, Messages, Moment),
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

    pub(crate) fn book(book: Book, change: Change, chat: Option<String>, now: Moment) -> UserEdit {
        UserEdit::Book(book, Attempt::new(change, None).in_chat(chat).at(now))
    }

    /// The edit of the store, with [`step`](UserEdit::step) as its step.
    pub(crate) fn edit(&self) -> Edit<'static> {
        match self {
            UserEdit::Profile(key, ..) => Edit::of(key).idempotent(),
            UserEdit::Book(book, attempt) => attempt.edit(book),
            UserEdit::HalfSaid(book, ..) => Edit::of_all(book.keys()),
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
            UserEdit::Book(book, attempt) => {
                let (writes, answer) = book_step(book, attempt, there);
                (writes, Some(replies::text(answer)))
            }
            UserEdit::HalfSaid(book, words, answer, now) => {
                let (writes, answer) = half_said_step(book, words, answer, *now, there);
                (writes, Some(answer))
            }
            UserEdit::Erase(erasure) => (erasure.step(there)?.0, Some(replies::erased())),
        })
    }
}

fn book_step(book: &Book, attempt: &mut Attempt, there: &Values) -> (Batch, String) {
    match attempt.write(book, there) {
        Ok((writes, step)) => match attempt.change() {
            Change::Edit(edit) if attempt.is_in_group() => (writes, texts::edited_in_group(edit, &step)),
            Change::Edit(edit) => (writes, texts::edited(edit, &step)),
            Change::Delete => (writes, texts::DELETED.to_owned()),
            Change::Put(_) | Change::Note(_) => (writes, texts::noted(step.entries())),
        },
        Err(failure) => (Batch::new(), texts::chat_failure(&failure, attempt.change(), book.life())),
    }
}

/// The words complete the half-said entry that is kept, or are kept as one themselves, or neither.
fn half_said_step(
    book: &Book,
    words: &Words,
    answer: &Messages,
    now: Moment,
    there: &Values,
) -> (Batch, Messages) {
    let key = book.pending();
    let chat = words.chat.as_deref();
    let keep =
        |pending: &Pending| Batch::new().put(key, there.expect(key), pending.to_json(chat), Pending::TTL);
    let stored = there.get(key);
    match stored.and_then(|stored| Pending::read(stored, chat)).and_then(|pending| pending.with(&words.text))
    {
        Some(Sentence::Note(note)) => {
            let mut attempt = Attempt::new(Change::Note(note), None).in_chat(words.chat.clone()).at(now);
            let (writes, answer) = book_step(book, &mut attempt, there);
            (writes.delete(key, stored.unwrap_or_default()), replies::text(answer))
        }
        Some(Sentence::HalfSaid(pending, problem)) => (keep(&pending), replies::text(problem.0)),
        _ => match chat::parse(&words.text, words.at) {
            Sentence::HalfSaid(pending, _) => (keep(&pending), answer.clone()),
            _ => (Batch::new(), answer.clone()),
        },
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
