//! The stream: events as they come, comments in silence, an end in time.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use onetap_bus::Follower;
use onetap_store::Record;
use tokio::time::{Instant, sleep_until};

use crate::{Body, Config};

/// How soon `EventSource` comes back after the end of a stream, in milliseconds.
const HEAD: &str = "retry: 1000\n\n";
/// An empty `id` makes the client forget its own: it is told of the gap once.
const GAP: &str = "event: gap\nid:\ndata: {}\n\n";
const KEEPALIVE: &str = ": keep-alive\n\n";

/// What is told of a job from here on.
struct Telling {
    follower: Follower,
    keepalive: std::time::Duration,
    end: Instant,
    began: bool,
}

/// The body of a stream.
pub(crate) fn body(follower: Follower, config: &Config) -> Body {
    let telling =
        Telling { follower, keepalive: config.keepalive, end: Instant::now() + config.max, began: false };
    let frames = stream::unfold(telling, |mut telling| async move {
        let text = telling.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(text))), telling))
    });
    StreamBody::new(frames).boxed_unsync()
}

impl Telling {
    async fn next(&mut self) -> Option<String> {
        if !self.began {
            self.began = true;
            let gap = if self.follower.has_gap() { GAP } else { "" };
            return Some([HEAD, gap].concat());
        }
        let now = Instant::now();
        let silence = (now + self.keepalive).min(self.end);
        tokio::select! {
            // What is there is told before the end is looked at, so that a short stream brings something too.
            biased;
            next = self.follower.next() => match next {
                Ok(record) => record.map(|record| event(&record)),
                // The store has logged it. The client comes back and resumes.
                Err(_) => None,
            },
            () = sleep_until(silence) => (silence < self.end).then(|| KEEPALIVE.to_owned()),
        }
    }
}

/// An event of the stream. A line of data for each line of the text, whichever way a producer ends its lines.
fn event(record: &Record) -> String {
    let mut text = format!("id: {}\n", record.position);
    for line in record.text.replace("\r\n", "\n").split(['\n', '\r']) {
        text.extend(["data: ", line, "\n"]);
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_several_lines_stays_one_event() {
        let record =
            Record { position: "7-1".parse().unwrap(), text: "{\r\n\"a\":1,\n\"b\":2\r}".to_owned() };
        assert_eq!(event(&record), "id: 7-1\ndata: {\ndata: \"a\":1,\ndata: \"b\":2\ndata: }\n\n");
    }
}
