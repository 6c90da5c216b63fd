//! Upstash's REST API: a command is a JSON array, a pipeline an array of those.
//!
//! The client is our own and small. The published one for Rust needs a nightly compiler, knows neither scripts nor
//! pipelines, and reads a 401 as "somebody else holds the lock". Here whatever is not clearly an answer of Upstash
//! (429, 5xx, a proxy's HTML, half a body) is *unavailable*, never "no".

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response, StatusCode, header};
use onetap_http::{Client, Incoming};
use serde_json::Value as Json;
use tokio::time::Instant;

use super::encode::{Command, Reply, ServerError};
use super::{Failure, Scripted, Transport};
use crate::config::Secret;
use crate::{BoxStream, Error};

/// Upstash takes requests of 10 MB.
const MAX_REQUEST: usize = 10_000_000;
/// A reply may hold as many values as a refused batch names.
const MAX_REPLY: usize = 64 << 20;

/// A database at Upstash.
pub struct Rest {
    client: Client,
    url: String,
    authorization: header::HeaderValue,
}

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rest")
    }
}

impl Scripted<Rest> {
    /// The database at `url`, each call within `limit`. Connects to nothing yet.
    pub fn new(url: &str, token: &Secret, limit: Duration) -> Result<Scripted<Rest>, Error> {
        let mut authorization = header::HeaderValue::from_str(&format!("Bearer {}", token.reveal()))
            .map_err(|_| Error::rejected("the token has characters that no header can carry"))?;
        authorization.set_sensitive(true);
        let url = url.trim_end_matches('/').to_owned();
        url.parse::<http::Uri>().map_err(|_| Error::rejected("not an http:// or https:// URL"))?;
        Ok(Scripted::over(Rest { client: Client::new(), url, authorization }, limit))
    }
}

impl Rest {
    fn request(&self, path: &str, body: Vec<u8>) -> Result<Request<Bytes>, Error> {
        if body.len() > MAX_REQUEST {
            return Err(Error::TooLarge { size: body.len(), limit: MAX_REQUEST });
        }
        Request::post(format!("{}{path}", self.url))
            .header(header::AUTHORIZATION, &self.authorization)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Bytes::from(body))
            .map_err(|_| Error::rejected("not an http:// or https:// URL"))
    }
}

#[async_trait]
impl Transport for Rest {
    const READS_ARE_FRESH: bool = false;
    // Without it Upstash runs a script under a lock on the whole database.
    const SCRIPT_HEAD: &'static str = "#!lua flags=allow-key-locking\n";

    async fn send(&self, commands: &[Command<'_>], deadline: Instant) -> Result<Vec<Reply>, Failure> {
        let (path, body) = match commands {
            [command] => ("/", serde_json::to_vec(command.parts())),
            _ => ("/pipeline", serde_json::to_vec(&commands.iter().map(Command::parts).collect::<Vec<_>>())),
        };
        let body = body.map_err(|_| Failure::Final(Error::rejected("not JSON")))?;
        let request = self.request(path, body).map_err(Failure::Final)?;
        let response = self.client.send(request, deadline, MAX_REPLY).await.map_err(failure)?;
        let status = response.status();
        let body: Json = match serde_json::from_slice(response.body()) {
            Ok(body) => body,
            Err(_) => return Err(Failure::Final(unexpected(status))),
        };
        match body {
            Json::Array(items) if commands.len() > 1 && status.is_success() => items
                .into_iter()
                .map(|item| reply(item, status))
                .collect::<Result<_, _>>()
                .map_err(Failure::Final),
            body => match reply(body, status) {
                Ok(one) if commands.len() == 1 => Ok(vec![one]),
                Ok(Reply::Error(error)) => Err(Failure::Final(error.into())),
                Ok(_) => Err(Failure::Final(unexpected(status))),
                Err(error) => Err(Failure::Final(error)),
            },
        }
    }

    async fn subscribe(
        &self,
        channel: &str,
        deadline: Instant,
    ) -> Result<BoxStream<'static, Result<(), Error>>, Error> {
        let mut request = self.request(&format!("/subscribe/{}", escaped(channel)), Vec::new())?;
        request.headers_mut().insert(header::ACCEPT, header::HeaderValue::from_static("text/event-stream"));
        let response =
            self.client.open(request, deadline).await.map_err(|error| Error::from(failure(error)))?;
        if response.status() != StatusCode::OK {
            return Err(refused(response, deadline).await);
        }
        let mut lines = Lines { body: response.into_body(), buffer: Vec::new() };
        loop {
            match tokio::time::timeout_at(deadline, lines.next()).await {
                Ok(Some(line)) if line.starts_with(b"data: subscribe,") => break,
                Ok(Some(_)) => {}
                Ok(None) => {
                    return Err(Error::not_sent("the subscription ended before it was acknowledged"));
                }
                Err(_) => return Err(Error::not_sent("no answer in time")),
            }
        }
        let next = |mut lines: Lines| async move {
            loop {
                if lines.next().await?.starts_with(b"data: message,") {
                    return Some((Ok(()), lines));
                }
            }
        };
        Ok(stream::unfold(lines, next).boxed())
    }
}

