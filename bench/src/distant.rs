//! A service that is far away: TLS, and a round trip of some milliseconds, in front of a server on the loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, split};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use crate::Result;

/// The certificate of all distant services.
#[derive(Debug)]
pub struct Identity {
    /// What a client has to trust, in DER.
    pub certificate: Vec<u8>,
    config: Arc<ServerConfig>,
}

impl Identity {
    /// A new one, for `localhost`.
    pub fn new() -> Result<Identity> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let (certificate, key) = (made.cert.der().clone(), made.key_pair.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], PrivatePkcs8KeyDer::from(key).into())?;
        Ok(Identity { certificate: certificate.to_vec(), config: Arc::new(config) })
    }
}

/// The proxies, on a thread of their own. They end when this is dropped.
#[derive(Debug)]
pub struct Distance {
    runtime: Runtime,
    identity: Identity,
}

impl Distance {
    /// No proxies yet.
    pub fn new(identity: Identity) -> Result<Distance> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Distance { runtime, identity })
    }

    /// The `https://` address of the server at `url`, a round trip away.
    pub fn to(&self, url: &str, round_trip: Duration) -> Result<String> {
        let upstream: SocketAddr = url.trim_start_matches("http://").parse()?;
        let listener = self.runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let address = format!("https://localhost:{}", listener.local_addr()?.port());
        let acceptor = TlsAcceptor::from(Arc::clone(&self.identity.config));
        self.runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // A connection that fails fails its function, which says so.
                tokio::spawn(serve(client, upstream, acceptor.clone(), round_trip));
            }
        });
        Ok(address)
    }
}

async fn serve(
    client: TcpStream,
    upstream: SocketAddr,
    acceptor: TlsAcceptor,
    round_trip: Duration,
) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    let mut server = TcpStream::connect(upstream).await?;
    server.set_nodelay(true)?;
    let (near, far) = duplex(1 << 20);
    let ((from_client, to_client), (from_server, to_server)) = (split(client), split(near));
    // The kernel has answered the client's SYN at once: that round trip is added to the first bytes.
    tokio::spawn(delayed(from_client, to_server, round_trip / 2, round_trip));
    tokio::spawn(delayed(from_server, to_client, round_trip / 2, Duration::ZERO));
    let mut secure = acceptor.accept(far).await?;
    copy_bidirectional(&mut secure, &mut server).await?;
    Ok(())
}

/// Copies what comes, with a delay; the first bytes come by `first` later still.
async fn delayed(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin + Send + 'static,
    delay: Duration,
    first: Duration,
) {
    let (sender, mut pieces) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    tokio::spawn(async move {
        while let Some((due, piece)) = pieces.recv().await {
            sleep_until(due).await;
            if to.write_all(&piece).await.is_err() || to.flush().await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    });
    let mut buffer = vec![0; 64 * 1024];
    let opened = Instant::now() + first;
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let due = Instant::now().max(opened) + delay;
        if sender.send((due, buffer[..length].to_vec())).is_err() {
            return;
        }
    }
}
