//! The gate: every call out of a function goes through it, is counted there, and at one of them the process dies.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use onetap_store::{Batch, BoxStream, Channel, Commit, Error, Key, Log, Position, Record, Store, forward};
use onetap_weather::{Forecast, Forecasts, Place, Provider, ProviderConfig};
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
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

/// A store behind a gate.
#[derive(Debug)]
pub(super) struct GatedStore {
    store: Arc<dyn Store>,
    gate: Arc<Gate>,
}

impl GatedStore {
    /// `store` behind `gate`.
    pub(super) fn new(store: Arc<dyn Store>, gate: &Arc<Gate>) -> Arc<GatedStore> {
        Arc::new(GatedStore { store, gate: gate.clone() })
    }
}

#[async_trait]
impl Store for GatedStore {
    async fn get_all(&self, keys: &[Key]) -> Result<Vec<Option<String>>, Error> {
        self.gate.pass("get", self.store.get_all(keys)).await
    }

    async fn commit(&self, batch: &Batch) -> Result<Commit, Error> {
        self.gate.pass("commit", self.store.commit(batch)).await
    }

    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        let applied: Vec<Batch> = match self.gate.begin("commit_each", batches.len()) {
            None => return self.store.commit_each(batches).await,
            Some(Side::Before) => Vec::new(),
            Some(Side::After) => batches.to_vec(),
            Some(Side::Only(part)) => batches.get(part).into_iter().cloned().collect(),
            Some(Side::AllBut(part)) => {
                let others = batches.iter().enumerate().filter(|(n, _)| *n != part);
                others.map(|(_, batch)| batch.clone()).collect()
            }
        };
        if !applied.is_empty() {
            self.store.commit_each(&applied).await;
        }
        die()
    }

    async fn read(&self, log: &Log, after: Option<Position>, limit: usize) -> Result<Vec<Record>, Error> {
        self.gate.pass("read", self.store.read(log, after, limit)).await
    }

    async fn watch(&self, channel: &Channel) -> Result<BoxStream<'static, Result<(), Error>>, Error> {
        self.gate.pass("watch", self.store.watch(channel)).await
    }

    forward!(store: connect, max_value);
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
pub(super) async fn gated_api(url: &str, gate: &Arc<Gate>) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (api, gate, client) = (url.to_owned(), gate.clone(), onetap_http::Client::new());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (api, gate, client) = (api.clone(), gate.clone(), client.clone());
            let service = service_fn(move |request| {
                let (api, gate, client) = (api.clone(), gate.clone(), client.clone());
                async move { Ok::<_, Infallible>(forward(&api, &gate, &client, request).await) }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    format!("http://{addr}")
}

async fn forward(
    api: &str,
    gate: &Gate,
    client: &onetap_http::Client,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    let (mut head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    head.uri = format!("{api}{path}").parse::<Uri>().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    let call = client.send(Request::from_parts(head, body), deadline, 1 << 20);
    gate.pass("reply", call).await.unwrap().map(Full::new)
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
