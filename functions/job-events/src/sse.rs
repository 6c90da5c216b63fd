//! The body of a Server-Sent Events (SSE) response: the events of a job, keep-alive comments, and the end of the
//! stream.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, stream};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use onetap_bus::Follower;
use onetap_store::{Error, Record};
use tokio::time::{Instant, sleep_until};

use crate::Body;

/// The first text of a stream. `EventSource` reconnects one second after the stream ends.
const PREAMBLE: &str = "retry: 1000\n\n";
/// Tells the client that it may have missed events: its last event is no longer in the log. The empty `id` clears the
/// client's last event id, so that the same gap is not reported again.
const GAP: &str = "event: gap\nid:\ndata: {}\n\n";
/// Tells the client that its token has expired.
const EXPIRED: &str = "event: expired\ndata: {}\n\n";
const KEEPALIVE: &str = ": keep-alive\n\n";
/// Shortest delay of a reconnect after a transient failure. The delay is random, so that not all clients return at
/// once.
const MIN_RETRY_MS: u64 = 2000;
/// Longest delay of such a reconnect.
const MAX_RETRY_MS: u64 = 5000;

/// Waits for the next event of a job. It is kept while keep-alive comments are sent: begun anew, a read of the store that
/// takes longer than the interval between them would never end.
type Next = BoxFuture<'static, (Follower, Result<Option<Record>, Error>)>;

fn next_of(mut follower: Follower) -> Next {
    async move {
        let next = follower.next().await;
        (follower, next)
    }
    .boxed()
}

/// An open stream of a job's events.
struct EventStream {
    next: Next,
    has_gap: bool,
    keepalive: Duration,
    end: End,
    progress: Progress,
}

/// The latest end of a stream, and whether the token's expiry is its cause.
#[derive(Clone, Copy)]
pub(crate) struct End {
    at: Instant,
    token_expires: bool,
}

impl End {
    /// The end of a stream that begins now, with a token that is valid for `token_ttl`.
    pub(crate) fn new(max: Duration, token_ttl: Duration) -> End {
        End { at: Instant::now() + max.min(token_ttl), token_expires: token_ttl <= max }
    }
}

enum Progress {
    Started,
    Running,
    Ended,
}

/// The SSE body that follows a job.
pub(crate) fn body(follower: Follower, keepalive: Duration, end: End) -> Body {
    let (has_gap, progress) = (follower.has_gap(), Progress::Started);
    let stream = EventStream { next: next_of(follower), has_gap, keepalive, end, progress };
    let frames = stream::unfold(stream, |mut stream| async move {
        let text = stream.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(text))), stream))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// A complete SSE body that has only a `retry` field, with a random delay.
pub(crate) fn retry_later() -> String {
    let jitter = getrandom::u64().unwrap_or_default() % (MAX_RETRY_MS - MIN_RETRY_MS + 1);
    format!("retry: {}\n\n", MIN_RETRY_MS + jitter)
}

impl EventStream {
    async fn next(&mut self) -> Option<String> {
        match self.progress {
            Progress::Started => {
                self.progress = Progress::Running;
                let gap = if self.has_gap { GAP } else { "" };
                return Some([PREAMBLE, gap].concat());
            }
            Progress::Running => {}
            Progress::Ended => return None,
        }
        let wake_at = (Instant::now() + self.keepalive).min(self.end.at);
        tokio::select! {
            // Events have priority over the end of the stream, so that even a very short stream delivers some.
            biased;
            (follower, next) = &mut self.next => match next {
                Ok(Some(record)) => {
                    self.next = next_of(follower);
                    Some(event(&record))
                }
                // The job has ended: that ends the stream.
                Ok(None) => None,
                // The store has logged its failure. The client reconnects and resumes.
                Err(_) => self.end_with(retry_later()),
            },
            () = sleep_until(wake_at) => match self.end {
                End { at, .. } if wake_at < at => Some(KEEPALIVE.to_owned()),
                End { token_expires: true, .. } => self.end_with(EXPIRED.to_owned()),
                End { token_expires: false, .. } => None,
            },
        }
    }

    /// Ends the stream with this text.
    fn end_with(&mut self, text: String) -> Option<String> {
        self.progress = Progress::Ended;
        Some(text)
    }
}

/// An SSE event, with a `data` line for each line of the text (`\n`, `\r` and `\r\n` all end a line).
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
