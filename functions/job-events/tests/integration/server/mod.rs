//! The gateway on a port of its own, with what a client must outlive: refusals, cut connections, a store that is down.
//! Its clients steer it by `POST /control`.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::stream;
use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_TYPE};
use http::{HeaderValue, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use job_events::{Config, JobEvents, token};
use onetap_bus::{Bus, Job};
use onetap_config::Secret;
use onetap_servers::HttpStub;
use onetap_store::testing::{Fault, TestStore};
use onetap_store::{Batch, Commit};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::client::{SECRET, config};
use crate::support::{self, World};

/// What a page or a program loads from here.
const FILES: [(&str, &str, &str); 3] = [
    ("/", "text/html", "<!doctype html><link rel=icon href=data:><title>A page</title>"),
    ("/job-events.js", "text/javascript", include_str!("../../../../../docs/job-events.js")),
    ("/scenarios.mjs", "text/javascript", include_str!("../../follower/scenarios.mjs")),
];

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The server, until it is dropped.
pub(crate) struct Server {
    pub(crate) port: u16,
    _server: Box<dyn Any + Send>,
}

struct State {
    world: World,
    job: Job,
    gateway: JobEvents,
    store_is_down: Arc<AtomicBool>,
    /// The statuses of the next requests for the stream, instead of the gateway's.
    refusals: Mutex<VecDeque<u16>>,
    /// Requests for the stream, also those that are not answered yet.
    arrived: AtomicUsize,
    /// When the stream was asked for, in milliseconds, and the status of the answer.
    requests: Mutex<Vec<Value>>,
    /// A change cuts the open streams.
    cuts: watch::Sender<u64>,
}

/// What `POST /control` does, in this order; its answer has a token, the requests so far and the
/// number of open streams.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Control {
    /// The lifetime of the token in the answer, in seconds.
    token_ttl: u64,
    refuse: Vec<u16>,
    /// The open streams break, before they can tell what is published here.
    cut: bool,
    /// The job's log is lost.
    forget: bool,
    down: Option<bool>,
    /// Stages and sequence numbers.
    publish: Vec<(String, u64)>,
}

impl Server {
    /// A gateway whose streams last this long at most, and this long after a job's last event.
    pub(crate) async fn start(max: Duration, grace: Duration) -> Server {
        let world = World::memory().await;
        let store_is_down = Arc::new(AtomicBool::new(false));
        let down = Arc::clone(&store_is_down);
        let store = TestStore::faulty(world.store.clone(), move |_| {
            if down.load(Ordering::SeqCst) { Fault::NotSent } else { Fault::Pass }
        });
        let config = Config { max, grace, allow_origin: HeaderValue::from_static("*"), ..config() };
        let state = Arc::new(State {
            job: Job::new("scan", "job-1").unwrap(),
            gateway: JobEvents::new(store, config),
            world,
            store_is_down,
            refusals: Mutex::default(),
            arrived: AtomicUsize::new(0),
            requests: Mutex::default(),
            cuts: watch::channel(0).0,
        });
        let server = HttpStub::serving(move |request| {
            let state = Arc::clone(&state);
            async move { state.answer(request).await }
        });
        let port = server.url().rsplit(':').next().unwrap().parse().unwrap();
        Server { port, _server: Box::new(server) }
    }
}

impl State {
    async fn answer(&self, request: Request<Bytes>) -> Response<Body> {
        let path = request.uri().path();
        if let Some((_, media, text)) = FILES.iter().find(|(name, ..)| *name == path) {
            return whole(200, media, (*text).to_owned());
        }
        if path == "/control" {
            let answer = self.control(serde_json::from_slice(request.body()).unwrap()).await;
            return whole(200, "application/json", answer.to_string());
        }
        self.arrived.fetch_add(1, Ordering::SeqCst);
        let at = unix_time().as_millis();
        let refusal = self.refusals.lock().unwrap().pop_front();
        let response = match refusal {
            // As the Lambda service answers: no page of another origin may read it.
            Some(status) => {
                let mut response = whole(status, "application/json", "{}".to_owned());
                response.headers_mut().remove(ACCESS_CONTROL_ALLOW_ORIGIN);
                response
            }
            None => {
                let cuts = self.cuts.subscribe();
                self.gateway.handle(request).await.map(|body| until_cut(body, cuts))
            }
        };
        let status = response.status().as_u16();
        self.requests.lock().unwrap().push(json!({ "at": at, "status": status }));
        response
    }

    async fn control(&self, control: Control) -> Value {
        self.refusals.lock().unwrap().extend(control.refuse);
        if control.cut {
            self.cuts.send_modify(|cuts| *cuts += 1);
        }
        if control.forget {
            let log = onetap_store::Log::new(format!("{}:job:{}", self.job.domain(), self.job.id())).unwrap();
            let cleared = self.world.store.commit(&Batch::new().clear(&log)).await;
            assert!(matches!(cleared, Ok(Commit::Applied(_))), "{cleared:?}");
        }
        if let Some(down) = control.down {
            self.store_is_down.store(down, Ordering::SeqCst);
        }
        let events: Vec<_> = control
            .publish
            .iter()
            .map(|(stage, seq)| support::event(&self.job, stage, *seq, r#""多行\n文字""#))
            .collect();
        let bus = Bus::new(self.world.store.clone(), self.world.config.clone());
        for answer in bus.publish_each(&events).await {
            let _ = answer.unwrap();
        }
        let expiry = unix_time().as_secs() + control.token_ttl;
        json!({
            "token": token(&Secret::new(SECRET), &self.job, expiry),
            "requests": *self.requests.lock().unwrap(),
            "arrived": self.arrived.load(Ordering::SeqCst),
            "open_streams": self.cuts.receiver_count(),
        })
    }
}

fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

fn whole(status: u16, media: &'static str, text: String) -> Response<Body> {
    let body = Full::from(text).map_err(|never| match never {}).boxed_unsync();
    Response::builder()
        .status(status)
        .header(CONTENT_TYPE, media)
        .header(ACCESS_CONTROL_ALLOW_ORIGIN, "*")
        .body(body)
        .unwrap()
}

/// The body, until its connection is cut in the middle of it.
fn until_cut(body: job_events::Body, cuts: watch::Receiver<u64>) -> Body {
    let frames = stream::unfold((body, cuts), |(mut body, mut cuts)| async move {
        let frame = tokio::select! {
            biased;
            Ok(()) = cuts.changed() => Err(io::Error::other("cut")),
            frame = body.frame() => frame?.map_err(|never| match never {}),
        };
        Some((frame, (body, cuts)))
    });
    StreamBody::new(frames).boxed_unsync()
}
