//! The client of LINE's Messaging API: one request for each call.

use std::fmt;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use onetap_config::ConfigError;
use onetap_http::Incoming;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::Config;

/// Limit for a response other than a download. The Messaging API's responses are far shorter.
const MAX_RESPONSE_BYTES: usize = 64 << 10;
/// Longest id of a user or message that is put into an address. LINE's have 33 characters at most.
const MAX_ID_LEN: usize = 100;
/// How many properties that LINE refuses are named, and how long the path of each may be.
const MAX_PROPERTIES: usize = 5;
const MAX_PROPERTY_LEN: usize = 100;

/// Calls the Messaging API. A clone shares its connections.
///
/// Each call is one request. The HTTP client retries only if it has written no byte of it.
///
/// A reply token is valid for one reply, so a reply that may have arrived can be sent again with the same token: LINE takes one of
/// the two, and refuses the other as [`InvalidToken`](crate::ReplyOutcome::InvalidToken). A push that may have arrived can be sent
/// again with the same retry key, for 24 hours.
#[derive(Clone)]
pub struct Client {
    http: onetap_http::Client,
    api_uri: Uri,
    base_url: String,
    data_base_url: String,
    authorization: HeaderValue,
}

/// Why a call other than a reply or push failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// LINE refuses this request, and would refuse it again; or an id cannot be one of LINE's, and nothing was sent.
    BadRequest,
    /// LINE refuses the channel access token (401).
    Unauthorized,
    /// LINE does not offer this call to the bot's account (403).
    Forbidden,
    /// LINE does not have what was asked for: the message is unknown or too old, or the user's profile is not available (404).
    NotFound,
    /// The user has unsent the message (410). What was already read of it should not be used either.
    Gone,
    /// LINE is still preparing a video or audio message (202). It can be asked again.
    NotReady,
    /// What was asked for is larger than the caller allows.
    TooLarge,
    /// Too many requests (429).
    RateLimited,
    /// LINE failed (5xx).
    ServerError,
    /// The response is not one of LINE's.
    NotUnderstood,
    /// There was no complete response.
    Unreachable {
        /// Whether the request may have arrived.
        maybe_sent: bool,
    },
}

impl CallError {
    /// Whether the same call may succeed later.
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            CallError::NotReady
                | CallError::RateLimited
                | CallError::ServerError
                | CallError::Unreachable { .. }
        )
    }

    /// Its name for logs and metrics.
    pub fn label(self) -> &'static str {
        match self {
            CallError::BadRequest => "bad_request",
            CallError::Unauthorized => "unauthorized",
            CallError::Forbidden => "forbidden",
            CallError::NotFound => "not_found",
            CallError::Gone => "gone",
            CallError::NotReady => "not_ready",
            CallError::TooLarge => "too_large",
            CallError::RateLimited => "rate_limited",
            CallError::ServerError => "server_error",
            CallError::NotUnderstood => "not_understood",
            CallError::Unreachable { maybe_sent: true } => "unknown",
            CallError::Unreachable { maybe_sent: false } => "unreachable",
        }
    }

    /// Of a response that is no success.
    pub(crate) fn of(status: StatusCode) -> CallError {
        match status.as_u16() {
            200 => CallError::NotUnderstood,
            202 => CallError::NotReady,
            401 => CallError::Unauthorized,
            403 => CallError::Forbidden,
            404 => CallError::NotFound,
            410 => CallError::Gone,
            429 => CallError::RateLimited,
            500.. => CallError::ServerError,
            _ => CallError::BadRequest,
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CallError::BadRequest => "LINE refuses the request",
            CallError::Unauthorized => "LINE refuses the channel access token",
            CallError::Forbidden => "LINE does not offer the call to this account",
            CallError::NotFound => "LINE does not have it",
            CallError::Gone => "the user has unsent the message",
            CallError::NotReady => "LINE is still preparing it",
            CallError::TooLarge => "it is larger than allowed",
            CallError::RateLimited => "LINE was asked too often",
            CallError::ServerError => "LINE fails",
            CallError::NotUnderstood => "the response is not one of LINE's",
            CallError::Unreachable { maybe_sent: true } => "no complete response from LINE",
            CallError::Unreachable { maybe_sent: false } => "LINE cannot be reached",
        })
    }
}

impl std::error::Error for CallError {}

impl From<onetap_http::Error> for CallError {
    fn from(error: onetap_http::Error) -> CallError {
        match error {
            // Only downloads can be this large.
            onetap_http::Error::TooLarge => CallError::NotUnderstood,
            error => CallError::Unreachable { maybe_sent: !error.is_not_connected() },
        }
    }
}

