//! A small client of the runner, for the demo and the tests: JSON calls, and Server-Sent Events.

use std::fmt;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use onetap_http::{BodyExt, Bytes, Incoming};
use serde_json::Value;
use tokio::time::{Instant, timeout};

/// More than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// A call that brought no answer, or not the one it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem(pub String);

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Problem {}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, as it came.
    pub text: String,
    /// Its body, if it is JSON.
    pub json: Value,
}

impl Answer {
    /// A header's text.
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

    /// One call, and its whole answer, whatever it says.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Answer, Problem> {
        let request = self.request(method, path, headers, body.into())?;
        let answer = self.http.send(request, Instant::now() + PATIENCE, 32 << 20).await;
        let (head, body) = answer.map_err(|error| Problem(format!("{path}: {error}")))?.into_parts();
        let text = String::from_utf8_lossy(&body).into_owned();
        let json = serde_json::from_str(&text).unwrap_or_default();
        Ok(Answer { status: head.status, headers: head.headers, text, json })
    }

    /// A call with a JSON body that must succeed: the JSON of its answer.
    pub async fn json(&self, method: Method, path: &str, body: &Value) -> Result<Value, Problem> {
        let media = [("content-type", "application/json")];
        let answer = self.call(method, path, &media, body.to_string()).await?;
        if !answer.status.is_success() {
            return Err(Problem(format!("{path}: {} {}", answer.status, answer.text)));
        }
        Ok(answer.json)
    }

    /// Opens a stream of events; `Err` of a status where there is none.
    pub async fn events(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Result<Events, StatusCode>, Problem> {
        let request = self.request(Method::GET, path, headers, Bytes::new())?;
        let answer = self.http.open(request, Instant::now() + PATIENCE).await;
        let answer = answer.map_err(|error| Problem(format!("{path}: {error}")))?;
        if answer.status() != StatusCode::OK {
            return Ok(Err(answer.status()));
        }
        Ok(Ok(Events { body: answer.into_body(), rest: Vec::new() }))
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Request<Bytes>, Problem> {
        let wrong = || Problem(format!("{path}: cannot be asked for"));
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

/// One event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `message`, unless it says otherwise.
    pub name: String,
    /// Its id, if it has one.
    pub id: Option<String>,
    /// Its data.
    pub data: String,
}

/// A stream of events.
#[derive(Debug)]
pub struct Events {
    body: Incoming,
    rest: Vec<u8>,
}

impl Events {
    /// The next event; `None` at the stream's end. Comments are passed over.
    pub async fn next(&mut self) -> Result<Option<Event>, Problem> {
        let next = async {
            loop {
                if let Some(end) = self.rest.windows(2).position(|two| two == b"\n\n") {
                    let block: Vec<u8> = self.rest.drain(..end + 2).collect();
                    match event(&String::from_utf8_lossy(&block)) {
                        Some(event) => return Some(event),
                        None => continue,
                    }
                }
                // A connection that breaks is an end like another to one who resumes.
                let frame = self.body.frame().await?.ok()?;
                self.rest.extend_from_slice(&frame.into_data().unwrap_or_default());
            }
        };
        timeout(PATIENCE, next).await.map_err(|_| Problem("a stream is silent for too long".to_owned()))
    }
}

fn event(block: &str) -> Option<Event> {
    let field = |name: &str| {
        let value =
            move |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim_start().to_owned());
        block.lines().filter_map(value).collect::<Vec<String>>()
    };
    let data = field("data");
    let name = field("event").pop().unwrap_or_else(|| "message".to_owned());
    (!data.is_empty()).then(|| Event { name, id: field("id").pop(), data: data.join("\n") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_read_and_a_comment_is_not() {
        let read = event("id: 7-1\nevent: gap\ndata: {\ndata: }\n\n");
        let gap = Event { name: "gap".to_owned(), id: Some("7-1".to_owned()), data: "{\n}".to_owned() };
        assert_eq!(read, Some(gap));
        assert_eq!(event(": keep-alive\n\n"), None);
        assert_eq!(event("retry: 1000\n\n"), None);
        assert_eq!(event("data: x\n\n").unwrap().name, "message");
    }
}
