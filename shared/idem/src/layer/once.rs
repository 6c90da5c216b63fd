//! Handling a request once: the part of a layer that knows no protocol.

use std::task::Poll;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, response};
use http_body::SizeHint;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tower_service::Service;

use super::body::{self, Body, BodyError, Read};
use super::hang_up::HangUp;
use super::stored::Stored;
use super::{MAX_BODY, Trouble};
use crate::{Call, Error};

/// What a protocol makes of an answer.
pub(super) struct Protocol<K> {
    /// Whether it is kept, by its head and its trailers: `Fn(&response::Parts, Trailers) -> bool`.
    pub(super) keeps: K,
    /// Whether it is passed on as it comes, and not read to be kept.
    pub(super) streams: fn(&response::Parts, &SizeHint) -> bool,
}

/// An answer's trailers, pending if it was not read to its end.
pub(super) type Trailers<'a> = Poll<Option<&'a HeaderMap>>;

/// Runs the service under `call`: its answer, a kept one, or why there is none. The outer error is the service's own.
///
/// After a `hang_up` it does not begin to wait or to run: it releases what it has claimed.
pub(super) async fn once<S, B, R, K>(
    call: Call,
    mut service: S,
    mut request: Request<B>,
    protocol: Protocol<K>,
    hang_up: HangUp,
) -> Result<Result<Response<Body>, Trouble>, S::Error>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BodyError>,
    K: Fn(&response::Parts, Trailers<'_>) -> bool,
{
    let Protocol { keeps, streams } = protocol;
    let effects = call.effect_keys();
    // The layer stands in front of the service twice. The outer one has the claim, and this one would wait for it for ever.
    if request.extensions().get().is_some_and(|outer| effects.are_of_the_record_of(outer)) {
        return pass(service, request).await.map(Ok);
    }
    request.extensions_mut().insert(effects);
    let run = || async {
        if hang_up.has_happened() {
            return Err(Unkept::Unheard);
        }
        let (head, body) = service.call(request).await.map_err(Unkept::Failed)?.into_parts();
        let read = match streams(&head, &body.size_hint()) {
            true => Ok(Read::Over(Body::new(body))),
            false => body::read(body, MAX_BODY).await,
        };
        match read {
            Ok(Read::Whole { data, trailers }) if keeps(&head, Poll::Ready(trailers.as_ref())) => {
                Ok(Kept::Fresh(head, data, trailers))
            }
            Ok(Read::Whole { data, trailers }) => Err(Unkept::response(head, Body::whole(data, trailers))),
            Ok(Read::Over(body)) if keeps(&head, Poll::Pending) => {
                tracing::warn!("an answer streams or is too large to be kept; its repeat will be told so");
                Ok(Kept::Passing(Response::from_parts(head, body)))
            }
            Ok(Read::Over(body)) => Err(Unkept::response(head, body)),
            // The head says that the work is done, and half an answer cannot be replayed. The error may quote the answer, and
            // is not passed on.
            Err(_) if keeps(&head, Poll::Pending) => {
                tracing::warn!("an answer broke off; its request is recorded as done");
                Ok(Kept::Broken)
            }
            Err(_) => Err(Unkept::Broken),
        }
    };
    Ok(match call.while_connected(hang_up.clone()).execute_as_it_is(run).await {
        Ok(kept) => kept.into_response(),
        // It is done, and its answer is here. That a repeat may run it again is for the log.
        Err(Error::Unrecorded { value, error }) => {
            tracing::warn!(%error, "a request was answered, and its answer not recorded");
            value.into_response()
        }
        Err(Error::Function(Unkept::Response(response))) => Ok(*response),
        Err(Error::Function(Unkept::Failed(error))) => return Err(error),
        Err(Error::Function(Unkept::Unheard)) => Err(Trouble::Unavailable),
        Err(Error::Function(Unkept::Broken)) => Err(Trouble::Broken),
        Err(Error::InvalidKey) => Err(Trouble::BadKey),
        Err(Error::Mismatch) => Err(Trouble::OtherPayload),
        Err(Error::InProgress { left }) => Err(Trouble::InProgress(left)),
        Err(Error::NotKept) => Err(Trouble::NotKept),
        Err(Error::Unknown) => Err(Trouble::Unknown),
        Err(Error::LostLease { .. }) => Err(Trouble::Overtaken),
        // The layers set no payload but a fingerprint of bytes.
        Err(Error::DeadlinePassed | Error::InvalidPayload) => Err(Trouble::Unavailable),
        Err(Error::Store(error)) => {
            tracing::warn!(%error, "a request was not handled");
            Err(Trouble::Unavailable)
        }
    })
}

/// The service without any of this.
pub(super) async fn pass<S, B, R>(mut service: S, request: Request<B>) -> Result<Response<Body>, S::Error>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BodyError>,
{
    service.call(request).await.map(|response| response.map(Body::new))
}

/// An answer that is kept: this run's, or what a run before left.
enum Kept {
    Fresh(response::Parts, Bytes, Option<HeaderMap>),
    /// It was not read whole; the engine records that it is done, and no more.
    Passing(Response<Body>),
    /// It broke off; the same is recorded.
    Broken,
    Replayed(Stored),
}

impl Kept {
    fn into_response(self) -> Result<Response<Body>, Trouble> {
        match self {
            Kept::Fresh(head, data, trailers) => Ok(Response::from_parts(head, Body::whole(data, trailers))),
            Kept::Passing(response) => Ok(response),
            Kept::Broken => Err(Trouble::Broken),
            Kept::Replayed(stored) => stored.replay().ok_or(Trouble::Broken),
        }
    }
}

impl Serialize for Kept {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Kept::Fresh(head, data, trailers) => {
                Stored::new(head, data, trailers.as_ref()).serialize(serializer)
            }
            Kept::Replayed(stored) => stored.serialize(serializer),
            Kept::Passing(_) | Kept::Broken => Err(serde::ser::Error::custom("not read")),
        }
    }
}

impl<'de> Deserialize<'de> for Kept {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Kept, D::Error> {
        Stored::deserialize(deserializer).map(Kept::Replayed)
    }
}

/// An answer that is not kept: the next request with this key is a first one.
enum Unkept<E> {
    Response(Box<Response<Body>>),
    Failed(E),
    Broken,
    /// The client hung up before the service was called.
    Unheard,
}

impl<E> Unkept<E> {
    fn response(head: response::Parts, body: Body) -> Unkept<E> {
        Unkept::Response(Box::new(Response::from_parts(head, body)))
    }
}
