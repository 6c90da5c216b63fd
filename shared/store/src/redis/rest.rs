//! Upstash's REST API: a command is a JSON array, a pipeline an array of those.
//!
//! This is a small client of our own. The published one for Rust needs a nightly compiler, supports neither scripts nor
//! pipelines, and takes a 401 for "another caller holds the lock". Here every response that is not clearly an answer of
//! Upstash (429, 5xx, a proxy's HTML, an incomplete body) is the error *unavailable*, never a refusal.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response, StatusCode, Uri, header};
use onetap_http::{Client, Incoming};
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use tokio::time::Instant;

use super::encode::{Command, Reply, ServerError};
use super::{Scripted, Transport};
use crate::{BoxStream, Error, Store, forward};
use onetap_config::{MAX_DURATION, Secret};

/// Upstash accepts requests of up to 10 MB.
const MAX_REQUEST_BYTES: usize = 10_000_000;
/// A reply can contain a value for each key of a refused batch.
const MAX_REPLY_BYTES: usize = 64 << 20;
/// No message is longer than the request that published it. A longer line means that the peer is not Upstash.
const MAX_LINE_BYTES: usize = MAX_REQUEST_BYTES;
/// Number of bytes that are kept of a line.
const MAX_LINE_HEAD_BYTES: usize = 4 * 1024;

/// Upstash Redis over its REST API.
///
/// ```
/// # use std::time::Duration;
/// # use onetap_store::Upstash;
/// # fn main() -> Result<(), onetap_store::Error> {
/// let store = Upstash::new("https://eu1-able-cat-12345.upstash.io", "token")?.timeout(Duration::from_secs(1));
/// # let _ = store; Ok(()) }
/// ```
#[derive(Debug)]
pub struct Upstash(Scripted<Rest>);

/// A database at Upstash.
pub(super) struct Rest {
    client: Client,
    url: String,
    /// The address for one command; `pipeline` is for several.
    single: Uri,
    pipeline: Uri,
    authorization: header::HeaderValue,
}

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rest")
    }
}

impl Upstash {
    /// A store on the database at `url`. Does not connect yet.
    pub fn new(url: &str, token: impl Into<Secret>) -> Result<Upstash, Error> {
        let mut authorization =
            header::HeaderValue::from_str(&format!("Bearer {}", token.into().reveal()))
                .map_err(|_| Error::rejected("the token has characters that no header can carry"))?;
        authorization.set_sensitive(true);
        let url = url.trim_end_matches('/').to_owned();
        let (single, pipeline) = (address(&url, "/")?, address(&url, "/pipeline")?);
        Ok(Upstash(Scripted::over(Rest { client: Client::new(), url, single, pipeline, authorization })))
    }

    /// Sets the time limit of each call, connecting included ([`DEFAULT_TIMEOUT`](crate::DEFAULT_TIMEOUT)).
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Upstash {
        self.0.timeout = timeout.min(MAX_DURATION);
        self
    }

    /// Sets the HTTP client, to trust other root certificates or to share a pool of connections.
    #[must_use]
    pub fn http_client(mut self, client: Client) -> Upstash {
        self.0.transport.client = client;
        self
    }
}

impl Store for Upstash {
    forward!(0: get_all, commit, commit_each, read, watch, connect, capabilities, max_value);
}

fn address(url: &str, path: &str) -> Result<Uri, Error> {
    [url, path].concat().parse().map_err(|_| Error::rejected("not an http:// or https:// URL"))
}

impl Rest {
    fn request(&self, address: Uri, body: Vec<u8>) -> Result<Request<Bytes>, Error> {
        if body.len() > MAX_REQUEST_BYTES {
            return Err(Error::too_large(body.len(), MAX_REQUEST_BYTES));
        }
        Request::post(address)
            .header(header::AUTHORIZATION, &self.authorization)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Bytes::from(body))
            .map_err(|_| Error::rejected("not an http:// or https:// URL"))
    }
}

