#![doc = include_str!("../README.md")]

mod config;
mod request;
pub mod runtime;
mod sse;
mod token;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, ALLOW, CACHE_CONTROL, CONTENT_TYPE, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use onetap_bus::{Follower, Job, Resume, key_kind};
use onetap_config::{ConfigError, Variables};
use onetap_store::{Error, ErrorKind, Store, open_with_kinds, warm_up};

pub use config::{Config, poll_interval};
pub use token::token;

use request::{Call, Refusal, Target};
use sse::End;

/// A body, whole or streamed, for lambda_http's streaming, hyper and axum alike.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The function.
pub struct JobEvents {
    store: Arc<dyn Store>,
    config: Config,
}

impl fmt::Debug for JobEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobEvents").field("config", &self.config).finish_non_exhaustive()
    }
}

impl JobEvents {
    /// A gateway that reads from `store`.
    pub fn new(store: Arc<dyn Store>, config: Config) -> JobEvents {
        JobEvents { store, config }
    }

    /// The gateway that these variables describe.
    pub fn from_variables(variables: &Variables<'_>) -> Result<JobEvents, ConfigError> {
        let store = onetap_store::Config::from_variables(variables)?.poll_interval(poll_interval(variables)?);
        Ok(JobEvents::new(open_with_kinds(&store, key_kind)?, Config::from_variables(variables)?))
    }

    /// Opens the connection to the store while the function starts. Never fails.
    pub async fn warm_up(&self) {
        warm_up("store", self.store.connect()).await;
    }

    /// One invocation of Lambda. The metrics of a stream are flushed when it ends.
    pub async fn invoke(&self, request: lambda_http::Request) -> Result<Response<Body>, Infallible> {
        Ok(self.handle(request).await.map(flush_at_end))
    }

    /// Answers a request, whose body is ignored. The head of a stream is sent once the store has been read, its body as
    /// the job's events come.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body> {
        let response = match Call::read(&request, &self.config.secrets) {
            Ok(Call { job, target: Target::State }) => self.state(&job).await,
            Ok(Call { job, target: Target::Events(resume, token_ttl) }) => {
                match self.events(job, resume, token_ttl).await {
                    // The store has logged its failure.
                    Err(error) if error.kind() == ErrorKind::Unavailable => Ok(retry_later()),
                    // A permanent failure, such as wrong credentials, must not make clients reconnect for ever.
                    response => response.map_err(unavailable),
                }
            }
            Err(refusal) => Err(refusal),
        };
        self.with_headers(response.unwrap_or_else(refused))
    }

    /// The response to a client that must reconnect later: for a server that limits its streams.
    pub fn retry_later(&self) -> Response<Body> {
        self.with_headers(retry_later())
    }

    fn with_headers(&self, mut response: Response<Body>) -> Response<Body> {
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, self.config.allow_origin.clone());
        headers.insert(VARY, HeaderValue::from_static("origin"));
        response
    }

    async fn state(&self, job: &Job) -> Result<Response<Body>, Refusal> {
        match job.state(&*self.store).await.map_err(unavailable)? {
            Some(state) => Ok(whole(StatusCode::OK, state)),
            None => Err(Refusal::new(StatusCode::NOT_FOUND, "there is no state of this job")),
        }
    }

    async fn events(&self, job: Job, resume: Resume, token_ttl: Duration) -> Result<Response<Body>, Error> {
        let end = End::new(self.config.max, token_ttl);
        let follower = Follower::start(self.store.clone(), self.config.stages.clone(), job, resume).await?;
        // The grace period is never longer than the stream.
        let mut follower = follower.with_grace(self.config.grace.min(self.config.max));
        // 204 ends the client's reconnecting for good. Within the grace period overtaken events may still come, so that
        // a client which reconnects in it waits for them first.
        if follower.is_over() && !follower.has_more().await? {
            let mut response = Response::new(Full::default().boxed_unsync());
            *response.status_mut() = StatusCode::NO_CONTENT;
            return Ok(response);
        }
        Ok(event_stream(sse::body(follower, self.config.keepalive, end)))
    }
}

fn event_stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // Proxies that know this header would otherwise buffer events.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// The response to a transient failure. `EventSource` never reconnects after a status other than 200, but does so after
/// the end of a stream.
fn retry_later() -> Response<Body> {
    event_stream(Full::from(sse::retry_later()).boxed_unsync())
}

/// Flushes the metrics before the end of the body: after it, Lambda may freeze the process at once.
fn flush_at_end(body: Body) -> Body {
    if body.size_hint().exact().is_some() {
        onetap_telemetry::flush();
        return body;
    }
    let frames = stream::unfold(body, |mut body| async move {
        let frame = body.frame().await;
        if frame.is_none() {
            onetap_telemetry::flush();
        }
        Some((frame?, body))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// The refusal for a failure of the store, which has logged it.
fn unavailable(_: Error) -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the store cannot be read; try again")
}

fn refused(refusal: Refusal) -> Response<Body> {
    let body = serde_json::json!({ "message": refusal.message }).to_string();
    let mut response = whole(refusal.status, body);
    if refusal.status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
    }
    response
}

fn whole(status: StatusCode, json: String) -> Response<Body> {
    let mut response = Response::new(Full::from(json).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
