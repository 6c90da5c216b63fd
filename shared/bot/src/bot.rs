//! The trait that a bot implements.

use std::fmt;
use std::future::Future;

use onetap_line::{Message, Messages};
use onetap_store::Key;

use crate::{Answer, Context, Incoming};

/// A failure of a bot. Its text gets into the log, so it contains nothing of a user.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// What a bot's code returns: mostly an [`Answer`].
pub type Result<T = Answer> = std::result::Result<T, Error>;

/// What happens to an event while an earlier one of the same user is being handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overlap {
    /// It is handled beside the other.
    Concurrent,
    /// It takes the user's processing lock. The event that finds the lock held is answered with [`Bot::wait`], and is not
    /// handled.
    Busy,
}

/// A bot: what an event asks for, and how it is answered. The crate does the rest: see the [front page](crate).
pub trait Bot: fmt::Debug + Send + Sync + 'static {
    /// What an event can ask for.
    type Ask: Send + Sync;

    /// What an event asks for; `None` if it is nothing that this bot does. Then nothing is stored and nothing is sent.
    ///
    /// This does no I/O, and the same event always asks for the same: a redelivery must mean what the first delivery meant.
    fn ask(&self, incoming: &Incoming<'_>) -> Option<Self::Ask>;

    /// What happens to this event while an earlier one of its user is being handled.
    fn overlap(&self, _incoming: &Incoming<'_>, _ask: &Self::Ask) -> Overlap {
        Overlap::Concurrent
    }

    /// The keys that the answer is likely to read. They are read in the round trip that claims the event, and
    /// [`Context::get`] then makes no call. A state's key is [`State::keys`](crate::State::keys).
    fn reads(&self, _incoming: &Incoming<'_>, _ask: &Self::Ask) -> Vec<Key> {
        Vec::new()
    }

    /// The answer: messages, writes that are committed together with the event's marker, or both.
    ///
    /// It may be called again for the same event if this process dies, so what it changes goes into the answer's writes and
    /// not into calls of its own. After an error, and if it takes longer than the delivery has, the user is sent
    /// [`unavailable`](Bot::unavailable).
    fn answer(&self, context: &Context<'_>, ask: &Self::Ask) -> impl Future<Output = Result> + Send;

    /// Called after the answer's writes are committed, and before `messages` are sent: for work that the commit allows, such as
    /// the removal of what it has hidden. It is called again by a redelivery if this process dies, so it must be repeatable.
    fn after_commit(
        &self,
        _context: &Context<'_>,
        _ask: &Self::Ask,
        messages: Messages,
    ) -> impl Future<Output = Messages> + Send {
        async { messages }
    }

    /// What a user is told whose event finds the processing lock held, unless `PROCESSING_LOCK_MESSAGE` says otherwise.
    fn wait(&self) -> Message {
        Message::text("⏳ 處理中，請稍候...")
    }

    /// What a user is told whose event cannot be answered now: the store or the bot failed, or took too long.
    fn unavailable(&self) -> Messages {
        Message::text("系統暫時有點忙，請稍後再試一次。").into()
    }

    /// Opens connections while the function starts. A delivery does not wait for it.
    fn warm_up(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// A bot that replies what a function returns: see [`reply_fn`].
pub struct ReplyFn<F>(F);

/// A bot that replies to each event what `reply` returns, if anything.
///
/// ```
/// use onetap_bot::{Incoming, Message, reply_fn};
///
/// let echo = reply_fn(|incoming: &Incoming<'_>| incoming.text().map(Message::text));
/// ```
pub fn reply_fn<F, A>(reply: F) -> ReplyFn<F>
where
    F: Fn(&Incoming<'_>) -> Option<A> + Send + Sync + 'static,
    A: Into<Messages>,
{
    ReplyFn(reply)
}

impl<F> fmt::Debug for ReplyFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReplyFn")
    }
}

impl<F, A> Bot for ReplyFn<F>
where
    F: Fn(&Incoming<'_>) -> Option<A> + Send + Sync + 'static,
    A: Into<Messages>,
{
    type Ask = Messages;

    fn ask(&self, incoming: &Incoming<'_>) -> Option<Messages> {
        (self.0)(incoming).map(Into::into)
    }

    async fn answer(&self, _: &Context<'_>, reply: &Messages) -> Result {
        Ok(Answer::say(reply.clone()))
    }
}
