//! Responses that the runner itself gives.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use job_events::Body;
use serde_json::{Value, json};

/// Why a request is refused.
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
        let mut response = json_response(refusal.status, &json!({ "error": refusal.message }));
        if let Some(allow) = refusal.allow {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
        }
        response
    }
}

/// A response whose body is known.
pub(crate) fn whole_response(
    status: StatusCode,
    media: &'static str,
    body: impl Into<Bytes>,
) -> Response<Body> {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

/// JSON, which no cache may keep: it is true for this moment only, and some of it is secret.
pub(crate) fn json_response(status: StatusCode, json: &Value) -> Response<Body> {
    let mut response = whole_response(status, "application/json", json.to_string());
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A stream of Server-Sent Events.
pub(crate) fn sse_response(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
