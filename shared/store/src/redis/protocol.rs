//! Redis' own protocol, the second version: commands as bytes, and bytes as replies.

use super::encode::{Command, Reply, ServerError};
use crate::Error;

/// No reply that we ask for is nested deeper than a list of records with their fields.
const DEEPEST: usize = 8;

/// A line that does not end is none of Redis's.
const LONGEST_LINE: usize = 64 * 1024;

/// No text of Redis is longer: what says so is no Redis.
const LONGEST: i64 = 512 << 20;

/// What no Redis says.
#[derive(Debug)]
pub(super) struct Nonsense;

/// The reply that `input` begins with, and where it ends, if all of it is there.
pub(super) fn first_reply(input: &[u8]) -> Result<Option<(Reply, usize)>, Nonsense> {
    match end_of(input, 0, 0)? {
        Some(end) => decode(&input[..end]).map(Some).ok_or(Nonsense),
        None => Ok(None),
    }
}

/// `*2\r\n$3\r\nGET\r\n$1\r\nk\r\n`
pub(super) fn encode(command: &Command<'_>, out: &mut Vec<u8>) {
    let parts = command.parts();
    head(b'*', parts.len(), out);
    for part in parts {
        head(b'$', part.len(), out);
        out.extend_from_slice(part.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

fn head(kind: u8, number: usize, out: &mut Vec<u8>) {
    let (mut digits, mut at, mut rest) = ([0; 20], 20, number);
    while rest > 0 || at == 20 {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.push(kind);
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\r\n");
}

/// Where the value at `at` ends, if it is all there. Looks at no byte of a text, so that a long reply that comes in many
/// pieces costs no more than its pieces.
fn end_of(input: &[u8], at: usize, depth: usize) -> Result<Option<usize>, Nonsense> {
    let Some((kind, number, after)) = line(input, at)? else { return Ok(None) };
    match (kind, number) {
        (b'+' | b'-' | b':', _) | (b'$' | b'*', ..0) => Ok(Some(after)),
        (b'$', length @ ..=LONGEST) => {
            let end = after + usize::try_from(length).map_err(|_| Nonsense)? + 2;
            Ok((end <= input.len()).then_some(end))
        }
        (b'*', count) if depth < DEEPEST => {
            let mut at = after;
            for _ in 0..count {
                match end_of(input, at, depth + 1)? {
                    Some(end) => at = end,
                    None => return Ok(None),
                }
            }
            Ok(Some(at))
        }
        _ => Err(Nonsense),
    }
}

/// The kind of the value at `at`, its number where it has one, and where its first line ends.
fn line(input: &[u8], at: usize) -> Result<Option<(u8, i64, usize)>, Nonsense> {
    let rest = input.get(at..).unwrap_or_default();
    let Some(length) = rest.iter().take(LONGEST_LINE).position(|byte| *byte == b'\r') else {
        return if rest.len() < LONGEST_LINE { Ok(None) } else { Err(Nonsense) };
    };
    let Some(kind) = rest.first().copied().filter(|_| length + 2 <= rest.len()) else { return Ok(None) };
    let number = match kind {
        b'$' | b'*' | b':' => {
            str::from_utf8(&rest[1..length]).ok().and_then(|text| text.parse().ok()).ok_or(Nonsense)?
        }
        _ => 0,
    };
    Ok(Some((kind, number, at + length + 2)))
}

/// The value that `input` begins with, which is whole, and where it ends.
fn decode(input: &[u8]) -> Option<(Reply, usize)> {
    let (kind, number, after) = line(input, 0).ok()??;
    let first_line = || String::from_utf8_lossy(&input[1..after - 2]).into_owned();
    Some(match (kind, number) {
        (b'+', _) => (Reply::Text(first_line()), after),
        (b'-', _) => (Reply::Error(ServerError::new(&first_line())), after),
        (b':', number) => (Reply::Int(number), after),
        (_, ..0) => (Reply::Nil, after),
        (b'$', length) => {
            let end = after + usize::try_from(length).ok()?;
            let reply = match str::from_utf8(input.get(after..end)?) {
                Ok(text) => Reply::Text(text.to_owned()),
                // One that cannot be read is one command's trouble: the others were carried out.
                Err(_) => Reply::Error(Error::decode("a value is not UTF-8 text").into()),
            };
            (reply, end + 2)
        }
        (_, count) => {
            let mut at = after;
            let mut replies = Vec::new();
            for _ in 0..count {
                let (reply, end) = decode(input.get(at..)?)?;
                replies.push(reply);
                at += end;
            }
            (Reply::List(replies), at)
        }
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_read_when_it_is_whole_and_not_before() {
        for whole in [
            "+OK\r\n",
            "-ERR no\r\n",
            ":-7\r\n",
            "$-1\r\n",
            "$0\r\n\r\n",
            "*0\r\n",
            "*2\r\n:1\r\n*1\r\n$2\r\nab\r\n",
        ] {
            let bytes = whole.as_bytes();
            for part in 0..bytes.len() {
                assert_eq!(end_of(&bytes[..part], 0, 0).unwrap(), None, "{whole} {part}");
            }
            assert_eq!(end_of(bytes, 0, 0).unwrap(), Some(bytes.len()), "{whole}");
            assert_eq!(decode(bytes).unwrap().1, bytes.len(), "{whole}");
        }
    }

    #[test]
    fn what_is_no_reply_breaks_the_connection() {
        for nonsense in [
            "HTTP/1.1 400\r\n",
            "$x\r\n",
            "*-x\r\n",
            "$9223372036854775807\r\n",
            &"*1\r\n".repeat(20),
            &"+".repeat(LONGEST_LINE),
        ] {
            assert!(end_of(nonsense.as_bytes(), 0, 0).is_err(), "{nonsense}");
        }
    }
}
