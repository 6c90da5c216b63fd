//! What users sent: images, videos, audio and files.

use std::fmt;

use bytes::Bytes;
use http::header;
use tokio::time::Instant;

use crate::client::{MAX_RESPONSE_BYTES, path_id};
use crate::{CallError, Client};

/// What a user sent. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Content {
    /// The bytes.
    pub bytes: Bytes,
    /// The response header `content-type`, such as `image/jpeg`.
    pub content_type: Option<String>,
}

impl Client {
    /// Downloads what came with a message, before `deadline`. LINE keeps it for a limited time: [`CallError::NotFound`]
    /// afterwards. A video or audio message may take LINE some time: [`CallError::NotReady`]. More than `max_bytes` are
    /// [`CallError::TooLarge`]; of those no more than that is read.
    pub async fn content(
        &self,
        message_id: &str,
        max_bytes: usize,
        deadline: Instant,
    ) -> Result<Content, CallError> {
        let path = ["/v2/bot/message/", path_id(message_id)?, "/content"].concat();
        // A refusal may be larger than the content is allowed to be.
        let response = self.get_data(&path, deadline, max_bytes.max(MAX_RESPONSE_BYTES)).await;
        let response = response.map_err(|error| match error {
            onetap_http::Error::TooLarge => CallError::TooLarge,
            error => error.into(),
        })?;
        if response.status().as_u16() != 200 {
            return Err(CallError::of(&response));
        }
        let content_type = response.headers().get(header::CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok()).map(str::to_owned);
        let bytes = response.into_body();
        if bytes.len() > max_bytes {
            return Err(CallError::TooLarge);
        }
        Ok(Content { bytes, content_type })
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({} bytes)", self.bytes.len())
    }
}
