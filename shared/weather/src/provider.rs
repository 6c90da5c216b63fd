//! Where forecasts come from.

use std::fmt::{self, Debug};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderValue, Request, header};
use tokio::time::Instant;

use crate::{Forecast, Place};

/// A weather service.
#[async_trait]
pub trait Provider: Debug + Send + Sync + 'static {
    /// Its name, as `WEATHER_PROVIDER` has it; a part of the key under which its forecasts are kept.
    fn name(&self) -> &'static str;

    /// The name that a message must show beside its forecasts, if its terms ask for one.
    fn attribution(&self) -> Option<&'static str> {
        None
    }

    /// The forecast for `place`, before `deadline`. One request, never repeated: a repeat would come too late for the reply.
    async fn forecast(&self, place: &Place, deadline: Instant) -> Result<Forecast, Error>;

    /// Opens a connection for the first forecast, before `deadline`, if the provider has any to open. Nothing is sent.
    async fn connect(&self, deadline: Instant) -> Result<(), Error> {
        let _ = deadline;
        Ok(())
    }
}

/// Why there is no forecast. It contains no address, because the key is a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The provider cannot be reached, or failed (5xx).
    Unavailable,
    /// The provider limits our rate (429).
    RateLimited,
    /// No response before the deadline.
    Late,
    /// The response is not a forecast for this place.
    BadAnswer,
    /// The provider refuses the key.
    KeyRefused,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Unavailable => "the weather provider is unavailable",
            Error::RateLimited => "the weather provider was asked too often",
            Error::Late => "no forecast in time",
            Error::BadAnswer => "the weather provider's answer is no forecast",
            Error::KeyRefused => "the weather provider refused the key",
        })
    }
}

impl std::error::Error for Error {}

/// Opens a connection to the server at `base_url`.
pub(crate) async fn connect(
    http: &onetap_http::Client,
    base_url: &str,
    deadline: Instant,
) -> Result<(), Error> {
    let uri = base_url.parse().map_err(|_| Error::Unavailable)?;
    http.connect(&uri, deadline).await.map_err(|_| Error::Unavailable)
}

/// More than any response has; the forecast for a whole county, which is never requested, is about a megabyte.
const MAX_RESPONSE_BYTES: usize = 2 << 20;

/// The body of a 200 response, or the error that another response stands for.
pub(crate) async fn get(http: &onetap_http::Client, url: &str, deadline: Instant) -> Result<Bytes, Error> {
    let mut request = Request::new(Bytes::new());
    *request.uri_mut() = url.parse().map_err(|_| Error::Unavailable)?;
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    let response = http.send(request, deadline, MAX_RESPONSE_BYTES).await.map_err(|error| match error {
        onetap_http::Error::TimedOut => Error::Late,
        onetap_http::Error::TooLarge => Error::BadAnswer,
        _ => Error::Unavailable,
    })?;
    match response.status().as_u16() {
        200 => Ok(response.into_body()),
        401 | 403 => Err(Error::KeyRefused),
        429 => Err(Error::RateLimited),
        500.. => Err(Error::Unavailable),
        _ => Err(Error::BadAnswer),
    }
}
