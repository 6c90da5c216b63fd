//! Fault injection: a wrapper around a store that loses, delays, holds and counts calls.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::{Batch, Commit, Error, Key, Log, Position, Record, Store, forward};

/// The fault of one call.
#[derive(Clone, Debug)]
pub enum Fault {
    /// No fault.
    Pass,
    /// The call does not reach the store.
    NotSent,
    /// The call does not reach the store, and its sender cannot tell.
    RequestLost,
    /// The store executes the call, and the reply is lost.
    ReplyLost,
    /// The call reaches the store after this delay.
    SentLate(Duration),
    /// The store executes the call, and the reply arrives after this delay.
    AnsweredLate(Duration),
    /// The call waits at the gate before it is sent.
    HeldBefore(Gate),
    /// The store executes the call, and the reply waits at the gate.
    HeldAfter(Gate),
}

/// A call waits here until the test lets it continue.
#[derive(Clone, Debug)]
pub struct Gate(Arc<(Semaphore, Semaphore)>);

impl Default for Gate {
    fn default() -> Gate {
        Gate(Arc::new((Semaphore::new(0), Semaphore::new(0))))
    }
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Gate {
        Gate::default()
    }

    /// Returns when a call has arrived at the gate.
    pub async fn reached(&self) {
        // This cannot fail: the semaphores are never closed.
        if let Ok(permit) = self.0.0.acquire().await {
            permit.forget();
        }
    }

    /// Lets one call pass: the one that waits, or the next.
    pub fn open(&self) {
        self.0.1.add_permits(1);
    }

    /// Arrives at the gate, and waits until it is opened.
    pub async fn pass(&self) {
        self.0.0.add_permits(1);
        if let Ok(permit) = self.0.1.acquire().await {
            permit.forget();
        }
    }
}

type Plan = dyn Fn(usize) -> Fault + Send + Sync;

/// A store whose calls are numbered from 1 and have the fault that a plan gives for their number. `watch` has no number
/// and no fault.
pub struct Faulty {
    store: Arc<dyn Store>,
    plan: Box<Plan>,
    calls: AtomicUsize,
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty").field("calls", &self.calls).finish_non_exhaustive()
    }
}

impl Faulty {
    /// `store`, with a fault for each call.
    pub fn new(store: Arc<dyn Store>, plan: impl Fn(usize) -> Fault + Send + Sync + 'static) -> Arc<Faulty> {
        Arc::new(Faulty { store, plan: Box::new(plan), calls: AtomicUsize::new(0) })
    }

    /// `store`, with these faults for its first calls, and none for the others.
    pub fn first(store: Arc<dyn Store>, faults: Vec<Fault>) -> Arc<Faulty> {
        Faulty::new(store, move |call| faults.get(call - 1).cloned().unwrap_or(Fault::Pass))
    }

    /// `store` without faults, to count its calls.
    pub fn counting(store: Arc<dyn Store>) -> Arc<Faulty> {
        Faulty::new(store, |_| Fault::Pass)
    }

    /// How many calls were made: on Redis and Upstash each is one round trip.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    async fn inject<T>(&self, call: impl Future<Output = T>) -> Result<T, Error> {
        match (self.plan)(self.calls.fetch_add(1, Ordering::SeqCst) + 1) {
            Fault::Pass => Ok(call.await),
            Fault::NotSent => Err(Error::not_sent("lost on its way, on purpose")),
            Fault::RequestLost => Err(Error::unknown("request lost, on purpose")),
            Fault::ReplyLost => {
                call.await;
                Err(Error::unknown("answer lost, on purpose"))
            }
            Fault::SentLate(late) => {
                sleep(late).await;
                Ok(call.await)
            }
            Fault::AnsweredLate(late) => {
                let answer = call.await;
                sleep(late).await;
                Ok(answer)
            }
            Fault::HeldBefore(gate) => {
                gate.pass().await;
                Ok(call.await)
            }
            Fault::HeldAfter(gate) => {
                let answer = call.await;
                gate.pass().await;
                Ok(answer)
            }
        }
    }
}

#[async_trait]
impl Store for Faulty {
    async fn get_all(&self, keys: &[Key]) -> Result<Vec<Option<String>>, Error> {
        self.inject(self.store.get_all(keys)).await?
    }

    async fn commit(&self, batch: &Batch) -> Result<Commit, Error> {
        self.inject(self.store.commit(batch)).await?
    }

    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        let answers = self.inject(self.store.commit_each(batches)).await;
        answers.unwrap_or_else(|error| batches.iter().map(|_| Err(error.clone())).collect())
    }

    async fn read(&self, log: &Log, after: Option<Position>, limit: usize) -> Result<Vec<Record>, Error> {
        self.inject(self.store.read(log, after, limit)).await?
    }

    forward!(store: watch, connect, max_value);
}
