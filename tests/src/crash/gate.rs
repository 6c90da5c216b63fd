//! The gate: every call out of a function goes through it, is counted there, and at one of them the process dies.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::Full;
use onetap_servers::HttpStub;
use onetap_store::testing::{self, Answer, Request as Asked, TestStore};
use onetap_store::{Batch, Store};
use onetap_weather::{Forecast, Forecasts, Place, Provider, ProviderConfig};
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// A call that was made, in the order in which the calls began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// What was called.
    pub what: String,
    /// How many independent parts it has: each may take effect without the others.
    pub parts: usize,
}

/// How far a call gets before the process is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// It is not sent.
    Before,
    /// It has taken effect, and its answer is not seen.
    After,
    /// Of its parts only this one, counted from 0, has taken effect.
    Only(usize),
    /// All its parts but this one have.
    AllBut(usize),
}

/// Where the process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// At which call, counted from 0.
    pub call: usize,
    /// How far that call gets.
    pub side: Side,
}

impl Point {
    /// Every point at which a run that makes these calls can die.
    pub fn all(calls: &[Call]) -> Vec<Point> {
        let mut points = Vec::new();
        for (call, Call { parts, .. }) in calls.iter().enumerate() {
            let mut sides = vec![Side::Before, Side::After];
            if *parts > 1 {
                sides.extend((0..*parts).map(Side::Only));
            }
            // Of two parts, all but one is only the other.
            if *parts > 2 {
                sides.extend((0..*parts).map(Side::AllBut));
            }
            points.extend(sides.into_iter().map(|side| Point { call, side }));
        }
        points
    }
}

/// Counts the calls of a run, and ends the process at a point of it.
pub(super) struct Gate {
    point: Option<Point>,
    calls: Mutex<Vec<Call>>,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("point", &self.point).finish_non_exhaustive()
    }
}

impl Gate {
    /// A gate that is deadly at `point`, or nowhere.
    pub(super) fn new(point: Option<Point>) -> Arc<Gate> {
        Arc::new(Gate { point, calls: Mutex::default() })
    }

    /// The calls that have begun so far.
    pub(super) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// Counts a call; how far it gets, if it is the one.
    fn begin(&self, what: &str, parts: usize) -> Option<Side> {
        let mut calls = self.calls.lock().unwrap();
        calls.push(Call { what: what.to_owned(), parts });
        self.point.filter(|point| point.call + 1 == calls.len()).map(|point| point.side)
    }

    /// A call that has no parts.
    async fn pass<T>(&self, what: &str, call: impl Future<Output = T>) -> T {
        let side = self.begin(what, 1);
        if side == Some(Side::Before) {
            die();
        }
        let answer = call.await;
        if side.is_some() {
            die();
        }
        answer
    }
}

/// What a machine's end looks like from outside: no destructor runs, no connection is closed in good order.
fn die() -> ! {
    let _ = kill_process(getpid(), Signal::KILL);
    std::process::abort()
}

/// `store` behind `gate`.
pub(super) fn gated_store(store: Arc<dyn Store>, gate: &Arc<Gate>) -> Arc<dyn Store> {
    let gate = gate.clone();
    TestStore::scripted(store, move |call| pass(gate.clone(), call))
}

async fn pass(gate: Arc<Gate>, call: testing::Call) -> Answer {
    let batches = match &call.request {
        Asked::GetAll(_) => return gate.pass("get", call.send()).await,
        Asked::Commit(_) => return gate.pass("commit", call.send()).await,
        Asked::Read { .. } => return gate.pass("read", call.send()).await,
        Asked::Watch(_) => return gate.pass("watch", call.send()).await,
        Asked::Connect => return call.send().await,
        Asked::CommitEach(batches) => batches,
    };
    let is_applied: Box<dyn Fn(usize) -> bool + Send> = match gate.begin("commit_each", batches.len()) {
        None => return call.send().await,
        Some(Side::Before) => Box::new(|_| false),
        Some(Side::After) => Box::new(|_| true),
        Some(Side::Only(part)) => Box::new(move |n| n == part),
        Some(Side::AllBut(part)) => Box::new(move |n| n != part),
    };
    let applied = batches.iter().enumerate().filter(|(n, _)| is_applied(*n));
    let applied: Vec<Batch> = applied.map(|(_, batch)| batch.clone()).collect();
    if !applied.is_empty() {
        call.store.commit_each(&applied).await;
    }
    die()
}

/// A weather service behind a gate.
#[derive(Debug)]
struct GatedWeather {
    weather: Arc<dyn Provider>,
    gate: Arc<Gate>,
}

/// The forecasts of `config`, with each provider behind `gate`.
pub(super) fn gated_weather(
    config: &onetap_weather::Config,
    http: &onetap_http::Client,
    gate: &Arc<Gate>,
) -> Arc<Forecasts> {
    let gated = |provider: &ProviderConfig| {
        Arc::new(GatedWeather { weather: provider.open(http), gate: gate.clone() }) as Arc<dyn Provider>
    };
    let fallback = config.fallback.as_ref().map(gated);
    Arc::new(Forecasts::new(gated(&config.provider), fallback, config.keep))
}

#[async_trait]
impl Provider for GatedWeather {
    fn name(&self) -> &'static str {
        self.weather.name()
    }

    async fn forecast(&self, place: &Place, by: Instant) -> Result<Forecast, onetap_weather::Error> {
        self.gate.pass("weather", self.weather.forecast(place, by)).await
    }
}

/// Puts `gate` in front of the API at `url`, inside this process: the address to use instead. Dying here is dying
/// before a byte was sent, or after the other side has taken all of them.
pub(super) fn gated_api(url: &str, gate: &Arc<Gate>) -> String {
    let (api, gate, client) = (url.to_owned(), gate.clone(), onetap_http::Client::new());
    let stub = HttpStub::serving(move |request: Request<Bytes>| {
        let (gate, client) = (gate.clone(), client.clone());
        let (mut head, body) = request.into_parts();
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        head.uri = format!("{api}{path}").parse::<Uri>().unwrap();
        async move {
            let deadline = Instant::now() + Duration::from_secs(10);
            let call = client.send(Request::from_parts(head, body), deadline, 1 << 20);
            gate.pass("reply", call).await.unwrap().map(Full::new)
        }
    });
    // It serves until the process ends.
    Box::leak(Box::new(stub)).url()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_several_parts_can_be_cut_off_between_any_of_them() {
        let call = |parts| Call { what: "commit_each".to_owned(), parts };
        let sides = |parts| Point::all(&[call(parts)]).iter().map(|point| point.side).collect::<Vec<_>>();
        assert_eq!(sides(1), [Side::Before, Side::After]);
        assert_eq!(sides(2), [Side::Before, Side::After, Side::Only(0), Side::Only(1)]);
        assert_eq!(sides(3).len(), 8, "nothing, all, each alone, and all but each");
        assert_eq!(Point::all(&[call(1), call(1)])[2], Point { call: 1, side: Side::Before });
    }
}
