//! Publishes events: each is one atomic batch, which is applied as a whole or not at all.
//!
//! The batch does what the Python programs do that use the same keys (`docs/migrating.md`), in three layers:
//!
//! 1. *Append* the event to the stream of its shard. A Python worker does this itself, and sets the event's marker
//!    `published:{job_id}:{stage}:{seq}`.
//! 2. *State*: make the event the latest state of its job, and append it to the job's own log.
//! 3. *Notify* the followers of the job, on the job's channel.
//!
//! The *router* is the Python program that reads the shard streams and does layers 2 and 3 for each event, under its
//! marker `router:published:{job_id}:{seq}`. Whichever program comes first sets a marker, and the others skip its
//! layers. An event is *routed* here if a Python worker has appended it and this crate does layers 2 and 3.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onetap_store::{self as store, Batch, Commit, Expect, Keep, Key, Position, Refusal, Round, Store, Value};

use crate::event::EventNumber;
use crate::{Config, Event, Stages};

/// TTL of a job's log after its last event.
const JOB_LOG_TTL: Duration = Duration::from_secs(2 * 3600);

/// The outcome of publishing an event. All of these are success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Published {
    /// It is new, and has this position in the shard's stream. (On DynamoDB, which has no shard streams: in the job's
    /// log.)
    New(Position),
    /// A Python worker had appended it to the shard's stream, and nobody had published it on the job's channel. Now it
    /// is published.
    Routed,
    /// It was published before; at this position, if the marker holds one.
    Duplicate(Option<Position>),
}

/// Why an event was not published.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// Another stage of the job has used the sequence number. This event can never be published.
    SeqTaken,
    /// The store failed. Publish the event again: if the write was applied after all, it is a duplicate.
    Store(store::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::SeqTaken => f.write_str("seq was taken by another stage of the job"),
            Error::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Error {
        Error::Store(error)
    }
}

/// Publishes events.
#[derive(Clone, Debug)]
pub struct Bus {
    store: Arc<dyn Store>,
    config: Config,
}

/// What the first write of an event leads to.
enum NextStep {
    /// Nothing more to do.
    Done(Result<Published, Error>),
    /// The event's marker exists, with this value, and the router's does not: the event must be routed.
    Route(String),
    /// The router's marker exists and the event's does not: see [`Bus::compare`].
    Compare,
}

impl Bus {
    /// A bus on `store`.
    pub fn new(store: Arc<dyn Store>, config: Config) -> Bus {
        Bus { store, config }
    }

    /// The stages of its jobs.
    pub fn stages(&self) -> &Stages {
        &self.config.stages
    }

    /// Publishes one event.
    pub async fn publish(&self, event: &Event) -> Result<Published, Error> {
        let outcome = self.publish_each(std::slice::from_ref(event)).await.pop();
        outcome.unwrap_or_else(|| Err(inconclusive().into()))
    }

    /// Publishes events in their order, each by itself, in one round trip where the backend can. The second of two
    /// equal events is a duplicate.
    pub async fn publish_each(&self, events: &[Event]) -> Vec<Result<Published, Error>> {
        let mut round = Round::new();
        let mut sent = Vec::with_capacity(events.len());
        for event in events {
            sent.push((event, self.new_event(event).map(|batch| round.add(batch))));
        }
        let mut answers = round.send(&*self.store).await;

        // A second round trip is rare: only for events that a Python worker has appended.
        let mut round = Round::new();
        let mut next_steps = Vec::with_capacity(events.len());
        for (event, ticket) in sent {
            let next = next_step(event, ticket.and_then(|ticket| answers.take(ticket)));
            let routing = match &next {
                NextStep::Route(seen) => Some(self.route(event, seen).map(|batch| round.add(batch))),
                NextStep::Done(_) | NextStep::Compare => None,
            };
            next_steps.push((event, next, routing));
        }
        let mut answers = round.send(&*self.store).await;

        let mut outcomes = Vec::with_capacity(events.len());
        for (event, next, routing) in next_steps {
            outcomes.push(match (next, routing) {
                (NextStep::Done(outcome), _) => outcome,
                (NextStep::Route(seen), Some(ticket)) => {
                    route_outcome(event, &seen, ticket.and_then(|ticket| answers.take(ticket)))
                }
                _ => self.compare(event).await,
            });
        }
        outcomes
    }

