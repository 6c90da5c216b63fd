//! The client of LINE's Messaging API: one request for each call.

use std::fmt;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response, Uri, header};
use onetap_config::ConfigError;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::Config;

/// Limit for a response other than a download. The Messaging API's responses are far shorter.
pub(crate) const MAX_RESPONSE_BYTES: usize = 64 << 10;
/// Longest id of a user or message that is put into an address. LINE's have 33 characters at most.
const MAX_ID_LEN: usize = 100;

/// Calls the Messaging API.
///
/// Each call is one request. The HTTP client retries only if it has written no byte of it.
///
/// A reply token is valid for one reply, so a reply that may have arrived can be sent again with the same token: LINE takes one of
/// the two, and refuses the other as [`InvalidToken`](crate::Outcome::InvalidToken). A push that may have arrived can be sent
/// again with the same retry key, for 24 hours.
pub struct Client {
    http: onetap_http::Client,
    api_uri: Uri,
    base_url: String,
    data_base_url: String,
    authorization: HeaderValue,
}

/// Why LINE did not do what a call asks for, or did not answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// LINE refuses this request, and would refuse it again; or an id cannot be one of LINE's, and nothing was sent.
    BadRequest,
    /// LINE refuses the channel access token, or does not allow this call (401, 403).
    Unauthorized,
    /// LINE does not have what was asked for: the user is unknown or no friend of the bot, the message is too old (404, 410).
    NotFound,
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
            CallError::NotFound => "not_found",
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
    pub(crate) fn of(response: &Response<Bytes>) -> CallError {
        match response.status().as_u16() {
            200 => CallError::NotUnderstood,
            202 => CallError::NotReady,
            401 | 403 => CallError::Unauthorized,
            404 | 410 => CallError::NotFound,
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
            CallError::NotFound => "LINE does not have it",
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
            // No answer of LINE's but a download is as large as that.
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

    /// Opens a connection for the first call, but for a download. Nothing is sent.
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
        let mut request = Request::new(Bytes::from(json));
        *request.method_mut() = Method::POST;
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request.headers_mut().extend(more);
        self.call(&self.base_url, path, request, deadline, MAX_RESPONSE_BYTES).await
    }

    /// Gets JSON.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        deadline: Instant,
    ) -> Result<T, CallError> {
        let request = Request::new(Bytes::new());
        let response = self.call(&self.base_url, path, request, deadline, MAX_RESPONSE_BYTES).await?;
        match response.status().as_u16() {
            200 => serde_json::from_slice(response.body()).map_err(|_| CallError::NotUnderstood),
            _ => Err(CallError::of(&response)),
        }
    }

    /// Gets what users sent.
    pub(crate) async fn get_data(
        &self,
        path: &str,
        deadline: Instant,
        max_body: usize,
    ) -> Result<Response<Bytes>, onetap_http::Error> {
        self.call(&self.data_base_url, path, Request::new(Bytes::new()), deadline, max_body).await
    }

    /// Sends one request.
    async fn call(
        &self,
        base_url: &str,
        path: &str,
        mut request: Request<Bytes>,
        deadline: Instant,
        max_body: usize,
    ) -> Result<Response<Bytes>, onetap_http::Error> {
        // This cannot fail: the configuration has checked the base, and a path has only characters of an address.
        let uri = [base_url, path].concat().parse();
        *request.uri_mut() = uri.map_err(|_| onetap_http::Error::NotConnected(Default::default()))?;
        request.headers_mut().insert(header::AUTHORIZATION, self.authorization.clone());
        self.http.send(request, deadline, max_body).await
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
