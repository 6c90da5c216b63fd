//! Ready-made scripts: calls that are lost, late, or held.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::{Answer, Call};
use crate::Error;

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

impl Fault {
    /// The answer to `call` under this fault.
    pub async fn inject(self, call: Call) -> Answer {
        match self {
            Fault::Pass => call.send().await,
            Fault::NotSent => call.fail(&Error::not_sent("lost on its way, on purpose")),
            Fault::RequestLost => call.fail(&Error::unknown("request lost, on purpose")),
            Fault::ReplyLost => {
                call.send().await;
                call.fail(&Error::unknown("answer lost, on purpose"))
            }
            Fault::SentLate(late) => {
                sleep(late).await;
                call.send().await
            }
            Fault::AnsweredLate(late) => {
                let answer = call.send().await;
                sleep(late).await;
                answer
            }
            Fault::HeldBefore(gate) => {
                gate.pass().await;
                call.send().await
            }
            Fault::HeldAfter(gate) => {
                let answer = call.send().await;
                gate.pass().await;
                answer
            }
        }
    }
}
