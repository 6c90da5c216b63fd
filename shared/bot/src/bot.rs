//! The trait that a bot implements.

use std::fmt;
use std::future::Future;

use onetap_line::{Message, Messages};
use onetap_store::Key;

use crate::{Answer, Context, Incoming};

/// A failure of a bot. Its text is logged at the level `debug`: it may quote what a user wrote. Errors of this project's crates, which
/// quote nothing, are logged at the level `error`.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// What a bot's code returns: mostly an [`Answer`].
pub type Result<T = Answer, E = Error> = std::result::Result<T, E>;

/// What happens to an event while an earlier one of the same user is being handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overlap {
    /// It is handled beside the other.
    Concurrent,
    /// It takes the user's processing lock. An event that finds the lock held is answered with [`Bot::busy`], and dropped.
    Busy,
}

/// A bot: what an event asks for, and how it is answered. The crate does the rest: see the [front page](crate).
pub trait Bot: Send + Sync + 'static {
    /// What an event can ask for.
    type Ask: Send + Sync;

    /// What an event asks for; `None` if it is nothing that this bot does. Then nothing is stored and nothing is sent.
    ///
    /// This does no I/O, and the same event always asks for the same: a redelivery must mean what the first delivery meant.
    fn ask(&self, incoming: &Incoming<'_>) -> Option<Self::Ask>;

    /// What happens to this event while an earlier one of its user is being handled, in the same delivery too.
    fn overlap(&self, _incoming: &Incoming<'_>, _ask: &Self::Ask) -> Overlap {
        Overlap::Concurrent
    }

    /// The keys that the answer is likely to read: it saves a round trip to name them. They are read with the event's claim, and
    /// [`Context::get`] then makes no call. A state's key is [`State::keys`](crate::State::keys).
    fn reads(&self, _incoming: &Incoming<'_>, _ask: &Self::Ask) -> Vec<Key> {
        Vec::new()
    }

    /// The answer: messages, writes that are committed together with the event's marker, or both.
    ///
    /// It may be called again for the same event if this process dies, so what it changes goes into the answer's writes and
    /// not into calls of its own. After an error or a panic, and if it takes longer than the delivery has, the user is sent
    /// [`unavailable`](Bot::unavailable), and the event is finished: no delivery answers it again. For that, return
    /// [`Answer::again`].
    fn answer(&self, context: &Context<'_>, ask: &Self::Ask) -> impl Future<Output = Result> + Send;

    /// Called after a [`Change`](crate::Change) that has messages is committed, and before they are sent: for work that the commit
    /// allows, such as the removal of what it has hidden. It is called again by every redelivery, so it must be repeatable. What it
    /// returns is sent; after a panic, and if it takes longer than the delivery has, `messages`.
    fn after_commit(
        &self,
        _context: &Context<'_>,
        _ask: &Self::Ask,
        messages: Messages,
    ) -> impl Future<Output = Messages> + Send {
        async { messages }
    }

    /// The reply to an event that finds the processing lock held, unless `PROCESSING_LOCK_MESSAGE` is set.
    fn busy(&self) -> Messages {
        default_busy()
    }

    /// The reply to an event that cannot be answered now: the store or the bot failed, or took too long.
    fn unavailable(&self) -> Messages {
        default_unavailable()
    }

    /// What a key holds, for the store's metrics: `profile`, `transaction`, `state` or `other`.
    fn key_kind(_key: &Key) -> &'static str {
        "other"
    }

    /// Opens connections while the function starts. A delivery does not wait for it.
    fn warm_up(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

pub(crate) fn default_busy() -> Messages {
    Message::text("⏳ 處理中，請稍候...").into()
}

pub(crate) fn default_unavailable() -> Messages {
    Message::text("系統暫時有點忙，請稍後再試一次。").into()
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
