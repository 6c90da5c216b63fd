//! What can go wrong with a request, for every server here alike.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{fmt, io};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE};
use hyper::{Response, StatusCode};
use tokio::sync::Semaphore;

/// What a server does to a request instead of answering it properly.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Answers with this status and body; the request is not executed.
    Status(u16, String),
    /// Answers 200 with a page of HTML, as a captive portal or a misplaced proxy does.
    Html,
    /// Announces a whole JSON answer, sends half of it and closes the connection.
    HalfBody,
    /// Answers 200 with an empty body.
    Empty,
    /// Reads the request and never answers.
    Hang,
    /// Reads the request and closes the connection without an answer.
    Close,
    /// Executes the request, then closes the connection without an answer.
    DropReply,
    /// Waits, then executes and answers.
    Delay(Duration),
    /// Waits for a permit, which it uses up, then executes and answers.
    Held(Arc<Semaphore>),
}

impl Fault {
    /// No fault: answers 200 with this body.
    pub fn ok(body: impl ToString) -> Fault {
        Fault::Status(200, body.to_string())
    }
}

/// The body of every answer; a stream, because subscriptions are one.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Makes hyper close the connection without an answer.
#[derive(Debug)]
pub(crate) struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("closed by an injected fault")
    }
}

impl std::error::Error for Closed {}

/// The faults a server is to inject: first those queued, one a request, then the standing one.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<(VecDeque<Fault>, Option<Fault>)>);

impl Faults {
    pub(crate) fn always(&self, fault: Option<Fault>) {
        self.0.lock().unwrap().1 = fault;
    }

    pub(crate) fn queue(&self, faults: Vec<Fault>) {
        self.0.lock().unwrap().0.extend(faults);
    }

    pub(crate) fn next(&self) -> Option<Fault> {
        let (queued, standing) = &mut *self.0.lock().unwrap();
        queued.pop_front().or_else(|| standing.clone())
    }
}

/// Answers a request through a fault. `execute` does the request's work when it is polled, not before.
pub(crate) async fn answer_through(
    fault: Option<Fault>,
    execute: impl Future<Output = Response<Body>>,
) -> Result<Response<Body>, Closed> {
    match fault {
        None => Ok(execute.await),
        Some(Fault::Delay(time)) => {
            tokio::time::sleep(time).await;
            Ok(execute.await)
        }
        Some(Fault::Held(gate)) => {
            gate.acquire().await.expect("a gate is never closed").forget();
            Ok(execute.await)
        }
        Some(Fault::DropReply) => {
            execute.await;
            Err(Closed)
        }
        Some(Fault::Close) => Err(Closed),
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::Status(status, body)) => {
            let media = if body.starts_with(['{', '[']) { "application/json" } else { "text/plain" };
            Ok(response(StatusCode::from_u16(status).expect("a status code"), media, body))
        }
        Some(Fault::Html) => {
            Ok(response(StatusCode::OK, "text/html", "<!doctype html><title>Sign in</title>"))
        }
        Some(Fault::Empty) => Ok(response(StatusCode::OK, "application/json", "")),
        Some(Fault::HalfBody) => Ok(half_an_answer()),
    }
}

pub(crate) fn response(status: StatusCode, media: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(body.into()).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, media.parse().expect("a media type"));
    response
}

fn half_an_answer() -> Response<Body> {
    let (half, whole) = (r#"{"resu"#, r#"{"result":"OK"}"#);
    let body = stream::unfold(0, move |step| async move {
        if step == 0 {
            return Some((Ok(Frame::data(Bytes::from_static(half.as_bytes()))), 1));
        }
        // Once around the scheduler: hyper flushes the half before it hears of the failure.
        tokio::task::yield_now().await;
        Some((Err(io::Error::other(Closed)), 2))
    });
    let mut response = response(StatusCode::OK, "application/json", "");
    response.headers_mut().insert(CONTENT_LENGTH, whole.len().into());
    *response.body_mut() = StreamBody::new(body).boxed_unsync();
    response
}
