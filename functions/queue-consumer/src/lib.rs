#![doc = include_str!("../README.md")]

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures_util::FutureExt;
use lambda_runtime::LambdaEvent;
use onetap_bus::{Bus, Error, Event, Malformed, Published, Stages, key_kind};
use onetap_config::{ConfigError, Variables};
use onetap_idem::Invocation;
use onetap_idem::sqs::{Record, RecordState, SqsBatchResponse, SqsEvent, SqsMessage, hold_back, response};
use onetap_store::{Store, open_with_kinds, warm_up};
use tokio::time::{Instant, timeout_at};

pub use onetap_bus::Config;

/// Events in one call of the store. Lambda's batches have ten by default. Larger ones are split, so that the deadline
/// is checked between the calls and records that were not sent are known.
const MAX_EVENTS_PER_CALL: usize = 100;

/// From this delivery on, a record whose processing panics no longer holds back its group. A panic that passes (memory,
/// a restart) passes within the deliveries before it; one that comes from the record never does.
const FIRST_DELIVERY_THAT_SKIPS_A_PANIC: u32 = 3;

/// The Lambda function: publishes SQS messages as job events.
#[derive(Debug)]
pub struct QueueConsumer {
    store: Arc<dyn Store>,
    bus: Bus,
}

impl QueueConsumer {
    /// A consumer that publishes into `store`.
    pub fn new(store: Arc<dyn Store>, config: Config) -> QueueConsumer {
        QueueConsumer { bus: Bus::new(Arc::clone(&store), config), store }
    }

    /// The consumer that these variables describe.
    pub fn from_variables(variables: &Variables<'_>) -> Result<QueueConsumer, ConfigError> {
        let store = open_with_kinds(&onetap_store::Config::from_variables(variables)?, key_kind)?;
        Ok(QueueConsumer::new(store, Config::from_variables(variables)?))
    }

    /// Opens the connection to the store while the function starts. Never fails.
    pub async fn warm_up(&self) {
        warm_up("store", self.store.connect()).await;
    }

    /// Handles one Lambda invocation.
    pub async fn invoke(&self, event: LambdaEvent<SqsEvent>) -> Result<SqsBatchResponse, Infallible> {
        let response = self.handle(event.payload, Invocation::of(&event.context).deadline).await;
        onetap_telemetry::flush();
        Ok(response)
    }

    /// Publishes a batch by `deadline`. The response names every record that was not published, also one that can never
    /// be: SQS delivers it again, and moves it to the dead-letter queue in the end.
    pub async fn handle(&self, event: SqsEvent, deadline: Instant) -> SqsBatchResponse {
        let read = |message| Record::new(message, |message| State::read(message, self.bus.stages()));
        let mut records: Vec<Record<State>> = event.records.into_iter().map(read).collect();
        let mut events_per_call = MAX_EVENTS_PER_CALL;
        loop {
            hold_back(&mut records);
            let (waiting, events): (Vec<usize>, Vec<Event>) = records
                .iter()
                .enumerate()
                .filter_map(|(n, record)| Some((n, record.state.waiting()?.clone())))
                .take(events_per_call)
                .unzip();
            if events.is_empty() {
                break;
            }
            let states = match self.publish(&events, deadline).await {
                Ok(states) => states,
                // It is unknown which of the events panicked: each is published again, alone. Those that were published
                // already are duplicates then.
                Err(Panicked) if events.len() > 1 => {
                    events_per_call = 1;
                    continue;
                }
                Err(Panicked) => vec![State::Failed(Failure::Panicked)],
            };
            for (n, state) in waiting.into_iter().zip(states) {
                records[n].state = state;
            }
        }
        records.iter().for_each(report);
        response(&records)
    }

    /// Publishes events in one store call; returns a state for each.
    async fn publish(&self, events: &[Event], deadline: Instant) -> Result<Vec<State>, Panicked> {
        let late = || events.iter().map(|_| State::Failed(Failure::OutOfTime)).collect();
        if Instant::now() >= deadline {
            return Ok(late());
        }
        // No panic is expected. If there is a bug, it must fail one record and not the whole batch. Every write is
        // atomic, so a panic leaves nothing half done.
        let outcomes = AssertUnwindSafe(self.bus.publish_each(events)).catch_unwind();
        match timeout_at(deadline, outcomes).await {
            Ok(Ok(outcomes)) => Ok(outcomes.into_iter().map(State::from).collect()),
            Ok(Err(_)) => Err(Panicked),
            Err(_) => Ok(late()),
        }
    }
}

