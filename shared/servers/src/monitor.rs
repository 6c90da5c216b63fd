//! What clients send to a Redis server.

use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// What a client library sends on its own to set a connection up, and the monitor itself.
const CONNECTION_SET_UP: [&str; 7] = ["HELLO", "CLIENT", "AUTH", "SELECT", "PING", "QUIT", "MONITOR"];

/// A `MONITOR` connection to a [`Redis`](crate::Redis) server.
#[derive(Debug)]
pub struct Monitor {
    server: SocketAddr,
    lines: BufReader<TcpStream>,
}

impl Monitor {
    pub(crate) async fn start(server: SocketAddr) -> Monitor {
        let mut stream = TcpStream::connect(server).await.expect("redis-server accepts");
        stream.write_all(b"MONITOR\r\n").await.expect("redis-server listens");
        let mut monitor = Monitor { server, lines: BufReader::new(stream) };
        assert_eq!(monitor.next_line().await, "+OK");
        monitor
    }

    /// The names of the commands that clients sent since monitoring began or since the last call, in order.
    ///
    /// Commands run inside a script do not count, nor does setting up a connection.
    pub async fn top_level_commands(&mut self) -> Vec<String> {
        let marker = self.leave_marker().await;
        let mut commands = Vec::new();
        loop {
            let line = self.next_line().await;
            if line.contains(&marker) {
                return commands;
            }
            commands
                .extend(top_level_command(&line).filter(|name| !CONNECTION_SET_UP.contains(&name.as_str())));
        }
    }

    /// Sends a command nobody else sends: what the monitor shows before it was sent before this call.
    async fn leave_marker(&self) -> String {
        let marker = format!("marker-{:016x}", getrandom::u64().expect("the system's randomness"));
        let mut stream = TcpStream::connect(self.server).await.expect("redis-server accepts");
        stream
            .write_all(format!("ECHO {marker}\r\nQUIT\r\n").as_bytes())
            .await
            .expect("redis-server listens");
        stream.read_to_string(&mut String::new()).await.expect("redis-server answers");
        marker
    }

    async fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).await.expect("redis-server goes on");
        assert!(line.ends_with('\n'), "redis-server closed the monitor's connection");
        line.trim_end().to_owned()
    }
}

/// The command of a line like `+1700000000.000001 [0 127.0.0.1:4000] "set" "key" "value"`, unless a script
/// ran it.
fn top_level_command(line: &str) -> Option<String> {
    let (client, command) = line.split_once('[')?.1.split_once("] \"")?;
    let name = command.split('"').next()?;
    (!client.ends_with(" lua")).then(|| name.to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::top_level_command;

    #[test]
    fn a_command_is_named_in_capitals() {
        let line = r#"+1700000000.000001 [0 127.0.0.1:4000] "set" "a] \"b" "c""#;
        assert_eq!(top_level_command(line).as_deref(), Some("SET"));
    }

    #[test]
    fn a_command_run_by_a_script_is_left_out() {
        assert_eq!(top_level_command(r#"+1700000000.000001 [0 lua] "set" "a" "b""#), None);
    }
}
