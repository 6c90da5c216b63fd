//! The playground's own calls: what the page does besides being LINE's user.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use job_events::{Body, token};
use onetap_bus::Job;
use onetap_store::lease::unique_token;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::answer::{Refusal, json_answer, sse_answer};
use crate::clock::now_ms;
use crate::deliver::{Post, redelivered};
use crate::queue::DOMAIN;
use crate::runner::{Runner, USERS, Weather};
use crate::{guard, live};

/// A token of a job's stream opens it for so long.
const TOKEN_SECONDS: u64 = 3600;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Redeliver {
    user: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetWeather {
    delay_ms: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetStore {
    down: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Send {
    #[serde(default = "one")]
    jobs: usize,
    #[serde(default = "one")]
    copies: usize,
    #[serde(default)]
    shuffle: bool,
    job_id: Option<String>,
}

fn one() -> usize {
    1
}

/// Answers a call under `/playground/`. It hands out tokens, so that it answers this machine's own pages only.
pub(crate) async fn answer(
    runner: &Arc<Runner>,
    call: &str,
    request: Request<Bytes>,
) -> Result<Response<Body>, Refusal> {
    guard::own(request.headers(), runner.address)?;
    let allowed = match call {
        "config" | "live" => Method::GET,
        "weather" | "store" => Method::PUT,
        "deliver" | "redeliver" | "jobs" | "consumer/kill" => Method::POST,
        _ => return Err(Refusal::not_found()),
    };
    if request.method() != allowed {
        return Err(Refusal::not_allowed(allowed.as_str()));
    }
    let answer = match call {
        "config" => config(runner),
        "live" => {
            let (view, jobs) = (Arc::clone(&runner.view), Arc::clone(&runner.jobs));
            return Ok(sse_answer(live::body(view, jobs, runner.stopping.clone())));
        }
        "deliver" => deliver(runner, read(&request)?).await?,
        "redeliver" => redeliver(runner, &read::<Redeliver>(&request)?.user).await?,
        "weather" => set_weather(runner, &read(&request)?)?,
        "store" => set_store(runner, &read(&request)?),
        "jobs" => send(runner, &read(&request)?)?,
        _ => {
            runner.fuse.arm();
            json!({ "armed": true })
        }
    };
    Ok(json_answer(StatusCode::OK, &answer))
}

fn read<T: DeserializeOwned>(request: &Request<Bytes>) -> Result<T, Refusal> {
    serde_json::from_slice(request.body())
        .map_err(|error| Refusal::bad(format!("the body is wrong: {error}")))
}

fn config(runner: &Runner) -> Value {
    json!({
        "users": USERS,
        "edit_token": runner.edit_token.reveal(),
        "store": runner.kind,
        "last_transaction_ttl": runner.last_transaction.as_secs(),
        "lock_ttl_ms": runner.lock_ttl.map(|ttl| ttl.as_millis()),
        "version": env!("CARGO_PKG_VERSION"),
    })
}

async fn deliver(runner: &Arc<Runner>, post: Post) -> Result<Value, Refusal> {
    post.check()?;
    let deliveries: Vec<Vec<Value>> = (0..post.times).map(|_| post.events()).collect();
    if let Some(last) = deliveries.last() {
        runner.remember(&post.user, last);
    }
    let answers = if post.at_once {
        let all = deliveries.iter().map(|events| runner.post(events));
        futures_util::future::join_all(all).await
    } else {
        let mut answers = Vec::new();
        for events in &deliveries {
            answers.push(runner.post(events).await);
        }
        answers
    };
    Ok(json!({ "deliveries": answers }))
}

async fn redeliver(runner: &Arc<Runner>, user: &str) -> Result<Value, Refusal> {
    let Some(events) = runner.last_of(user) else {
        return Err(Refusal::new(StatusCode::CONFLICT, "nothing was delivered for this user yet"));
    };
    let answer = runner.post(&redelivered(events)).await;
    Ok(json!({ "deliveries": [answer] }))
}

fn set_weather(runner: &Runner, set: &SetWeather) -> Result<Value, Refusal> {
    let Weather::Sample(sample) = &runner.weather else {
        let why = "the weather is a real provider's: only the sample can be slowed down";
        return Err(Refusal::new(StatusCode::CONFLICT, why));
    };
    if set.delay_ms > 10_000 {
        return Err(Refusal::bad("delay_ms is not 0 to 10000"));
    }
    sample.set_delay(Duration::from_millis(set.delay_ms));
    Ok(json!(runner.view.set(|settings| settings.weather.delay_ms = set.delay_ms)))
}

fn set_store(runner: &Runner, set: &SetStore) -> Value {
    runner.switch.set_down(set.down);
    json!(runner.view.set(|settings| settings.store.down = set.down))
}

fn send(runner: &Runner, send: &Send) -> Result<Value, Refusal> {
    if !(1..=50).contains(&send.jobs) {
        return Err(Refusal::bad("jobs is not 1 to 50"));
    }
    if !(1..=5).contains(&send.copies) {
        return Err(Refusal::bad("copies is not 1 to 5"));
    }
    if send.job_id.is_some() && send.jobs > 1 {
        return Err(Refusal::bad("job_id names one job"));
    }
    let id = || send.job_id.clone().unwrap_or_else(|| format!("job-{}", &unique_token()[..8]));
    let jobs: Result<Vec<Job>, _> = (0..send.jobs).map(|_| Job::new(DOMAIN, id())).collect();
    let jobs = jobs.map_err(|malformed| Refusal::bad(malformed.to_string()))?;
    let full = |_| Refusal::new(StatusCode::TOO_MANY_REQUESTS, "the queue is full");
    let (events, sent) = runner.jobs.send(&jobs, send.copies, send.shuffle).map_err(full)?;
    let expiry = now_ms() / 1000 + TOKEN_SECONDS;
    let jobs: Vec<Value> = jobs
        .iter()
        .map(|job| {
            json!({ "job_id": job.id(), "token": token(&runner.job_secret, job, expiry), "events": events })
        })
        .collect();
    Ok(json!({ "domain": DOMAIN, "jobs": jobs, "sent": sent }))
}
