//! A TCP proxy for the Redis protocol.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::background::Background;
use crate::connections::Connections;

/// A TCP proxy that can cut, stall and refuse: for protocols other than HTTP, such as Redis's own.
#[derive(Debug)]
pub struct TcpProxy {
    addr: SocketAddr,
    connections: Connections,
    switches: Arc<Switches>,
    _background: Background,
}

#[derive(Debug)]
struct Switches {
    upstream: watch::Sender<SocketAddr>,
    stalled: watch::Sender<bool>,
    refusing: AtomicBool,
    /// Bytes that were passed on, to the upstream and back.
    passed: [AtomicU64; 2],
    round_trips: AtomicU64,
}

impl TcpProxy {
    /// Listens on a free loopback port in front of `upstream` (`"127.0.0.1:6379"`, or a [`SocketAddr`]).
    pub async fn start(upstream: impl ToSocketAddrs) -> TcpProxy {
        let (upstream, _) = watch::channel(address(upstream));
        let (stalled, _) = watch::channel(false);
        let switches = Arc::new(Switches {
            upstream,
            stalled,
            refusing: AtomicBool::new(false),
            passed: Default::default(),
            round_trips: AtomicU64::new(0),
        });
        let connections = Connections::default();
        let background = Background::new();
        let addr = background.listen({
            let (switches, connections) = (switches.clone(), connections.clone());
            move |stream| forward(switches.clone(), connections.clone(), stream)
        });
        TcpProxy { addr, connections, switches, _background: background }
    }

    /// The port it listens on, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// `redis://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// How many connections it accepted so far, refused ones included.
    pub fn connections(&self) -> usize {
        self.connections.opened()
    }

    /// How many bytes it passed on so far: to the upstream, and back.
    pub fn bytes(&self) -> [u64; 2] {
        self.switches.passed.each_ref().map(|bytes| bytes.load(Ordering::SeqCst))
    }

    /// How often a client began to send after it was answered, or for the first time.
    pub fn round_trips(&self) -> u64 {
        self.switches.round_trips.load(Ordering::SeqCst)
    }

    /// Returns once it has accepted `n` connections: a client may have its own before that.
    pub async fn accepted(&self, n: usize) {
        self.connections.until_opened(n).await;
    }

    /// Closes every open connection; returns when they are closed. New ones are welcome.
    pub fn cut(&self) {
        self.connections.close();
    }

    /// Leads new connections to `upstream` from now on, as a failover does; open ones stay with the old one.
    pub fn redirect(&self, upstream: impl ToSocketAddrs) {
        self.switches.upstream.send_replace(address(upstream));
    }

    /// Withholds replies while on; requests still reach the upstream. Off lets the withheld replies go.
    pub fn stall(&self, on: bool) {
        self.switches.stalled.send_replace(on);
    }

    /// Closes new connections as soon as they are accepted while on; open ones live ([`TcpProxy::cut`] ends
    /// them).
    pub fn refuse(&self, on: bool) {
        self.switches.refusing.store(on, Ordering::SeqCst);
    }
}

fn address(upstream: impl ToSocketAddrs) -> SocketAddr {
    let first = upstream.to_socket_addrs().ok().and_then(|mut addrs| addrs.next());
    first.expect("an upstream address, host:port")
}

async fn forward(switches: Arc<Switches>, connections: Connections, client: TcpStream) {
    let mut connection = connections.open();
    if switches.refusing.load(Ordering::SeqCst) {
        return;
    }
    let exchange = async move {
        let address = *switches.upstream.borrow();
        let Ok(upstream) = TcpStream::connect(address).await else {
            return;
        };
        let (mut requests, mut answers) = client.into_split();
        let (mut replies, mut commands) = upstream.into_split();
        let answered = AtomicBool::new(true);
        // Whichever side ends first ends the connection: Redis clients do not close one half.
        tokio::select! {
            () = async {
                let mut buffer = [0; 8192];
                while let Ok(read @ 1..) = requests.read(&mut buffer).await {
                    switches.passed[0].fetch_add(read as u64, Ordering::SeqCst);
                    let is_first = answered.swap(false, Ordering::SeqCst);
                    switches.round_trips.fetch_add(u64::from(is_first), Ordering::SeqCst);
                    if commands.write_all(&buffer[..read]).await.is_err() { return }
                }
            } => {}
            () = async {
                let (mut stalled, mut buffer) = (switches.stalled.subscribe(), [0; 8192]);
                while let Ok(read @ 1..) = replies.read(&mut buffer).await {
                    if stalled.wait_for(|on| !on).await.is_err() { return }
                    switches.passed[1].fetch_add(read as u64, Ordering::SeqCst);
                    answered.store(true, Ordering::SeqCst);
                    if answers.write_all(&buffer[..read]).await.is_err() { return }
                }
            } => {}
        }
    };
    // Dropped after the sockets, so that the requester can rely on them being closed.
    let _request;
    tokio::select! {
        () = exchange => {}
        request = connection.close_requested() => _request = request,
    }
}
