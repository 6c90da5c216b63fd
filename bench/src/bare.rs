//! The floor: the bytes that our client sends, over a bare socket.
//!
//! A call is recorded once, through the API, and then said again word for word under other keys: the same requests, in
//! the same order, each after the reply to the one before. Nothing is built, nothing is parsed but where a reply ends.
//! What takes longer than this is ours; what does not is the server's and the kernel's.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Result;
use crate::recorder::Exchange;

/// Every id has so many bytes, so that one can stand for another.
pub const ID_LENGTH: usize = 14;

/// The id with this number.
pub fn id(number: u64) -> String {
    format!("b-{:012}", number % 1_000_000_000_000)
}

/// A call, ready to be said again under any id.
#[derive(Clone, Debug)]
pub struct Script(Vec<Line>);

#[derive(Clone, Debug)]
struct Line {
    request: Vec<u8>,
    /// Where the id stands.
    holes: Vec<usize>,
    /// How a good reply begins.
    begins: Vec<u8>,
    /// Before so many bytes have come no reply of this size has ended.
    least: usize,
    /// A pipeline of Redis' protocol has so many replies, HTTP one.
    replies: usize,
}

/// Of a reply that comes in many pieces, not every piece is searched for its end. Two replies to one request differ by less
/// than this.
const SLACK: usize = 4 * 1024;

impl Script {
    /// The call that was recorded under `id`.
    pub fn new(tape: &[Exchange], id: &str) -> Result<Script> {
        let line = |exchange: &Exchange| {
            let request = exchange.request.clone();
            let mut holes = places(&request, id);
            if !holes.is_empty() {
                // DynamoDB would take the same transaction again for the same call.
                holes.extend(places(&request, TOKEN).into_iter().map(|at| at + TOKEN.len()));
            }
            // Of HTTP the status; of Redis' protocol the kind of reply and its size.
            let begins = exchange.reply.get(..exchange.reply.len().min(8)).unwrap_or_default().to_vec();
            let begins = if begins.starts_with(b"HTTP") { exchange.reply[..12].to_vec() } else { begins };
            let least = exchange.reply.len().saturating_sub(SLACK);
            Line { request, holes, begins, least, replies: replies(&exchange.reply) }
        };
        let lines: Vec<Line> = tape.iter().map(line).collect();
        if lines.is_empty() || lines.iter().any(|line| line.holes.is_empty()) {
            return Err("a recorded call names its key in every request".into());
        }
        Ok(Script(lines))
    }

    /// Its requests under `id`.
    pub fn requests(&mut self, id: &str) -> impl ExactSizeIterator<Item = &[u8]> {
        self.0.iter_mut().map(|line| line.under(id))
    }
}

impl Line {
    fn under(&mut self, id: &str) -> &[u8] {
        for hole in &self.holes {
            self.request[*hole..*hole + ID_LENGTH].copy_from_slice(id.as_bytes());
        }
        &self.request
    }
}

/// Before what the SDK makes up anew for every transaction.
const TOKEN: &str = r#""ClientRequestToken":""#;

fn places(request: &[u8], text: &str) -> Vec<usize> {
    let windows = request.windows(text.len()).enumerate();
    windows.filter(|(_, window)| *window == text.as_bytes()).map(|(at, _)| at).collect()
}

/// One bare connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// To `address`, without delay.
    pub async fn open(address: &str) -> Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, buffer: vec![0; 256 * 1024] })
    }

    /// Says `script` under `id`.
    pub async fn say(&mut self, script: &mut Script, id: &str) -> Result<()> {
        for line in &mut script.0 {
            self.stream.write_all(line.under(id)).await?;
            let mut filled = 0;
            loop {
                if filled == self.buffer.len() {
                    self.buffer.resize(2 * filled, 0);
                }
                match self.stream.read(&mut self.buffer[filled..]).await? {
                    0 => return Err("the server closed a bare connection".into()),
                    read => filled += read,
                }
                if filled >= line.least && end(&self.buffer[..filled], line.replies)? <= filled {
                    break;
                }
            }
            if !self.buffer[..filled].starts_with(&line.begins) {
                let head = String::from_utf8_lossy(&self.buffer[..filled.min(400)]);
                let wanted = String::from_utf8_lossy(&line.begins);
                return Err(format!(
                    "the bare call was answered otherwise than ours: {head:?}, not {wanted:?}"
                )
                .into());
            }
        }
        Ok(())
    }
}

