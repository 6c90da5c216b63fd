//! What is counted, on the thread of the test.

use crate::harness::{batch, later};
use crate::support::{World, event_text};
use onetap_telemetry::Recorder;
use queue_consumer::QueueConsumer;
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn every_outcome_is_counted_and_named() {
    let recorder = Recorder::default();
    let _guard = recorder.on_this_thread();
    let world = World::memory().await;
    let consumer = QueueConsumer::new(world.store.clone(), world.config.clone());
    let text = |seq| event_text(&world.job("a"), "vision", seq, "{}");
    let bodies = [10, 10, 10, 11].map(text).into_iter().chain(["bad".to_owned()]);
    consumer.handle(batch(bodies).await, later()).await;
    consumer.handle(batch([12, 13, 14].map(text)).await, Instant::now()).await;
    let metrics = recorder.prometheus();
    let counted: Vec<&str> = metrics.lines().filter(|line| line.starts_with("events_total{")).collect();
    let expected = [("duplicate", 2), ("malformed", 1), ("out_of_time", 3), ("published", 2)];
    assert_eq!(counted, expected.map(|(outcome, n)| format!("events_total{{outcome=\"{outcome}\"}} {n}")));
}
