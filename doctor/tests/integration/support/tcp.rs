//! TCP proxies: one that delivers late, as if the server were far away, and one that changes what the server says.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Delivers everything this much later, in both directions. It serves until the test program ends.
pub(crate) fn slow_proxy(server: SocketAddr, delay: Duration) -> SocketAddr {
    proxy(server, delay, |_| {})
}

/// Says `new` where the server says `old`, which is as long: the lengths in the protocol stay right.
pub(crate) fn lying_proxy(server: SocketAddr, old: &'static str, new: &'static str) -> SocketAddr {
    assert_eq!(old.len(), new.len());
    proxy(server, Duration::ZERO, move |said| {
        let places: Vec<usize> = said
            .windows(old.len())
            .enumerate()
            .filter(|(_, it)| *it == old.as_bytes())
            .map(|(at, _)| at)
            .collect();
        places.into_iter().for_each(|at| said[at..at + new.len()].copy_from_slice(new.as_bytes()));
    })
}

fn proxy(
    server: SocketAddr,
    delay: Duration,
    change: impl Fn(&mut [u8]) + Copy + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(client) = client else { continue };
            let Ok(server) = TcpStream::connect(server) else { continue };
            pass_on(&client, &server, delay, |_| {});
            pass_on(&server, &client, delay, change);
        }
    });
    addr
}

/// What is read is kept until it is due, so that one delay holds up nothing that comes after it.
fn pass_on(from: &TcpStream, to: &TcpStream, delay: Duration, change: impl Fn(&mut [u8]) + Send + 'static) {
    to.set_nodelay(true).unwrap();
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    let (sender, kept) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            if sender.send((Instant::now() + delay, buffer[..read].to_vec())).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        for (due, mut bytes) in kept {
            change(&mut bytes);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}
