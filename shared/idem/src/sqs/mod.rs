//! Batches of SQS messages, each message handled once.
//!
//! A [`Consumer`] takes the event that Lambda makes of an SQS queue, standard or FIFO, runs a handler for every record that was
//! not handled before, and answers with the records that have to be delivered again. Feature `sqs`.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use onetap_idem::{EffectKeys, Failure, Idempotency};
//! use onetap_idem::sqs;
//! use onetap_store::Memory;
//! use tokio::time::Instant;
//!
//! #[derive(serde::Deserialize)]
//! struct Order { id: u32 }
//!
//! # async fn ship(_order: Order, _retry_key: String) -> Result<(), std::io::Error> { Ok(()) }
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! # let event: aws_lambda_events::sqs::SqsEvent = serde_json::from_str(
//! #     r#"{"Records":[{"messageId":"1","body":"{\"id\":7}"},{"messageId":"2","body":"no order"}]}"#).unwrap();
//! let idem = Idempotency::new(Arc::new(Memory::new()));
//! let orders = sqs::Consumer::json(idem, |order: &Order| format!("order:{}", order.id));
//!
//! let deadline = Instant::now() + Duration::from_secs(10);
//! let handler = async |order: Order, effects: EffectKeys| {
//!     ship(order, effects.key("ship").uuid()).await.map_err(Failure::Transient)
//! };
//! let response = orders.handle(event, deadline, handler).await;
//! assert_eq!(response.batch_item_failures.len(), 1); // the one that is not an order
//! # }
//! ```
//!
//! With the feature `lambda` too, `invoke` takes the deadline from the invocation.
//!
//! A handler that is idempotent by itself needs no claims: [`hold_back`] and [`response`] keep the order of FIFO groups and answer
//! SQS for any [`Record`].
//!
//! # What a batch costs
//!
//! Two round trips, for up to 100 records: one claims all of them, one records what was done and releases what was not. If handlers
//! run longer than a third of the lease, there is one more every third: it renews what is running and records what has ended
//! meanwhile. A larger batch is handled as several, one after another. On DynamoDB a round trip is one request for each record, 32 of
//! them at the same time.
//!
//! # How a record ends
//!
//! | record | `idem_total` | response | its claim |
//! |---|---|---|---|
//! | the handler succeeds | `executed` | done | becomes the result |
//! | … and the store does not confirm the result (nor that of its repeats) | `unrecorded` | done | lapses |
//! | … after its lease, and another owner has taken over | `lost_lease` | failed | is the other owner's |
//! | done before, or the same key as an earlier record of the batch that is recorded | `replayed` | done | – |
//! | the handler fails, [for now](Failure::Transient) | `failed` | failed | is released |
//! | the handler fails [for good](Failure::Permanent) | `permanent` | failed | is released |
//! | unreadable, or its key has no or over 256 bytes | `malformed`, `invalid_key` | failed | – |
//! | the key belongs to another body ([`tied_to_body`](Consumer::tied_to_body)) | `mismatch` | failed | – |
//! | being handled elsewhere | `in_progress` | failed | – |
//! | its lease ended before its turn came | `in_progress` | failed, not run | is released, if it is still there |
//! | at most once, and its outcome is unknown | `unknown` | failed | – |
//! | no answer from the store to its claim | `store_error` | failed, not run | lapses, if there is one |
//! | not begun by the deadline | `deadline_passed` | failed | is released |
//! | not ended by the deadline | `cut_off` | failed; the handler is dropped | is left, as after a crash |
//! | the handler panics | `panicked` | failed; its neighbours are not | is released; at most once it is left, and unknown |
//! | FIFO: an earlier record of its group has to be delivered again | `held_back` | failed | is released; what is done stays done |
//!
//! A record that has failed is delivered again after the queue's visibility timeout, until SQS moves it to the dead-letter queue. Nothing
//! is kept of a failure, not even of one for good: a message that is moved back from the dead-letter queue after a fix is handled.
//!
//! A record whose result the store does not confirm is done all the same: its handler has succeeded, and to have it delivered
//! again would run it again. So no earlier record of its FIFO group holds it back. Only another message with its key runs it once
//! more (at least once), or finds it unknown (at most once).
//!
//! # FIFO queues
//!
//! Groups run concurrently, the records of a group in their order. If one fails so that another delivery may mend it, the later
//! records of its group are not run, and fail too. A record that can never be handled (`malformed`, `invalid_key`, `mismatch`,
//! `permanent`) fails alone and holds back nothing.
//!
//! # Before you use it
//!
//! - The event source mapping needs `ReportBatchItemFailures`; without it Lambda takes every response for success. The queue needs a
//!   dead-letter queue.
//! - Name a message by what it is about (`order:42`), so that a producer that sends twice has one effect. SQS's message id only
//!   recognises redeliveries. Keys of different queues share one name space.
//! - Results have to be kept as long as a message can be delivered again ([`ttl`](Consumer::ttl)): the retention of the queue and of its
//!   dead-letter queue.
//! - After a crash a record is `in_progress` until its lease has ended: a lease that is longer than the visibility timeout costs
//!   deliveries. With [`Policy::AtMostOnce`](crate::Policy::AtMostOnce) a crash leaves all records of the batch unknown, those too
//!   that were not begun.
//! - All handlers of a batch share one task: one that blocks its thread delays the others, the renewals and the response.
//! - Handlers' errors are not logged, because they may quote a message. Log them in the handler.

