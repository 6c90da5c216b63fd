use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::{HeaderMap, Response, StatusCode};
use redis::Value;
use serde_json::{Value as Json, json};

use super::rules::Outcome;
use crate::fault::{Body, response};

/// How strings are written: as they are, or in base64 for a client that asks for it.
#[derive(Clone, Copy)]
pub(super) enum Encoding {
    Plain,
    Base64,
}

impl Encoding {
    pub(super) fn asked_for(headers: &HeaderMap) -> Encoding {
        match headers.get("upstash-encoding") {
            Some(value) if value == "base64" => Encoding::Base64,
            _ => Encoding::Plain,
        }
    }

    /// One entry of a pipeline's or a transaction's answer.
    pub(super) fn item(self, outcome: Outcome) -> Json {
        match outcome {
            Ok(value) => json!({ "result": self.json(value) }),
            Err(text) => json!({ "error": text }),
        }
    }

    /// A whole result. The status OK is never encoded here; inside an array it is, since the clients decode
    /// it there.
    pub(super) fn json(self, value: Value) -> Json {
        match value {
            Value::Okay => "OK".into(),
            value => self.element(value),
        }
    }

    fn element(self, value: Value) -> Json {
        match value {
            Value::Nil => Json::Null,
            Value::Int(number) => number.into(),
            Value::BulkString(bytes) => self.text(&bytes),
            Value::SimpleString(text) => self.text(text.as_bytes()),
            Value::Okay => self.text(b"OK"),
            Value::Array(values) => values.into_iter().map(|value| self.element(value)).collect(),
            // The gateway speaks RESP2, which has no other types.
            other => self.text(format!("{other:?}").as_bytes()),
        }
    }

    fn text(self, bytes: &[u8]) -> Json {
        match self {
            Encoding::Plain => String::from_utf8_lossy(bytes).into(),
            Encoding::Base64 => BASE64_STANDARD.encode(bytes).into(),
        }
    }
}

pub(super) fn error(status: StatusCode, text: &str) -> Response<Body> {
    json(status, &json!({ "error": text }))
}

pub(super) fn json(status: StatusCode, body: &Json) -> Response<Body> {
    response(status, "application/json", body.to_string())
}
