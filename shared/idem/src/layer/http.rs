//! The HTTP layer: the `Idempotency-Key` header, for any tower service.
//!
//! A request with a key is handled once; its repeats get the same answer with `Idempotency-Replayed: true`. Requests
//! without one pass through, and so do GET, HEAD, OPTIONS and TRACE with one: they change nothing, and are answered
//! with what is there now.
//!
//! | what happens | answer |
//! |---|---|
//! | the first request with this key | the service's; kept without `Set-Cookie` if it is 2xx, or [as the service decides](IdempotencyLayer::keep_if) |
//! | a repeat, same query and body | the kept one, and `Idempotency-Replayed: true` |
//! | a repeat, another query or body, or another [fingerprint](IdempotencyLayer::fingerprint_by) | 422 |
//! | the first is still being handled, past the wait | 409 with `Retry-After` |
//! | the first answer was not kept | the service is asked again |
//! | two keys that differ, an invalid one, or none where [one is required](IdempotencyLayer::required) | 400 |
//! | the answer's body is over 1 MiB or over what [the store keeps](crate::MAX_RESULT), or streams | the first gets it; a repeat gets 409, never a second run |
//! | the answer's body breaks midway | 502; a repeat of one that would be kept gets 409, never a second run |
//! | the request's body is [over 1 MiB](IdempotencyLayer::max_request) | 413; it was read no further |
//! | the store is down | 503; the service was not asked |
//!
//! Those that are the layer's own are `application/problem+json`. Keys are scoped by method, full path and [caller](Caller).
//!
//! The service runs in its caller's task, among the caller's task-locals and spans. If the client hangs up, a run that has begun
//! continues in a task of its own, in the same span, and is recorded; a claim whose run has not begun is released, and nothing
//! is run for it. A time limit outside this layer is such a client. Task-locals end with the client: a handler that goes on without it
//! must have read them before its first wait.
//!
//! A request with a key brings [`EffectKeys`](crate::EffectKeys) in its extensions: what the handler sends to a
//! receiver that dedupes is the same key in every retry, `effects.key("charge")`.
//!
//! An answer *streams* if neither its body nor a `Content-Length` tells how long it is (`text/event-stream`, chunks).
//! It is passed on as it comes; that the request was handled is recorded when its head is there, whatever becomes of
//! the rest. A layer that compresses hides the length: put it outside this one, or nothing is replayed.
//!
//! Put the layer outside a router that strips path prefixes, or two nested routes share their keys.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::request::Parts;
use http::{Request, Response, StatusCode, response};
use http_body::SizeHint;
use tower_layer::Layer;
use tower_service::Service;

use super::body::{self, Body, BodyError};
use super::hang_up::{HangUp, to_the_end};
use super::once::{Protocol, Trailers, once, pass};
use super::{Answer, Caller, Keyed, Rules, Trouble, retry_after, take_ready};
use crate::Idempotency;

pub use super::key::{KeyError, key};

/// The headers that carry the key, unless a layer is given [others](IdempotencyLayer::headers).
pub const HEADERS: [&str; 2] = ["idempotency-key", "x-idempotency-key"];

