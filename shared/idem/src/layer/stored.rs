//! A response as it is kept.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::header::{
    CONNECTION, HeaderName, HeaderValue, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, Response, StatusCode, response};
use serde::{Deserialize, Serialize};

use super::body::Body;

/// Headers that belong to one exchange and not to its answer. A cookie is for whoever asked first.
const NOT_KEPT: [HeaderName; 6] = [SET_COOKIE, CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

/// Status, headers, body and trailers, in JSON that can be read.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Stored {
    status: u16,
    headers: Vec<(String, String)>,
    #[serde(flatten)]
    body: StoredBody,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    trailers: Vec<(String, String)>,
}

/// Text as it is, anything else as base64.
#[derive(Clone, Serialize, Deserialize)]
enum StoredBody {
    #[serde(rename = "body")]
    Text(String),
    #[serde(rename = "base64")]
    Binary(String),
}

impl Stored {
    pub(super) fn new(head: &response::Parts, data: &Bytes, trailers: Option<&HeaderMap>) -> Stored {
        let body = match std::str::from_utf8(data) {
            Ok(text) => StoredBody::Text(text.to_owned()),
            Err(_) => StoredBody::Binary(BASE64.encode(data)),
        };
        let trailers = trailers.map(written).unwrap_or_default();
        Stored { status: head.status.as_u16(), headers: written(&head.headers), body, trailers }
    }

    /// The response again; `None` if what was kept is none.
    pub(super) fn replay(self) -> Option<Response<Body>> {
        let data = match self.body {
            StoredBody::Text(text) => Bytes::from(text),
            StoredBody::Binary(text) => Bytes::from(BASE64.decode(text).ok()?),
        };
        let trailers = if self.trailers.is_empty() { None } else { Some(read(self.trailers)?) };
        let mut response = Response::new(Body::whole(data, trailers));
        *response.status_mut() = StatusCode::from_u16(self.status).ok()?;
        *response.headers_mut() = read(self.headers)?;
        response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
        Some(response)
    }
}

/// Header values are bytes; each becomes the character of that number, and back.
fn written(headers: &HeaderMap) -> Vec<(String, String)> {
    let kept = headers.iter().filter(|(name, _)| !NOT_KEPT.contains(name));
    kept.map(|(name, value)| {
        (name.to_string(), value.as_bytes().iter().map(|byte| char::from(*byte)).collect())
    })
    .collect()
}

fn read(pairs: Vec<(String, String)>) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let bytes = value.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect::<Option<Vec<u8>>>()?;
        headers.append(HeaderName::try_from(name).ok()?, HeaderValue::from_bytes(&bytes).ok()?);
    }
    Some(headers)
}
