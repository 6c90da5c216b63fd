//! Idempotency in front of a service: what the HTTP and the gRPC layer share.

mod body;
mod caller;
#[cfg(feature = "grpc")]
pub mod grpc;
pub(super) mod hang_up;
pub mod http;
mod key;
mod once;
mod stored;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ::http::Response;
use ::http::header::HeaderName;
use ::http::request::Parts;
use tokio::time::Instant;

use super::{Call, Idempotency, MAX_RESULT, digest};

pub use body::{Body, BodyError};
pub use caller::Caller;
use key::{KeyError, key};

/// What a layer's service answers with.
type Answer<E> = Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>>;

/// The service that was found ready, which is the one to call; a clone takes its place.
fn take_ready<S: Clone>(service: &mut S) -> S {
    let fresh = service.clone();
    std::mem::replace(service, fresh)
}

/// Answers whose bodies are larger, in bytes, are passed on and not kept. Requests may be as large unless a layer is
/// told otherwise.
const MAX_BODY: usize = MAX_RESULT;

/// When the caller of a request will be gone: put it into the request's extensions, and no waiting and no call to the store
/// goes beyond it. (A run that has begun goes on, and keeps its claim: see [`Call::deadline`].)
///
/// With the feature `lambda` a request of lambda_http needs none: its invocation's is taken, 300 ms early.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(pub Instant);

/// A layer's settings: which headers carry the key, and who the caller is.
#[derive(Clone)]
struct Rules {
    headers: Vec<HeaderName>,
    required: bool,
    caller: Caller,
    fingerprint: Option<Arc<Fingerprint>>,
    max_request: usize,
}

/// What a repeat of a request has in common with it, in place of its query and its body.
type Fingerprint = dyn Fn(&Parts, &[u8]) -> Vec<u8> + Send + Sync;

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("headers", &self.headers).field("required", &self.required).finish()
    }
}

/// What the headers say about the key.
enum Keyed {
    /// There is one.
    By(String),
    /// There is none, and none is needed.
    Not,
    /// The headers are invalid, for this reason.
    Wrong(&'static str),
}

impl Rules {
    fn new(headers: &[&'static str], caller: Caller) -> Rules {
        let headers = headers.iter().copied().map(HeaderName::from_static).collect();
        Rules { headers, required: false, caller, fingerprint: None, max_request: MAX_BODY }
    }

    fn fingerprint_by<P: Into<Vec<u8>>>(&mut self, of: impl Fn(&Parts, &[u8]) -> P + Send + Sync + 'static) {
        self.fingerprint = Some(Arc::new(move |head, body| of(head, body).into()));
    }

    fn key(&self, parts: &Parts) -> Keyed {
        match key(&parts.headers, &self.headers) {
            Ok(Some(key)) => Keyed::By(key.to_owned()),
            Ok(None) if self.required => Keyed::Wrong("The request needs an idempotency key"),
            Ok(None) => Keyed::Not,
            Err(KeyError::Differ) => Keyed::Wrong("The request has two idempotency keys"),
            Err(KeyError::Invalid) => Keyed::Wrong("An idempotency key is 1 to 256 visible ASCII characters"),
        }
    }

    /// The call for `key`: scoped by method, full path and caller, so that nobody is answered with what was meant for
    /// somebody else, and tied to the query and the body, or to what the service says of them, which must not change under it.
    fn call(&self, idem: &Idempotency, parts: &Parts, key: &str, body: &[u8]) -> Call {
        let caller = self.caller.of(parts);
        let scope = digest(&[
            parts.method.as_str().as_bytes(),
            parts.uri.path().as_bytes(),
            caller.as_bytes(),
            key.as_bytes(),
        ]);
        let query = parts.uri.query().unwrap_or_default();
        let payload = match &self.fingerprint {
            Some(of) => digest(&[&of(parts, body)]),
            None => digest(&[query.as_bytes(), body]),
        };
        let call = idem.call(&scope).fingerprint(payload);
        #[cfg(feature = "lambda")]
        let call = match parts.extensions.get() {
            Some(context) => call.invocation(context),
            None => call,
        };
        match parts.extensions.get() {
            Some(Deadline(deadline)) => call.deadline(*deadline),
            None => call,
        }
    }
}

/// Whole seconds after which it is worth asking again.
fn retry_after(left: Duration) -> u64 {
    left.as_secs() + u64::from(left.subsec_nanos() > 0 || left.is_zero())
}

/// Why a request has no answer of the service's, apart from how each protocol says it.
enum Trouble {
    BadKey,
    OtherPayload,
    InProgress(Duration),
    NotKept,
    Unknown,
    Overtaken,
    Unavailable,
    Broken,
}

impl Trouble {
    fn title(&self) -> &'static str {
        match self {
            Trouble::BadKey => "The idempotency key is not valid",
            Trouble::OtherPayload => "The idempotency key was used with another request",
            Trouble::InProgress(_) => "A request with this idempotency key is being handled",
            Trouble::NotKept => "The request was handled before, and its answer was not kept",
            Trouble::Unknown => "The request was begun before, and what became of it is unknown",
            Trouble::Overtaken => "The request took too long, and its repeat has taken over",
            Trouble::Unavailable => {
                "The request cannot be handled exactly once at the moment; it was not handled"
            }
            Trouble::Broken => "The answer did not arrive",
        }
    }
}
