//! Clients of the gateway, which come at different times and lose their connections.

use std::time::Duration;

use job_events::token;
use onetap_bus::Job;
use onetap_config::Secret;
use onetap_local::client::Client;
use onetap_local::event_source::EventSource;
use onetap_store::testing::random::Random;
use onetap_tests::functions::JOB_SECRET;
use tokio::time::{sleep, timeout};

/// How often a client breaks its own connection at most. On a slow machine opening a connection may take longer than the
/// time after which the client breaks it.
const MAX_DISCONNECTS: usize = 6;

const FAR_FUTURE: u64 = 32_503_680_000;

/// What one client has seen.
#[derive(Debug, Default)]
pub struct Seen {
    /// Id and data of each event, in order.
    pub events: Vec<(String, String)>,
    /// What should never come: an event with a name of its own, or a status that ends the stream with an error.
    pub unexpected: Vec<String>,
}

/// The time between two things.
pub fn millis(random: &mut Random, from: usize, to: usize) -> Duration {
    Duration::from_millis((from + random.below(to - from)) as u64)
}

/// Follows `job` from `joins` on until the gateway says that it is over.
pub async fn follow(browser: Client, job: Job, joins: Duration, mut random: Random) -> Seen {
    sleep(joins).await;
    let token = token(&Secret::new(JOB_SECRET), &job, FAR_FUTURE);
    let path = format!("/jobs/{}/events?domain={}&token={token}", job.id(), job.domain());
    let mut source = EventSource::new(browser, path);
    let (mut seen, mut disconnects) = (Seen::default(), random.below(MAX_DISCONNECTS));
    loop {
        let next = if disconnects > 0 {
            timeout(millis(&mut random, 20, 1500), source.next()).await
        } else {
            Ok(source.next().await)
        };
        match next {
            Ok(Ok(Some(event))) if event.name == "message" => {
                seen.events.push((event.id.unwrap_or_default(), event.data));
            }
            Ok(Ok(Some(event))) => seen.unexpected.push(event.name),
            Ok(Ok(None)) => break,
            Ok(Err(error)) => {
                seen.unexpected.push(error.to_string());
                break;
            }
            Err(_) => {
                disconnects -= 1;
                source.disconnect();
            }
        }
    }
    seen
}