/// Puts idempotency in front of a service.
///
/// It takes the requests that the service takes, of any body that can be made of bytes, as axum's and lambda_http's can.
/// In front of hyper, whose body cannot, the service takes [`Body`] and each request is mapped to it first:
///
/// ```
/// # use std::convert::Infallible;
/// # use http::{Request, Response};
/// # use onetap_idem::Body;
/// # use onetap_idem::http::IdempotencyLayer;
/// # type Incoming = http_body_util::Limited<Body>;
/// # fn service(layer: IdempotencyLayer) -> impl tower::Service<Request<Incoming>> {
/// tower::ServiceBuilder::new()
///     .map_request(|request: Request<Incoming>| request.map(Body::new))
///     .layer(layer)
///     .service_fn(|request: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::from("paid"))) })
/// # }
/// ```
#[derive(Clone)]
pub struct IdempotencyLayer {
    idem: Idempotency,
    rules: Rules,
    keep: Arc<dyn Fn(&response::Parts) -> bool + Send + Sync>,
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut layer = f.debug_struct("IdempotencyLayer");
        layer.field("idem", &self.idem).field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl IdempotencyLayer {
    /// With the headers `Idempotency-Key` and `X-Idempotency-Key`, neither required, for keys of this [`Caller`].
    pub fn new(idem: Idempotency, caller: Caller) -> IdempotencyLayer {
        let rules = Rules::new(&HEADERS, caller);
        IdempotencyLayer { idem, rules, keep: Arc::new(|head| head.status.is_success()) }
    }

    /// Takes the key from these headers instead.
    #[must_use]
    pub fn headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> IdempotencyLayer {
        self.rules.headers = names.into_iter().collect();
        self
    }

    /// Answers a request without a key with 400, unless its method is one that passes through anyway.
    #[must_use]
    pub fn required(mut self) -> IdempotencyLayer {
        self.rules.required = true;
        self
    }

    /// Answers a request with a key whose body is larger than this, in bytes, with 413: 1 MiB unless told otherwise.
    ///
    /// The body is compared with the first one's, so that it is held in memory whole, before anybody has asked who
    /// sent it.
    #[must_use]
    pub fn max_request(mut self, bytes: usize) -> IdempotencyLayer {
        self.rules.max_request = bytes;
        self
    }

    /// Compares a repeat with the first request by what `of` makes of its head and its body, instead of by its query and the
    /// bytes of its body: for clients whose retries write the same order in other bytes.
    ///
    /// ```
    /// # use onetap_idem::http::IdempotencyLayer;
    /// /// The order of JSON's members and its blanks do not count, nor does when the request was sent.
    /// fn order(_: &http::request::Parts, body: &[u8]) -> Vec<u8> {
    ///     let Ok(mut order) = serde_json::from_slice::<serde_json::Value>(body) else { return body.to_vec() };
    ///     order.sort_all_objects();
    ///     order.as_object_mut().map(|members| members.remove("sent_at"));
    ///     order.to_string().into_bytes()
    /// }
    /// # fn by_order(layer: IdempotencyLayer) -> IdempotencyLayer {
    /// layer.fingerprint_by(order)
    /// # }
    /// ```
    ///
    /// Only a hash of it is stored.
    #[must_use]
    pub fn fingerprint_by<P: Into<Vec<u8>>>(
        mut self,
        of: impl Fn(&Parts, &[u8]) -> P + Send + Sync + 'static,
    ) -> IdempotencyLayer {
        self.rules.fingerprint_by(of);
        self
    }

    /// Keeps the answers whose status and headers are such, instead of those with 2xx: also a 404, which is then
    /// replayed as a 404, or not a 202, so that its repeat asks the service again.
    ///
    /// ```
    /// # use onetap_idem::http::IdempotencyLayer;
    /// # fn also_not_found(layer: IdempotencyLayer) -> IdempotencyLayer {
    /// layer.keep_if(|head| head.status.is_success() || head.status == http::StatusCode::NOT_FOUND)
    /// # }
    /// ```
    ///
    /// A 5xx that is kept is the answer for as long as results are kept: no repeat mends it. The layer's own answers and
    /// the service's errors are not answers of the service, and are never kept. Of an answer that streams only the head
    /// decides: kept, its repeat gets 409; otherwise its repeat asks the service again, although the first may still be
    /// streaming.
    #[must_use]
    pub fn keep_if(
        mut self,
        keep: impl Fn(&response::Parts) -> bool + Send + Sync + 'static,
    ) -> IdempotencyLayer {
        self.keep = Arc::new(keep);
        self
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotent<S>;

    fn layer(&self, service: S) -> Idempotent<S> {
        Idempotent { service, layer: self.clone() }
    }
}

/// A service with idempotency in front of it.
#[derive(Clone, Debug)]
pub struct Idempotent<S> {
    service: S,
    layer: IdempotencyLayer,
}

impl<S, B, R> Service<Request<B>> for Idempotent<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: http_body::Body<Data = Bytes> + From<Vec<u8>> + Send + 'static,
    B::Error: Into<BodyError>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BodyError>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Answer<S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Answer<S::Error> {
        let service = take_ready(&mut self.service);
        let layer = self.layer.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            if parts.method.is_safe() {
                return pass(service, Request::from_parts(parts, body)).await;
            }
            match layer.rules.key(&parts) {
                Keyed::Not => pass(service, Request::from_parts(parts, body)).await,
                Keyed::Wrong(why) => Ok(problem(StatusCode::BAD_REQUEST, why, None)),
                Keyed::By(key) => keyed(layer, service, parts, body, key).await,
            }
        })
    }
}

async fn keyed<S, B, R>(
    layer: IdempotencyLayer,
    service: S,
    parts: Parts,
    body: B,
    key: String,
) -> Result<Response<Body>, S::Error>
where
    S: Service<Request<B>, Response = Response<R>> + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: http_body::Body<Data = Bytes> + From<Vec<u8>> + Send + 'static,
    B::Error: Into<BodyError>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BodyError>,
{
    let call = |data: &[u8]| layer.rules.call(&layer.idem, &parts, &key, data);
    let (call, body) = match body::look_at(body, layer.rules.max_request, call).await {
        Ok(Some(both)) => both,
        Ok(None) => return Ok(problem(StatusCode::PAYLOAD_TOO_LARGE, "The request is too large", None)),
        Err(_) => return Ok(problem(StatusCode::BAD_REQUEST, "The request's body did not arrive", None)),
    };
    let request = Request::from_parts(parts, body);
    let keeps = move |head: &response::Parts, _: Trailers<'_>| (layer.keep)(head);
    let protocol = Protocol { keeps, streams };
    let hang_up = HangUp::default();
    let work = once(call, service, request, protocol, hang_up.clone());
    Ok(to_the_end(hang_up, work).await?.unwrap_or_else(answer))
}

/// An answer that does not tell its length may go on for as long as it likes.
fn streams(head: &response::Parts, hint: &SizeHint) -> bool {
    hint.upper().is_none() && !head.headers.contains_key(CONTENT_LENGTH)
}

fn answer(trouble: Trouble) -> Response<Body> {
    let (status, wait) = match &trouble {
        Trouble::BadKey => (StatusCode::BAD_REQUEST, None),
        Trouble::OtherPayload => (StatusCode::UNPROCESSABLE_ENTITY, None),
        Trouble::InProgress(left) => (StatusCode::CONFLICT, Some(retry_after(*left))),
        Trouble::NotKept | Trouble::Unknown => (StatusCode::CONFLICT, None),
        Trouble::Overtaken => (StatusCode::CONFLICT, Some(1)),
        Trouble::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, Some(1)),
        Trouble::Broken => (StatusCode::BAD_GATEWAY, None),
    };
    problem(status, trouble.title(), wait)
}

/// An answer of the layer's own, as RFC 9457 has them.
fn problem(status: StatusCode, title: &str, wait_seconds: Option<u64>) -> Response<Body> {
    let text = serde_json::json!({"type": "about:blank", "title": title, "status": status.as_u16()});
    let mut response = Response::new(Body::from(text.to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(seconds) = wait_seconds {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
