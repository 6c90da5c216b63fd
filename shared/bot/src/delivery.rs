//! One delivery: its events are claimed, then handled, one user's in order and different users' at the same time.

use futures_util::future::join_all;
use http::Extensions;
use onetap_line::webhook::{Chat, Event, Mode};

use crate::claims::{Begun, Plan, Planned, begin};
use crate::panics::{caught, caught_async};
use crate::session::Session;
use crate::work::handle_event;
use crate::{Bot, Incoming};

/// How an event ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Answered, or it needs no answer.
    Handled,
    /// Answered with the busy reply: an earlier event of the user holds the lock.
    Busy,
    /// Handled before.
    Duplicate,
    /// Not for this channel, or nothing that this bot does.
    Ignored,
    /// An event or message that lacks a field, or of a type that few bots read.
    Skipped,
    /// Being handled elsewhere: LINE is asked to redeliver it.
    Elsewhere,
    /// Not answered: LINE is asked to redeliver it.
    Failed,
}

/// How an event ended, and what its answer has for a caller in this process ([`Answer::with`](crate::Answer::with)).
#[derive(Clone, Debug)]
pub struct Ending {
    /// How it ended.
    pub ended: Ended,
    /// The values of its answer.
    pub extensions: Extensions,
}

impl From<Ended> for Ending {
    fn from(ended: Ended) -> Ending {
        Ending { ended, extensions: Extensions::new() }
    }
}

/// How the events of a delivery ended, in their order: among the extensions of the answer to it, for a caller in this
/// process. Nothing of it is sent.
#[derive(Clone, Debug, Default)]
pub struct Endings(pub Vec<Ending>);

impl Ended {
    /// Its name for logs and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Ended::Handled => "handled",
            Ended::Busy => "busy",
            Ended::Duplicate => "duplicate",
            Ended::Ignored => "ignored",
            Ended::Skipped => "skipped",
            Ended::Elsewhere => "elsewhere",
            Ended::Failed => "failed",
        }
    }

    /// Whether LINE is asked to redeliver it.
    pub fn comes_again(self) -> bool {
        matches!(self, Ended::Elsewhere | Ended::Failed)
    }
}

/// An event by its number in the delivery.
type Numbered<'e, A> = (usize, Begun<'e, A>);

/// A user, unless LINE does not say who, and the user's events.
type OfUser<'e, A> = (Option<&'e str>, Vec<Numbered<'e, A>>);

/// Handles every event; one's failure never stops the others. How each ended, in their order.
pub(crate) async fn handle<B: Bot>(session: &Session<'_>, bot: &B, events: &[Event]) -> Vec<Ending> {
    let planned = events.iter().map(|event| plan(session, bot, event));
    let begun = begin(session, bot, planned.collect()).await;

    // One user's events one after the other, because they may build on each other.
    let mut users: Vec<OfUser<'_, B::Ask>> = Vec::new();
    for (n, begun) in begun.into_iter().enumerate() {
        let user = begun.incoming.user_id();
        match users.iter_mut().find(|(other, _)| user.is_some() && *other == user) {
            Some((_, own)) => own.push((n, begun)),
            None => users.push((user, vec![(n, begun)])),
        }
    }
    let mut endings = join_all(users.into_iter().map(|(_, own)| in_order(session, bot, own))).await.concat();
    endings.sort_by_key(|(n, _)| *n);
    endings.into_iter().map(|(_, ending)| ending).collect()
}

async fn in_order<B: Bot>(
    session: &Session<'_>,
    bot: &B,
    events: Vec<Numbered<'_, B::Ask>>,
) -> Vec<(usize, Ending)> {
    let mut endings = Vec::new();
    for (n, begun) in events {
        // The bot's own code is caught where it is called. After any other panic the claim and the lock end by themselves.
        let ending = caught_async("an event", handle_event(session, bot, begun)).await;
        endings.push((n, ending.unwrap_or(Ended::Failed.into())));
    }
    endings
}

/// What the bot wants to do with an event. Nothing if this channel is not to answer it, or it happened in an unknown kind of chat.
fn plan<'e, B: Bot>(session: &Session<'e>, bot: &B, event: &'e Event) -> Planned<'e, B::Ask> {
    let mut incoming = Incoming::new(event, session.now_ms);
    let channel = session.channel();
    (incoming.channel, incoming.channel_name) = (channel.destination.as_deref(), channel.name.as_deref());
    if event.mode != Mode::Active || event.source.chat == Chat::Unknown {
        return Planned { incoming, plan: Plan::Nothing };
    }
    let plan = caught("ask", || match bot.ask(&incoming) {
        None => Plan::Nothing,
        Some(ask) => {
            let (overlap, reads) = (bot.overlap(&incoming, &ask), bot.reads(&incoming, &ask));
            Plan::Answer { ask, overlap, reads }
        }
    });
    Planned { incoming, plan: plan.unwrap_or(Plan::Panicked) }
}
