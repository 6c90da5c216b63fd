#![doc = include_str!("../README.md")]

mod record;

use std::collections::HashSet;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use futures_util::FutureExt;
use lambda_runtime::{Context, LambdaEvent};
use onetap_bus::{Bus, Event};
use onetap_config::{ConfigError, Variables};
use onetap_store::{Store, config, open, warm_up};
use tokio::time::{Instant, timeout_at};

pub use onetap_bus::Config;

use record::{Failure, Record, State};

/// Events in one call of the store. Lambda's batches have ten by default. Larger ones are split, so that the deadline
/// is checked between the calls and records that were not sent are known.
const MAX_EVENTS_PER_CALL: usize = 100;

/// Time that is reserved at the end of an invocation for its response.
const RESPONSE_MARGIN: Duration = Duration::from_millis(250);

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
        let store = config::Config::from_variables(variables)?;
        Ok(QueueConsumer::new(open(&store)?, Config::from_variables(variables, &store)?))
    }

    /// Opens the connection to the store while the function starts. Never fails.
    pub async fn warm_up(&self) {
        warm_up("store", self.store.connect()).await;
    }

    /// Handles one Lambda invocation.
    pub async fn invoke(&self, event: LambdaEvent<SqsEvent>) -> Result<SqsBatchResponse, Infallible> {
        let response = self.handle(event.payload, deadline(&event.context)).await;
        onetap_telemetry::flush();
        Ok(response)
    }

    /// Publishes a batch by `deadline`. The response names every record that was not published, also one that can never
    /// be: SQS delivers it again, and moves it to the dead-letter queue in the end.
    pub async fn handle(&self, event: SqsEvent, deadline: Instant) -> SqsBatchResponse {
        let mut records: Vec<Record> =
            event.records.into_iter().map(|message| Record::read(message, self.bus.stages())).collect();
        let mut events_per_call = MAX_EVENTS_PER_CALL;
        loop {
            fail_rest_of_groups(&mut records);
            let (waiting, events): (Vec<usize>, Vec<Event>) = records
                .iter()
                .enumerate()
                .filter_map(|(n, r)| Some((n, r.waiting()?.clone())))
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
        let mut response = SqsBatchResponse::default();
        for record in &records {
            record.report();
            if let State::Failed(_) = record.state {
                // A record without an id is reported with an empty id; Lambda then retries the whole batch.
                response.add_failure(record.id.as_str());
            }
        }
        response
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

/// Keeps the order of FIFO groups: after a failure that may pass, the later records of the message group fail too. Records
/// that were not sent yet are not sent. Records that were published already are delivered again, in order, as duplicates. A
/// record that can never be published fails too, but the rest of its group does not; so does one that still panics at a
/// later delivery.
fn fail_rest_of_groups(records: &mut [Record]) {
    let mut failed_groups: HashSet<String> = HashSet::new();
    for record in records {
        let Some(group) = &record.group else {
            continue;
        };
        if record.holds_back() {
            failed_groups.insert(group.clone());
        } else if !matches!(record.state, State::Failed(_)) && failed_groups.contains(group) {
            record.state = State::Failed(Failure::HeldBack);
        }
    }
}

/// The time by which the response must be ready.
fn deadline(context: &Context) -> Instant {
    let left = context.deadline().duration_since(SystemTime::now()).unwrap_or_default();
    Instant::now() + left.saturating_sub(RESPONSE_MARGIN)
}
