//! How many are answered at a time.

use std::sync::Arc;

use http::header::{HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use job_events::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::answer::Refusal;

/// So many requests are answered at a time, open streams among them; whoever comes on top is told to come back. Well
/// below the number of descriptors that a process may have.
pub const PLACES: usize = 128;

/// The places; a clone has the same ones.
#[derive(Clone)]
pub(crate) struct Crowd(Arc<Semaphore>);

/// One of them, until it is dropped.
pub(crate) struct Place(OwnedSemaphorePermit);

impl Crowd {
    pub(crate) fn new() -> Crowd {
        Crowd(Arc::new(Semaphore::new(PLACES)))
    }

    /// A place, if there is one left.
    pub(crate) fn enter(&self) -> Option<Place> {
        Arc::clone(&self.0).try_acquire_owned().ok().map(Place)
    }
}

impl Place {
    /// A stream keeps its place until it ends or its client goes.
    pub(crate) fn kept_by(self, answer: Response<Body>) -> Response<Body> {
        if answer.body().size_hint().exact().is_some() {
            return answer;
        }
        answer.map(|body| {
            body.map_frame(move |frame| {
                let Place(_kept) = &self;
                frame
            })
            .boxed_unsync()
        })
    }
}

/// The answer to one too many.
pub(crate) fn too_many() -> Response<Body> {
    let refusal =
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too many requests at a time: come back soon");
    let mut answer = Response::from(refusal);
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::stream;
    use http_body_util::{Full, StreamBody};

    use super::*;

    #[test]
    fn a_stream_keeps_its_place_until_it_is_dropped_and_a_whole_answer_does_not() {
        let crowd = Crowd::new();
        let mut places: Vec<Place> = std::iter::from_fn(|| crowd.enter()).collect();
        assert_eq!(places.len(), PLACES);
        let whole = Response::new(Full::new(Bytes::from("x")).boxed_unsync());
        let whole = places.pop().unwrap().kept_by(whole);
        assert!(crowd.enter().is_some(), "its place is free before it is read");
        let stream = Response::new(StreamBody::new(stream::pending()).boxed_unsync());
        let stream = crowd.enter().unwrap().kept_by(stream);
        assert!(crowd.enter().is_none());
        drop((stream, whole));
        assert!(crowd.enter().is_some());
    }

    #[test]
    fn one_too_many_is_told_when_to_come_back() {
        let answer = too_many();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["retry-after"]),
            (503, &HeaderValue::from(1))
        );
    }
}
