//! The replies of a Redis server, parsed as they arrive.
//!
//! The `redis` crate's parser scans an incomplete line again from its start whenever more bytes arrive, which takes
//! quadratic time, and it accepts a reply of any length.

use std::io;
use std::pin::Pin;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

use super::MAX_REQUEST_BYTES;
use super::encode::{Reply, ServerError};
use crate::Error;

/// Status lines and errors of Redis are far shorter. A longer line means that the peer does not speak RESP.
const MAX_LINE_BYTES: u64 = 64 * 1024;

/// The replies to many callers arrive together.
const BUFFER_BYTES: usize = 16 * 1024;

/// No batch writes a longer value, record or message. Redis itself keeps up to 512 MB.
const MAX_BULK_BYTES: usize = MAX_REQUEST_BYTES;

/// A page of 1 000 records of 256 KiB each, or a refusal with 32 of the longest values. Each element of a list counts with
/// the memory that it takes here, so that many empty ones are no way around the limit.
const MAX_REPLY_BYTES: usize = 256 << 20;

/// The deepest reply is a list of records with their fields. Deeper nesting means that the peer does not speak RESP.
const MAX_DEPTH: usize = 8;

/// The replies that arrive over a connection.
pub(super) struct Replies<R> {
    stream: BufReader<R>,
    max_reply: usize,
    /// What is left of `max_reply` for the reply that is being read.
    room: usize,
    read_only: bool,
}

impl<R: AsyncRead + Unpin> Replies<R> {
    pub(super) fn of(stream: R) -> Replies<R> {
        Replies {
            stream: BufReader::with_capacity(BUFFER_BYTES, stream),
            max_reply: MAX_REPLY_BYTES,
            room: 0,
            read_only: false,
        }
    }

    /// Where the replies come from. Not for reading.
    pub(super) fn stream(&mut self) -> &mut R {
        self.stream.get_mut()
    }

    pub(super) fn into_stream(self) -> R {
        self.stream.into_inner()
    }

    /// Whether the server has answered `READONLY`: it was the primary and is a replica now.
    pub(super) fn read_only(&self) -> bool {
        self.read_only
    }

    /// Whether more bytes than those of the replies have arrived.
    pub(super) fn has_more(&self) -> bool {
        !self.stream.buffer().is_empty()
    }

    /// Waits until the next reply begins. May be cancelled, unlike [`Replies::next`].
    pub(super) async fn begins(&mut self) -> io::Result<()> {
        match self.stream.fill_buf().await?.is_empty() {
            true => Err(io::ErrorKind::UnexpectedEof.into()),
            false => Ok(()),
        }
    }

    /// The next reply. After an error, no more of the connection can be read.
    pub(super) async fn next(&mut self) -> io::Result<Reply> {
        self.room = self.max_reply;
        self.reply(0).await
    }

    async fn reply(&mut self, depth: usize) -> io::Result<Reply> {
        let line = self.line().await?;
        let (kind, rest) = line.split_first().ok_or_else(protocol_error)?;
        let text = String::from_utf8_lossy(rest);
        let number = || text.parse::<i64>().map_err(|_| protocol_error());
        self.take_room(line.len() + size_of::<Reply>())?;
        match kind {
            b'+' => Ok(Reply::Text(text.into_owned())),
            b'-' => {
                // Older servers report READONLY inside a script error.
                self.read_only |= text.contains("READONLY");
                Ok(Reply::Error(ServerError::new(&text)))
            }
            b':' => number().map(Reply::Int),
            b'$' | b'*' if number()? < 0 => Ok(Reply::Nil),
            b'$' => self.bulk(number()?.unsigned_abs()).await,
            b'*' if depth < MAX_DEPTH => {
                let mut replies = Vec::new();
                for _ in 0..number()? {
                    replies.push(Box::pin(self.reply(depth + 1)).await?);
                }
                Ok(Reply::List(replies))
            }
            _ => Err(protocol_error()),
        }
    }

