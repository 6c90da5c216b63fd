//! Servers that never answer.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::background::Background;
use crate::connections::Connections;

/// A server that never answers, whatever the protocol.
#[derive(Debug)]
pub struct Broken(Kind);

#[derive(Debug)]
enum Kind {
    Mute { addr: SocketAddr, connections: Connections, _background: Background },
    Full { listener: TcpListener, _queue: Vec<TcpStream> },
}

impl Broken {
    /// Accepts connections and sends nothing, whatever protocol the client tries: HTTP, TLS or Redis.
    pub async fn accepts_and_never_answers() -> Broken {
        let connections = Connections::default();
        let background = Background::new();
        let addr = background.listen({
            let connections = connections.clone();
            move |mut stream| {
                let connection = connections.open();
                async move {
                    let _open = connection;
                    // Reading until the client gives up, so that it never blocks in sending either.
                    while matches!(stream.read(&mut [0; 4096]).await, Ok(1..)) {}
                }
            }
        });
        Broken(Kind::Mute { addr, connections, _background: background })
    }

    /// Listens and never accepts. Its accept queue is full, so that no further connection is established: Linux
    /// drops the client's SYN, and the client sends it again for as long as it waits.
    pub async fn never_accepts() -> Broken {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let listener = socket.listen(1).unwrap();
        let addr = listener.local_addr().unwrap();
        let mut queue = Vec::new();
        // On loopback the kernel establishes a connection within the call. One that takes longer never is.
        while let Ok(connection) = timeout(Duration::from_millis(200), TcpStream::connect(addr)).await {
            queue.push(connection.unwrap());
        }
        Broken(Kind::Full { listener, _queue: queue })
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        match &self.0 {
            Kind::Mute { addr, .. } => *addr,
            Kind::Full { listener, .. } => listener.local_addr().unwrap(),
        }
    }

    /// How many connections it accepted so far.
    pub fn connections(&self) -> usize {
        match &self.0 {
            Kind::Mute { connections, .. } => connections.opened(),
            Kind::Full { .. } => 0,
        }
    }

    /// Returns once it has accepted `n` connections: a client may have its own before that.
    pub async fn accepted(&self, n: usize) {
        match &self.0 {
            Kind::Mute { connections, .. } => connections.until_opened(n).await,
            Kind::Full { .. } => std::future::pending().await,
        }
    }
}
