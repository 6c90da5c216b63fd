//! One connection to a Redis server, for one caller at a time.
//!
//! A request takes the connection by value and hands it back with the replies. A caller that gives up drops the
//! connection together with the request, so that no later caller can read a reply that was meant for it. No task works
//! in the background, where Lambda would freeze it.
//!
//! The `redis` crate encodes the commands.

use std::io;

use redis::Cmd;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::{Duration, Instant};

use super::encode::{Command, Reply};
use super::replies::{Replies, protocol_error};

/// The maximum size of a TLS record. The server cannot decrypt an incomplete record, so if the first write fails, the
/// server has received no part of a command.
const FIRST_WRITE_BYTES: usize = 16 * 1024;

/// After a longer idle time the peer may have closed the connection, and tokio may not have read that event yet.
const POLL_SOCKET_AFTER: Duration = Duration::from_millis(10);

/// A byte stream: plain TCP, or TLS.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// A connection, used by one caller at a time.
pub(super) struct Wire {
    pub(super) replies: Replies<Box<dyn ByteStream>>,
    idle_since: Instant,
}

impl Wire {
    pub(super) fn new(stream: Box<dyn ByteStream>) -> Wire {
        Wire { replies: Replies::of(stream), idle_since: Instant::now() }
    }

    pub(super) fn idle_for(&self) -> Duration {
        self.idle_since.elapsed()
    }

    /// Whether a request can be sent: the peer has neither closed the connection nor sent data that nobody requested.
    /// `idle_for` is how long the connection was idle.
    pub(super) async fn is_open(&mut self, idle_for: Duration) -> bool {
        if idle_for > POLL_SOCKET_AFTER {
            // After a Lambda was frozen or a thread was blocked, tokio must poll its sockets first.
            tokio::task::yield_now().await;
        }
        self.replies.is_quiet()
    }

