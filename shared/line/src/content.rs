//! What users sent: images, videos, audio and files.

use std::fmt;

use bytes::{Bytes, BytesMut};
use http::{StatusCode, header};
use onetap_http::{BodyExt, Incoming};
use tokio::time::{Instant, timeout_at};

use crate::client::path_id;
use crate::{CallError, Client};

/// The connection broke, or the time was up, while a response was read.
const INCOMPLETE: CallError = CallError::Unreachable { maybe_sent: true };

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
    /// Downloads what came with a message, before `deadline`. LINE keeps it for a limited time, [`CallError::NotFound`]
    /// afterwards, and until the user unsends the message: [`CallError::Gone`]. A video or audio message may take LINE some time:
    /// [`CallError::NotReady`].
    ///
    /// More than `max_bytes` are [`CallError::TooLarge`]: nothing of it is read if LINE announces its length, and otherwise no more
    /// than the part in which the limit is passed.
    pub async fn content(
        &self,
        message_id: &str,
        max_bytes: usize,
        deadline: Instant,
    ) -> Result<Content, CallError> {
        let path = ["/v2/bot/message/", path_id(message_id)?, "/content"].concat();
        let response = self.get_data(&path, deadline).await?;
        if response.status() != StatusCode::OK {
            return Err(CallError::of(response.status()));
        }
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        // A length that is no `usize` is beyond every limit.
        let length = header(header::CONTENT_LENGTH).map_or(0, |length| length.parse().unwrap_or(usize::MAX));
        if length > max_bytes {
            return Err(CallError::TooLarge);
        }
        let content_type = header(header::CONTENT_TYPE).map(str::to_owned);
        let reading = read(response.into_body(), length, max_bytes);
        let bytes = timeout_at(deadline, reading).await.unwrap_or(Err(INCOMPLETE))?;
        Ok(Content { bytes, content_type })
    }
}

async fn read(mut body: Incoming, length: usize, max_bytes: usize) -> Result<Bytes, CallError> {
    let mut bytes = BytesMut::with_capacity(length);
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(|_| INCOMPLETE)?.into_data() {
            if data.len() > max_bytes - bytes.len() {
                return Err(CallError::TooLarge);
            }
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes.freeze())
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({} bytes)", self.bytes.len())
    }
}
