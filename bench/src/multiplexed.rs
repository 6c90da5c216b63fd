//! The same commands over the `redis` crate's multiplexed connection, which all callers share.

use std::ops::Range;

use redis::aio::MultiplexedConnection;
use redis::{Client, Cmd, Pipeline, Value};

use crate::Result;
use crate::bare::Script;

/// A call, ready to be made again under any id.
#[derive(Clone, Debug)]
pub struct Commands {
    script: Script,
    /// Of every request its commands, and of those where the name and each argument are.
    places: Vec<Vec<Vec<Range<usize>>>>,
}

impl Commands {
    /// The commands that `script` sends.
    pub fn new(mut script: Script, id: &str) -> Result<Commands> {
        let places = script.requests(id).map(commands).collect::<Option<_>>();
        Ok(Commands { script, places: places.ok_or("a request that is not of Redis' protocol")? })
    }

    /// Sends the commands under `id`, each request after the reply to the one before.
    pub async fn make(&mut self, connection: &mut MultiplexedConnection, id: &str) -> Result<()> {
        for (request, places) in self.script.requests(id).zip(&self.places) {
            let is_single = places.len() == 1;
            let mut pipeline = Pipeline::with_capacity(places.len());
            for places in places {
                let mut command = Cmd::new();
                for place in places {
                    command.arg(&request[place.clone()]);
                }
                if is_single {
                    command.query_async::<Value>(connection).await?;
                    break;
                }
                pipeline.add_command(command);
            }
            if !pipeline.is_empty() {
                pipeline.query_async::<Value>(connection).await?;
            }
        }
        Ok(())
    }
}

/// A connection to `address`.
pub async fn connect(address: &str) -> Result<MultiplexedConnection> {
    Ok(Client::open(format!("redis://{address}"))?.get_multiplexed_async_connection().await?)
}

/// The commands of a request, and of those where the name and each argument are.
fn commands(request: &[u8]) -> Option<Vec<Vec<Range<usize>>>> {
    let mut at = 0;
    let mut commands = Vec::new();
    while at < request.len() {
        let parts = number(request, b'*', &mut at)?;
        let mut places = Vec::with_capacity(parts);
        for _ in 0..parts {
            let length = number(request, b'$', &mut at)?;
            places.push(at..at + length);
            at += length + 2;
        }
        commands.push(places);
    }
    Some(commands)
}

/// The number in the line at `at`, which begins with `kind`.
fn number(request: &[u8], kind: u8, at: &mut usize) -> Option<usize> {
    let line = request.get(*at..)?.split(|byte| *byte == b'\r').next()?;
    let digits = line.strip_prefix(&[kind])?;
    *at += line.len() + 2;
    str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_of_every_command_of_a_request_are_found() {
        let request = b"*2\r\n$3\r\nGET\r\n$4\r\nk\r\nx\r\n*1\r\n$4\r\nPING\r\n";
        let found = commands(request).unwrap();
        let texts: Vec<Vec<&[u8]>> = found
            .into_iter()
            .map(|places| places.into_iter().map(|place| &request[place]).collect())
            .collect();
        assert_eq!(texts, [vec![&b"GET"[..], b"k\r\nx"], vec![b"PING"]]);
        assert!(commands(b"POST / HTTP/1.1\r\n").is_none());
    }
}
