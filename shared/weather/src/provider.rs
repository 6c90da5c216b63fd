//! Where forecasts come from.

use std::fmt::{self, Debug};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderValue, Request, header};
use onetap_config::{ConfigError, Secret, Variables};
use tokio::time::Instant;

use crate::{Cwa, Forecast, OpenMeteo, Place, Sample};

/// A weather service.
#[async_trait]
pub trait Provider: Debug + Send + Sync + 'static {
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
pub enum Error {
    /// The provider cannot be reached, failed (5xx), or limits our rate (429).
    Unavailable,
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
            Error::Late => "no forecast in time",
            Error::BadAnswer => "the weather provider's answer is no forecast",
            Error::KeyRefused => "the weather provider refused the key",
        })
    }
}

impl std::error::Error for Error {}

/// Which provider, and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Config {
    /// The Central Weather Administration's open data.
    Cwa {
        /// `CWA_API_KEY`
        key: Secret,
        /// `CWA_API_BASE_URL`, else the public address.
        base_url: String,
    },
    /// Open-Meteo, which needs no key.
    OpenMeteo {
        /// `OPEN_METEO_BASE_URL`, else the public address.
        base_url: String,
    },
    /// Made-up weather, without a network.
    Sample,
}

impl Config {
    /// Reads `WEATHER_PROVIDER` and what it needs.
    pub fn from_variables(variables: &Variables<'_>) -> Result<Config, ConfigError> {
        match variables.required("WEATHER_PROVIDER")?.as_str() {
            "cwa" => Ok(Config::Cwa {
                key: Secret::new(variables.required("CWA_API_KEY")?),
                base_url: variables
                    .base_url("CWA_API_BASE_URL")?
                    .unwrap_or_else(|| "https://opendata.cwa.gov.tw".to_owned()),
            }),
            "open-meteo" => Ok(Config::OpenMeteo {
                base_url: variables
                    .base_url("OPEN_METEO_BASE_URL")?
                    .unwrap_or_else(|| "https://api.open-meteo.com".to_owned()),
            }),
            "sample" => Ok(Config::Sample),
            _ => Err(ConfigError::new("WEATHER_PROVIDER", "is not one of cwa, open-meteo or sample")),
        }
    }

    /// The provider. Connects to nothing yet.
    pub fn open(&self, http: &onetap_http::Client) -> Arc<dyn Provider> {
        match self {
            Config::Cwa { key, base_url } => Arc::new(Cwa::new(http.clone(), base_url, key.clone())),
            Config::OpenMeteo { base_url } => Arc::new(OpenMeteo::new(http.clone(), base_url)),
            Config::Sample => Arc::new(Sample::new()),
        }
    }
}

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
        onetap_http::Error::NotConnected | onetap_http::Error::Interrupted => Error::Unavailable,
        onetap_http::Error::TimedOut => Error::Late,
        onetap_http::Error::TooLarge => Error::BadAnswer,
    })?;
    match response.status().as_u16() {
        200 => Ok(response.into_body()),
        401 | 403 => Err(Error::KeyRefused),
        429 | 500.. => Err(Error::Unavailable),
        _ => Err(Error::BadAnswer),
    }
}
