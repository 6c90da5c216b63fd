//! The stream: events as they come, comments in silence, an end in time.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use onetap_bus::Follower;
use onetap_store::Record;
use tokio::time::{Instant, sleep_until};

use crate::Body;

/// `EventSource` comes back so soon after the end of a stream, in milliseconds.
const HEAD: &str = "retry: 1000\n\n";
/// An empty `id` makes the client forget its own: it is told of the gap once.
const GAP: &str = "event: gap\nid:\ndata: {}\n\n";
const EXPIRED: &str = "event: expired\ndata: {}\n\n";
const KEEPALIVE: &str = ": keep-alive\n\n";
/// After a failure that passes, clients come back after at least this time, in milliseconds,
const SHORTEST_PAUSE_MS: u64 = 2000;
/// and at most this one: not all of them at the same moment.
const LONGEST_PAUSE_MS: u64 = 5000;

/// What is told of a job from here on.
struct Telling {
    follower: Follower,
    keepalive: Duration,
    end: End,
    progress: Progress,
}

/// When a stream ends, and what ends it.
#[derive(Clone, Copy)]
pub(crate) struct End {
    at: Instant,
    token_expires: bool,
}

impl End {
    /// The end of a stream that begins now, and whose token is good for `left`.
    pub(crate) fn new(max: Duration, left: Duration) -> End {
        End { at: Instant::now() + max.min(left), token_expires: left <= max }
    }
}

enum Progress {
    Begins,
    Goes,
    Ended,
}

/// The body of a stream.
pub(crate) fn body(follower: Follower, keepalive: Duration, end: End) -> Body {
    let telling = Telling { follower, keepalive, end, progress: Progress::Begins };
    let frames = stream::unfold(telling, |mut telling| async move {
        let text = telling.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(text))), telling))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// A stream that says no more than when to come back.
pub(crate) fn retry_later() -> String {
    let chance = getrandom::u64().unwrap_or_default() % (LONGEST_PAUSE_MS - SHORTEST_PAUSE_MS + 1);
    format!("retry: {}\n\n", SHORTEST_PAUSE_MS + chance)
}

impl Telling {
    async fn next(&mut self) -> Option<String> {
        match self.progress {
            Progress::Begins => {
                self.progress = Progress::Goes;
                let gap = if self.follower.has_gap() { GAP } else { "" };
                return Some([HEAD, gap].concat());
            }
            Progress::Goes => {}
            Progress::Ended => return None,
        }
        let silence = (Instant::now() + self.keepalive).min(self.end.at);
        tokio::select! {
            // What is there is told before the end is looked at, so that a short stream brings something too.
            biased;
            next = self.follower.next() => match next {
                Ok(record) => record.map(|record| event(&record)),
                // The store has logged it. The client comes back and resumes.
                Err(_) => self.last(retry_later()),
            },
            () = sleep_until(silence) => match self.end {
                End { at, .. } if silence < at => Some(KEEPALIVE.to_owned()),
                End { token_expires: true, .. } => self.last(EXPIRED.to_owned()),
                End { token_expires: false, .. } => None,
            },
        }
    }

    /// Ends the stream with this text.
    fn last(&mut self, text: String) -> Option<String> {
        self.progress = Progress::Ended;
        Some(text)
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
