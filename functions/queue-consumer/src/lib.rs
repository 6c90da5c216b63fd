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
use onetap_store::{Store, config, open};
use tokio::time::{Instant, timeout_at};

pub use onetap_bus::Config;

use record::{Failure, Record, State};

/// So many events go to the store in one call. Lambda's batches have ten unless it is told otherwise; with larger ones
/// the time is looked at in between, so that what was not begun is known.
const TOGETHER: usize = 100;

/// What is kept of an invocation's time for its answer.
const TIME_TO_ANSWER: Duration = Duration::from_millis(250);

/// The function.
#[derive(Debug)]
pub struct QueueConsumer {
    bus: Bus,
}

impl QueueConsumer {
    /// A consumer that publishes into `store`.
    pub fn new(store: Arc<dyn Store>, config: Config) -> QueueConsumer {
        QueueConsumer { bus: Bus::new(store, config) }
    }

    /// The consumer that these variables describe.
    pub fn from_variables(variables: &Variables<'_>) -> Result<QueueConsumer, ConfigError> {
        let store = config::Config::from_variables(variables)?;
        Ok(QueueConsumer::new(open(&store)?, Config::from_variables(variables, &store)?))
    }

    /// One invocation of Lambda's.
    pub async fn invoke(&self, event: LambdaEvent<SqsEvent>) -> Result<SqsBatchResponse, Infallible> {
        let answer = self.handle(event.payload, deadline(&event.context)).await;
        onetap_telemetry::flush();
        Ok(answer)
    }

    /// Publishes a batch by `deadline`, and names what must come again.
    pub async fn handle(&self, event: SqsEvent, deadline: Instant) -> SqsBatchResponse {
        let mut records: Vec<Record> = event.records.into_iter().map(Record::read).collect();
        let mut together = TOGETHER;
        loop {
            hold_back(&mut records);
            let (waiting, events): (Vec<usize>, Vec<Event>) = records
                .iter()
                .enumerate()
                .filter_map(|(n, r)| Some((n, r.waiting()?.clone())))
                .take(together)
                .unzip();
            if events.is_empty() {
                break;
            }
            let states = match self.publish(&events, deadline).await {
                Ok(states) => states,
                // A panic in the midst of many says not whose it was: each again, alone. Those that were done are
                // duplicates then.
                Err(Panicked) if events.len() > 1 => {
                    together = 1;
                    continue;
                }
                Err(Panicked) => vec![State::Failed(Failure::Panicked)],
            };
            for (n, state) in waiting.into_iter().zip(states) {
                records[n].state = state;
            }
        }
        let mut answer = SqsBatchResponse::default();
        for record in &records {
            record.report();
            if let State::Failed(_) = record.state {
                // Without an id there is no naming it: an empty one fails the batch, which is what is left to do.
                answer.add_failure(record.id.as_str());
            }
        }
        answer
    }

    /// Publishes events in one call; a state for each.
    async fn publish(&self, events: &[Event], deadline: Instant) -> Result<Vec<State>, Panicked> {
        let late = || events.iter().map(|_| State::Failed(Failure::OutOfTime)).collect();
        if Instant::now() >= deadline {
            return Ok(late());
        }
        // Every write of it is all or nothing, so that nothing is left in between when it unwinds.
        let answers = AssertUnwindSafe(self.bus.publish_each(events)).catch_unwind();
        match timeout_at(deadline, answers).await {
            Ok(Ok(answers)) => Ok(answers.into_iter().map(State::from).collect()),
            Ok(Err(_)) => Err(Panicked),
            Err(_) => Ok(late()),
        }
    }
}

/// Somewhere inside a call.
struct Panicked;

/// FIFO: from its first failure on that another attempt can mend, a group waits. What is not sent yet is not sent, and
/// what was done comes again, after the one before it, as a duplicate. A record that can never be published has nothing
/// to wait for: the rest of its group goes on without it.
fn hold_back(records: &mut [Record]) {
    let mut held: HashSet<String> = HashSet::new();
    for record in records {
        let Some(group) = &record.group else {
            continue;
        };
        match &record.state {
            State::Failed(failure) if failure.can_be_mended() => {
                held.insert(group.clone());
            }
            State::Failed(_) => {}
            State::Waiting(_) | State::Done(_) if held.contains(group) => {
                record.state = State::Failed(Failure::HeldBack);
            }
            State::Waiting(_) | State::Done(_) => {}
        }
    }
}

/// When the answer must be given.
fn deadline(context: &Context) -> Instant {
    let left = context.deadline().duration_since(SystemTime::now()).unwrap_or_default();
    Instant::now() + left.saturating_sub(TIME_TO_ANSWER)
}
