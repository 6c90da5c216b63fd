//! Layers 1 to 3 as one write: an event is appended, becomes the state and is published all at once, or not at all.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onetap_store::{
    self as store, Batch, Commit, Expect, Keep, Key, Mismatch, Position, Round, Store, Value,
};

use crate::event::Place;
use crate::{Config, Event, Job};

/// A job's own log lives so long after its last event.
const LOG_TTL: Duration = Duration::from_secs(2 * 3600);
/// What one read of a log asks for: more than a job has numbers, so that a second page is rare.
pub(crate) const PAGE: usize = 100;

/// What became of an event. All of these are success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Published {
    /// It is new, and stands here: in its shard's stream, or on DynamoDB in the job's log.
    New(Position),
    /// Another program had appended it to the stream and no one had published it; now it is.
    Routed,
    /// It was done before; where it stands, if the marker still says so.
    Duplicate(Option<Position>),
}

/// Why an event was not published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Another stage of the job has the same sequence number, and came first. This one can never be published.
    SeqTaken,
    /// The store gave no answer. Publish it again: if it had landed after all, it is a duplicate.
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

type Answer = Result<Published, Error>;

/// Where events are published.
#[derive(Clone, Debug)]
pub struct Bus {
    store: Arc<dyn Store>,
    config: Config,
}

/// What the answer to a new event calls for.
enum Next {
    /// Nothing more.
    Done(Answer),
    /// Publishing: its marker is there, with this value, and the router's is not.
    Route(String),
    /// A look into the job's log: the router's marker is there, and its own is not.
    Compare,
}

impl Bus {
    /// A bus on `store`.
    pub fn new(store: Arc<dyn Store>, config: Config) -> Bus {
        Bus { store, config }
    }

    /// Publishes one event.
    pub async fn publish(&self, event: &Event) -> Result<Published, Error> {
        let answer = self.publish_each(std::slice::from_ref(event)).await.pop();
        answer.unwrap_or_else(|| Err(unclear().into()))
    }

    /// Publishes events, each by itself, in their order: one round trip where the store can. The same event twice is
    /// new the first time and a duplicate the second.
    pub async fn publish_each(&self, events: &[Event]) -> Vec<Answer> {
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
                Next::Route(seen) => Some(self.route(event, seen).map(|batch| round.add(batch))),
                Next::Done(_) | Next::Compare => None,
            };
            judged.push((event, next, routing));
        }
        let mut answers = round.send(&*self.store).await;

        let mut outcomes = Vec::with_capacity(events.len());
        for (event, next, routing) in judged {
            outcomes.push(match (next, routing) {
                (Next::Done(outcome), _) => outcome,
                (Next::Route(seen), Some(ticket)) => {
                    routed_or_not(event, &seen, ticket.and_then(|ticket| answers.take(ticket)))
                }
                _ => self.compare(event).await,
            });
        }
        outcomes
    }

    /// The whole of layers 1 to 3. Both markers expect to be the first; one that is not refuses everything.
    fn new_event(&self, event: &Event) -> Result<Batch, store::Error> {
        let job = event.job();
        let published = job.published(event.stage(), event.seq())?;
        // The first append of the batch: the stream's where there is one, else the job log's.
        let id = Value::PositionOf(0);
        let mut batch = self.router(event)?.put(&published, Expect::Absent, id, self.config.published_ttl);
        if self.config.shard_streams {
            let keep = Keep::about(self.config.stream_maxlen);
            batch = batch.append(&job.stream(self.config.shard_count)?, event.text(), keep);
        }
        Ok(batch.and(self.layers_2_and_3(event)?))
    }

    /// What is left to do for an event that another program appended to the stream: the marker it was seen with must
    /// still be there, because without it the event would have to be appended too.
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
            .append(&job.log()?, event.text(), Keep::all_for(LOG_TTL))
            .put_if_newer(&job.state_key()?, event.seq(), event.text(), self.config.state_ttl)
            .publish(&job.channel()?, event.text()))
    }

    /// The number was routed and this event's own marker is not there. Either another stage of the job took the
    /// number, which only the "other" stages can do to each other: they share 0 to 9. Or the marker went first: a
    /// foreign producer's is older than the router's. The job's log tells which, and if it is gone too, so is the
    /// question: what is past is done.
    async fn compare(&self, event: &Event) -> Answer {
        let records = read_all(&*self.store, event.job()).await?;
        let mut same_seq = records
            .iter()
            .filter_map(|record| Place::of(&record.text))
            .filter(|place| place.seq == event.seq());
        match same_seq.next() {
            Some(first) if first.stage != event.stage() => Err(Error::SeqTaken),
            _ => Ok(Published::Duplicate(None)),
        }
    }
}

/// All of a job's own log.
pub(crate) async fn read_all(store: &dyn Store, job: &Job) -> Result<Vec<store::Record>, store::Error> {
    let log = job.log()?;
    let mut records: Vec<store::Record> = Vec::new();
    loop {
        let page = store.read(&log, records.last().map(|record| record.position), PAGE).await?;
        let whole = page.len() < PAGE;
        records.extend(page);
        if whole {
            return Ok(records);
        }
    }
}

/// What the answer to [`Bus::new_event`] means. A refusal names what failed, all of it or, from DynamoDB, at least
/// one: each case below is right whether or not the other marker is there too.
fn judge(event: &Event, answer: Result<Commit, store::Error>) -> Next {
    let refusal = match answer {
        Ok(Commit::Applied(positions)) => {
            let first = positions.first().copied().ok_or_else(|| unclear().into());
            return Next::Done(first.map(Published::New));
        }
        Ok(Commit::Refused(refusal)) => refusal,
        Err(error) => return Next::Done(Err(error.into())),
    };
    let routed = there(&refusal, event.job().router(event.seq()));
    let published = there(&refusal, event.job().published(event.stage(), event.seq()));
    match (routed, published) {
        (Some(_), Some(id)) => Next::Done(Ok(duplicate(id))),
        (None, Some(seen)) => Next::Route(seen.to_owned()),
        (Some(_), None) => Next::Compare,
        (None, None) => Next::Done(Err(unclear().into())),
    }
}

fn routed_or_not(event: &Event, seen: &str, answer: Result<Commit, store::Error>) -> Answer {
    match answer? {
        Commit::Applied(_) => Ok(Published::Routed),
        Commit::Refused(refusal) => match there(&refusal, event.job().router(event.seq())) {
            Some(_) => Ok(duplicate(seen)),
            // The foreign marker went away between two looks: the next delivery finds a new event.
            None => Err(unclear().into()),
        },
    }
}

fn there(refusal: &[Mismatch], key: Result<Key, store::Error>) -> Option<&str> {
    Mismatch::find(refusal, &key.ok()?)?.there.as_deref()
}

/// A foreign producer's `1` is no position: done, where is unknown.
fn duplicate(marker: &str) -> Published {
    Published::Duplicate(marker.parse().ok())
}

fn unclear() -> store::Error {
    store::Error::Unavailable { maybe_applied: true, reason: "the store's answer settles nothing".into() }
}
