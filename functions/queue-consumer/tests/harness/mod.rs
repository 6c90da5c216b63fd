//! What the tests of the consumer share: batches, a plan of deliveries, workers to kill, and what must be true after it.
#![allow(dead_code, unreachable_pub, reason = "every test file uses its part")]

pub mod moto;
pub mod plan;
pub mod refusing;
pub mod subscriber;
pub mod witness;
pub mod worker;

use std::time::Duration;

use futures_util::future::join_all;
use onetap_sqs::{Queue, SqsBatchResponse, SqsEvent, poll};
use plan::Plan;
use tokio::time::{Instant, sleep, timeout};

/// Longer than any machine takes for any of these tests.
const PATIENCE: Duration = Duration::from_secs(300);

/// Time enough.
pub fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// A batch of these bodies from a standard queue; ids as SQS would give them.
pub async fn batch(bodies: impl IntoIterator<Item = String>) -> SqsEvent {
    let queue = Queue::new("jobs");
    bodies.into_iter().for_each(|body| queue.send(body));
    received(&queue).await
}

/// All that is due, as one batch.
pub async fn received(queue: &Queue) -> SqsEvent {
    let mut event = SqsEvent::default();
    event.records = queue.receive(10_000).await;
    event
}

/// Calls `functions` with what is on `queue` until the story is told and everything that can be published was; its dead
/// letters.
///
/// SQS counts receives, not reasons. How often a good message comes depends on how quick the machine is: here no count is
/// too high for it. Once only what is malformed is left, the queue gets its dead letters, and that is buried.
pub async fn consumed<F, Answer>(
    plan: &Plan,
    queue: &Queue,
    functions: &[F],
    story: impl Future<Output = ()>,
) -> Queue
where
    F: Fn(SqsEvent) -> Answer,
    Answer: Future<Output = Option<SqsBatchResponse>>,
{
    let published = async {
        story.await;
        while !plan.is_all_but_malformed_gone(queue) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        _ = join_all(functions.iter().map(|function| poll(queue, function))) => {}
        told = timeout(PATIENCE, published) => told.expect("it comes to an end"),
    }
    let dead = Queue::new("dead");
    let strict = queue.clone().with_dead_letters(&dead, 1);
    tokio::select! {
        _ = join_all(functions.iter().map(|function| poll(&strict, function))) => {}
        buried = timeout(PATIENCE, strict.emptied()) => buried.expect("what is malformed is buried"),
    }
    dead
}

/// Which of a batch failed, by their number.
pub fn failed(event: &SqsEvent, answer: &onetap_sqs::SqsBatchResponse) -> Vec<usize> {
    let id = |n: &usize| event.records[*n].message_id.clone().unwrap_or_default();
    let named: Vec<&str> = answer.batch_item_failures.iter().map(|f| f.item_identifier.as_str()).collect();
    (0..event.records.len()).filter(|n| named.contains(&id(n).as_str())).collect()
}

/// Numbers that look random and come again in the next run.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed | 1)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % limit
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for n in (1..items.len()).rev() {
            items.swap(n, self.below(n + 1));
        }
    }

    pub fn millis(&mut self, from: usize, to: usize) -> Duration {
        Duration::from_millis(u64::try_from(from + self.below(to - from)).unwrap())
    }
}