mod lanes;
mod order;
mod record;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

pub use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use futures_util::{FutureExt, StreamExt, stream};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until};

use crate::record::Outcome;
use crate::runs::{Granted, Runs};
use crate::{Call, EffectKeys, Failure, Idempotency};
use lanes::{Lane, find_repeats, is_held_back, lanes};
use onetap_store::Batch;
use onetap_store::sender::{LATE_CALL_TIMEOUT, Sender};
use record::{Cause, Done, Named, State};

pub use order::{Record, RecordState, hold_back, response};

/// Records that are claimed in one round trip. Lambda's batches have ten by default. Larger ones are split, so that the
/// claims are short and the deadline is checked in between.
const MAX_RECORDS_PER_ROUND: usize = 100;

type Read<T> = dyn Fn(SqsMessage) -> Option<(String, T)> + Send + Sync;

/// Handles batches of messages that are read as `T`, each message once. Build it once and lend it to every invocation.
pub struct Consumer<T> {
    idem: Idempotency,
    read: Box<Read<T>>,
    concurrency: Option<usize>,
    tied_to_body: bool,
    ttl: Option<Duration>,
}

impl<T> Consumer<T> {
    /// A consumer of messages that `read` can read: it answers with the idempotency key and what the handler is given, or with
    /// `None` if the message can never be handled.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use onetap_idem::Idempotency;
    /// # use onetap_idem::sqs::{Consumer, SqsMessage};
    /// # use onetap_store::Memory;
    /// # let idem = Idempotency::new(Arc::new(Memory::new()));
    /// // Plain text, named by the id that the producer gave it for a FIFO queue.
    /// let lines = Consumer::new(idem, |message: SqsMessage| {
    ///     let key = message.attributes.get("MessageDeduplicationId")?.clone();
    ///     Some((key, message.body?))
    /// });
    /// ```
    pub fn new(
        idem: Idempotency,
        read: impl Fn(SqsMessage) -> Option<(String, T)> + Send + Sync + 'static,
    ) -> Consumer<T> {
        Consumer { idem, read: Box::new(read), concurrency: None, tied_to_body: false, ttl: None }
    }

