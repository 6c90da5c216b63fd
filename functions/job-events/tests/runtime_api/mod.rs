//! Lambda's runtime API, for one invocation of a function's own program.
#![allow(dead_code, unreachable_pub, reason = "a module of tests")]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};

/// What the program answered: the headers of its answer, lower case, and the body.
pub struct Answer {
    pub headers: String,
    pub body: String,
}

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the program at `path` with these variables and hands it one event.
pub fn invoke(path: &str, variables: &[(&str, String)], event: &str) -> Answer {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let child = Command::new(path)
        .env_clear()
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .env("AWS_LAMBDA_RUNTIME_API", address)
        .env("AWS_LAMBDA_FUNCTION_NAME", "function")
        .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128")
        .env("AWS_LAMBDA_FUNCTION_VERSION", "1")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let _program = Program(child);
    let (answers, answer) = mpsc::channel();
    let event = event.to_owned();
    thread::spawn(move || {
        let mut event = Some(event);
        for connection in listener.incoming().flatten() {
            let (event, answers) = (event.take(), answers.clone());
            thread::spawn(move || serve(connection, event, &answers));
        }
    });
    answer.recv_timeout(Duration::from_secs(30)).expect("the program answers")
}

/// One connection: hands out the event if it has one, takes an answer, and keeps a second `next` waiting.
fn serve(connection: TcpStream, mut event: Option<String>, answers: &mpsc::Sender<Answer>) {
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    let mut writer = connection;
    loop {
        let Some(head) = head(&mut reader) else {
            return;
        };
        if head.starts_with("get ") {
            let Some(event) = event.take() else {
                thread::park();
                return;
            };
            let deadline =
                SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() + 30_000;
            let answer = format!(
                "HTTP/1.1 200 OK\r\nLambda-Runtime-Aws-Request-Id: one\r\nLambda-Runtime-Deadline-Ms: {deadline}\r\n\
                 Lambda-Runtime-Invoked-Function-Arn: arn\r\nContent-Length: {}\r\n\r\n{event}",
                event.len()
            );
            writer.write_all(answer.as_bytes()).unwrap();
        } else {
            let body = body(&mut reader, &head);
            let _ = answers.send(Answer { headers: head, body });
            let _ = writer.write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n");
        }
    }
}

fn head(reader: &mut impl BufRead) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    Some(head.to_lowercase())
}

fn body(reader: &mut impl BufRead, head: &str) -> String {
    let mut body = Vec::new();
    if let Some(length) = head.lines().find_map(|line| line.strip_prefix("content-length: ")) {
        body.resize(length.parse().unwrap(), 0);
        reader.read_exact(&mut body).unwrap();
        return String::from_utf8(body).unwrap();
    }
    loop {
        let mut size = String::new();
        reader.read_line(&mut size).unwrap();
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        let mut chunk = vec![0; size + 2];
        reader.read_exact(&mut chunk).unwrap();
        if size == 0 {
            return String::from_utf8(body).unwrap();
        }
        body.extend_from_slice(&chunk[..size]);
    }
}
