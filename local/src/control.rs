//! The playground's own API: what the page does besides sending LINE messages.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use job_events::{Body, token};
use onetap_bus::{Job, Stage};
use onetap_store::lease::unique_token;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::clock::now_ms;
use crate::deliver::{DeliverCall, redelivered};
use crate::queue::DOMAIN;
use crate::response::{Refusal, json_response, sse_response};
use crate::runner::{Runner, USERS};
use crate::weather::Behaviour;
use crate::{live, origin};

/// Lifetime of the tokens for jobs' streams.
const TOKEN_TTL_SECONDS: u64 = 3600;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RedeliverCall {
    user: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WeatherCall {
    delay_ms: Option<u64>,
    provider: Option<Behaviour>,
    fallback: Option<Behaviour>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoreCall {
    down: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JobsCall {
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

/// Answers a call under `/playground/`. Some calls hand out tokens, so they are for the runner's own page only.
pub(crate) async fn answer(
    runner: &Arc<Runner>,
    call: &str,
    request: Request<Bytes>,
) -> Result<Response<Body>, Refusal> {
    origin::check(request.headers(), runner.address)?;
    let allowed = match call {
        "config" | "live" => Method::GET,
        "weather" | "store" => Method::PUT,
        "deliver" | "redeliver" | "jobs" | "consumer/kill" | "weather/forget" | "weather/outdate" => {
            Method::POST
        }
        _ => return Err(Refusal::not_found()),
    };
    if request.method() != allowed {
        return Err(Refusal::not_allowed(allowed.as_str()));
    }
    let result = match call {
        "config" => config(runner),
        "live" => {
            let (view, queue) = (Arc::clone(&runner.view), Arc::clone(&runner.queue));
            return Ok(sse_response(live::body(view, queue, runner.shutdown.clone())));
        }
        "deliver" => deliver(runner, read(&request)?).await?,
        "redeliver" => redeliver(runner, &read::<RedeliverCall>(&request)?.user).await?,
        "weather" => set_weather(runner, &read(&request)?)?,
        "weather/forget" => forget_weather(runner).await,
        "weather/outdate" => {
            runner.weather.outdate(&*runner.store).await;
            json!({ "outdated": true })
        }
        "store" => set_store(runner, &read(&request)?),
        "jobs" => send_jobs(runner, &read(&request)?)?,
        _ => {
            runner.consumer_store.arm();
            json!({ "armed": true })
        }
    };
    Ok(json_response(StatusCode::OK, &result))
}

fn read<T: DeserializeOwned>(request: &Request<Bytes>) -> Result<T, Refusal> {
    serde_json::from_slice(request.body())
        .map_err(|error| Refusal::bad(format!("the body is wrong: {error}")))
}

fn config(runner: &Runner) -> Value {
    json!({
        "users": USERS,
        "own_bot": runner.has_own_bot,
        "edit_token": runner.edit_token.reveal(),
        "store": runner.backend,
        "last_transaction_ttl": runner.last_transaction_ttl.as_secs(),
        "lock_ttl_ms": runner.lock_ttl.map(|ttl| ttl.as_millis()),
        "stages": runner.queue.plan().stages().iter().map(stage).collect::<Vec<_>>(),
        "version": env!("CARGO_PKG_VERSION"),
    })
}

/// A stage as it stands in `EVENT_STAGES`.
fn stage(stage: &Stage) -> Value {
    let seqs = stage.seqs();
    json!({
        "stage": stage.name(),
        "first": seqs.start(),
        "last": seqs.end(),
        "state": stage.sets_state(),
        "ends": stage.ends(),
    })
}

async fn deliver(runner: &Arc<Runner>, call: DeliverCall) -> Result<Value, Refusal> {
    call.check()?;
    let deliveries: Vec<Vec<Value>> = (0..call.times).map(|_| call.events()).collect();
    if let Some(last) = deliveries.last() {
        runner.remember(&call.user, last);
    }
    let delivered = if call.at_once {
        let all = deliveries.iter().map(|events| runner.post(events));
        futures_util::future::join_all(all).await
    } else {
        let mut delivered = Vec::new();
        for events in &deliveries {
            delivered.push(runner.post(events).await);
        }
        delivered
    };
    Ok(json!({ "deliveries": delivered }))
}

async fn redeliver(runner: &Arc<Runner>, user: &str) -> Result<Value, Refusal> {
    let Some(events) = runner.last_of(user) else {
        return Err(Refusal::new(StatusCode::CONFLICT, "nothing was delivered for this user yet"));
    };
    let delivered = runner.post(&redelivered(events)).await;
    Ok(json!({ "deliveries": [delivered] }))
}

fn set_weather(runner: &Runner, call: &WeatherCall) -> Result<Value, Refusal> {
    let WeatherCall { delay_ms, provider, fallback } = *call;
    if delay_ms.is_none() && provider.is_none() && fallback.is_none() {
        return Err(Refusal::bad("none of delay_ms, provider and fallback is given"));
    }
    if delay_ms.is_some_and(|ms| ms > 10_000) {
        return Err(Refusal::bad("delay_ms is not 0 to 10000"));
    }
    let weather = &runner.weather;
    if fallback.is_some() && !weather.has_fallback() {
        let why = "there is no fallback: WEATHER_FALLBACK_PROVIDER is unset, and the provider is a real one";
        return Err(Refusal::new(StatusCode::CONFLICT, why));
    }
    delay_ms.into_iter().for_each(|ms| weather.set_delay(Duration::from_millis(ms)));
    provider.into_iter().for_each(|behaviour| weather.set_provider(behaviour));
    fallback.into_iter().for_each(|behaviour| weather.set_fallback(behaviour));
    Ok(json!(runner.show_weather()))
}

async fn forget_weather(runner: &Runner) -> Value {
    let deleted = runner.weather.forget(&*runner.store).await;
    runner.show_weather();
    json!({ "deleted": deleted })
}

fn set_store(runner: &Runner, call: &StoreCall) -> Value {
    runner.store.set_down(call.down);
    json!(runner.view.set(|settings| settings.store.down = call.down))
}

fn send_jobs(runner: &Runner, call: &JobsCall) -> Result<Value, Refusal> {
    if !(1..=50).contains(&call.jobs) {
        return Err(Refusal::bad("jobs is not 1 to 50"));
    }
    if !(1..=5).contains(&call.copies) {
        return Err(Refusal::bad("copies is not 1 to 5"));
    }
    if call.job_id.is_some() && call.jobs > 1 {
        return Err(Refusal::bad("job_id names one job"));
    }
    let id = || call.job_id.clone().unwrap_or_else(|| format!("job-{}", &unique_token()[..8]));
    let jobs: Result<Vec<Job>, _> = (0..call.jobs).map(|_| Job::new(DOMAIN, id())).collect();
    let jobs = jobs.map_err(|malformed| Refusal::bad(malformed.to_string()))?;
    let full = |_| Refusal::new(StatusCode::TOO_MANY_REQUESTS, "the queue is full");
    let (events, sent) = runner.queue.send(&jobs, call.copies, call.shuffle).map_err(full)?;
    let expiry = now_ms() / 1000 + TOKEN_TTL_SECONDS;
    let final_state = runner.queue.plan().final_state();
    let jobs: Vec<Value> = jobs
        .iter()
        .map(|job| {
            json!({
                "job_id": job.id(),
                "token": token(&runner.job_secret, job, expiry),
                "events": events,
                "final_state": final_state,
            })
        })
        .collect();
    Ok(json!({ "domain": DOMAIN, "jobs": jobs, "sent": sent }))
}