    async fn line(&mut self) -> io::Result<Vec<u8>> {
        let there = self.stream.buffer();
        let mut line = match there.iter().position(|byte| *byte == b'\n') {
            Some(end) => self.take_buffered(end + 1),
            None => {
                let mut line = Vec::new();
                (&mut self.stream).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await?;
                line
            }
        };
        if !line.ends_with(b"\r\n") {
            return Err(protocol_error());
        }
        line.truncate(line.len() - 2);
        Ok(line)
    }

    async fn bulk(&mut self, length: u64) -> io::Result<Reply> {
        if length > MAX_BULK_BYTES as u64 {
            return Err(too_long("a value is longer than a batch can write"));
        }
        self.take_room(length as usize)?;
        let mut bytes = match self.stream.buffer().len() as u64 >= length + 2 {
            true => self.take_buffered(length as usize + 2),
            false => {
                // The length is untrusted: for a large one, memory is allocated as the bytes arrive.
                let mut bytes = Vec::with_capacity(length.min(MAX_LINE_BYTES) as usize + 2);
                (&mut self.stream).take(length + 2).read_to_end(&mut bytes).await?;
                bytes
            }
        };
        if bytes.len() as u64 != length + 2 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.truncate(bytes.len() - 2);
        Ok(match String::from_utf8(bytes) {
            Ok(text) => Reply::Text(text),
            // An error of this command only: the other commands were executed.
            Err(_) => Reply::Error(Error::decode("a value is not UTF-8 text").into()),
        })
    }

    fn take_buffered(&mut self, bytes: usize) -> Vec<u8> {
        let taken = self.stream.buffer()[..bytes].to_vec();
        Pin::new(&mut self.stream).consume(bytes);
        taken
    }

    fn take_room(&mut self, bytes: usize) -> io::Result<()> {
        let room = self.room.checked_sub(bytes);
        self.room = room.ok_or_else(|| too_long("the reply is longer than 256 MiB"))?;
        Ok(())
    }
}

/// The peer does not speak RESP.
pub(super) fn protocol_error() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

fn too_long(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, what)
}

/// The reason, if reading ended at a reply that is longer than this client takes. The same request would get it again.
pub(super) fn too_long_reason(error: &io::Error) -> Option<String> {
    (error.kind() == io::ErrorKind::FileTooLarge).then(|| error.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests {
    use super::*;

    async fn read(bytes: &[u8], max_reply: usize) -> io::Result<Reply> {
        let mut replies = Replies::of(bytes);
        replies.max_reply = max_reply;
        replies.next().await
    }

    #[tokio::test]
    async fn a_reply_is_as_long_as_the_limit_and_no_longer() {
        let element = size_of::<Reply>();
        for (reply, memory) in [
            ("$3\r\nabc\r\n".to_owned(), 5 + element),
            ("+OK\r\n".to_owned(), 3 + element),
            ("-ERR no\r\n".to_owned(), 7 + element),
            ("*2\r\n:1\r\n$1\r\nx\r\n".to_owned(), 7 + 3 * element),
            // Empty lists: four bytes each on the wire.
            (format!("*1000\r\n{}", "*0\r\n".repeat(1000)), 2005 + 1001 * element),
        ] {
            assert!(read(reply.as_bytes(), memory).await.is_ok(), "{reply:?}");
            let error = read(reply.as_bytes(), memory - 1).await.unwrap_err();
            assert!(too_long_reason(&error).is_some(), "{reply:?}: {error}");
        }
    }

    #[tokio::test]
    async fn the_limit_holds_for_each_reply_and_not_for_all_of_a_connection() {
        let mut replies = Replies::of(&b"$3\r\nabc\r\n$3\r\nabc\r\n"[..]);
        replies.max_reply = 8 + size_of::<Reply>();
        assert!(replies.next().await.is_ok() && replies.next().await.is_ok());
    }

    #[tokio::test]
    async fn a_value_that_no_batch_could_write_is_refused_by_its_length_alone() {
        for (length, refused) in [(MAX_BULK_BYTES, false), (MAX_BULK_BYTES + 1, true), (500_000_000, true)] {
            let error = read(format!("${length}\r\nx").as_bytes(), MAX_REPLY_BYTES).await.unwrap_err();
            assert_eq!(too_long_reason(&error).is_some(), refused, "{length}: {error}");
        }
    }
}
