//! A subscription on a connection of its own.
//!
//! A NAT gateway or a load balancer forgets a quiet connection without notice to either side. Every message after that
//! is lost, and nothing arrives that would say so. So a quiet connection is asked to answer.

use std::io;
use std::time::Duration;

use futures_util::{Stream, stream};
use tokio::time::timeout;

use super::encode::{Command, Reply};
use super::replies::protocol_error;
use super::wire::Wire;
use crate::Error;

/// After this time without a message the client pings the server. AWS forgets a connection after 350 s, other
/// NATs after 60 s or more.
const PING_AFTER: Duration = Duration::from_secs(30);

/// Time limit for that answer, and for a message from its first byte to its last.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Subscribes to `channel`. The stream has an item for each message. It ends after an error: the connection broke, or
/// the server no longer answers.
pub(super) async fn subscribe(
    mut wire: Wire,
    channel: &str,
) -> io::Result<Result<impl Stream<Item = Result<(), Error>> + use<>, Error>> {
    wire.write(&[Command::of(["SUBSCRIBE", channel])]).await?;
    match wire.replies.next().await? {
        Reply::Error(error) => return Ok(Err(error.into())),
        reply if reply.is_pubsub("subscribe") => {}
        _ => return Err(protocol_error()),
    }
    Ok(Ok(stream::unfold(Some(wire), |wire| async move {
        let mut wire = wire?;
        match next_message(&mut wire).await {
            Ok(()) => Some((Ok(()), Some(wire))),
            Err(error) => Some((Err(Error::not_sent("the subscription broke").with_source(error)), None)),
        }
    })))
}

async fn next_message(wire: &mut Wire) -> io::Result<()> {
    loop {
        if timeout(PING_AFTER, wire.replies.begins()).await.is_err() {
            let answered = async {
                wire.write(&[Command::of(["PING"])]).await?;
                wire.replies.begins().await
            };
            timeout(ANSWER_TIMEOUT, answered).await??;
        }
        // Once a message has begun, the rest must arrive within the time limit.
        if timeout(ANSWER_TIMEOUT, wire.replies.next()).await??.is_pubsub("message") {
            return Ok(());
        }
    }
}

impl Reply {
    /// Whether this is a message of a subscription of this kind: a list whose first element is `kind`.
    fn is_pubsub(&self, kind: &str) -> bool {
        matches!(self, Reply::List(list) if matches!(list.first(), Some(Reply::Text(first)) if first == kind))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests {
    use super::*;
    use futures_util::{FutureExt, StreamExt};
    use std::pin::Pin;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::advance;

    const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
    const PONG: &[u8] = b"*2\r\n$4\r\npong\r\n$0\r\n\r\n";
    const MESSAGE: &[u8] = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$4\r\ntext\r\n";

    type Messages = Pin<Box<dyn Stream<Item = Result<(), Error>>>>;

    async fn subscribed() -> (Messages, DuplexStream) {
        let (ours, mut server) = duplex(4096);
        server.write_all(b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n").await.unwrap();
        let messages = subscribe(Wire::new(Box::new(ours)), "c").await.unwrap().unwrap();
        server.read_exact(&mut [0; 26]).await.unwrap();
        (Box::pin(messages), server)
    }

    /// What the server has received by now.
    fn received(server: &mut DuplexStream) -> Vec<u8> {
        let mut bytes = vec![0; 100];
        let read = server.read(&mut bytes).now_or_never().map_or(0, Result::unwrap);
        bytes[..read].to_vec()
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_subscription_whose_server_answers_goes_on() {
        let (mut messages, mut server) = subscribed().await;
        for _ in 0..1000 {
            assert!(messages.next().now_or_never().is_none());
            advance(PING_AFTER).await;
            assert!(messages.next().now_or_never().is_none());
            assert_eq!(received(&mut server), PING);
            advance(ANSWER_TIMEOUT / 2).await;
            server.write_all(PONG).await.unwrap();
        }
        server.write_all(&[MESSAGE, MESSAGE].concat()).await.unwrap();
        assert!(matches!(messages.next().await, Some(Ok(()))));
        assert!(matches!(messages.next().await, Some(Ok(()))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_subscription_whose_server_answers_too_late_has_ended() {
        let (mut messages, server) = subscribed().await;
        let start = tokio::time::Instant::now();
        let error = messages.next().await.unwrap().unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
        let took = start.elapsed();
        let limit = PING_AFTER + ANSWER_TIMEOUT;
        assert!(took >= limit && took < limit + Duration::from_millis(10), "{took:?}");
        assert!(messages.next().await.is_none());
        drop(server);
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_stops_in_the_middle_ends_the_subscription() {
        let (mut messages, mut server) = subscribed().await;
        server.write_all(&MESSAGE[..20]).await.unwrap();
        assert!(messages.next().await.unwrap().is_err());
        assert!(messages.next().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_subscription_is_asked_nothing() {
        let (mut messages, mut server) = subscribed().await;
        for _ in 0..100 {
            assert!(messages.next().now_or_never().is_none());
            advance(PING_AFTER - Duration::from_millis(1)).await;
            server.write_all(MESSAGE).await.unwrap();
            assert!(matches!(messages.next().await, Some(Ok(()))));
        }
        assert_eq!(received(&mut server), b"");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_ends_is_the_last_error_of_its_subscription() {
        let (mut messages, server) = subscribed().await;
        drop(server);
        assert!(messages.next().await.unwrap().unwrap_err().is_retryable());
        assert!(messages.next().await.is_none());
    }
}
