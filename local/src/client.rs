//! A client of the runner, for the demo and the tests: JSON calls, and Server-Sent Events.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use onetap_http::{BodyExt, Bytes, Incoming};
use serde_json::Value;
use tokio::time::{Instant, timeout};

pub use crate::event_format::Event;
use crate::event_format::EventFormat;

/// Time limit for a response, and for the silence of a stream: more than anything here takes.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// Largest body of a response: a snapshot shows up to ten thousand keys.
const MAX_RESPONSE_BYTES: usize = 32 << 20;

/// A call without a response, or with a wrong one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError(pub String);

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CallError {}

/// A whole response.
#[derive(Debug)]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as text.
    pub text: String,
    /// The body as JSON; `null` if it is not JSON.
    pub json: Value,
}

impl Response {
    /// The text of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// A client of one runner; a clone shares its connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: onetap_http::Client,
    url: String,
}

impl Client {
    /// A client of the runner at `url`.
    pub fn new(url: &str) -> Client {
        Client { http: onetap_http::Client::new(), url: url.to_owned() }
    }

    /// Makes a call and returns its response, whatever its status.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Response, CallError> {
        let request = self.request(method, path, headers, body.into())?;
        let response = self.http.send(request, Instant::now() + RESPONSE_TIMEOUT, MAX_RESPONSE_BYTES).await;
        let (head, body) = response.map_err(|error| CallError(format!("{path}: {error}")))?.into_parts();
        let text = String::from_utf8_lossy(&body).into_owned();
        let json = serde_json::from_str(&text).unwrap_or_default();
        Ok(Response { status: head.status, headers: head.headers, text, json })
    }

    /// Makes a call with a JSON body, which must succeed, and returns the JSON of the response.
    pub async fn json(&self, method: Method, path: &str, body: &Value) -> Result<Value, CallError> {
        let media = [("content-type", "application/json")];
        let response = self.call(method, path, &media, body.to_string()).await?;
        if !response.status.is_success() {
            return Err(CallError(format!("{path}: {} {}", response.status, response.text)));
        }
        Ok(response.json)
    }

    /// Opens a stream of events; the inner `Err` is a status other than 200.
    pub async fn events(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Result<Events, StatusCode>, CallError> {
        let request = self.request(Method::GET, path, headers, Bytes::new())?;
        let response = self.http.open(request, Instant::now() + RESPONSE_TIMEOUT).await;
        let response = response.map_err(|error| CallError(format!("{path}: {error}")))?;
        if response.status() != StatusCode::OK {
            return Ok(Err(response.status()));
        }
        Ok(Ok(Events {
            body: response.into_body(),
            format: EventFormat::default(),
            waiting: VecDeque::new(),
        }))
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Request<Bytes>, CallError> {
        let wrong = || CallError(format!("{path}: cannot be asked for"));
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = format!("{}{path}", self.url).parse().map_err(|_| wrong())?;
        for (name, value) in headers {
            let name: HeaderName = name.parse().map_err(|_| wrong())?;
            request.headers_mut().insert(name, HeaderValue::from_str(value).map_err(|_| wrong())?);
        }
        Ok(request)
    }
}

/// A stream of events.
#[derive(Debug)]
pub struct Events {
    body: Incoming,
    format: EventFormat,
    waiting: VecDeque<Event>,
}

impl Events {
    /// The next event; `None` at the end of the stream. Comments are skipped. It is cancel safe.
    pub async fn next(&mut self) -> Result<Option<Event>, CallError> {
        timeout(RESPONSE_TIMEOUT, self.next_without_limit())
            .await
            .map_err(|_| CallError("a stream is silent for too long".to_owned()))
    }

    /// The next event, however long it takes.
    pub(crate) async fn next_without_limit(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            // A broken connection is an end too: the reader resumes.
            let frame = self.body.frame().await?.ok()?;
            self.waiting.extend(self.format.read(&frame.into_data().unwrap_or_default()));
        }
    }

    /// The delay before a reconnect that the stream has asked for last.
    pub fn retry(&self) -> Option<Duration> {
        self.format.retry()
    }
}
