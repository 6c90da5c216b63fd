//! Answers: JSON, and in Chinese where people read it.

use http::header::{ALLOW, CONTENT_TYPE, ETAG, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, Response, StatusCode};
use lambda_http::{Body, IntoResponse};
use onetap_idem::Error;
use onetap_ledger::{ChangeError, Invalid, texts};
use onetap_store::{ErrorKind, edit};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::future::ready;
use std::pin::Pin;
use std::time::Duration;

/// A whole answer.
pub type Answer = Response<String>;

/// An answer on its way to Lambda, byte for byte. (lambda_http decodes the body of a plain response, and so drops the byte
/// order mark of a CSV.)
#[derive(Debug)]
pub struct LambdaAnswer(pub Answer);

impl IntoResponse for LambdaAnswer {
    fn into_response(self) -> Pin<Box<dyn Future<Output = Response<Body>> + Send>> {
        Box::pin(ready(self.0.map(Body::Text)))
    }
}

/// A success: what is kept under an idempotency key.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Success {
    pub(crate) status: u16,
    pub(crate) etag: Option<String>,
    pub(crate) body: String,
}

impl From<Success> for Answer {
    fn from(success: Success) -> Answer {
        let status = StatusCode::from_u16(success.status).unwrap_or(StatusCode::OK);
        let mut answer = whole(status, success.body);
        if let Some(etag) = success.etag.and_then(|etag| HeaderValue::try_from(etag).ok()) {
            answer.headers_mut().insert(ETAG, etag);
        }
        answer
    }
}

/// An answer with a body of JSON.
pub(crate) fn whole(status: StatusCode, json: String) -> Answer {
    let mut answer = Response::new(json);
    *answer.status_mut() = status;
    let media = HeaderValue::from_static("application/json; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, media);
    answer
}

/// An answer without a body.
pub(crate) fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(String::new());
    *answer.status_mut() = status;
    answer
}

/// `{"success":false,"message":…}`
pub(crate) fn refusal(status: StatusCode, message: &str) -> Answer {
    whole(status, json!({"success": false, "message": message}).to_string())
}

pub(crate) fn unauthorized() -> Answer {
    let mut answer = refusal(StatusCode::UNAUTHORIZED, "缺少或錯誤的 bearer token");
    answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    answer
}

pub(crate) fn not_allowed(methods: &'static str) -> Answer {
    let mut answer = refusal(StatusCode::METHOD_NOT_ALLOWED, "不支援這個方法");
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    answer
}

/// Why the change did not happen, with the reason for each wrong field.
pub(crate) fn failed(failure: &ChangeError, life: Duration) -> Answer {
    let status = match failure {
        ChangeError::Missing => StatusCode::NOT_FOUND,
        ChangeError::Replaced => StatusCode::CONFLICT,
        ChangeError::Stale => StatusCode::PRECONDITION_FAILED,
        ChangeError::Expired => StatusCode::GONE,
        ChangeError::Invalid(Invalid::Malformed) => StatusCode::BAD_REQUEST,
        ChangeError::Invalid(Invalid::Fields(_)) => StatusCode::UNPROCESSABLE_ENTITY,
        ChangeError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ChangeError::Unreadable(_) | ChangeError::Unwritable(_) | ChangeError::Outrun => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        // `Broken`.
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut body = json!({"success": false, "message": texts::failure(failure, life)});
    if let ChangeError::Invalid(Invalid::Fields(wrong)) = failure {
        let errors: Map<String, Value> =
            wrong.iter().map(|(name, reason)| (name.clone(), Value::from(*reason))).collect();
        body["errors"] = errors.into();
    }
    whole(status, body.to_string())
}

/// Trouble with an idempotency key: what RFC 9457 asks for, and in it what all failures here have.
pub(crate) fn problem(status: StatusCode, message: &str, wait: Option<Duration>) -> Answer {
    let body = json!({
        "type": "about:blank",
        "title": status.canonical_reason(),
        "status": status.as_u16(),
        "detail": message,
        "success": false,
        "message": message,
    });
    let mut answer = whole(status, body.to_string());
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(wait) = wait {
        // Whole seconds, and at least one.
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0 || wait.is_zero());
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    answer
}

/// Why a change with an idempotency key did not happen.
pub(crate) fn failed_once(error: Error<Success, edit::Error<ChangeError>>, life: Duration) -> Answer {
    let conflict = |message, wait| problem(StatusCode::CONFLICT, message, wait);
    match error {
        Error::Function(error) => failed(&error.into(), life),
        Error::Mismatch => {
            problem(StatusCode::UNPROCESSABLE_ENTITY, "這個 Idempotency-Key 已用於另一個請求", None)
        }
        Error::InProgress { left } => {
            conflict("相同 Idempotency-Key 的請求正在處理中，請稍後再試", Some(left))
        }
        Error::LostLease { .. } => {
            conflict("相同 Idempotency-Key 的請求正在處理中，請稍後再試", Some(Duration::ZERO))
        }
        Error::NotKept => conflict("這個請求已經處理過，但結果過大而未保留", None),
        Error::Store(error) if error.kind() == ErrorKind::TooLarge => failed(&ChangeError::TooLarge, life),
        Error::Store(error) if error.kind() == ErrorKind::Decode => failed(&ChangeError::Broken, life),
        Error::Store(error) | Error::Unrecorded { error, .. } => {
            failed(&ChangeError::Unwritable(error), life)
        }
        // The deadline had passed before the change began; the other errors cannot come from an edit.
        _ => failed(&ChangeError::Outrun, life),
    }
}

/// Marks an answer as one that was given before.
pub(crate) fn replayed(mut answer: Answer) -> Answer {
    let name = HeaderName::from_static("idempotency-replayed");
    answer.headers_mut().insert(name, HeaderValue::from_static("true"));
    answer
}