    /// All three layers, for a new event. If one of the two markers exists, the whole batch is refused.
    fn new_event(&self, event: &Event) -> Result<Batch, store::Error> {
        let job = event.job();
        let published = job.published(event.stage(), event.seq())?;
        // The position of the first append: in the shard's stream where there is one, else in the job's log.
        let id = Value::PositionOf(0);
        let mut batch =
            self.set_router_marker(event)?.put(&published, Expect::Absent, id, self.config.published_ttl);
        // Elsewhere the stream of a shard would be one hot item, and the jobs' own logs are enough.
        if self.store.capabilities().shared_logs {
            let keep = Keep::about(self.config.stream_maxlen);
            batch = batch.append(&job.stream(self.config.shard_count)?, event.text(), keep);
        }
        Ok(batch.and(self.state_and_notification(event)?))
    }

    /// Layers 2 and 3, for an event that a Python worker has appended. The batch is refused unless the event's marker
    /// still has the value `seen`: without the marker, the event must be appended too.
    fn route(&self, event: &Event, seen: &str) -> Result<Batch, store::Error> {
        let published = event.job().published(event.stage(), event.seq())?;
        let batch = self.set_router_marker(event)?.check(&published, Expect::Is(seen.to_owned()));
        Ok(batch.and(self.state_and_notification(event)?))
    }

    fn set_router_marker(&self, event: &Event) -> Result<Batch, store::Error> {
        let marker = event.job().router(event.seq())?;
        Ok(Batch::new().put(&marker, Expect::Absent, "1", self.config.published_ttl))
    }

    fn state_and_notification(&self, event: &Event) -> Result<Batch, store::Error> {
        let job = event.job();
        let mut batch = Batch::new().append(&job.log()?, event.text(), Keep::all_for(JOB_LOG_TTL));
        if event.sets_state() {
            batch = batch.put_if_newer(&job.state_key()?, event.seq(), event.text(), self.config.state_ttl);
        }
        Ok(batch.publish(&job.channel()?, event.text()))
    }

    /// The outcome if the router's marker exists and the event's does not. There are two possible causes:
    ///
    /// - Another stage of the job has used the sequence number: stages without an entry in the table share numbers, and
    ///   the table may have changed.
    /// - The event's marker has expired first: a Python worker sets it earlier than the router sets its own.
    ///
    /// The job's log shows which. If the log has expired, the event is old, and a duplicate.
    async fn compare(&self, event: &Event) -> Result<Published, Error> {
        let stage_of_seq = |number: EventNumber| (number.seq == event.seq()).then_some(number.stage);
        match event.job().find(&*self.store, stage_of_seq).await? {
            Some(first) if first != event.stage() => Err(Error::SeqTaken),
            _ => Ok(Published::Duplicate(None)),
        }
    }
}

/// The next step after the commit of [`Bus::new_event`]. A refusal lists every marker that exists. On DynamoDB it may
/// list only one of two; each case below is right for that too. It never lists none.
fn next_step(event: &Event, commit: Result<Commit, store::Error>) -> NextStep {
    let refusal = match commit {
        Ok(Commit::Applied(positions)) => {
            let first = positions.first().copied().ok_or_else(|| inconclusive().into());
            return NextStep::Done(first.map(Published::New));
        }
        Ok(Commit::Refused(refusal)) => refusal,
        Err(error) => return NextStep::Done(Err(error.into())),
    };
    let router_marker = found_value(&refusal, event.job().router(event.seq()));
    let event_marker = found_value(&refusal, event.job().published(event.stage(), event.seq()));
    match (router_marker, event_marker) {
        (Some(_), Some(id)) => NextStep::Done(Ok(duplicate(id))),
        (None, Some(seen)) => NextStep::Route(seen.to_owned()),
        (Some(_), None) => NextStep::Compare,
        (None, None) => NextStep::Done(Err(inconclusive().into())),
    }
}

/// The outcome of the commit of [`Bus::route`].
fn route_outcome(
    event: &Event,
    seen: &str,
    commit: Result<Commit, store::Error>,
) -> Result<Published, Error> {
    match commit? {
        Commit::Applied(_) => Ok(Published::Routed),
        Commit::Refused(refusal) => match found_value(&refusal, event.job().router(event.seq())) {
            Some(_) => Ok(duplicate(seen)),
            // The event's marker has expired since the first round trip: the next delivery finds a new event.
            None => Err(inconclusive().into()),
        },
    }
}

/// The stored value of `key` that a refusal lists.
fn found_value(refusal: &Refusal, key: Result<Key, store::Error>) -> Option<&str> {
    refusal.get(&key.ok()?)?.text()
}

/// The event's marker holds its position. A Python worker's marker is `1`, which is not a position.
fn duplicate(marker: &str) -> Published {
    Published::Duplicate(marker.parse().ok())
}

fn inconclusive() -> store::Error {
    store::Error::unknown("the store's answer is inconclusive")
}
