//! The answer to a batch: applied, or refused with what is stored.

use crate::{Key, Position};

/// The answer to a [`Batch`](crate::Batch). There is no third one: an unknown outcome is an [error](crate::Error).
#[derive(Clone, PartialEq, Eq)]
#[must_use = "a refused batch changed nothing"]
pub enum Commit {
    /// All writes are applied; a position for each append, in order.
    Applied(Vec<Position>),
    /// No write is applied.
    Refused(Refusal),
}

/// Why a batch was refused: every expectation that failed, with what is stored under its key. Under contention DynamoDB
/// may name fewer of them, but at least one; if the store has sent the batch again after a lost reply, it names all. If all
/// of them hold, it names the logs that must [exist](crate::Batch::append_to_existing) and do not, each as a key with
/// nothing there.
///
/// ```
/// # use std::time::Duration;
/// # use onetap_store::{Batch, Commit, Expect, Key, Memory, Store, Found};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onetap_store::Error> {
/// # let (store, key) = (Memory::new(), Key::new("seat:7")?);
/// # let take = |name: &str| Batch::new().put(&key, Expect::Absent, name, Duration::from_secs(60));
/// # assert!(matches!(store.commit(&take("Ann")).await?, Commit::Applied(_)));
/// let Commit::Refused(refusal) = store.commit(&take("Bob")).await? else { panic!("the seat was free") };
/// match refusal.get(&key) {
///     Some(Found::Text(name)) => assert_eq!(name, "Ann"),
///     Some(Found::Nothing) => panic!("there was a value to expect, and it is gone"),
///     None => panic!("not this key: the expectation of another one failed"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Refusal(Vec<(Key, Option<String>)>);

/// What a [`Refusal`] found under a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Found<'a> {
    /// No value, or an expired one.
    Nothing,
    /// This value.
    Text(&'a str),
}

impl<'a> Found<'a> {
    /// The value, if there is one.
    pub fn text(self) -> Option<&'a str> {
        match self {
            Found::Nothing => None,
            Found::Text(text) => Some(text),
        }
    }
}

impl Refusal {
    /// A refusal that names these keys, each with the value that is stored: for those who implement
    /// [`Store`](crate::Store).
    pub fn new(found: impl IntoIterator<Item = (Key, Option<String>)>) -> Refusal {
        Refusal(found.into_iter().collect())
    }

    /// What is stored under `key`; `None` if the refusal does not name it.
    pub fn get(&self, key: &Key) -> Option<Found<'_>> {
        self.iter().find_map(|(named, there)| (named == key).then_some(there))
    }

    /// The keys whose expectations failed, each with what is stored, in the order of the batch.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, Found<'_>)> {
        self.0.iter().map(|(key, there)| (key, there.as_deref().map_or(Found::Nothing, Found::Text)))
    }

    /// Names another key, with the value that is stored.
    pub fn push(&mut self, key: Key, there: Option<String>) {
        self.0.push((key, there));
    }
}

impl IntoIterator for Refusal {
    type Item = (Key, Option<String>);
    type IntoIter = std::vec::IntoIter<(Key, Option<String>)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
