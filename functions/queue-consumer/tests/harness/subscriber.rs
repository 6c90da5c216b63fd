//! A client of the gateway that keeps losing its connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::BodyExt;
use job_events::{Config, JobEvents, token};
use onetap_bus::Job;
use onetap_config::Secret;
use onetap_store::{Position, Store};
use tokio::time::{Instant, sleep, timeout_at};

use super::Dice;

const SECRET: &str = "the gateway's";

pub fn gateway(store: Arc<dyn Store>) -> JobEvents {
    let config = Config {
        secrets: vec![Secret::new(SECRET)],
        allow_origin: "*".parse().unwrap(),
        max: Duration::from_secs(2),
        keepalive: Duration::from_millis(100),
        grace: Duration::from_millis(20),
        stages: onetap_bus::Stages::default(),
    };
    JobEvents::new(store, config)
}

/// Follows `job` until all is over and the gateway says that it has seen it whole, disconnecting at random and resuming
/// with `Last-Event-ID`; every event it was told, in that order.
pub async fn follow(
    gateway: &JobEvents,
    job: &Job,
    last_seq: Option<u64>,
    over: &AtomicBool,
    dice: &mut Dice,
) -> Vec<(Position, String)> {
    let mut told: Vec<(Position, String)> = Vec::new();
    loop {
        let was_over = over.load(Ordering::SeqCst);
        let token = token(&Secret::new(SECRET), job, 32_503_680_000);
        let mut uri = format!("/jobs/{}/events?domain={}&token={token}", job.id(), job.domain());
        if let Some(last_seq) = last_seq {
            uri.push_str(&format!("&last_seq={last_seq}"));
        }
        let mut request = Request::get(uri);
        if let Some((position, _)) = told.last() {
            request = request.header("last-event-id", position.to_string());
        }
        let response = gateway.handle(request.body(()).unwrap()).await;
        match response.status() {
            // An `EventSource` would stop here; this one knows that more may come.
            StatusCode::NO_CONTENT if was_over => return told,
            StatusCode::NO_CONTENT => sleep(Duration::from_millis(20)).await,
            StatusCode::OK => {
                let patience = Instant::now() + dice.millis(1, 300);
                let most = 1 + dice.below(6);
                listen(response.into_body(), patience, most, &mut told).await;
                // Not at once: the stream may have had no more to say than when to come back.
                sleep(Duration::from_millis(5)).await;
            }
            status => panic!("{status}"),
        }
    }
}

async fn listen(mut body: job_events::Body, until: Instant, most: usize, told: &mut Vec<(Position, String)>) {
    let mut text = String::new();
    let most = told.len() + most;
    while told.len() < most {
        while let Some((event, rest)) = text.split_once("\n\n") {
            let id = event.lines().find_map(|line| line.strip_prefix("id: "));
            let data = event.lines().find_map(|line| line.strip_prefix("data: "));
            assert!(!event.contains("event: gap"), "nothing is trimmed here");
            if let (Some(id), Some(data)) = (id, data) {
                told.push((id.parse().unwrap(), data.to_owned()));
            }
            text = rest.to_owned();
        }
        match timeout_at(until, body.frame()).await {
            Ok(Some(frame)) => {
                text.push_str(std::str::from_utf8(frame.unwrap().data_ref().unwrap()).unwrap())
            }
            Ok(None) | Err(_) => return,
        }
    }
}
