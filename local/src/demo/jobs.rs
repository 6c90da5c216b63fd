//! The chapter about the queue.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::table::Row;
use super::{Story, settle};
use crate::client::CallError;

/// How often each message is sent.
const COPIES: usize = 3;
/// Events after which the reader's connection breaks.
const EVENTS_BEFORE_BREAK: usize = 3;

impl Story {
    /// A job whose messages are sent three times each in random order, with a consumer that dies in the middle of a
    /// batch and a reader whose connection breaks.
    pub(super) async fn job(&self) -> Result<Vec<Row>, CallError> {
        let before = self.queue().await?;
        self.client.json(Method::POST, "/playground/consumer/kill", &json!({})).await?;
        let asked = json!({ "jobs": 1, "copies": COPIES, "shuffle": true });
        let sent = self.client.json(Method::POST, "/playground/jobs", &asked).await?;
        let job = &sent["jobs"][0];
        let text = |name: &str| job[name].as_str().unwrap_or_default();
        let query = format!("domain=scan&token={}", text("token"));
        let events = usize::try_from(job["events"].as_u64().unwrap_or_default()).unwrap_or_default();

        let (seen, connections) = self.follow(&format!("/jobs/{}/events?{query}", text("job_id"))).await?;
        let after = self.emptied().await?;
        let grown = |name: &str| {
            let number = |counts: &Value| counts[name].as_u64().unwrap_or_default();
            usize::try_from(number(&after) - number(&before)).unwrap_or_default()
        };
        let mut distinct = seen.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let queue = Row::counted(
            format!("{events} events sent {COPIES} times each, shuffled, consumer killed"),
            grown("delivered"),
            &[
                ("sent", grown("sent")),
                ("kill", grown("kills")),
                ("effects", grown("effects")),
                ("lost to dead letters", grown("dead")),
            ],
            &[("sent", events * COPIES), ("kill", 1), ("effects", events), ("lost to dead letters", 0)],
        );
        let reader = Row::counted(
            "a reader who connects again",
            connections,
            &[("events seen", distinct.len()), ("seen twice", seen.len() - distinct.len())],
            &[("events seen", events), ("seen twice", 0)],
        );
        let mut rows = vec![queue, reader];
        // Without a stage that sets it there is no state.
        if !job["final_state"].is_null() {
            let state = format!("/jobs/{}?{query}", text("job_id"));
            let state = self.client.json(Method::GET, &state, &Value::Null).await?;
            let last = usize::from(state["seq"] == job["final_state"]);
            rows.push(Row::counted(
                "the job's state, asked for",
                1,
                &[("final state", last)],
                &[("final state", 1)],
            ));
        }
        Ok(rows)
    }

    async fn queue(&self) -> Result<Value, CallError> {
        Ok(self.snapshot().await?["queue"].take())
    }

    /// Waits until the queue is empty (the last copies come after the event that ends the stream). Returns its counts.
    async fn emptied(&self) -> Result<Value, CallError> {
        for _ in 0..60 {
            let now = self.queue().await?;
            if now["waiting"] == 0 && now["in_flight"] == 0 {
                return Ok(now);
            }
            settle().await;
        }
        Err(CallError("the queue does not empty".to_owned()))
    }

    /// Reads a job's stream to its end as `EventSource` does, with a connection that breaks. Returns the sequence
    /// numbers that it saw, and how often it connected.
    async fn follow(&self, path: &str) -> Result<(Vec<u64>, usize), CallError> {
        let (mut seen, mut connections, mut last) = (Vec::new(), 0, String::new());
        loop {
            let mut events = match self.client.events(path, &[("last-event-id", last.as_str())]).await? {
                Ok(events) => events,
                Err(StatusCode::NO_CONTENT) => return Ok((seen, connections)),
                Err(status) => return Err(CallError(format!("the stream answered {status}"))),
            };
            connections += 1;
            while let Some(event) = events.next().await? {
                let json: Value = serde_json::from_str(&event.data).unwrap_or_default();
                seen.push(json["seq"].as_u64().ok_or_else(|| CallError(format!("`{}` came", event.name)))?);
                last = event.id.unwrap_or(last);
                if connections == 1 && seen.len() == EVENTS_BEFORE_BREAK {
                    break;
                }
            }
            if connections > 20 {
                return Err(CallError("the stream does not end".to_owned()));
            }
        }
    }
}
