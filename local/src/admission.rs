//! A limit on concurrent requests.

use std::sync::Arc;

use http::header::{HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use job_events::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::response::Refusal;

/// Largest number of concurrent requests, open streams included. Well below the usual limit on file descriptors.
pub const MAX_REQUESTS: usize = 128;

/// Admits requests up to the limit; clones share it.
#[derive(Clone)]
pub(crate) struct Admission(Arc<Semaphore>);

/// Admission of one request, until it is dropped.
pub(crate) struct Permit(OwnedSemaphorePermit);

impl Admission {
    pub(crate) fn new() -> Admission {
        Admission(Arc::new(Semaphore::new(MAX_REQUESTS)))
    }

    /// A permit, unless the limit is reached.
    pub(crate) fn admit(&self) -> Option<Permit> {
        Arc::clone(&self.0).try_acquire_owned().ok().map(Permit)
    }
}

impl Permit {
    /// A stream holds its permit until it ends or its client disconnects. (tower's concurrency limit would release it
    /// with the head of the response.)
    pub(crate) fn held_by(self, response: Response<Body>) -> Response<Body> {
        if response.body().size_hint().exact().is_some() {
            return response;
        }
        response.map(|body| {
            body.map_frame(move |frame| {
                let Permit(_held) = &self;
                frame
            })
            .boxed_unsync()
        })
    }
}

/// The response to a request over the limit.
pub(crate) fn too_many_requests() -> Response<Body> {
    let refusal =
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too many requests at a time: come back soon");
    let mut response = Response::from(refusal);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::stream;
    use http_body_util::{Full, StreamBody};

    use super::*;

    #[test]
    fn a_stream_holds_its_permit_until_it_is_dropped_and_a_whole_response_does_not() {
        let admission = Admission::new();
        let mut permits: Vec<Permit> = std::iter::from_fn(|| admission.admit()).collect();
        assert_eq!(permits.len(), MAX_REQUESTS);
        let whole = Response::new(Full::new(Bytes::from("x")).boxed_unsync());
        let whole = permits.pop().unwrap().held_by(whole);
        assert!(admission.admit().is_some(), "its permit is free before it is read");
        let stream = Response::new(StreamBody::new(stream::pending()).boxed_unsync());
        let stream = admission.admit().unwrap().held_by(stream);
        assert!(admission.admit().is_none());
        drop((stream, whole));
        assert!(admission.admit().is_some());
    }

    #[test]
    fn a_request_over_the_limit_is_told_when_to_come_back() {
        let response = too_many_requests();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["retry-after"]),
            (503, &HeaderValue::from(1))
        );
    }
}