/// A call of the store panicked.
struct Panicked;

enum State {
    /// A valid event, not sent yet.
    Waiting(Event),
    /// Published, now or before.
    Done(Published),
    /// Not published. It is reported as failed, so that SQS delivers it again or moves it to the dead-letter queue.
    Failed(Failure),
}

enum Failure {
    Malformed(Malformed),
    SeqTaken,
    Store,
    OutOfTime,
    Panicked,
    HeldBack,
}

impl State {
    fn read(message: SqsMessage, stages: &Stages) -> State {
        let body = message.body.unwrap_or_default();
        match catch_unwind(|| Event::parse(body, stages)) {
            Ok(Ok(event)) => State::Waiting(event),
            Ok(Err(malformed)) => State::Failed(Failure::Malformed(malformed)),
            Err(_) => State::Failed(Failure::Panicked),
        }
    }

    fn waiting(&self) -> Option<&Event> {
        match self {
            State::Waiting(event) => Some(event),
            State::Done(_) | State::Failed(_) => None,
        }
    }
}

impl RecordState for State {
    fn is_done(&self) -> bool {
        matches!(self, State::Done(_))
    }

    fn holds_back(&self, deliveries: u32) -> bool {
        match self {
            State::Failed(Failure::Malformed(_) | Failure::SeqTaken) | State::Waiting(_) | State::Done(_) => {
                false
            }
            State::Failed(Failure::Panicked) => deliveries < FIRST_DELIVERY_THAT_SKIPS_A_PANIC,
            // A store failure may end before any delivery, so it always holds the group back.
            State::Failed(Failure::Store | Failure::OutOfTime | Failure::HeldBack) => true,
        }
    }

    fn is_final(&self) -> bool {
        matches!(self, State::Failed(_))
    }

    fn held_back() -> State {
        State::Failed(Failure::HeldBack)
    }
}

/// Counts the outcome of a record and logs it. This is the only place that logs a failure of a record.
fn report(record: &Record<State>) {
    let outcome = match &record.state {
        State::Done(Published::New(_)) => "published",
        State::Done(Published::Routed) => "routed",
        State::Done(Published::Duplicate(_)) => "duplicate",
        State::Failed(Failure::Malformed(_) | Failure::SeqTaken) => "malformed",
        State::Failed(Failure::Store) => "store_error",
        State::Waiting(_) | State::Failed(Failure::OutOfTime) => "out_of_time",
        State::Failed(Failure::Panicked) => "panicked",
        State::Failed(Failure::HeldBack) => "held_back",
    };
    metrics::counter!("events_total", "outcome" => outcome).increment(1);
    let message_id = record.id.as_str();
    match &record.state {
        State::Failed(Failure::Malformed(reason)) => {
            tracing::warn!(message_id, outcome, %reason, "the event cannot be published");
        }
        State::Failed(Failure::SeqTaken) => {
            tracing::warn!(message_id, outcome, reason = %Error::SeqTaken, "the event cannot be published");
        }
        State::Failed(Failure::Panicked) => {
            tracing::error!(message_id, outcome, "the event's processing panicked");
        }
        // The store has logged its failure; this line names the record.
        State::Failed(Failure::Store | Failure::OutOfTime | Failure::HeldBack) | State::Waiting(_) => {
            tracing::warn!(message_id, outcome, "the event will be redelivered");
        }
        State::Done(_) => tracing::debug!(message_id, outcome, "the event is done"),
    }
}

impl From<Result<Published, Error>> for State {
    fn from(outcome: Result<Published, Error>) -> State {
        match outcome {
            Ok(published) => State::Done(published),
            Err(Error::SeqTaken) => State::Failed(Failure::SeqTaken),
            // Any other failure may pass by the next delivery.
            Err(_) => State::Failed(Failure::Store),
        }
    }
}
