//! A client's own way to the server: TCP that can lose, hold and reset what goes over it, for one client at a time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// What becomes of what goes over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It arrives.
    Open,
    /// Requests are swallowed.
    LoseRequests,
    /// Requests wait, and arrive when the link is open again.
    HoldRequests,
    /// Answers are swallowed.
    LoseAnswers,
    /// There is no link: connections are refused.
    Closed,
}

/// How long the server may go on with requests of a client that is gone.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(2);

/// A link; gone when dropped.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    state: Arc<State>,
    listening: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    server: SocketAddr,
    mode: watch::Sender<Mode>,
    /// How often all connections were reset so far.
    resets: watch::Sender<u64>,
}

impl Link {
    /// A link to `server`, on a free port.
    pub async fn to(server: SocketAddr) -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free loopback port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let state =
            Arc::new(State { server, mode: watch::Sender::new(Mode::Open), resets: watch::Sender::new(0) });
        let listening = tokio::spawn(listen(Arc::clone(&state), listener, address));
        Link { address, state, listening }
    }

    /// Where a client finds it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on.
    pub fn set(&self, mode: Mode) {
        self.state.mode.send_replace(mode);
    }

    /// Resets every connection.
    pub fn reset(&self) {
        self.state.resets.send_modify(|resets| *resets += 1);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.listening.abort();
        self.reset();
    }
}

async fn listen(state: Arc<State>, mut listener: TcpListener, address: SocketAddr) {
    let mut mode = state.mode.subscribe();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = mode.wait_for(|mode| *mode == Mode::Closed) => None,
            accepted = listener.accept() => Some(accepted),
        };
        match accepted {
            Some(Ok((client, _))) => drop(tokio::spawn(carry(Arc::clone(&state), client))),
            // The error of one connection, gone before it was accepted.
            Some(Err(_)) => {}
            None => {
                drop(listener);
                let _ = mode.wait_for(|mode| *mode != Mode::Closed).await;
                listener = loop {
                    // Somebody's outgoing connection may sit on the port for a moment.
                    match TcpListener::bind(address).await {
                        Ok(listener) => break listener,
                        Err(_) => sleep(Duration::from_millis(5)).await,
                    }
                };
            }
        }
    }
}

async fn carry(state: Arc<State>, mut client: TcpStream) {
    let mut resets = state.resets.subscribe();
    if let Ok(mut server) = TcpStream::connect(state.server).await {
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        tokio::select! {
            biased;
            _ = resets.changed() => {}
            () = exchange(&state, &mut client, &mut server) => {}
        }
    }
    // A reset, not a farewell: what was on its way is gone.
    let _ = client.set_zero_linger();
}

async fn exchange(state: &State, client: &mut TcpStream, server: &mut TcpStream) {
    let (mut requests, mut to_client) = client.split();
    let (mut answers, mut to_server) = server.split();
    let sending = async {
        let (mut mode, mut buffer, mut lossy) = (state.mode.subscribe(), vec![0; 64 << 10], false);
        while let Ok(read @ 1..) = requests.read(&mut buffer).await {
            let now =
                *mode.wait_for(|mode| *mode != Mode::HoldRequests).await.expect("the link outlives this");
            // After a gap in it a stream says something else: once lossy, nothing gets through any more.
            lossy |= now == Mode::LoseRequests;
            if !lossy && to_server.write_all(&buffer[..read]).await.is_err() {
                return;
            }
        }
        // The client is gone; what it has sent goes on.
        sleep(ORPHAN_TIMEOUT).await;
    };
    let answering = async {
        let (mode, mut buffer, mut lossy) = (state.mode.subscribe(), vec![0; 64 << 10], false);
        while let Ok(read @ 1..) = answers.read(&mut buffer).await {
            lossy |= *mode.borrow() == Mode::LoseAnswers;
            if !lossy && to_client.write_all(&buffer[..read]).await.is_err() {
                return sleep(ORPHAN_TIMEOUT).await;
            }
        }
    };
    tokio::select! {
        () = sending => {}
        () = answering => {}
    }
}
