//! A connection to a Redis server before it is shared: the login, and then one caller's subscription or the
//! [driver](super::connection).
//!
//! The `redis` crate encodes the commands.

use std::io;

use redis::Cmd;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::encode::{Command, Reply};
use super::replies::{Replies, protocol_error};

/// A byte stream: plain TCP, or TLS.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// A connection that one caller uses.
pub(super) struct Wire {
    pub(super) replies: Replies<Box<dyn ByteStream>>,
}

impl Wire {
    pub(super) fn new(stream: Box<dyn ByteStream>) -> Wire {
        Wire { replies: Replies::of(stream) }
    }

    /// The stream under it. Nothing has arrived that was not read: see [`Wire::request`].
    pub(super) fn into_stream(self) -> Box<dyn ByteStream> {
        self.replies.into_stream()
    }

    /// Sends commands and reads a reply for each.
    pub(super) async fn request(&mut self, commands: &[Command<'_>]) -> io::Result<Vec<Reply>> {
        self.write(commands).await?;
        let mut replies = Vec::with_capacity(commands.len());
        for _ in commands {
            replies.push(self.replies.next().await?);
        }
        if self.replies.has_more() {
            return Err(protocol_error());
        }
        Ok(replies)
    }

    pub(super) async fn write(&mut self, commands: &[Command<'_>]) -> io::Result<()> {
        let stream = self.replies.stream();
        stream.write_all(&packed(commands)).await?;
        stream.flush().await
    }
}

/// The commands as they are sent.
pub(super) fn packed(commands: &[Command<'_>]) -> Vec<u8> {
    let length =
        |command: &Command<'_>| command.parts().iter().map(|part| part.len() + 16).sum::<usize>() + 16;
    let mut bytes = Vec::with_capacity(commands.iter().map(length).sum());
    for command in commands {
        let parts = command.parts();
        let mut packed = Cmd::with_capacity(parts.len(), parts.iter().map(|part| part.len()).sum());
        for part in parts {
            packed.arg(part.as_bytes());
        }
        packed.write_packed_command(&mut bytes);
    }
    bytes
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use futures_util::FutureExt;
    use std::pin::pin;
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};
    use tokio::time::{Duration, timeout};

    fn wire(size: usize) -> (Wire, DuplexStream) {
        let (ours, theirs) = duplex(size);
        (Wire::new(Box::new(ours)), theirs)
    }

    fn get(key: &str) -> Command<'_> {
        Command::of(["GET", key])
    }

    /// Sends `count` commands to a server that replies `bytes` and then closes the connection.
    async fn answer(bytes: &[u8], count: usize) -> io::Result<Vec<Reply>> {
        let (mut wire, mut server) = wire(1 << 20);
        server.write_all(bytes).await.unwrap();
        drop(server.shutdown().await);
        let commands: Vec<_> = (0..count).map(|_| get("key")).collect();
        wire.request(&commands).await
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
            let (mut wire, mut server) = wire(4096);
            let commands = [get("key")];
            let mut request = pin!(wire.request(&commands));
            for byte in whole.bytes() {
                assert!(request.as_mut().now_or_never().is_none(), "{whole}");
                server.write_all(&[byte]).await.unwrap();
            }
            let replies = request.as_mut().now_or_never().expect(whole).unwrap();
            assert_eq!(replies.len(), 1, "{whole}");
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
            let (mut wire, mut server) = wire(1 << 20);
            server.write_all(nonsense.as_bytes()).await.unwrap();
            let commands = [get("key")];
            let broken = timeout(Duration::from_secs(60), wire.request(&commands)).await.unwrap();
            assert!(broken.is_err(), "{nonsense}");
        }
        for cut_off in ["", "$5\r\nx", "*9223372036854775807\r\n:1\r\n", "+OK"] {
            assert!(answer(cut_off.as_bytes(), 1).await.is_err(), "{cut_off}");
        }
    }

    #[tokio::test]
    async fn a_value_that_is_no_text_or_an_error_concerns_its_own_command_alone() {
        let said = b"$2\r\n\xff\xfe\r\n-ERR no\r\n*2\r\n:1\r\n-WRONGTYPE no\r\n+OK\r\n";
        let replies = answer(said, 4).await.unwrap();
        let errors: Vec<_> = replies.into_iter().map(Reply::text_or_nil).collect();
        assert!(errors[0].as_ref().is_err_and(|error| error.kind() == ErrorKind::Decode), "{errors:?}");
        assert!(errors[1].as_ref().is_err_and(|error| error.kind() == ErrorKind::Rejected), "{errors:?}");
        assert_eq!(errors[3].as_ref().unwrap().as_deref(), Some("OK"));
    }

    #[tokio::test]
    async fn a_long_reply_in_many_pieces_costs_no_more_than_its_pieces() {
        let (value, items) = ("x".repeat(4 << 20), ":1\r\n".repeat(100_000));
        let said = format!("${}\r\n{value}\r\n*100000\r\n{items}", value.len());
        let (mut wire, mut server) = wire(1000);
        let commands = [get("key"), get("key")];
        let feed = async {
            server.write_all(said.as_bytes()).await.unwrap();
            // Read the commands, so that the client is not blocked by a full pipe.
            server.read_exact(&mut [0; 44]).await.unwrap();
        };
        let both = async { tokio::join!(wire.request(&commands), feed).0 };
        // Parsing from the start again with every piece would take hours.
        let mut replies = timeout(Duration::from_secs(120), both).await.expect("linear").unwrap();
        assert!(matches!(replies.pop(), Some(Reply::List(list)) if list.len() == 100_000));
        assert_eq!(replies.pop().unwrap().text_or_nil().unwrap(), Some(value));
    }
}
