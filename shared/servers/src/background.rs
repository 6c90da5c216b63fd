use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

/// A runtime of the server's own, so that it keeps serving while the test's runtime is blocked.
///
/// Dropping it stops every task and closes every socket before it returns.
#[derive(Debug)]
pub(crate) struct Background(Option<Runtime>);

impl Background {
    pub(crate) fn new() -> Background {
        // Two workers: a server that handles its requests one at a time would hide races.
        let runtime =
            Builder::new_multi_thread().worker_threads(2).thread_name("test-server").enable_all().build();
        Background(Some(runtime.expect("a runtime for a test server")))
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.as_ref().expect("the runtime lives until drop").spawn(task);
    }

    /// Listens on a free loopback port and spawns `serve` for every connection.
    pub(crate) fn listen<F>(&self, serve: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (listener, addr) = loopback();
        self.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listening socket");
            loop {
                // An error here is that of one connection, reset before it was accepted.
                if let Ok((stream, _)) = listener.accept().await {
                    let _ = stream.set_nodelay(true);
                    tokio::spawn(serve(stream));
                }
            }
        });
        addr
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // A runtime may not be shut down from inside another one, where tests usually drop their servers.
        let runtime = self.0.take().expect("dropped once");
        let _ = thread::spawn(move || runtime.shutdown_timeout(Duration::from_secs(1))).join();
    }
}

/// A socket that already listens on a free loopback port, ready to be handed to tokio.
pub(crate) fn loopback() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free loopback port");
    listener.set_nonblocking(true).expect("a nonblocking socket");
    let addr = listener.local_addr().expect("a bound socket has an address");
    (listener, addr)
}
