//! Lambda's runtime API, with as little in it as possible: what a function takes longer than the floor is to be its own.
//!
//! The thread that reads a function's answer writes its next event, from a queue that was filled before. No answer
//! waits for another thread.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Result;

/// A function has so long for whatever it is asked.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Vec<u8>>,
    first_poll: Option<Instant>,
    last_event: Option<Instant>,
    last_first_byte: Option<Instant>,
    answered: usize,
    last_answer: Option<Instant>,
    /// What every answer must contain.
    good: &'static str,
    bad: Option<String>,
}

#[derive(Debug, Default)]
struct Shared(Mutex<State>, Condvar);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The shell joins a control group, says so, and waits for a line. It then becomes the program, with the same process id.
const JOIN_AND_WAIT: &str = r#"echo $$ > "$0" && echo && read -r go && exec "$1" < /dev/null > /dev/null"#;

/// A function's program and the API that it polls. Both end when this is dropped.
#[derive(Debug)]
pub struct Function {
    child: Child,
    shared: Arc<Shared>,
    started: Instant,
}

impl Function {
    /// Starts `program` and listens for it. Every answer must contain `good`.
    pub fn start(
        program: &Path,
        arguments: &[String],
        variables: &[(String, String)],
        good: &'static str,
        event: Option<&[u8]>,
    ) -> Result<Function> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        Function::spawn(command, variables, good, event, |_| Ok(None))
    }

    /// Starts `program` in the control group whose processes are listed in this file (`/dev/null`: in none). The clock starts
    /// when the process is in the group, just before `exec`.
    pub fn start_in_group(
        program: &Path,
        processes: &Path,
        variables: &[(String, String)],
        good: &'static str,
    ) -> Result<Function> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", JOIN_AND_WAIT]).arg(processes).arg(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Function::spawn(command, variables, good, None, |child| {
            let pipes = child.stdin.take().zip(child.stdout.take());
            let (mut go, said) = pipes.ok_or("a shell without pipes")?;
            if BufReader::new(said).read_line(&mut String::new())? == 0 {
                return Err(format!("{} takes no process", processes.display()).into());
            }
            let started = Instant::now();
            go.write_all(b"\n")?;
            Ok(Some(started))
        })
    }

    /// Spawns `command` and listens for it. The clock starts before that, or at the moment that `prepare` returns.
    fn spawn(
        mut command: Command,
        variables: &[(String, String)],
        good: &'static str,
        event: Option<&[u8]>,
        prepare: impl FnOnce(&mut Child) -> Result<Option<Instant>>,
    ) -> Result<Function> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let state = State { good, events: event.map(encoded).into_iter().collect(), ..State::default() };
        let shared = Arc::new(Shared(Mutex::new(state), Condvar::new()));
        thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        command.env_clear().envs(lambda(address)).envs(variables.iter().map(|(n, v)| (n, v)));
        command.stderr(Stdio::null());
        let started = Instant::now();
        let child =
            command.spawn().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
        let mut function = Function { child, shared, started };
        if let Some(later) = prepare(&mut function.child)? {
            function.started = later;
        }
        Ok(function)
    }

    /// From exec to the first request for an event.
    pub fn first_poll(&mut self) -> Result<Duration> {
        let at = self.wait(|state| state.first_poll)?;
        Ok(at - self.started)
    }

    /// From exec to the first answer.
    pub fn first_answer(&mut self) -> Result<Duration> {
        let at = self.wait(|state| state.last_answer.filter(|_| state.answered >= 1))?;
        Ok(at - self.started)
    }

    /// Hands out the events one after the other; how long it took.
    pub fn invoke(&mut self, events: &[Vec<u8>]) -> Result<Duration> {
        let encoded: Vec<Vec<u8>> = events.iter().map(encoded).collect();
        let start = Instant::now();
        let until = {
            let mut state = self.shared.lock();
            state.events.extend(encoded);
            state.answered + events.len()
        };
        self.shared.1.notify_all();
        let end = self.wait(|state| state.last_answer.filter(|_| state.answered >= until))?;
        Ok(end - start)
    }

    /// From handing out this event to the first byte of its response's body. Returns once all of it is here.
    pub fn first_byte(&mut self, event: &[u8]) -> Result<Duration> {
        self.invoke(&[event.to_vec()])?;
        let state = self.shared.lock();
        let took = state.last_event.zip(state.last_first_byte).map(|(event, byte)| byte - event);
        took.ok_or_else(|| "no event was answered".into())
    }

    /// What the process has of the machine's memory now, and the most it ever had, in bytes.
    pub fn memory(&self) -> Result<(u64, u64)> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let field = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim_start_matches(':').trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
        };
        field("VmRSS").zip(field("VmHWM")).ok_or_else(|| "a process without memory".into())
    }

    fn wait<T>(&mut self, seen: impl Fn(&State) -> Option<T>) -> Result<T> {
        let start = Instant::now();
        let mut state = self.shared.lock();
        loop {
            if let Some(bad) = state.bad.take() {
                return Err(format!("a function answered {bad}").into());
            }
            if let Some(found) = seen(&state) {
                return Ok(found);
            }
            if start.elapsed() > PATIENCE || matches!(self.child.try_wait(), Ok(Some(_))) {
                return Err("a function ended, or does not answer".into());
            }
            let (next, _) = self
                .shared
                .1
                .wait_timeout(state, Duration::from_millis(200))
                .unwrap_or_else(PoisonError::into_inner);
            state = next;
        }
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What Lambda sets for every function.
fn lambda(address: SocketAddr) -> Vec<(&'static str, String)> {
    vec![
        ("AWS_LAMBDA_RUNTIME_API", address.to_string()),
        ("AWS_LAMBDA_FUNCTION_NAME", "function".to_owned()),
        ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128".to_owned()),
        ("AWS_LAMBDA_FUNCTION_VERSION", "1".to_owned()),
        ("AWS_LAMBDA_LOG_GROUP_NAME", "/aws/lambda/function".to_owned()),
        ("AWS_LAMBDA_LOG_STREAM_NAME", "stream".to_owned()),
        ("PATH", std::env::var("PATH").unwrap_or_default()),
    ]
}

/// An event as the API hands it out.
fn encoded(event: impl AsRef<[u8]>) -> Vec<u8> {
    let event = event.as_ref();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let deadline = (now + PATIENCE).as_millis();
    let mut answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nLambda-Runtime-Aws-Request-Id: one\r\n\
         Lambda-Runtime-Deadline-Ms: {deadline}\r\nLambda-Runtime-Trace-Id: Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700\r\n\
         Lambda-Runtime-Invoked-Function-Arn: arn:aws:lambda:us-east-1:123456789012:function:function\r\n\
         Content-Length: {}\r\n\r\n",
        event.len()
    )
    .into_bytes();
    answer.extend_from_slice(event);
    answer
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for connection in listener.incoming().flatten() {
        let shared = Arc::clone(shared);
        // A function that goes away takes its connections along.
        thread::spawn(move || serve(connection, &shared).ok());
    }
}

