//! One delivery: its events are claimed, then handled, one user's in order and different users' at the same time.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use futures_util::future::join_all;
use http::Extensions;
use onetap_line::webhook::{Chat, Event, Mode};

use crate::claims::{Asked, Begun, begin};
use crate::session::Session;
use crate::work::handle_event;
use crate::{Bot, Incoming};

/// How an event ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Answered, or in need of no answer.
    Handled,
    /// Told to wait for the one before it.
    Busy,
    /// Handled before.
    Duplicate,
    /// Not ours, or nothing that this bot does.
    Ignored,
    /// Lacking a field, or of a kind that is not known here.
    Skipped,
    /// Being handled elsewhere: to come again.
    Elsewhere,
    /// Not answered: to come again.
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

    /// Whether LINE is asked to send it again.
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
    let asked = events.iter().map(|event| ask(session, bot, event));
    let begun = begin(session, bot, asked.collect()).await;

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
        // A panic is one event's failure. What it held ends by itself.
        let event = AssertUnwindSafe(handle_event(session, bot, begun)).catch_unwind();
        endings.push((n, event.await.unwrap_or(Ended::Failed.into())));
    }
    endings
}

/// What an event asks for. Nothing if this channel is not to answer it, or it happened in a kind of chat that is unknown.
fn ask<'e, B: Bot>(session: &Session<'e>, bot: &B, event: &'e Event) -> Asked<'e, B::Ask> {
    let mut incoming = Incoming::new(event, session.now_ms);
    incoming.channel = session.channel();
    let is_ours = event.mode == Mode::Active && event.source.chat != Chat::Unknown;
    let ask = is_ours.then(|| bot.ask(&incoming)).flatten();
    Asked { incoming, ask }
}
