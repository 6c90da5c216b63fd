//! Bodies that were read to be compared or kept, and are passed on.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};

/// What went wrong in the body that was passed on.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The body of an answer that went through a layer, and of a request on its way to one whose own body cannot be made of
/// bytes: `request.map(Body::new)`.
///
/// It was read whole, or it is what was read of a body and then the rest of it.
pub struct Body {
    read: Option<Bytes>,
    then: Then,
}

enum Then {
    Trailers(Option<HeaderMap>),
    Rest(UnsyncBoxBody<Bytes, BodyError>),
}

impl Body {
    /// Any body, passed on as it comes.
    pub fn new<B>(body: B) -> Body
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BodyError>,
    {
        Body { read: None, then: Then::Rest(body.map_err(Into::into).boxed_unsync()) }
    }

    /// A body without data.
    pub fn empty() -> Body {
        Body::whole(Bytes::new(), None)
    }

    pub(super) fn whole(data: Bytes, trailers: Option<HeaderMap>) -> Body {
        Body { read: Some(data).filter(|data| !data.is_empty()), then: Then::Trailers(trailers) }
    }
}

impl fmt::Debug for Body {
    /// Without what it holds: a log line may print a request or an answer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let read = self.read.as_ref().map_or(0, Bytes::len);
        match &self.then {
            Then::Trailers(_) => write!(f, "Body({read} bytes)"),
            Then::Rest(_) => write!(f, "Body({read} bytes, and the rest)"),
        }
    }
}

impl Default for Body {
    fn default() -> Body {
        Body::empty()
    }
}

impl From<Bytes> for Body {
    fn from(data: Bytes) -> Body {
        Body::whole(data, None)
    }
}

impl From<Vec<u8>> for Body {
    fn from(data: Vec<u8>) -> Body {
        Bytes::from(data).into()
    }
}

impl From<String> for Body {
    fn from(text: String) -> Body {
        Bytes::from(text).into()
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Body {
        Bytes::from(text).into()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(data) = self.read.take() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        match &mut self.then {
            Then::Trailers(trailers) => {
                Poll::Ready(trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
            }
            Then::Rest(rest) => Pin::new(rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_none()
            && match &self.then {
                Then::Trailers(trailers) => trailers.is_none(),
                Then::Rest(rest) => rest.is_end_stream(),
            }
    }

    fn size_hint(&self) -> SizeHint {
        let read = self.read.as_ref().map_or(0, |data| data.len() as u64);
        match &self.then {
            Then::Trailers(_) => SizeHint::with_exact(read),
            Then::Rest(rest) => {
                let mut hint = rest.size_hint();
                if let Some(upper) = hint.upper() {
                    hint.set_upper(upper + read);
                }
                hint.set_lower(hint.lower() + read);
                hint
            }
        }
    }
}

/// A body that was read.
pub(super) enum Read {
    Whole {
        data: Bytes,
        trailers: Option<HeaderMap>,
    },
    /// It is larger than the limit: all of it, still to be passed on.
    Over(Body),
}

/// Reads a request's body for `look`, and gives it back for the service: as bytes, and lambda_http's as it came, text or not.
/// `None` if it is larger than `limit`.
pub(super) async fn look_at<B, T>(
    body: B,
    limit: usize,
    look: impl FnOnce(&[u8]) -> T,
) -> Result<Option<(T, B)>, BodyError>
where
    B: http_body::Body<Data = Bytes> + From<Vec<u8>> + Send + 'static,
    B::Error: Into<BodyError>,
{
    #[cfg(feature = "lambda")]
    if let Some(data) = (&body as &dyn std::any::Any).downcast_ref::<aws_lambda_events::encodings::Body>() {
        let seen = (data.len() <= limit).then(|| look(data));
        return Ok(seen.map(|seen| (seen, body)));
    }
    Ok(match read(body, limit).await? {
        Read::Whole { data, .. } => Some((look(&data), Vec::from(data).into())),
        Read::Over(_) => None,
    })
}

/// Reads `body` up to `limit` bytes, and the frame that goes beyond them.
pub(super) async fn read<B>(body: B, limit: usize) -> Result<Read, BodyError>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    if http_body::Body::size_hint(&body).lower() > limit as u64 {
        return Ok(Read::Over(Body::new(body)));
    }
    let mut body = body.map_err(Into::into).boxed_unsync();
    let mut data = BytesMut::new();
    let mut trailers = None;
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(more) => data.extend_from_slice(&more),
            Err(frame) => trailers = frame.into_trailers().ok().or(trailers),
        }
        if data.len() > limit {
            return Ok(Read::Over(Body { read: Some(data.freeze()), then: Then::Rest(body) }));
        }
    }
    Ok(Read::Whole { data: data.freeze(), trailers })
}
