//! An HTTP server that answers as it is told, or not at all.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use tokio::sync::Notify;

/// A running server. It serves until the test program ends.
pub(crate) struct Stub {
    pub(crate) url: String,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    requests: Mutex<Vec<Asked>>,
    arrived: Notify,
}

/// A request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// Method and path, without the query.
    pub(crate) call: String,
    pub(crate) authorization: String,
    pub(crate) body: String,
}

/// What is answered.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Status(u16, String),
    /// Nothing, until the client hangs up.
    Silence,
}

impl Answer {
    pub(crate) fn ok(body: impl ToString) -> Answer {
        Answer::Status(200, body.to_string())
    }
}

impl Stub {
    pub(crate) fn start(answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Stub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (answer, seen) = (Arc::new(answer), Arc::new(Seen::default()));
        let stub = Stub { url, seen: Arc::clone(&seen) };
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, seen) = (Arc::clone(&answer), Arc::clone(&seen));
                thread::spawn(move || serve(&stream.unwrap(), &*answer, &seen));
            }
        });
        stub
    }

    /// Method and path of every request so far.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.seen.requests.lock().unwrap().iter().map(|asked| asked.call.clone()).collect()
    }

    /// Waits for `examination`. As soon as a request has arrived, the time until the next timer passes at once: what is
    /// not answered by then never will be.
    pub(crate) async fn once_asked<T>(&self, examination: impl Future<Output = T>) -> T {
        let pause = async {
            while self.calls().is_empty() {
                self.seen.arrived.notified().await;
            }
            tokio::time::pause();
            std::future::pending::<()>().await;
        };
        tokio::select! { found = examination => found, () = pause => unreachable!("it never ends") }
    }
}

/// Answers one request and closes the connection.
fn serve(stream: &TcpStream, answer: &dyn Fn(&Asked) -> Answer, seen: &Seen) {
    let mut reader = BufReader::new(stream);
    let (mut asked, mut length) = (Asked::default(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let line = line.trim_end();
        if asked.call.is_empty() {
            asked.call = line.split(['?']).next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
        } else if let Some((name, value)) = line.split_once(": ") {
            match name.to_ascii_lowercase().as_str() {
                "authorization" => asked.authorization = value.to_owned(),
                "content-length" => length = value.parse().unwrap(),
                _ => {}
            }
        } else {
            break;
        }
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    asked.body = String::from_utf8(body).unwrap();
    let answer = answer(&asked);
    seen.requests.lock().unwrap().push(asked);
    seen.arrived.notify_one();
    let mut stream = stream;
    let _ = match answer {
        Answer::Status(status, body) => {
            let length = body.len();
            let head =
                format!("HTTP/1.1 {status} -\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
            stream.write_all(format!("{head}{body}").as_bytes())
        }
        Answer::Silence => stream.read(&mut [0]).map(drop),
    };
}