#[async_trait]
impl Transport for Rest {
    const READS_ARE_FRESH: bool = false;
    // GETEX without an option changes nothing, and is a write command: only the primary runs it. For more keys the script
    // costs less, with its MGET and EXISTS.
    const READ: (&'static str, usize) = ("GETEX", 2);
    const SET_NX_RETURNS_VALUE: bool = false;
    const BATCHES_PER_CALL: usize = 50;
    // Without this flag, Upstash locks the whole database while it runs a script.
    const SCRIPT_HEAD: &'static str = "#!lua flags=allow-key-locking\n";

    async fn send(&self, commands: &[Command<'_>], deadline: Instant) -> Result<Vec<Reply>, Error> {
        // Two quotes and a comma for each part, and mostly no escapes.
        let length = |command: &Command<'_>| command.parts().iter().map(|part| part.len() + 3).sum::<usize>();
        let mut body = Vec::with_capacity(commands.iter().map(|command| length(command) + 3).sum());
        let (address, written) = match commands {
            [command] => (&self.single, serde_json::to_writer(&mut body, command.parts())),
            _ => {
                let commands: Vec<_> = commands.iter().map(Command::parts).collect();
                (&self.pipeline, serde_json::to_writer(&mut body, &commands))
            }
        };
        written.map_err(|_| Error::rejected("not JSON"))?;
        let request = self.request(address.clone(), body)?;
        let response = self.client.send(request, deadline, MAX_REPLY_BYTES).await.map_err(failure)?;
        let (status, body) = (response.status(), response.body());
        if commands.len() > 1 && status.is_success() {
            if let Ok(answers) = serde_json::from_slice::<Vec<Answer>>(body) {
                let replies = answers.into_iter().map(|answer| answer.reply(status));
                return replies.collect::<Result<_, _>>();
            }
        }
        match Answer::read(body, status)? {
            one if commands.len() == 1 => Ok(vec![one]),
            // The whole request was refused: that is the reply to each of its commands.
            Reply::Error(error) => Ok(commands.iter().map(|_| Reply::Error(error.clone())).collect()),
            _ => Err(unexpected(status)),
        }
    }

    async fn connect(&self, deadline: Instant) -> Result<(), Error> {
        self.client.connect(&self.single, deadline).await.map_err(failure)
    }

    async fn subscribe(
        &self,
        channel: &str,
        deadline: Instant,
    ) -> Result<BoxStream<'static, Result<(), Error>>, Error> {
        let address = address(&self.url, &format!("/subscribe/{}", escaped(channel)))?;
        let mut request = self.request(address, Vec::new())?;
        request.headers_mut().insert(header::ACCEPT, header::HeaderValue::from_static("text/event-stream"));
        let response = self.client.open(request, deadline).await.map_err(failure)?;
        if response.status() != StatusCode::OK {
            return Err(refused(response, deadline).await);
        }
        let mut lines = Lines::of(response);
        match tokio::time::timeout_at(deadline, lines.find(b"data: subscribe,")).await {
            Ok(Some(())) => {}
            Ok(None) => return Err(Error::not_sent("the subscription ended before it was acknowledged")),
            Err(_) => return Err(Error::not_sent("no answer in time")),
        }
        let next =
            |mut lines: Lines| async move { lines.find(b"data: message,").await.map(|()| (Ok(()), lines)) };
        Ok(stream::unfold(lines, next).boxed())
    }
}

/// `{"result": …}` or `{"error": "CODE …"}`. Every other body is not from Upstash.
#[derive(Default)]
struct Answer {
    /// `null` is a result too.
    result: Option<Reply>,
    error: Option<String>,
}

impl Answer {
    fn read(body: &[u8], status: StatusCode) -> Result<Reply, Error> {
        serde_json::from_slice::<Answer>(body).map_err(|_| unexpected(status))?.reply(status)
    }

    fn reply(self, status: StatusCode) -> Result<Reply, Error> {
        let known = matches!(status, StatusCode::OK | StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED);
        match (self.result, self.error) {
            (_, Some(error)) if known => Ok(Reply::Error(ServerError::new(&error))),
            (Some(reply), None) if status == StatusCode::OK => Ok(reply),
            _ => Err(unexpected(status)),
        }
    }
}

/// Not derived: a derived implementation would accept an array `[result, error]` too.
impl<'de> Deserialize<'de> for Answer {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Answer, D::Error> {
        struct AsAnswer;

        impl<'de> Visitor<'de> for AsAnswer {
            type Value = Answer;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a result or an error")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Answer, A::Error> {
                let mut answer = Answer::default();
                while let Some(name) = fields.next_key::<Cow<'_, str>>()? {
                    match &*name {
                        "result" => answer.result = Some(fields.next_value()?),
                        "error" => answer.error = Some(fields.next_value()?),
                        _ => {
                            fields.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(answer)
            }
        }

