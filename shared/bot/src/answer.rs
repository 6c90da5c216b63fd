//! How a bot answers an event.

use std::fmt;

use http::Extensions;
use onetap_line::{Message, Messages};
use onetap_store::{Batch, Edit, Values};

use crate::Error;

/// The answer to an event: messages, a [`Change`] that is committed with the event's marker, or both.
#[derive(Debug, Default)]
#[must_use = "an answer does nothing until it is returned"]
pub struct Answer {
    pub(crate) messages: Option<Messages>,
    pub(crate) change: Option<Change>,
    pub(crate) to_keep: Option<Batch>,
    pub(crate) comes_again: bool,
    pub(crate) extensions: Extensions,
}

impl Answer {
    /// Nothing is sent and nothing is written. The event is handled.
    pub fn nothing() -> Answer {
        Answer::default()
    }

    /// These messages.
    pub fn say(messages: impl Into<Messages>) -> Answer {
        Answer { messages: Some(messages.into()), ..Answer::default() }
    }

    /// The event cannot be handled now. Nothing is sent, its claim and lock are released, and the delivery is answered 500, so that LINE
    /// delivers it again: a few times, within minutes, if *Webhook redelivery* is on. The reply token stays good for that.
    pub fn again() -> Answer {
        Answer { comes_again: true, ..Answer::default() }
    }

    /// The same messages, and a change beside them. The messages are right whether the change is written or not: if it is not, they
    /// are sent all the same. If it is, and has messages of its own, those are sent.
    pub fn and_try(self, change: Change) -> Answer {
        Answer { change: Some(change), ..self }
    }

    /// The same, and writes that nobody waits for: they are sent in the round trip that ends the event, and lost if that fails.
    pub fn and_keep(self, writes: Batch) -> Answer {
        Answer { to_keep: Some(writes), ..self }
    }

    /// The same, with a value for a caller in this process, who finds it in the event's [`Ending`](crate::Ending).
    pub fn with<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Answer {
        self.extensions.insert(value);
        self
    }
}

impl From<Messages> for Answer {
    fn from(messages: Messages) -> Answer {
        Answer::say(messages)
    }
}

impl From<Message> for Answer {
    fn from(message: Message) -> Answer {
        Answer::say(message)
    }
}

impl From<Option<Message>> for Answer {
    /// Nothing is sent if there is no message.
    fn from(message: Option<Message>) -> Answer {
        message.map_or_else(Answer::nothing, Answer::say)
    }
}

impl From<Change> for Answer {
    fn from(change: Change) -> Answer {
        Answer { change: Some(change), ..Answer::default() }
    }
}

/// What a change of a [`State`](crate::State) may answer: a message or several, perhaps none, or an error.
pub trait IntoReply {
    /// The messages, if there are any.
    fn into_reply(self) -> Result<Option<Messages>, Error>;
}

impl IntoReply for () {
    fn into_reply(self) -> Result<Option<Messages>, Error> {
        Ok(None)
    }
}

impl IntoReply for Message {
    fn into_reply(self) -> Result<Option<Messages>, Error> {
        Ok(Some(self.into()))
    }
}

impl IntoReply for Messages {
    fn into_reply(self) -> Result<Option<Messages>, Error> {
        Ok(Some(self))
    }
}

impl<R: IntoReply> IntoReply for Option<R> {
    fn into_reply(self) -> Result<Option<Messages>, Error> {
        self.map_or(Ok(None), R::into_reply)
    }
}

impl<R: IntoReply> IntoReply for Result<R, Error> {
    fn into_reply(self) -> Result<Option<Messages>, Error> {
        self?.into_reply()
    }
}

pub(crate) type Step = Box<dyn FnMut(&Values) -> Result<(Batch, Option<Messages>), Error> + Send>;

/// Writes that are committed together with the event's marker, and the messages that are right once they are: both happen once
/// for each event, through redeliveries, races and crashes.
///
/// For a bot's own state there is [`Context::change`](crate::Context::change). This is the general form: an [`Edit`], and its step
/// from what is there to the writes and the messages. The step may be called more than once, so it does nothing else. An edit that reads
/// only what [`Bot::reads`](crate::Bot::reads) named begins with that.
#[must_use = "a change does nothing until it is returned in an answer"]
pub struct Change {
    pub(crate) edit: Edit<'static>,
    pub(crate) step: Step,
    pub(crate) is_repeatable: bool,
    pub(crate) unwritten: Unwritten,
}

/// The reply if nothing was written.
#[derive(Debug)]
pub(crate) enum Unwritten {
    /// [`Bot::unavailable`](crate::Bot::unavailable).
    Unavailable,
    Say(Messages),
    /// Nothing: LINE delivers the event again.
    Again,
}

impl Change {
    /// A change by `edit` and its step.
    pub fn new(
        edit: Edit<'static>,
        step: impl FnMut(&Values) -> Result<(Batch, Option<Messages>), Error> + Send + 'static,
    ) -> Change {
        Change { edit, step: Box::new(step), is_repeatable: false, unwritten: Unwritten::Unavailable }
    }

    /// Declares that making the change once more, by a later delivery too, does no harm. That matters where the event cannot be
    /// claimed: without it, an event whose reply failed is then not delivered again, because its change would be made twice.
    pub fn repeatable(self) -> Change {
        Change { edit: self.edit.idempotent(), is_repeatable: true, ..self }
    }

    /// If nothing was written, the user is told this in place of [`Bot::unavailable`](crate::Bot::unavailable).
    pub fn or_say(self, messages: impl Into<Messages>) -> Change {
        Change { unwritten: Unwritten::Say(messages.into()), ..self }
    }

    /// If nothing was written, the user is told nothing, and LINE is asked to deliver the event again.
    pub fn or_again(self) -> Change {
        Change { unwritten: Unwritten::Again, ..self }
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Change").field("edit", &self.edit).finish_non_exhaustive()
    }
}
