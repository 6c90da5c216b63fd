use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::{Response, StatusCode};
use redis::{Msg, RedisResult};

use super::backend::Backend;
use crate::fault::{Body, response};

/// What a client listens to.
pub(super) enum Subscription {
    Channels(Vec<String>),
    Patterns(Vec<String>),
}

impl Subscription {
    /// Subscribes, then answers with server-sent events: one confirms each channel, one brings each message.
    pub(super) async fn open(self, backend: &Backend) -> RedisResult<Response<Body>> {
        let mut subscriber = backend.subscriber().await?;
        let (kind, names) = match &self {
            Subscription::Channels(names) => {
                subscriber.subscribe(names).await?;
                ("subscribe", names)
            }
            Subscription::Patterns(names) => {
                subscriber.psubscribe(names).await?;
                ("psubscribe", names)
            }
        };
        let confirmed: Vec<_> =
            (1..).zip(names).map(|(count, name)| format!("{kind},{name},{count}")).collect();
        let messages = subscriber.into_on_message().map(|message| describe(&message));
        let events = stream::iter(confirmed).chain(messages).map(|text| Ok(Frame::data(event(&text))));

        let mut answer = response(StatusCode::OK, "text/event-stream", "");
        *answer.body_mut() = StreamBody::new(events).boxed_unsync();
        Ok(answer)
    }
}

fn describe(message: &Msg) -> String {
    let (channel, text) = (message.get_channel_name(), String::from_utf8_lossy(message.get_payload_bytes()));
    match message.get_pattern::<Option<String>>() {
        Ok(Some(pattern)) => format!("pmessage,{pattern},{channel},{text}"),
        _ => format!("message,{channel},{text}"),
    }
}

/// A server-sent event; a text of several lines is several lines of data.
fn event(text: &str) -> Bytes {
    format!("data: {}\n\n", text.replace('\n', "\ndata: ")).into()
}
