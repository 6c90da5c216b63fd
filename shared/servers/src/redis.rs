//! Debian's `redis-server`, one for each test.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::monitor::Monitor;
use crate::process::{bound_to_this_process, on_path, spawn};

/// A Redis server of the test's own: a loopback port, gone when dropped.
#[derive(Debug)]
pub struct Redis {
    port: u16,
    child: Child,
    folder: TempDir,
    settings: Vec<String>,
}

impl Redis {
    /// Starts a server without persistence and waits until it answers.
    pub async fn start() -> Redis {
        Redis::start_with(&[]).await
    }

    /// Starts a server that keeps what it has acknowledged, so that a [`restart`](Redis::restart) finds it again.
    pub async fn start_durable() -> Redis {
        // What is written to the file before the answer survives the process, and the machine is not ours to crash. With
        // `everysec`, the default, Redis puts the writing off while an older part is on its way to the disk.
        Redis::start_with(&["--appendonly", "yes", "--appendfsync", "no"]).await
    }

    /// Starts a server with these settings (`--name value`), for those that cannot be changed while it runs.
    pub async fn start_with(settings: &[&str]) -> Redis {
        let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
        assert!(
            std::env::var_os("ONETAP_BARE").is_none(),
            "this test is not ignored, and needs redis-server: #[ignore = \"needs redis-server\"]"
        );
        assert!(
            on_path("redis-server"),
            "redis-server not found: run scripts/test, or apt-get install redis-server"
        );
        let folder = tempfile::tempdir().expect("a temporary folder");
        for _ in 0..10 {
            let port = free_port();
            // Another process may take the port between our look and Redis's bind: then Redis exits, and we
            // try another.
            if let Some(child) = launch(port, &folder, &settings).await {
                return Redis { port, child, folder, settings };
            }
        }
        panic!("redis-server exits at once on ten different ports");
    }

    /// `redis://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr())
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The port it listens on, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills the server: connections break, new ones are refused, the data is lost.
    pub async fn stop(&mut self) {
        self.kill();
    }

    /// Kills the server if it runs, and starts one on the same port: an empty one, unless it is
    /// [durable](Redis::start_durable).
    pub async fn restart(&mut self) {
        self.kill();
        let started = launch(self.port, &self.folder, &self.settings).await;
        self.child = started.expect("redis-server starts again on its port");
    }

    /// Freezes the server: connections stay open and are even accepted, but nothing is answered.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Thaws a frozen server, which then works through what arrived meanwhile.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Watches the commands that clients send from now on.
    pub async fn monitor(&self) -> Monitor {
        Monitor::start(self.addr()).await
    }

    /// How many commands it has run, inside scripts too. What sets a connection up does not count, nor does this question.
    pub async fn commands(&self) -> u64 {
        const NOT_COUNTED: [&str; 8] =
            ["info", "quit", "client", "hello", "auth", "select", "ping", "script"];
        let stats = info(self.port, "commandstats").await.expect("redis-server answers");
        let count = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let counts = !NOT_COUNTED.iter().any(|other| name.starts_with(other));
            rest.split(',').next().filter(|_| counts)?.parse::<u64>().ok()
        };
        stats.lines().filter_map(count).sum()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("redis-server runs");
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts a server on this port; none when it exits before it answers.
async fn launch(port: u16, folder: &TempDir, settings: &[String]) -> Option<Child> {
    let (port_text, folder) = (port.to_string(), folder.path().to_str().expect("a path in UTF-8"));
    let listen = ["--port", &port_text, "--bind", "127.0.0.1", "--dir", folder, "--save", ""];
    let mut command = bound_to_this_process("redis-server");
    command.args(listen).args(settings).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = spawn(command).expect("redis-server can be started");
    let started = Instant::now();
    while !is_served_by(port, child.id()).await {
        if child.try_wait().expect("our own child").is_some() {
            return None;
        }
        if started.elapsed() > Duration::from_secs(10) {
            let _ = child.kill();
            panic!("redis-server does not answer on port {port} after ten seconds");
        }
        sleep(Duration::from_millis(5)).await;
    }
    Some(child)
}

/// Whether the Redis that answers on this port is this very process, and not one of a test next to us.
async fn is_served_by(port: u16, process: u32) -> bool {
    let answer = timeout(Duration::from_secs(1), info(port, "server")).await;
    matches!(answer, Ok(Ok(answer)) if answer.contains(&format!("process_id:{process}\r\n")))
}

/// A section of what the server says of itself.
async fn info(port: u16, section: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(format!("INFO {section}\r\nQUIT\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// A port that nobody listens on, below the range the kernel takes for outgoing connections: no client's
/// socket can sit on it while the server restarts.
fn free_port() -> u16 {
    loop {
        let random = getrandom::u32().expect("the system's randomness");
        let port = 10_000 + (random % 22_000) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}