/// `{"result": …}` or `{"error": "CODE …"}`; everything else is not Upstash speaking.
fn reply(body: Json, status: StatusCode) -> Result<Reply, Error> {
    let Json::Object(mut body) = body else {
        return Err(unexpected(status));
    };
    let known = matches!(status, StatusCode::OK | StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED);
    match (body.remove("result"), body.remove("error")) {
        (_, Some(Json::String(error))) if known => Ok(Reply::Error(ServerError::new(&error))),
        (Some(result), None) if status == StatusCode::OK => value(result).ok_or_else(|| unexpected(status)),
        _ => Err(unexpected(status)),
    }
}

fn value(json: Json) -> Option<Reply> {
    Some(match json {
        Json::Null => Reply::Nil,
        Json::String(text) => Reply::Text(text),
        Json::Number(number) => Reply::Int(number.as_i64()?),
        Json::Array(items) => Reply::List(items.into_iter().map(value).collect::<Option<_>>()?),
        Json::Bool(_) | Json::Object(_) => return None,
    })
}

fn unexpected(status: StatusCode) -> Error {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Error::rejected(format!("HTTP {}: the token is wrong, or may not do this", status.as_u16()))
        }
        StatusCode::PAYLOAD_TOO_LARGE => Error::rejected("HTTP 413: the request is too large"),
        StatusCode::TOO_MANY_REQUESTS => Error::not_sent("HTTP 429: too many requests"),
        // The request was received, and somebody else answered for Upstash: it may have got through.
        status => Error::unknown(format!("HTTP {} with a body that is no answer", status.as_u16())),
    }
}

/// The error of an answer that should have been a stream.
async fn refused(response: Response<Incoming>, deadline: Instant) -> Error {
    let status = response.status();
    let mut lines = Lines { body: response.into_body(), buffer: Vec::new() };
    let text = tokio::time::timeout_at(deadline, lines.next()).await.ok().flatten().unwrap_or_default();
    match serde_json::from_slice(&text).map(|body| reply(body, status)) {
        Ok(Ok(Reply::Error(error))) => error.into(),
        _ => unexpected(status),
    }
}

fn failure(error: onetap_http::Error) -> Failure {
    match error {
        onetap_http::Error::Interrupted => Failure::Interrupted,
        onetap_http::Error::NotConnected => Failure::Final(Error::not_sent("no connection")),
        onetap_http::Error::TimedOut => Failure::Final(Error::unknown("no answer in time")),
        onetap_http::Error::TooLarge => Failure::Final(Error::unknown("the answer is too large")),
    }
}

/// Everything but letters, digits and `-._~` as `%XX`.
fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut path, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(byte as char);
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
        path
    })
}

/// A body, line by line; the last one may be without its end. It ends at a line that is larger than any reply: what
/// never ends a line is no stream of Upstash's.
struct Lines {
    body: Incoming,
    buffer: Vec<u8>,
}

impl Lines {
    async fn next(&mut self) -> Option<Vec<u8>> {
        use onetap_http::BodyExt;
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
                line.truncate(line.trim_ascii_end().len());
                return Some(line);
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                    if self.buffer.len() > MAX_REPLY {
                        return None;
                    }
                }
                _ if self.buffer.is_empty() => return None,
                _ => return Some(std::mem::take(&mut self.buffer)),
            }
        }
    }
}
