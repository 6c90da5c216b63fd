//! The port: connections, what leads where, and a clean end.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use job_events::Body;
use onetap_store::lease::unique_token;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use webhook::Endings;

use crate::answer::{Refusal, json_answer, whole};
use crate::control;
use crate::crowd::{Crowd, too_many};
use crate::deliver::DELIVERY;
use crate::page::FILES;
use crate::runner::Runner;
use crate::stopping::Stopping;

/// No body is larger.
const MAX_BODY: usize = 1 << 20;
/// A request's head comes within this time, also on a connection that is kept: longer than clients keep one.
const HEAD: Duration = Duration::from_secs(30);
/// When stopping, what runs has so long.
const GRACE: Duration = Duration::from_secs(2);

/// On every answer, the functions' included: nothing here is to be framed, guessed at or loaded from elsewhere.
const HEADERS: [(&str, &str); 4] = [
    (
        "content-security-policy",
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// Answers until it is told to stop, then lets what runs come to its end.
pub(crate) async fn serve(listener: TcpListener, runner: Arc<Runner>) {
    let mut stopping = runner.stopping.clone();
    let (mut connections, crowd) = (JoinSet::new(), Crowd::new());
    loop {
        tokio::select! {
            biased;
            () = stopping.asked() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, Arc::clone(&runner), crowd.clone()));
                }
                // One connection's trouble, or no descriptors left: then a moment later there may be some.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
        }
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, ended).await.is_err() {
        connections.shutdown().await;
    }
}

async fn connection(stream: TcpStream, runner: Arc<Runner>, crowd: Crowd) {
    let _ = stream.set_nodelay(true);
    let mut stopping = runner.stopping.clone();
    let service = service_fn(move |request| respond(Arc::clone(&runner), crowd.clone(), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // An error is a client that went away, or did not speak HTTP: its own affair.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = stopping.asked() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

async fn respond(
    runner: Arc<Runner>,
    crowd: Crowd,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let mut answer = match crowd.enter() {
        Some(place) => place.kept_by(answered(&runner, request).await.unwrap_or_else(Response::from)),
        // An `EventSource` would never come back after another status.
        None if is_job_stream(request.uri().path()) => runner.gateway.come_back(),
        None => too_many(),
    };
    for (name, value) in HEADERS {
        let name = HeaderName::from_static(name);
        answer.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    Ok(answer)
}

fn is_job_stream(path: &str) -> bool {
    path.starts_with("/jobs/") && path.ends_with("/events")
}

async fn answered(runner: &Arc<Runner>, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
    route(runner, read(request).await?).await
}

/// The whole request, if it is not too large: what announces itself as such is not read at all.
async fn read(request: Request<Incoming>) -> Result<Request<Bytes>, Refusal> {
    let too_large = || Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is over 1 MiB");
    let (head, body) = request.into_parts();
    let announced = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: usize| length > MAX_BODY) {
        return Err(too_large());
    }
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => Ok(Request::from_parts(head, body.to_bytes())),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(_) => Err(Refusal::bad("the body broke off")),
    }
}

async fn route(runner: &Arc<Runner>, request: Request<Bytes>) -> Result<Response<Body>, Refusal> {
    let path = request.uri().path().to_owned();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    match segments[..] {
        [""] => file("index.html", request.method()),
        ["playground", name] if FILES.iter().any(|file| file.name == name) => file(name, request.method()),
        ["playground", ..] => control::answer(runner, &segments[1..].join("/"), request).await,
        ["line", "webhook"] => Ok(webhook(runner, request).await),
        ["users", ..] | ["openapi.json"] => {
            Ok(runner.edit.handle(request).await.map(|body| whole_body(body.into())))
        }
        ["jobs", ..] => {
            let stopping = runner.stopping.clone();
            Ok(runner.gateway.handle(request).await.map(|body| until_stopped(body, stopping)))
        }
        ["v2", "bot", ..] => {
            let (status, body) = runner.line.answer(&request);
            Ok(whole(status, "application/json", body))
        }
        ["metrics"] => {
            get(request.method())?;
            Ok(whole(
                StatusCode::OK,
                "text/plain; version=0.0.4; charset=utf-8",
                onetap_telemetry::prometheus(),
            ))
        }
        ["health"] => {
            get(request.method())?;
            Ok(json_answer(StatusCode::OK, &json!({ "status": "ok", "store": runner.kind })))
        }
        _ => Err(Refusal::not_found()),
    }
}

fn get(method: &Method) -> Result<(), Refusal> {
    if matches!(*method, Method::GET | Method::HEAD) { Ok(()) } else { Err(Refusal::not_allowed("GET")) }
}

fn file(name: &str, method: &Method) -> Result<Response<Body>, Refusal> {
    get(method)?;
    let file = FILES.iter().find(|file| file.name == name).ok_or_else(Refusal::not_found)?;
    let mut answer = whole(StatusCode::OK, file.media, file.bytes);
    // The program that serves it may be another one the next time.
    answer.headers_mut().insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(answer)
}

/// The webhook; how its events ended stays in this process, with the name of the delivery that asked.
async fn webhook(runner: &Runner, request: Request<Bytes>) -> Response<Body> {
    let text = |headers: &HeaderMap, name| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let own = text(request.headers(), DELIVERY);
    let signature = text(request.headers(), "x-line-signature");
    let delivery = own.clone().unwrap_or_else(|| unique_token()[..12].to_owned());
    runner.line.admit(&runner.line_secrets, request.body(), signature.as_deref(), &delivery);
    let request = request.map(|body| lambda_http::Body::Binary(body.into()));
    let mut answer = runner.webhook.handle(request).await;
    let endings: Option<Endings> = answer.extensions_mut().remove();
    if let (Some(delivery), Some(Endings(ended))) = (own, endings) {
        runner.deliveries.ended(delivery, ended);
    }
    answer.map(|body| whole_body(Bytes::copy_from_slice(body.as_ref())))
}

fn whole_body(bytes: Bytes) -> Body {
    http_body_util::Full::new(bytes).boxed_unsync()
}

/// A stream that ends with the runner: its client comes back and resumes.
fn until_stopped(body: Body, stopping: Stopping) -> Body {
    if http_body::Body::size_hint(&body).exact().is_some() {
        return body;
    }
    let frames = stream::unfold((body, stopping), |(mut body, mut stopping)| async move {
        let frame: Option<Result<Frame<Bytes>, Infallible>> = tokio::select! {
            biased;
            () = stopping.asked() => None,
            frame = body.frame() => frame,
        };
        frame.map(|frame| (frame, (body, stopping)))
    });
    StreamBody::new(frames).boxed_unsync()
}
