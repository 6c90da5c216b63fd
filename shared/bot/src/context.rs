//! What a bot can ask for while it answers an event.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use onetap_idem::EffectKeys;
use onetap_line::Client;
use onetap_store::{Batch, Edit, Error, Key, Log, Record, Values, edit};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::answer::IntoReply;
use crate::session::Session;
use crate::{Change, Incoming, State};

/// The event that is being answered, the store, and the time that is left.
///
/// After one failure of the store in a delivery no further call is made: every read is an error at once.
pub struct Context<'a> {
    incoming: Incoming<'a>,
    session: &'a Session<'a>,
    known: Mutex<Values>,
    effects: Option<EffectKeys>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(incoming: Incoming<'a>, session: &'a Session<'a>, known: Values) -> Context<'a> {
        let effects = session.call(incoming.event).map(|call| call.effect_keys());
        Context { incoming, session, known: Mutex::new(known), effects }
    }

    /// The event.
    pub fn incoming(&self) -> &Incoming<'a> {
        &self.incoming
    }

    /// The calls of LINE's API: content of images and audio, profiles, the quota. Replies are sent by the crate.
    pub fn line(&self) -> &Client {
        self.session.line()
    }

    /// When the answer must be there, so that its writes and the reply still fit into the delivery.
    pub fn deadline(&self) -> Instant {
        self.session.answer_deadline()
    }

    /// Whether no call to the store has failed in this delivery.
    pub fn store_is_up(&self) -> bool {
        self.session.store_is_up()
    }

    /// Keys for effects outside of the store, the same in every delivery of this event: a receiver that dedupes by them takes each
    /// effect once. `None` if LINE gave the event no id.
    pub fn effect_keys(&self) -> Option<&EffectKeys> {
        self.effects.as_ref()
    }

    /// What was read with the event's claim: the keys of [`Bot::reads`](crate::Bot::reads). Nothing for a second event of the user in
    /// one delivery, because the first may have changed it, and after an [`apply`](Context::apply). A [`Change`] whose edit reads
    /// nothing else begins with it.
    pub fn known(&self) -> Values {
        self.lock_known().clone()
    }

    pub(crate) fn lock_known(&self) -> MutexGuard<'_, Values> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The values of these keys, read now unless they were read with the claim.
    pub async fn get(&self, keys: &[Key]) -> Result<Values, Error> {
        {
            let known = self.lock_known();
            if keys.iter().all(|key| known.knows(key)) {
                return Ok(known.clone());
            }
        }
        let values = self.session.get_all(keys).await?;
        Ok(keys.iter().cloned().zip(values).collect())
    }

    /// All records of a log.
    pub async fn records(&self, log: &Log) -> Result<Vec<Record>, Error> {
        self.session.records(log).await
    }

    /// Makes an edit now, apart from the event's marker: it may be made again by a redelivery.
    pub async fn apply<T, E>(
        &self,
        edit: Edit<'_>,
        step: impl FnMut(&Values) -> Result<(Batch, T), E>,
    ) -> Result<T, edit::Error<E>> {
        let edit = edit.deadline(Some(self.deadline()));
        *self.lock_known() = Values::default();
        let made = edit.apply(&self.session.store(), step).await;
        made.inspect_err(|error| self.session.note_failed_edit(error))
    }

    /// The state of this user in this chat, as it is now.
    pub async fn state<T>(&self, state: &State<T>) -> Result<T, Error>
    where
        T: Serialize + DeserializeOwned + Default,
    {
        let key = state.key(&self.incoming).ok_or_else(no_user)?;
        state.read(self.get(std::slice::from_ref(&key)).await?.get(&key))
    }

    /// A change of the state of this user in this chat, and the answer to it: a message or several, perhaps none, or an error. `change` is
    /// called with the state as it is; if another event changes it at the same time, it is called again with the new one. So it
    /// does nothing else. If it leaves the state as it is, nothing is written; after an error neither.
    ///
    /// What it needs of the event it owns, and clones for each call:
    ///
    /// ```
    /// # use onetap_bot::{Change, Context, Message, State, Ttl};
    /// # const TODO: State<Vec<String>> = State::new("todo", Ttl::days(30));
    /// # fn add(context: &Context<'_>, item: &str) -> Change {
    /// let item = item.to_owned();
    /// context.change(&TODO, move |todo| {
    ///     todo.push(item.clone());
    ///     Message::text(format!("{} things to do.", todo.len()))
    /// })
    /// # }
    /// ```
    pub fn change<T, R>(
        &self,
        state: &'static State<T>,
        mut change: impl FnMut(&mut T) -> R + Send + 'static,
    ) -> Change
    where
        T: Serialize + DeserializeOwned + Default + 'static,
        R: IntoReply,
    {
        let key = state.key(&self.incoming);
        let edit = key.as_ref().map(Edit::of).unwrap_or_default();
        Change::new(edit, move |there| {
            let key = key.as_ref().ok_or_else(no_user)?;
            let mut value = state.read(there.get(key))?;
            let messages = change(&mut value).into_reply()?;
            Ok((state.write(Batch::new(), key, there, &value)?, messages))
        })
    }
}

fn no_user() -> Error {
    Error::rejected("LINE does not say which user and chat this event is of, so nothing can be kept for it")
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("incoming", &self.incoming).finish_non_exhaustive()
    }
}