    /// Sends commands and reads a reply for each. `sent` becomes true when the first write succeeds: an error before
    /// that means that the server has received no command (see [`FIRST_WRITE_BYTES`]). Returns the connection too,
    /// unless the server has become a read-only replica.
    pub(super) async fn request(
        mut self,
        commands: &[Command<'_>],
        sent: &mut bool,
    ) -> io::Result<(Vec<Reply>, Option<Wire>)> {
        self.write(commands, sent).await?;
        let mut replies = Vec::with_capacity(commands.len());
        for _ in commands {
            replies.push(self.replies.next().await?);
        }
        if self.replies.has_more() {
            return Err(protocol_error());
        }
        self.idle_since = Instant::now();
        Ok((replies, (!self.replies.read_only()).then_some(self)))
    }

    pub(super) async fn write(&mut self, commands: &[Command<'_>], sent: &mut bool) -> io::Result<()> {
        let mut bytes = Vec::new();
        for command in commands {
            let parts = command.parts();
            let mut packed = Cmd::with_capacity(parts.len(), parts.iter().map(|part| part.len()).sum());
            for part in parts {
                packed.arg(part.as_bytes());
            }
            packed.write_packed_command(&mut bytes);
        }
        let stream = self.replies.stream();
        let first = stream.write(&bytes[..bytes.len().min(FIRST_WRITE_BYTES)]).await?;
        *sent = true;
        stream.write_all(&bytes[first..]).await?;
        stream.flush().await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests {
    use super::*;
    use crate::Error;
    use futures_util::FutureExt;
    use std::pin::pin;
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};
    use tokio::time::timeout;

    fn wire(size: usize) -> (Wire, DuplexStream) {
        let (ours, theirs) = duplex(size);
        (Wire::new(Box::new(ours)), theirs)
    }

    fn get(key: &str) -> Command<'_> {
        Command::of(["GET", key])
    }

    /// Sends `count` commands to a server that replies `bytes` and then closes the connection.
    async fn answer(bytes: &[u8], count: usize) -> io::Result<(Vec<Reply>, Option<Wire>)> {
        let (wire, mut server) = wire(1 << 20);
        server.write_all(bytes).await.unwrap();
        drop(server.shutdown().await);
        let commands: Vec<_> = (0..count).map(|_| get("key")).collect();
        wire.request(&commands, &mut false).await
    }

    #[tokio::test]
    async fn a_reply_is_read_when_it_is_whole_and_not_before() {
        for whole in [
            "+OK\r\n",
            "-ERR no\r\n",
            ":-7\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "$0\r\n\r\n",
            "*0\r\n",
            "*2\r\n:1\r\n*1\r\n$2\r\nab\r\n",
        ] {
            let (wire, mut server) = wire(4096);
            let (commands, mut sent) = ([get("key")], false);
            let mut request = pin!(wire.request(&commands, &mut sent));
            for byte in whole.bytes() {
                assert!(request.as_mut().now_or_never().is_none(), "{whole}");
                server.write_all(&[byte]).await.unwrap();
            }
            let (replies, wire) = request.as_mut().now_or_never().expect(whole).unwrap();
            assert_eq!((replies.len(), wire.is_some()), (1, true), "{whole}");
            let mut asked = [0; 22];
            server.read_exact(&mut asked).await.unwrap();
            assert_eq!(&asked, b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
        }
    }

    #[tokio::test]
    async fn an_invalid_reply_breaks_the_connection() {
        for nonsense in [
            "HTTP/1.1 400\r\n",
            "\r\n",
            "+OK\n",
            "$x\r\n",
            "*-x\r\n",
            "$9223372036854775807\r\n",
            "%1\r\n+a\r\n+b\r\n",
            "+OK\r\n+OK\r\n",
            "+OK\r\n$",
            &"*1\r\n".repeat(1000),
            &"+".repeat(100_000),
        ] {
            let (wire, mut server) = wire(1 << 20);
            server.write_all(nonsense.as_bytes()).await.unwrap();
            let (commands, mut sent) = ([get("key")], false);
            let broken = timeout(Duration::from_secs(60), wire.request(&commands, &mut sent)).await.unwrap();
            assert!(broken.is_err(), "{nonsense}");
            assert!(sent, "it may have arrived");
        }
        for cut_off in ["", "$5\r\nx", "*9223372036854775807\r\n:1\r\n", "+OK"] {
            assert!(answer(cut_off.as_bytes(), 1).await.is_err(), "{cut_off}");
        }
    }

    #[tokio::test]
    async fn a_value_that_is_no_text_or_an_error_concerns_its_own_command_alone() {
        let said = b"$2\r\n\xff\xfe\r\n-ERR no\r\n*2\r\n:1\r\n-WRONGTYPE no\r\n+OK\r\n";
        let (replies, wire) = answer(said, 4).await.unwrap();
        let errors: Vec<_> = replies.into_iter().map(Reply::text_or_nil).collect();
        assert!(matches!(&errors[0], Err(Error::Decode { .. })), "{errors:?}");
        assert!(matches!(&errors[1], Err(Error::Rejected { .. })), "{errors:?}");
        assert_eq!(errors[3], Ok(Some("OK".to_owned())));
        assert!(wire.is_some());
    }

    #[tokio::test]
    async fn a_connection_to_a_read_only_replica_does_not_come_back() {
        for said in [
            "-READONLY You can't write against a read only replica.\r\n",
            "-ERR Error running script: -READONLY You can't write\r\n",
            "*2\r\n:1\r\n-READONLY no\r\n",
        ] {
            let (replies, wire) = answer(said.as_bytes(), 1).await.unwrap();
            assert_eq!((replies.len(), wire.is_none()), (1, true), "{said}");
        }
    }

    #[tokio::test]
    async fn a_long_reply_in_many_pieces_costs_no_more_than_its_pieces() {
        let (value, items) = ("x".repeat(4 << 20), ":1\r\n".repeat(100_000));
        let said = format!("${}\r\n{value}\r\n*100000\r\n{items}", value.len());
        let (wire, mut server) = wire(1000);
        let (commands, mut sent) = ([get("key"), get("key")], false);
        let feed = async {
            server.write_all(said.as_bytes()).await.unwrap();
            // Read the commands, so that the client is not blocked by a full pipe.
            server.read_exact(&mut [0; 44]).await.unwrap();
        };
        let both = async { tokio::join!(wire.request(&commands, &mut sent), feed).0 };
        // Parsing from the start again with every piece would take hours.
        let (mut replies, _) = timeout(Duration::from_secs(120), both).await.expect("linear").unwrap();
        assert!(matches!(replies.pop(), Some(Reply::List(list)) if list.len() == 100_000));
        assert_eq!(replies.pop().unwrap().text_or_nil().unwrap(), Some(value));
    }

    #[tokio::test]
    async fn a_request_that_is_dropped_while_it_is_sent_is_never_finished() {
        let (wire, mut server) = wire(16);
        let (commands, mut sent) = ([get("a-key-that-does-not-fit-into-the-pipe")], false);
        assert!(wire.request(&commands, &mut sent).now_or_never().is_none());
        assert!(sent);
        let mut all = Vec::new();
        server.read_to_end(&mut all).await.unwrap();
        assert_eq!(all.len(), 16);
    }

    #[tokio::test]
    async fn a_connection_that_ends_before_the_first_byte_has_sent_nothing() {
        let (wire, server) = wire(4096);
        drop(server);
        let mut sent = false;
        assert!(wire.request(&[get("key")], &mut sent).await.is_err());
        assert!(!sent);
    }

    #[tokio::test]
    async fn an_idle_connection_that_was_closed_or_spoke_unasked_is_not_open() {
        let (mut quiet, _server) = wire(4096);
        assert!(quiet.is_open(Duration::ZERO).await);
        let (mut closed, server) = wire(4096);
        drop(server);
        assert!(!closed.is_open(Duration::ZERO).await);
        let (mut speaking, mut server) = wire(4096);
        server.write_all(b"+OK\r\n").await.unwrap();
        assert!(!speaking.is_open(Duration::ZERO).await);
    }
}
