//! A proxy that writes down what goes through it: how many round trips a call takes, how many bytes, and which.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::Result;
use crate::orders::Counted;

/// A request and the reply to it.
#[derive(Clone, Debug, Default)]
pub struct Exchange {
    /// Which of the connections.
    pub connection: usize,
    /// Everything the client sent before the server spoke.
    pub request: Vec<u8>,
    /// Everything the server said before the client went on.
    pub reply: Vec<u8>,
}

/// The proxy, on a free loopback port, for as long as this process lives.
#[derive(Debug)]
pub struct Recorder {
    address: SocketAddr,
    tape: Arc<Mutex<Vec<Exchange>>>,
}

impl Recorder {
    /// Listens in front of `upstream` (`127.0.0.1:6379`).
    pub fn start(upstream: &str) -> Result<Recorder> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let tape = Arc::new(Mutex::new(Vec::new()));
        let (shared, upstream) = (Arc::clone(&tape), upstream.to_owned());
        thread::spawn(move || {
            for (number, client) in listener.incoming().flatten().enumerate() {
                if let Ok(server) = TcpStream::connect(&upstream) {
                    // A connection that cannot be had is one that the client will see closed.
                    let _ = forward(number, &client, &server, &shared);
                }
            }
        });
        Ok(Recorder { address, tape })
    }

    /// `127.0.0.1:PORT`
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// What went through since the last call.
    pub fn take(&self) -> Vec<Exchange> {
        std::mem::take(&mut *self.tape.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn forward(
    number: usize,
    client: &TcpStream,
    server: &TcpStream,
    tape: &Arc<Mutex<Vec<Exchange>>>,
) -> Result<()> {
    for (from, to, asks) in [(client, server, true), (server, client, false)] {
        from.set_nodelay(true)?;
        let (mut from, mut to, tape) = (from.try_clone()?, to.try_clone()?, Arc::clone(tape));
        thread::spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(read @ 1..) = from.read(&mut buffer) {
                // Written down first: whoever has the reply may ask for the tape.
                note(&tape, number, asks, &buffer[..read]);
                if to.write_all(&buffer[..read]).is_err() {
                    break;
                }
            }
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        });
    }
    Ok(())
}

fn note(tape: &Mutex<Vec<Exchange>>, connection: usize, asks: bool, bytes: &[u8]) {
    let mut tape = tape.lock().unwrap_or_else(PoisonError::into_inner);
    let last = tape.iter_mut().rfind(|exchange| exchange.connection == connection);
    match last {
        Some(exchange) if !asks => exchange.reply.extend_from_slice(bytes),
        Some(exchange) if exchange.reply.is_empty() => exchange.request.extend_from_slice(bytes),
        _ if asks => tape.push(Exchange { connection, request: bytes.to_vec(), reply: Vec::new() }),
        // The rest of a reply to something that was taken away before.
        _ => {}
    }
}

/// How many exchanges, and how many bytes.
pub fn counted(tape: &[Exchange]) -> Counted {
    Counted {
        round_trips: tape.len(),
        sent: tape.iter().map(|exchange| exchange.request.len()).sum(),
        received: tape.iter().map(|exchange| exchange.reply.len()).sum(),
    }
}
