//! What the consumer says about its work says nothing about people. A program of its own: a subscriber of one thread
//! misses the lines whose call site another thread reached first.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod harness;
#[path = "../../../shared/bus/tests/support/mod.rs"]
mod support;

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use harness::{batch, later};
use onetap_bus::Job;
use onetap_store::Observed;
use onetap_store::testing::{Fault, TestStore};
use onetap_telemetry::Recorder;
use queue_consumer::QueueConsumer;
use support::{World, event_text};
use tokio::time::Instant;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn no_log_line_or_metric_names_a_job_or_quotes_an_event() {
    let recorder = Recorder::default();
    let _metrics = recorder.on_this_thread();
    let lines = Lines::default();
    let writer = {
        let lines = lines.clone();
        move || lines.clone()
    };
    let subscriber =
        tracing_subscriber::fmt().json().with_max_level(tracing_subscriber::filter::LevelFilter::TRACE);
    let guard =
        tracing_subscriber::util::SubscriberInitExt::set_default(subscriber.with_writer(writer).finish());

    let world = World::memory().await;
    let job = Job::new("scan", "somebody").unwrap();
    let text = |stage: &str, seq| event_text(&job, stage, seq, r#"{"diagnosis":"private"}"#);
    let bodies = [
        text("vision", 10),
        text("vision", 10),
        text("queued", 1),
        text("started", 1),
        text("rule", 99),
        text("vision", 11).replace("2025", "private"),
        text("vision", 12).replace("somebody", "{somebody}"),
        "somebody's private words".to_owned(),
    ];
    let plan = |call| if call == 1 { Fault::NotSent } else { Fault::Pass };
    let store = Arc::new(Observed::new(TestStore::faulty(world.store.clone(), plan)));
    let consumer = QueueConsumer::new(store, world.config.clone());
    for deadline in [later(), later(), Instant::now()] {
        let answer = consumer.handle(batch(bodies.clone()).await, deadline).await;
        assert!(answer.batch_item_failures.len() >= 5);
    }
    drop(guard);

    let said = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap() + &recorder.prometheus();
    for outcome in ["published", "duplicate", "malformed", "store_error", "out_of_time"] {
        assert!(said.contains(outcome), "{outcome} is said");
    }
    for word in ["somebody", "private", "diagnosis"] {
        assert!(!said.contains(word), "{word} in {said}");
    }
}