/// Where the last of so many replies ends; beyond what is there if that is not all of it.
fn end(reply: &[u8], replies: usize) -> Result<usize> {
    if reply.starts_with(b"HTTP/") {
        return http_end(reply);
    }
    Ok((0..replies).try_fold(0, |at, _| resp_end(reply, at)).unwrap_or(usize::MAX))
}

/// How many replies these are.
fn replies(recorded: &[u8]) -> usize {
    if recorded.starts_with(b"HTTP/") {
        return 1;
    }
    std::iter::successors(resp_end(recorded, 0), |at| resp_end(recorded, *at)).count()
}

fn http_end(reply: &[u8]) -> Result<usize> {
    let Some(head) = reply.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(usize::MAX) };
    for line in reply[..head].split(|byte| *byte == b'\n') {
        let name = b"content-length:";
        if line.len() > name.len() && line[..name.len()].eq_ignore_ascii_case(name) {
            let length: usize = str::from_utf8(line[name.len()..].trim_ascii())?.parse()?;
            return Ok(head + 4 + length);
        }
        if line.to_ascii_lowercase().starts_with(b"transfer-encoding: chunked") {
            return Ok(if reply.ends_with(b"\r\n0\r\n\r\n") { reply.len() } else { usize::MAX });
        }
    }
    Err("a reply without a length".into())
}

/// The end of the value of Redis' protocol that begins at `at`.
fn resp_end(reply: &[u8], at: usize) -> Option<usize> {
    let rest = reply.get(at..)?;
    let line = rest.windows(2).position(|window| window == b"\r\n")?;
    let after = at + line + 2;
    let number = || str::from_utf8(&rest[1..line]).ok()?.parse::<i64>().ok();
    match rest[0] {
        b'$' => Some(usize::try_from(number()?).map_or(after, |length| after + length + 2)),
        b'*' => (0..number()?).try_fold(after, |at, _| resp_end(reply, at)),
        _ => Some(after),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests {
    use super::*;

    #[test]
    fn a_reply_ends_where_its_protocol_says() {
        for whole in [
            "+OK\r\n",
            "$-1\r\n",
            "$3\r\nabc\r\n",
            "*2\r\n:1\r\n$3\r\n1-1\r\n",
            "*1\r\n*2\r\n:1\r\n$-1\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        ] {
            assert_eq!(end(whole.as_bytes(), 1).unwrap(), whole.len(), "{whole}");
            let part = &whole.as_bytes()[..whole.len() - 1];
            assert!(end(part, 1).unwrap() > part.len(), "{whole}");
        }
    }

    #[test]
    fn a_pipeline_has_as_many_replies_as_were_recorded() {
        let whole = b"+OK\r\n$-1\r\n*2\r\n:1\r\n$3\r\n1-1\r\n";
        assert_eq!(replies(whole), 3);
        assert_eq!(end(whole, 3).unwrap(), whole.len());
        assert_eq!(end(whole, 2).unwrap(), 10);
        assert!(end(&whole[..10], 3).unwrap() > whole.len());
    }

    #[test]
    fn a_script_is_said_under_another_id() {
        let exchange = Exchange { request: b"GET b-000000000007\r\n".to_vec(), ..Exchange::default() };
        let script = Script::new(&[exchange], &id(7)).unwrap();
        assert_eq!(script.0[0].holes, [4]);
        assert!(Script::new(&[Exchange::default()], &id(7)).is_err());
    }
}
