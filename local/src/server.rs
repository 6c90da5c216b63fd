//! The HTTP server: connections, limits, routes, shutdown.

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
use hyper_util::server::graceful::GracefulShutdown;
use job_events::Body;
use onetap_bot::Endings;
use onetap_store::lease::unique_token;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admission::{Admission, too_many_requests};
use crate::channel;
use crate::control;
use crate::deliver::{DELIVERY_HEADER, forecast};
use crate::page::FILES;
use crate::response::{Refusal, json_response, whole_response};
use crate::runner::Runner;

/// Largest body of a request.
const MAX_BODY_BYTES: usize = 1 << 20;
/// Time limit for the head of a request, also of the next one on an idle connection: longer than clients keep one idle.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for the requests that run when the shutdown begins.
const REQUEST_GRACE: Duration = Duration::from_secs(2);

/// On every response, the functions' included: no framing, no content sniffing, nothing loaded from another site.
const SECURITY_HEADERS: [(&str, &str); 4] = [
    (
        "content-security-policy",
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// Answers requests until the shutdown, then lets those that run come to their end.
pub(crate) async fn serve(listener: TcpListener, runner: Arc<Runner>) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    let (graceful, admission) = (GracefulShutdown::new(), Admission::new());
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = runner.shutdown.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    let (runner, admission) = (Arc::clone(&runner), admission.clone());
                    let service = service_fn(move |request| respond(Arc::clone(&runner), admission.clone(), request));
                    // An error means that the client left or does not speak HTTP: nobody needs to know.
                    connections.spawn(graceful.watch(http.serve_connection(TokioIo::new(stream), service)));
                }
                // An error of one connection, or no file descriptors left: a moment later there may be some.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
        }
    }
    drop(listener);
    // Connections that are still open after the timeout are closed with the set.
    let _ = tokio::time::timeout(REQUEST_GRACE, graceful.shutdown()).await;
}

async fn respond(
    runner: Arc<Runner>,
    admission: Admission,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let mut response = match admission.admit() {
        Some(permit) => permit.held_by(answer(&runner, request).await.unwrap_or_else(Response::from)),
        // `EventSource` does not reconnect after any status but 200.
        None if is_job_stream(request.uri().path()) => runner.job_events.retry_later(),
        None => too_many_requests(),
    };
    for (name, value) in SECURITY_HEADERS {
        let name = HeaderName::from_static(name);
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    Ok(response)
}

fn is_job_stream(path: &str) -> bool {
    path.starts_with("/jobs/") && path.ends_with("/events")
}

async fn answer(runner: &Arc<Runner>, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
    route(runner, read(request).await?).await
}

/// Reads the whole body. A body whose `Content-Length` is over the limit is refused before it is read.
async fn read(request: Request<Incoming>) -> Result<Request<Bytes>, Refusal> {
    let too_large = || Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is over 1 MiB");
    let (head, body) = request.into_parts();
    let announced = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: usize| length > MAX_BODY_BYTES) {
        return Err(too_large());
    }
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
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
            let shutdown = runner.shutdown.clone();
            Ok(runner.job_events.handle(request).await.map(|body| until_shutdown(body, shutdown)))
        }
        ["v2", "bot", ..] => {
            let about_channel = channel::answer(runner, &request).await;
            let (status, body) = about_channel.unwrap_or_else(|| runner.line.answer(&request));
            Ok(whole_response(status, "application/json", body))
        }
        ["metrics"] => {
            get(request.method())?;
            Ok(whole_response(
                StatusCode::OK,
                "text/plain; version=0.0.4; charset=utf-8",
                onetap_telemetry::prometheus(),
            ))
        }
        ["health"] => {
            get(request.method())?;
            Ok(json_response(StatusCode::OK, &json!({ "status": "ok", "store": runner.backend })))
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
    let mut response = whole_response(StatusCode::OK, file.media, file.bytes);
    // The next start may serve another version of the page.
    response.headers_mut().insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

/// The webhook. The outcomes of its events stay in this process, under the id of the playground's delivery.
async fn webhook(runner: &Runner, request: Request<Bytes>) -> Response<Body> {
    let text = |headers: &HeaderMap, name| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let own = text(request.headers(), DELIVERY_HEADER);
    let signature = text(request.headers(), "x-line-signature");
    let delivery = own.clone().unwrap_or_else(|| unique_token()[..12].to_owned());
    runner.line.issue_tokens(&runner.line_secrets, request.body(), signature.as_deref(), &delivery);
    let request = request.map(|body| lambda_http::Body::Binary(body.into()));
    let mut response = runner.webhook.handle(request).await;
    let endings: Option<Endings> = response.extensions_mut().remove();
    let Endings(endings) = endings.unwrap_or_default();
    let forecasts: Vec<_> = endings.iter().map(forecast).collect();
    runner.view.looked_up(&delivery, &forecasts);
    runner.show_weather();
    if let Some(delivery) = own {
        runner.deliveries.ended(delivery, endings);
    }
    response.map(|body| whole_body(Bytes::copy_from_slice(body.as_ref())))
}

fn whole_body(bytes: Bytes) -> Body {
    http_body_util::Full::new(bytes).boxed_unsync()
}

/// Ends a stream at the shutdown; its client reconnects later and resumes.
fn until_shutdown(body: Body, shutdown: CancellationToken) -> Body {
    if http_body::Body::size_hint(&body).exact().is_some() {
        return body;
    }
    let frames = stream::unfold((body, shutdown), |(mut body, shutdown)| async move {
        let frame: Option<Result<Frame<Bytes>, Infallible>> = tokio::select! {
            biased;
            () = shutdown.cancelled() => None,
            frame = body.frame() => frame,
        };
        frame.map(|frame| (frame, (body, shutdown)))
    });
    StreamBody::new(frames).boxed_unsync()
}