fn serve(mut connection: TcpStream, shared: &Shared) -> Result<()> {
    connection.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(64 * 1024, connection.try_clone()?);
    let (mut head, mut body) = (String::new(), Vec::new());
    loop {
        head.clear();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        if head.starts_with("GET ") {
            let mut state = shared.lock();
            if state.first_poll.is_none() {
                state.first_poll = Some(Instant::now());
                shared.1.notify_all();
            }
            let event = loop {
                match state.events.pop_front() {
                    Some(event) => break event,
                    None => state = shared.1.wait(state).unwrap_or_else(PoisonError::into_inner),
                }
            };
            state.last_event = Some(Instant::now());
            drop(state);
            connection.write_all(&event)?;
        } else {
            let first_byte = read_body(&mut reader, &head, &mut body)?;
            let now = Instant::now();
            connection.write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")?;
            let mut state = shared.lock();
            let path = head.split(' ').nth(1).unwrap_or_default();
            let good = path.ends_with("/response")
                && body.windows(state.good.len().max(1)).any(|window| window == state.good.as_bytes());
            if !good && state.bad.is_none() {
                state.bad = Some(format!("{path}: {}", String::from_utf8_lossy(&body)));
            }
            state.answered += 1;
            state.last_answer = Some(now);
            state.last_first_byte = Some(first_byte);
            if state.events.is_empty() || !good {
                shared.1.notify_all();
            }
        }
    }
}

/// Reads the body of an answer. Returns when the first byte of the response was here: of a streamed one, after its
/// prelude.
fn read_body(reader: &mut impl BufRead, head: &str, body: &mut Vec<u8>) -> Result<Instant> {
    body.clear();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok()).flatten()
    });
    if let Some(length) = length {
        body.resize(length, 0);
        reader.read_exact(body)?;
        return Ok(Instant::now());
    }
    let mut line = String::new();
    let mut first_byte = None;
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let size = usize::from_str_radix(line.trim(), 16)?;
        let start = body.len();
        body.resize(start + size + 2, 0);
        reader.read_exact(&mut body[start..])?;
        body.truncate(start + size);
        if first_byte.is_none() && (size == 0 || body.windows(9).any(|bytes| bytes.starts_with(&[0; 8]))) {
            first_byte = Some(Instant::now());
        }
        if let (0, Some(first_byte)) = (size, first_byte) {
            return Ok(first_byte);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests {
    use super::*;

    #[test]
    fn the_clock_starts_when_the_process_is_in_its_group() {
        let fifo = std::env::temp_dir().join(format!("onetap-bench-{}", std::process::id()));
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        // The shell waits until somebody reads what it writes.
        let joined = thread::spawn({
            let fifo = fifo.clone();
            move || {
                thread::sleep(Duration::from_millis(100));
                let before = Instant::now();
                (before, std::fs::read_to_string(fifo).unwrap())
            }
        });
        let function = Function::start_in_group(Path::new("/bin/true"), &fifo, &[], "").unwrap();
        let (before, id) = joined.join().unwrap();
        std::fs::remove_file(fifo).unwrap();
        assert!(function.started > before);
        assert_eq!(id.trim(), function.child.id().to_string());
    }

    #[test]
    fn a_group_that_cannot_be_joined_is_an_error() {
        let missing = Path::new("/proc/no-such-group");
        assert!(Function::start_in_group(Path::new("/bin/true"), missing, &[], "").is_err());
    }
}