impl Client {
    /// A client for the channel that `config` describes. Does not connect yet.
    pub fn new(http: onetap_http::Client, config: &Config) -> Result<Client, ConfigError> {
        config.data_uri()?;
        Ok(Client {
            http,
            api_uri: config.api_uri()?,
            base_url: config.base_url.clone(),
            data_base_url: config.data_base_url.clone(),
            authorization: config.authorization()?,
        })
    }

    /// Opens a connection for the first call, except for downloads, which use another host. Nothing is sent.
    pub async fn connect(&self, deadline: Instant) -> Result<(), onetap_http::Error> {
        self.http.connect(&self.api_uri, deadline).await
    }

    /// Posts JSON.
    pub(crate) async fn post(
        &self,
        path: &str,
        json: Vec<u8>,
        more: Option<(HeaderName, HeaderValue)>,
        deadline: Instant,
    ) -> Result<Response<Bytes>, onetap_http::Error> {
        let mut request = self.request(&self.base_url, path)?;
        *request.method_mut() = Method::POST;
        *request.body_mut() = Bytes::from(json);
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request.headers_mut().extend(more);
        self.http.send(request, deadline, MAX_RESPONSE_BYTES).await
    }

    /// Gets JSON.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        deadline: Instant,
    ) -> Result<T, CallError> {
        let request = self.request(&self.base_url, path)?;
        let response = self.http.send(request, deadline, MAX_RESPONSE_BYTES).await?;
        match response.status() {
            StatusCode::OK => serde_json::from_slice(response.body()).map_err(|_| CallError::NotUnderstood),
            status => Err(CallError::of(status)),
        }
    }

    /// Gets what users sent. Its body has not been read yet.
    pub(crate) async fn get_data(
        &self,
        path: &str,
        deadline: Instant,
    ) -> Result<Response<Incoming>, onetap_http::Error> {
        self.http.open(self.request(&self.data_base_url, path)?, deadline).await
    }

    fn request(&self, base_url: &str, path: &str) -> Result<Request<Bytes>, onetap_http::Error> {
        let mut request = Request::new(Bytes::new());
        // This cannot fail: the configuration has checked the base, and a path has only characters of an address.
        let uri = [base_url, path].concat().parse();
        *request.uri_mut() = uri.map_err(|_| onetap_http::Error::NotConnected(Default::default()))?;
        request.headers_mut().insert(header::AUTHORIZATION, self.authorization.clone());
        Ok(request)
    }
}

/// The id of a user or message for a path. An id comes from outside: one that could lead to another path is refused.
pub(crate) fn path_id(id: &str) -> Result<&str, CallError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_id = (1..=MAX_ID_LEN).contains(&id.len()) && id.bytes().all(is_plain);
    if is_id { Ok(id) } else { Err(CallError::BadRequest) }
}

/// The `message` of a refusal.
pub(crate) fn refusal(response: &Response<Bytes>) -> Option<String> {
    #[derive(Deserialize)]
    struct Refusal {
        message: String,
    }
    serde_json::from_slice(response.body()).ok().map(|refusal: Refusal| refusal.message)
}

/// The properties of the request that a 400 names as wrong. They are for a log: what does not look like the path of one is left out.
pub(crate) fn refused_properties(response: &Response<Bytes>) -> Vec<String> {
    #[derive(Deserialize)]
    struct Refusal {
        details: Vec<Detail>,
    }
    #[derive(Deserialize)]
    struct Detail {
        property: Option<String>,
    }
    let is_path = |property: &String| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_./[]".contains(&byte);
        (1..=MAX_PROPERTY_LEN).contains(&property.len()) && property.bytes().all(is_plain)
    };
    let refusal = (response.status() == StatusCode::BAD_REQUEST)
        .then(|| serde_json::from_slice(response.body()).ok())
        .flatten();
    let details = refusal.map_or_else(Vec::new, |refusal: Refusal| refusal.details);
    details.into_iter().filter_map(|detail| detail.property).filter(is_path).take(MAX_PROPERTIES).collect()
}

/// The request id in the header `name`, if it looks like one: an arbitrary header must not get into a log.
pub(crate) fn request_id(response: &Response<Bytes>, name: &str) -> Option<String> {
    let id = response.headers().get(name)?.to_str().ok()?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    ((1..=64).contains(&id.len()) && id.bytes().all(plain)).then(|| id.to_owned())
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("base_url", &self.base_url)
            .field("data_base_url", &self.data_base_url)
            .finish_non_exhaustive()
    }
}
