//! One delivery: its events are claimed, then handled, one user's in order and different users' at the same time.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use futures_util::future::join_all;
use onetap_ledger::Moment;
use onetap_line::webhook::{Event, Mode};
use onetap_weather::ForecastOutcome;

use crate::claims::{Begun, Planned, begin};
use crate::plan::{Plan, happened_at, plan};
use crate::session::Session;
use crate::work::handle_event;

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

/// How an event ended, and where its forecast came from if it asked for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// How it ended.
    pub ended: Ended,
    /// How the look-up of its forecast ended.
    pub forecast: Option<ForecastOutcome>,
}

impl From<Ended> for Ending {
    fn from(ended: Ended) -> Ending {
        Ending { ended, forecast: None }
    }
}

/// How the events of a delivery ended, in their order: among the extensions of the answer to it, for a caller in this
/// process. Nothing of it is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
type Numbered<'e> = (usize, Begun<'e>);

/// Handles every event; one's failure never stops the others. How each ended, in their order.
pub(crate) async fn handle(session: &Session<'_>, events: &[Event]) -> Vec<Ending> {
    let planned = events.iter().map(|event| Planned { event, plan: plan_of(session, event) });
    let begun = begin(session, planned.collect()).await;

    // One user's events one after the other, because they may build on each other.
    let mut users: Vec<(Option<&str>, Vec<Numbered<'_>>)> = Vec::new();
    for (n, begun) in begun.into_iter().enumerate() {
        let user = begun.event.source.user_id.as_deref();
        match users.iter_mut().find(|(other, _)| user.is_some() && *other == user) {
            Some((_, own)) => own.push((n, begun)),
            None => users.push((user, vec![(n, begun)])),
        }
    }
    let mut endings = join_all(users.into_iter().map(|(_, own)| in_order(session, own))).await.concat();
    endings.sort_by_key(|(n, _)| *n);
    endings.into_iter().map(|(_, ending)| ending).collect()
}

async fn in_order(session: &Session<'_>, events: Vec<Numbered<'_>>) -> Vec<(usize, Ending)> {
    let mut endings = Vec::new();
    for (n, begun) in events {
        // A panic is one event's failure. What it held ends by itself.
        let event = AssertUnwindSafe(handle_event(session, begun)).catch_unwind();
        endings.push((n, event.await.unwrap_or(Ended::Failed.into())));
    }
    endings
}

fn plan_of(session: &Session<'_>, event: &Event) -> Plan {
    match Moment::from_unix(happened_at(event, session.now.unix())) {
        Some(now) if event.mode == Mode::Active => plan(event, now),
        _ => Plan::Ignore,
    }
}
