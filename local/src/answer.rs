//! Answers of the runner's own.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use job_events::Body;
use serde_json::{Value, json};

/// A request that is not answered, and why.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    message: Cow<'static, str>,
    allow: Option<&'static str>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal { status, message: message.into(), allow: None }
    }

    pub(crate) fn bad(message: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn not_found() -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, "there is nothing at this path")
    }

    pub(crate) fn not_allowed(method: &str) -> Refusal {
        let allow = ["GET", "PUT", "POST"].into_iter().find(|known| *known == method);
        let message = format!("only {method} is answered here");
        Refusal { allow, ..Refusal::new(StatusCode::METHOD_NOT_ALLOWED, message) }
    }
}

impl From<Refusal> for Response<Body> {
    fn from(refusal: Refusal) -> Response<Body> {
        let mut answer = json_answer(refusal.status, &json!({ "error": refusal.message }));
        if let Some(allow) = refusal.allow {
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
        }
        answer
    }
}

/// A whole answer.
pub(crate) fn whole(status: StatusCode, media: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut answer = Response::new(Full::new(body.into()).boxed_unsync());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    answer
}

/// JSON, which no cache keeps: it speaks of this moment, and some of it is secret.
pub(crate) fn json_answer(status: StatusCode, json: &Value) -> Response<Body> {
    let mut answer = whole(status, "application/json", json.to_string());
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// A stream.
pub(crate) fn sse_answer(body: Body) -> Response<Body> {
    let mut answer = Response::new(body);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
