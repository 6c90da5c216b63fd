//! The gRPC layer: the `x-idem-key` metadata, for tonic's unary calls.
//!
//! A call with a key is handled once; its repeats get the same messages and trailers, and `idempotency-replayed: true`
//! in the metadata. Only answers with status OK are kept. Calls without a key pass through, and so does every method
//! that is not [named as unary](GrpcIdempotencyLayer::unary): on the wire a streaming call looks like a unary one until
//! its second message, and waiting for that message could be waiting for ever.
//!
//! The service runs in its caller's task. If the client hangs up, a run that has begun continues, and a claim whose run has not
//! begun is released.
//!
//! A call with a key brings [`EffectKeys`](crate::EffectKeys) in its extensions, for what its method sends to receivers
//! that dedupe.
//!
//! | what happens | status |
//! |---|---|
//! | a repeat with another message | `FAILED_PRECONDITION` |
//! | the first is still being handled, past the wait | `ABORTED` |
//! | two keys that differ, or an invalid one | `INVALID_ARGUMENT` |
//! | the answer was over 1 MiB or over what [the store keeps](crate::MAX_RESULT) | the first gets it; a repeat gets `ALREADY_EXISTS`, never a second run |
//! | the answer broke off before its status | `INTERNAL`; a repeat gets `ALREADY_EXISTS`, never a second run |
//! | the message is [over 1 MiB](GrpcIdempotencyLayer::max_request) | `RESOURCE_EXHAUSTED`; it was read no further |
//! | the store is down | `UNAVAILABLE`; the service was not asked |

use std::collections::HashSet;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, Response, response};
use tower_layer::Layer;
use tower_service::Service;

use super::body::{self, Body, BodyError, Read};
use super::hang_up::{HangUp, to_the_end};
use super::once::{Protocol, Trailers, once, pass};
use super::{Answer, Caller, Keyed, Rules, Trouble, take_ready};
use crate::Idempotency;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

const INVALID_ARGUMENT: u16 = 3;
const ALREADY_EXISTS: u16 = 6;
const RESOURCE_EXHAUSTED: u16 = 8;
const FAILED_PRECONDITION: u16 = 9;
const ABORTED: u16 = 10;
const INTERNAL: u16 = 13;
const UNAVAILABLE: u16 = 14;

/// Puts idempotency in front of a tonic server: `Server::builder().layer(…)`.
#[derive(Clone, Debug)]
pub struct GrpcIdempotencyLayer {
    idem: Idempotency,
    rules: Rules,
    unary: Arc<HashSet<String>>,
}

impl GrpcIdempotencyLayer {
    /// For these unary methods, by their full names: `/package.Service/Method`. A key belongs to its [`Caller`].
    pub fn unary<M: Into<String>>(
        idem: Idempotency,
        caller: Caller,
        methods: impl IntoIterator<Item = M>,
    ) -> GrpcIdempotencyLayer {
        let unary = Arc::new(methods.into_iter().map(Into::into).collect());
        GrpcIdempotencyLayer { idem, rules: Rules::new(&["x-idem-key"], caller), unary }
    }

    /// Takes the key from this metadata instead.
    #[must_use]
    pub fn metadata(mut self, name: HeaderName) -> GrpcIdempotencyLayer {
        self.rules.headers = vec![name];
        self
    }

    /// Compares a repeat with the first call by what `of` makes of its head and its message, instead of by the message's bytes:
    /// protobuf writes the entries of a map in any order.
    #[must_use]
    pub fn fingerprint_by<P: Into<Vec<u8>>>(
        mut self,
        of: impl Fn(&Parts, &[u8]) -> P + Send + Sync + 'static,
    ) -> GrpcIdempotencyLayer {
        self.rules.fingerprint_by(of);
        self
    }

    /// Answers a call with a key whose message is larger than this, in bytes, with `RESOURCE_EXHAUSTED`: 1 MiB unless
    /// told otherwise.
    #[must_use]
    pub fn max_request(mut self, bytes: usize) -> GrpcIdempotencyLayer {
        self.rules.max_request = bytes;
        self
    }
}

impl<S> Layer<S> for GrpcIdempotencyLayer {
    type Service = IdempotentGrpc<S>;

    fn layer(&self, service: S) -> IdempotentGrpc<S> {
        IdempotentGrpc { service, layer: self.clone() }
    }
}

/// A gRPC service with idempotency in front of it.
#[derive(Clone, Debug)]
pub struct IdempotentGrpc<S> {
    service: S,
    layer: GrpcIdempotencyLayer,
}

impl<S, B, R> Service<Request<B>> for IdempotentGrpc<S>
where
    S: Service<Request<Body>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
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
            let key = match layer.rules.key(&parts) {
                Keyed::By(key) if layer.unary.contains(parts.uri.path()) => key,
                Keyed::Wrong(why) if layer.unary.contains(parts.uri.path()) => {
                    return Ok(status(INVALID_ARGUMENT, why));
                }
                _ => return pass(service, Request::from_parts(parts, Body::new(body))).await,
            };
            match body::read(body, layer.rules.max_request).await {
                Ok(Read::Whole { data, trailers }) => {
                    let call = layer.rules.call(&layer.idem, &parts, &key, &data);
                    let request = Request::from_parts(parts, Body::whole(data, trailers));
                    let hang_up = HangUp::default();
                    // tonic tells no lengths; that the method is unary is.
                    let protocol = Protocol { keeps: succeeds, streams: |_, _| false };
                    let run = once(call, service, request, protocol, hang_up.clone());
                    Ok(to_the_end(hang_up, run).await?.unwrap_or_else(answer))
                }
                Ok(Read::Over(_)) => Ok(status(RESOURCE_EXHAUSTED, "the message is too large")),
                Err(_) => Ok(status(INTERNAL, "the message did not arrive")),
            }
        })
    }
}

/// The status is in the trailers, or in the headers of an answer that has nothing else. Where the trailers were not read, behind
/// a megabyte of messages or in an answer that broke off, a success is assumed: to run it again would be worse.
fn succeeds(head: &response::Parts, trailers: Trailers<'_>) -> bool {
    let is_zero = |status: &HeaderValue| status == "0";
    let early = head.headers.get(STATUS).map(is_zero);
    let status = match trailers {
        Poll::Ready(trailers) => trailers.and_then(|trailers| trailers.get(STATUS)).map(is_zero).or(early),
        Poll::Pending => early.or(Some(true)),
    };
    head.status.is_success() && status == Some(true)
}

fn answer(trouble: Trouble) -> Response<Body> {
    let code = match &trouble {
        Trouble::BadKey => INVALID_ARGUMENT,
        Trouble::OtherPayload => FAILED_PRECONDITION,
        Trouble::InProgress(_) | Trouble::Unknown | Trouble::Overtaken => ABORTED,
        Trouble::NotKept => ALREADY_EXISTS,
        Trouble::Unavailable => UNAVAILABLE,
        Trouble::Broken => INTERNAL,
    };
    status(code, trouble.title())
}

/// An answer of the layer's own: a status and nothing else.
fn status(code: u16, message: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(STATUS, HeaderValue::from(code));
    headers.insert(MESSAGE, HeaderValue::from_static(message));
    response
}