    /// A consumer of messages whose body is a `T` in JSON, named by `key`.
    pub fn json(idem: Idempotency, key: impl Fn(&T) -> String + Send + Sync + 'static) -> Consumer<T>
    where
        T: DeserializeOwned,
    {
        Consumer::new(idem, move |message| {
            let value = serde_json::from_str(&message.body?).ok()?;
            Some((key(&value), value))
        })
    }

    /// Runs at most `handlers` at once. The default is all of a batch, up to 100.
    #[must_use]
    pub fn concurrency(mut self, handlers: usize) -> Consumer<T> {
        self.concurrency = Some(handlers.max(1));
        self
    }

    /// Refuses a key that comes with another body. It is off by default: the body of a redelivery is the same, but that of a
    /// producer's second attempt may differ, for example in a time.
    #[must_use]
    pub fn tied_to_body(mut self) -> Consumer<T> {
        self.tied_to_body = true;
        self
    }

    /// How long it is remembered that a message was handled; by default as the [`Idempotency`] is configured.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Consumer<T> {
        self.ttl = Some(ttl);
        self
    }

    /// Handles one Lambda invocation: [`handle`](Consumer::handle) with a deadline 300 ms before the invocation ends. It never
    /// fails; the result is for `lambda_runtime::service_fn`.
    #[cfg(feature = "lambda")]
    pub async fn invoke<E, F, Fut>(
        &self,
        event: lambda_runtime::LambdaEvent<SqsEvent>,
        handler: F,
    ) -> Result<SqsBatchResponse, std::convert::Infallible>
    where
        F: Fn(T, EffectKeys) -> Fut,
        Fut: Future<Output = Result<(), Failure<E>>>,
    {
        let deadline = crate::Invocation::of(&event.context).deadline;
        Ok(self.handle(event.payload, deadline, handler).await)
    }

    /// Handles a batch by `deadline`: runs `handler` for every record that was not handled before, with the
    /// [keys](EffectKeys) for its effects. The response names the records that SQS has to deliver again.
    ///
    /// It returns at the deadline, or up to 200 ms later if the store is slow to record what was done. Its claims last no longer
    /// than that.
    pub async fn handle<E, F, Fut>(&self, event: SqsEvent, deadline: Instant, handler: F) -> SqsBatchResponse
    where
        F: Fn(T, EffectKeys) -> Fut,
        Fut: Future<Output = Result<(), Failure<E>>>,
    {
        let mut records: Vec<Record<State<T>>> = event
            .records
            .into_iter()
            .map(|message| Record::new(message, |message| self.read(message)))
            .collect();
        for first in (0..records.len()).step_by(MAX_RECORDS_PER_ROUND) {
            hold_back(&mut records);
            let end = records.len().min(first + MAX_RECORDS_PER_ROUND);
            self.handle_part(&mut records[first..end], deadline, &handler).await;
        }
        hold_back(&mut records);
        records.iter().for_each(Record::report);
        response(&records)
    }

    fn read(&self, message: SqsMessage) -> State<T> {
        let payload = if self.tied_to_body { message.body.clone() } else { None };
        match catch_unwind(AssertUnwindSafe(|| (self.read)(message))) {
            Ok(Some((key, value))) => State::Waiting(Named { key, payload, value }),
            Ok(None) => State::Failed(Cause::Malformed),
            Err(_) => State::Failed(Cause::Panicked),
        }
    }

    fn call(&self, named: &Named<T>, deadline: Instant) -> Call {
        // The handler ends at the deadline, the record of what it did at most so much later.
        let end = deadline + LATE_CALL_TIMEOUT;
        let mut call = self.idem.call(&named.key).deadline(deadline).invocation_end(end);
        if let Some(payload) = &named.payload {
            call = call.fingerprint(payload);
        }
        match self.ttl {
            Some(ttl) => call.ttl(ttl),
            None => call,
        }
    }

