//! A server that says what it is told to, byte for byte: half answers and silence included.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

pub(crate) const CWA: &str = include_str!("../../fixtures/cwa.json");
pub(crate) const OPEN_METEO: &str = include_str!("../../fixtures/open-meteo.json");

pub(crate) struct Server {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

/// What the server sends before it closes the connection; nothing at all is silence.
#[derive(Clone)]
pub(crate) enum Says {
    Status(u16, String),
    HalfOf(String),
    Silence,
}

impl Server {
    pub(crate) fn start(says: Says) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (says, seen) = (says.clone(), Arc::clone(&seen));
                thread::spawn(move || answer(stream.unwrap(), says, &seen));
            }
        });
        Server { url, requests }
    }

    /// The target of every request so far: path and query.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn answer(mut stream: TcpStream, says: Says, seen: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            return;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    seen.lock().unwrap().push(head.split(' ').nth(1).unwrap().to_owned());
    let (status, length, body) = match says {
        Says::Status(status, body) => (status, body.len(), body),
        Says::HalfOf(whole) => {
            let half = whole.char_indices().nth(whole.chars().count() / 2).unwrap().0;
            (200, whole.len(), whole[..half].to_owned())
        }
        // Until the client hangs up.
        Says::Silence => return drop(stream.read(&mut [0])),
    };
    let head = format!("HTTP/1.1 {status} -\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    let _ = stream.write_all(format!("{head}{body}").as_bytes());
}
