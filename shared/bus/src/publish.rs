//! Layers 1 to 3 as one atomic write: an event is appended, becomes the state and is published, or none of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onetap_store::{
    self as store, Batch, Commit, Expect, Keep, Key, Mismatch, Position, Round, Store, Value,
};

use crate::event::EventNumber;
use crate::{Config, Event, Job};

/// TTL of a job's log after its last event.
const JOB_LOG_TTL: Duration = Duration::from_secs(2 * 3600);
/// Records in one read of a log: more than a job has sequence numbers, so that a second page is rare.
pub(crate) const PAGE_SIZE: usize = 100;

/// The outcome of publishing an event. All of these are success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Published {
    /// It is new. Its position is that in the shard's stream, or on DynamoDB that in the job's log.
    New(Position),
    /// Another program had appended it to the shard's stream without publishing it; now it is published.
    Routed,
    /// It was published before; at this position, if the marker holds one.
    Duplicate(Option<Position>),
}

/// Why an event was not published.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// The event's own marker exists, with this value, and the router's does not.
    Route(String),
    /// The router's marker exists and the event's own does not.
    Compare,
}

impl Bus {
    /// A bus on `store`.
    pub fn new(store: Arc<dyn Store>, config: Config) -> Bus {
        Bus { store, config }
    }

    /// Publishes one event.
    pub async fn publish(&self, event: &Event) -> Result<Published, Error> {
        let outcome = self.publish_each(std::slice::from_ref(event)).await.pop();
        outcome.unwrap_or_else(|| Err(unclear().into()))
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

        // A second round is rare: for events of a producer that runs seed 004's own script, and numbers used twice.
        let mut round = Round::new();
        let mut judged = Vec::with_capacity(events.len());
        for (event, ticket) in sent {
            let next = judge(event, ticket.and_then(|ticket| answers.take(ticket)));
            let routing = match &next {
                NextStep::Route(seen) => Some(self.route(event, seen).map(|batch| round.add(batch))),
                NextStep::Done(_) | NextStep::Compare => None,
            };
            judged.push((event, next, routing));
        }
        let mut answers = round.send(&*self.store).await;

        let mut outcomes = Vec::with_capacity(events.len());
        for (event, next, routing) in judged {
            outcomes.push(match (next, routing) {
                (NextStep::Done(outcome), _) => outcome,
                (NextStep::Route(seen), Some(ticket)) => {
                    routed(event, &seen, ticket.and_then(|ticket| answers.take(ticket)))
                }
                _ => self.compare(event).await,
            });
        }
        outcomes
    }

    /// Layers 1 to 3 of a new event. If one of the two markers exists, the whole batch is refused.
    fn new_event(&self, event: &Event) -> Result<Batch, store::Error> {
        let job = event.job();
        let published = job.published(event.stage(), event.seq())?;
        // The position of the first append: in the shard's stream where there is one, else in the job's log.
        let id = Value::PositionOf(0);
        let mut batch = self.router(event)?.put(&published, Expect::Absent, id, self.config.published_ttl);
        if self.config.shard_streams {
            let keep = Keep::about(self.config.stream_maxlen);
            batch = batch.append(&job.stream(self.config.shard_count)?, event.text(), keep);
        }
        Ok(batch.and(self.layers_2_and_3(event)?))
    }

    /// Layers 2 and 3 of an event that another program has appended. They need its marker, with the value that was
    /// seen: without it the event must be appended too.
    fn route(&self, event: &Event, seen: &str) -> Result<Batch, store::Error> {
        let published = event.job().published(event.stage(), event.seq())?;
        let batch = self.router(event)?.check(&published, Expect::Is(seen.to_owned()));
        Ok(batch.and(self.layers_2_and_3(event)?))
    }

    fn router(&self, event: &Event) -> Result<Batch, store::Error> {
        let router = event.job().router(event.seq())?;
        Ok(Batch::new().put(&router, Expect::Absent, "1", self.config.published_ttl))
    }

    fn layers_2_and_3(&self, event: &Event) -> Result<Batch, store::Error> {
        let job = event.job();
        Ok(Batch::new()
            .append(&job.log()?, event.text(), Keep::all_for(JOB_LOG_TTL))
            .put_if_newer(&job.state_key()?, event.seq(), event.text(), self.config.state_ttl)
            .publish(&job.channel()?, event.text()))
    }

    /// The router's marker exists and the event's own does not. Either another stage of the job has used the number:
    /// only stages outside of the table can, which share 0 to 9. Or the event's marker has expired before the router's:
    /// a foreign producer sets it earlier. The job's log shows which. Without a log the event is old, and a duplicate.
    async fn compare(&self, event: &Event) -> Result<Published, Error> {
        let records = read_all(&*self.store, event.job()).await?;
        let mut same_seq = records
            .iter()
            .filter_map(|record| EventNumber::of(&record.text))
            .filter(|number| number.seq == event.seq());
        match same_seq.next() {
            Some(first) if first.stage != event.stage() => Err(Error::SeqTaken),
            _ => Ok(Published::Duplicate(None)),
        }
    }
}

/// Reads a job's whole log.
pub(crate) async fn read_all(store: &dyn Store, job: &Job) -> Result<Vec<store::Record>, store::Error> {
    let log = job.log()?;
    let mut records: Vec<store::Record> = Vec::new();
    loop {
        let page = store.read(&log, records.last().map(|record| record.position), PAGE_SIZE).await?;
        let whole = page.len() < PAGE_SIZE;
        records.extend(page);
        if whole {
            return Ok(records);
        }
    }
}

/// The next step after the commit of [`Bus::new_event`]. A refusal names every marker that exists, or, from DynamoDB,
/// at least one of them: each case below is right for both.
fn judge(event: &Event, commit: Result<Commit, store::Error>) -> NextStep {
    let refusal = match commit {
        Ok(Commit::Applied(positions)) => {
            let first = positions.first().copied().ok_or_else(|| unclear().into());
            return NextStep::Done(first.map(Published::New));
        }
        Ok(Commit::Refused(refusal)) => refusal,
        Err(error) => return NextStep::Done(Err(error.into())),
    };
    let routed = there(&refusal, event.job().router(event.seq()));
    let published = there(&refusal, event.job().published(event.stage(), event.seq()));
    match (routed, published) {
        (Some(_), Some(id)) => NextStep::Done(Ok(duplicate(id))),
        (None, Some(seen)) => NextStep::Route(seen.to_owned()),
        (Some(_), None) => NextStep::Compare,
        (None, None) => NextStep::Done(Err(unclear().into())),
    }
}

/// The outcome of the commit of [`Bus::route`].
fn routed(event: &Event, seen: &str, commit: Result<Commit, store::Error>) -> Result<Published, Error> {
    match commit? {
        Commit::Applied(_) => Ok(Published::Routed),
        Commit::Refused(refusal) => match there(&refusal, event.job().router(event.seq())) {
            Some(_) => Ok(duplicate(seen)),
            // The foreign marker has expired in between: the next delivery finds a new event.
            None => Err(unclear().into()),
        },
    }
}

fn there(refusal: &[Mismatch], key: Result<Key, store::Error>) -> Option<&str> {
    Mismatch::find(refusal, &key.ok()?)?.there.as_deref()
}

/// A foreign producer's marker is `1`, which is no position.
fn duplicate(marker: &str) -> Published {
    Published::Duplicate(marker.parse().ok())
}

fn unclear() -> store::Error {
    store::Error::Unavailable { maybe_applied: true, reason: "the store's answer settles nothing".into() }
}