        json.deserialize_map(AsAnswer)
    }
}

/// Decoded without a `serde_json::Value` in between, which would take as long as everything else.
impl<'de> Deserialize<'de> for Reply {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Reply, D::Error> {
        struct AsReply;

        impl<'de> Visitor<'de> for AsReply {
            type Value = Reply;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("null, a number, a text or a list of those")
            }

            fn visit_unit<E>(self) -> Result<Reply, E> {
                Ok(Reply::Nil)
            }

            fn visit_i64<E>(self, number: i64) -> Result<Reply, E> {
                Ok(Reply::Int(number))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Reply, E> {
                i64::try_from(number).map(Reply::Int).map_err(E::custom)
            }

            fn visit_str<E>(self, text: &str) -> Result<Reply, E> {
                Ok(Reply::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Reply, A::Error> {
                let mut replies = Vec::new();
                while let Some(reply) = items.next_element()? {
                    replies.push(reply);
                }
                Ok(Reply::List(replies))
            }
        }

        json.deserialize_any(AsReply)
    }
}

fn unexpected(status: StatusCode) -> Error {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Error::rejected(format!("HTTP {}: the token is wrong, or may not do this", status.as_u16()))
        }
        StatusCode::PAYLOAD_TOO_LARGE => Error::rejected("HTTP 413: the request is too large"),
        StatusCode::TOO_MANY_REQUESTS => Error::not_sent("HTTP 429: too many requests"),
        // Another server, such as a proxy, answered. The request may have reached Upstash.
        status => Error::unknown(format!("HTTP {} with a body that is no answer", status.as_u16())),
    }
}

/// The error in a response that should have been an event stream.
async fn refused(response: Response<Incoming>, deadline: Instant) -> Error {
    let status = response.status();
    let mut lines = Lines::of(response);
    let text = tokio::time::timeout_at(deadline, lines.next()).await.ok().flatten().unwrap_or_default();
    match Answer::read(&text, status) {
        Ok(Reply::Error(error)) => error.into(),
        _ => unexpected(status),
    }
}

fn failure(error: onetap_http::Error) -> Error {
    match error {
        onetap_http::Error::Interrupted(_) => Error::interrupted(error),
        onetap_http::Error::NotConnected(_) => Error::not_sent("no connection").with_source(error),
        other => Error::unknown(other.to_string()),
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

/// Reads a body line by line; the last line may have no line end. Only the beginning of each line is kept: it is enough
/// to recognise a message, and the error in a response that should have been a stream is shorter.
struct Lines {
    body: Incoming,
    /// Bytes that were received and not read yet.
    piece: Bytes,
    head: Vec<u8>,
    length: usize,
}

impl Lines {
    fn of(response: Response<Incoming>) -> Lines {
        Lines { body: response.into_body(), piece: Bytes::new(), head: Vec::new(), length: 0 }
    }

    /// Returns at the first line that begins with `start`; `None` at the end of the body.
    async fn find(&mut self, start: &[u8]) -> Option<()> {
        while !self.next().await?.starts_with(start) {}
        Some(())
    }

    async fn next(&mut self) -> Option<Vec<u8>> {
        use onetap_http::BodyExt;
        loop {
            // Without this, data that keeps arriving would prevent the timeout from being polled.
            tokio::task::coop::consume_budget().await;
            let end = self.piece.iter().position(|byte| *byte == b'\n');
            let part = self.piece.split_to(end.map_or(self.piece.len(), |end| end + 1));
            let room = MAX_LINE_HEAD_BYTES - self.head.len();
            self.head.extend_from_slice(&part[..part.len().min(room)]);
            self.length += part.len();
            if end.is_some() {
                return Some(self.take_line());
            }
            if self.length > MAX_LINE_BYTES {
                return None;
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.piece = frame.into_data().unwrap_or_default(),
                _ if self.length == 0 => return None,
                _ => return Some(self.take_line()),
            }
        }
    }

    fn take_line(&mut self) -> Vec<u8> {
        self.length = 0;
        let mut line = std::mem::take(&mut self.head);
        line.truncate(line.trim_ascii_end().len());
        line
    }
}