    /// Claims the records, runs what was granted, and records how it ended.
    async fn handle_part<E, F, Fut>(&self, records: &mut [Record<State<T>>], deadline: Instant, handler: &F)
    where
        F: Fn(T, EffectKeys) -> Fut,
        Fut: Future<Output = Result<(), Failure<E>>>,
    {
        find_repeats(records);
        let mut claims = Vec::new();
        for (n, record) in records.iter_mut().enumerate() {
            if let State::Waiting(named) = &record.state {
                match self.call(named, deadline).claim() {
                    Ok(claim) => claims.push((n, claim)),
                    Err(error) => record.state = State::Failed(error.into()),
                }
            }
        }
        let mut effects: Vec<Option<EffectKeys>> = records.iter().map(|_| None).collect();
        for (n, claim) in &claims {
            effects[*n] = Some(claim.effect_keys());
        }
        let runs = Runs::new(Sender { store: &**self.idem.store(), deadline: Some(deadline) });
        for (n, granted) in runs.claim(claims).await {
            match granted {
                Ok(Granted::Mine) => continue,
                Ok(Granted::Done(_)) => records[n].state = State::Done(Done::Replayed),
                Err(error) => records[n].state = State::Failed(error.into()),
            }
            effects[n] = None;
        }

        let work = stream::iter(lanes(records))
            .for_each_concurrent(self.concurrency, |lane| run_lane(lane, &effects, &runs, deadline, handler));
        tokio::select! {
            biased;
            () = sleep_until(deadline) => {}
            () = runs.renewing(work) => {}
        }

        for (n, record) in records.iter_mut().enumerate() {
            match record.state {
                State::Running => {
                    record.state = State::Failed(Cause::CutOff);
                    runs.leave(n);
                }
                State::Waiting(_) => {
                    record.state = State::Failed(Cause::DeadlinePassed);
                    runs.release(n);
                }
                _ => {}
            }
        }
        for (n, settled) in runs.settle().await {
            records[n].settle(settled);
        }
        for n in 0..records.len() {
            if let State::Repeats(first) = records[n].state {
                let (before, rest) = records.split_at_mut(n);
                rest[0].share(&before[first].state);
            }
        }
    }
}

/// Runs the records of a lane, one after another.
async fn run_lane<T, E, F, Fut>(
    mut lane: Lane<'_, T>,
    effects: &[Option<EffectKeys>],
    runs: &Runs<'_>,
    deadline: Instant,
    handler: &F,
) where
    F: Fn(T, EffectKeys) -> Fut,
    Fut: Future<Output = Result<(), Failure<E>>>,
{
    for place in 0..lane.len() {
        let (before, rest) = lane.split_at_mut(place);
        let Some((n, record)) = rest.first_mut() else { return };
        if let State::Repeats(first) = record.state {
            if let Some((_, earlier)) = before.iter().find(|(n, _)| *n == first) {
                record.share(&earlier.state);
            }
            continue;
        }
        let Some(keys) = &effects[*n] else { continue };
        if is_held_back(record, before.iter().map(|(_, earlier)| &**earlier)) {
            record.state = State::Failed(Cause::HeldBack);
            runs.release(*n);
            continue;
        }
        // Nothing is begun after the deadline. What waits then is released with the rest.
        if Instant::now() >= deadline {
            return;
        }
        // Another owner may be running it.
        if !runs.may_begin(*n) {
            record.state = State::Failed(Cause::InProgress);
            runs.release(*n);
            continue;
        }
        let State::Waiting(Named { value, .. }) = std::mem::replace(&mut record.state, State::Running) else {
            continue;
        };
        let ended = AssertUnwindSafe(async { handler(value, keys.clone()).await }).catch_unwind().await;
        record.state = match ended {
            Ok(Ok(())) => {
                runs.record(*n, Batch::new(), &Outcome::ok(&()));
                State::Succeeded
            }
            Ok(Err(failure)) => {
                runs.release(*n);
                State::Failed(match failure {
                    Failure::Transient(_) => Cause::Transient,
                    Failure::Permanent(_) => Cause::Permanent,
                })
            }
            Err(_) => {
                runs.panicked(*n);
                State::Failed(Cause::Panicked)
            }
        };
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("idem", &self.idem)
            .field("concurrency", &self.concurrency)
            .field("tied_to_body", &self.tied_to_body)
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}
