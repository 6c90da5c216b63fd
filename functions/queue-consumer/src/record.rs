//! One record of a batch: its event and its outcome.

use std::panic::catch_unwind;

use aws_lambda_events::sqs::SqsMessage;
use onetap_bus::{Error, Event, Malformed, Published, Stages};

/// From this delivery on, a record whose processing panics no longer holds back its group. A panic that passes (memory,
/// a restart) passes within the deliveries before it; one that comes from the record never does.
const FIRST_DELIVERY_THAT_SKIPS_A_PANIC: u32 = 3;

/// A record of the batch.
pub(crate) struct Record {
    pub(crate) id: String,
    /// How often SQS has delivered it, this time included.
    deliveries: u32,
    /// The message group, on a FIFO queue.
    pub(crate) group: Option<String>,
    pub(crate) state: State,
}

pub(crate) enum State {
    /// A valid event, not sent yet.
    Waiting(Event),
    /// Published, now or before.
    Done(Published),
    /// Not published. It is reported as failed, so that SQS delivers it again or moves it to the dead-letter queue.
    Failed(Failure),
}

pub(crate) enum Failure {
    Malformed(Malformed),
    SeqTaken,
    Store,
    OutOfTime,
    Panicked,
    HeldBack,
}

impl Record {
    pub(crate) fn read(message: SqsMessage, stages: &Stages) -> Record {
        // Standard queues have group ids too, for fair queues, without an order.
        let fifo = message.event_source_arn.is_some_and(|arn| arn.ends_with(".fifo"));
        let group = message.attributes.get("MessageGroupId").filter(|_| fifo).cloned();
        let deliveries = message.attributes.get("ApproximateReceiveCount");
        let deliveries = deliveries.and_then(|count| count.parse().ok()).unwrap_or(1);
        let body = message.body.unwrap_or_default();
        let state = match catch_unwind(|| Event::parse(body, stages)) {
            Ok(Ok(event)) => State::Waiting(event),
            Ok(Err(malformed)) => State::Failed(Failure::Malformed(malformed)),
            Err(_) => State::Failed(Failure::Panicked),
        };
        Record { id: message.message_id.unwrap_or_default(), deliveries, group, state }
    }

    /// Whether it failed, and another delivery is likely to publish it: the later records of its group wait for that.
    pub(crate) fn holds_back(&self) -> bool {
        match &self.state {
            State::Failed(Failure::Malformed(_) | Failure::SeqTaken) | State::Waiting(_) | State::Done(_) => {
                false
            }
            State::Failed(Failure::Panicked) => self.deliveries < FIRST_DELIVERY_THAT_SKIPS_A_PANIC,
            // A store failure may end before any delivery, so it always holds the group back.
            State::Failed(Failure::Store | Failure::OutOfTime | Failure::HeldBack) => true,
        }
    }

    pub(crate) fn waiting(&self) -> Option<&Event> {
        match &self.state {
            State::Waiting(event) => Some(event),
            State::Done(_) | State::Failed(_) => None,
        }
    }

    /// Counts the outcome and logs it. This is the only place that logs a failure of a record.
    pub(crate) fn report(&self) {
        let outcome = match &self.state {
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
        let message_id = self.id.as_str();
        match &self.state {
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
                tracing::warn!(message_id, outcome, "the event must come again");
            }
            State::Done(_) => tracing::debug!(message_id, outcome, "the event is done"),
        }
    }
}

impl From<Result<Published, Error>> for State {
    fn from(outcome: Result<Published, Error>) -> State {
        match outcome {
            Ok(published) => State::Done(published),
            Err(Error::SeqTaken) => State::Failed(Failure::SeqTaken),
            // Any other failure may pass: the record comes again.
            Err(_) => State::Failed(Failure::Store),
        }
    }
}
