//! A function's program under Lambda's runtime API: how long it takes to start, and to answer.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use onetap_servers::RuntimeApi;
use onetap_servers::runtime::Invocation;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::Result;

/// A function has so long for whatever it is asked.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a look is taken at whether the program still runs.
const LOOK: Duration = Duration::from_millis(200);

/// The shell joins a control group, says so, and waits for a line. It then becomes the program, with the same process id.
const JOIN_AND_WAIT: &str = r#"echo $$ > "$0" && echo && read -r go && exec "$1" < /dev/null > /dev/null"#;

/// A function's program and the API that it polls. Both end when this is dropped.
#[derive(Debug)]
pub struct Function {
    child: Child,
    api: RuntimeApi,
    runtime: Runtime,
    started: Instant,
    /// What every answer must contain.
    good: &'static str,
    /// The event that it was started with.
    first: Option<Invocation>,
}

/// When an answer began and ended.
#[derive(Clone, Copy, Debug)]
struct Times {
    event: Instant,
    /// The first byte of the response: of a streamed one, after its prelude.
    first_byte: Instant,
    end: Instant,
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
        let api = RuntimeApi::start();
        let first = event.and_then(|event| api.queue([event], PATIENCE).pop());
        command
            .env_clear()
            .envs(api.variables())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(variables.iter().map(|(n, v)| (n, v)));
        command.stderr(Stdio::null());
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let started = Instant::now();
        let child =
            command.spawn().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
        let mut function = Function { child, api, runtime, started, good, first };
        if let Some(later) = prepare(&mut function.child)? {
            function.started = later;
        }
        Ok(function)
    }

    /// From exec to the first request for an event.
    pub fn first_poll(&mut self) -> Result<Duration> {
        wait(&self.runtime, &mut self.child, self.api.polled(1))?;
        let at = self.api.first_poll().ok_or("a poll without a time")?;
        Ok(at - self.started)
    }

    /// From exec to the answer to the event that it was started with.
    pub fn first_answer(&mut self) -> Result<Duration> {
        let first = self.first.take().ok_or("it was started without an event")?;
        Ok(self.times(first)?.end - self.started)
    }

    /// Hands out the events one after the other; how long it took.
    pub fn invoke(&mut self, events: &[Vec<u8>]) -> Result<Duration> {
        let start = Instant::now();
        let mut queued = self.api.queue(events, PATIENCE);
        // The last one first: no other answer wakes this thread.
        let last = queued.pop().ok_or("no event to hand out")?;
        let end = self.times(last)?.end;
        for earlier in queued {
            self.times(earlier)?;
        }
        Ok(end - start)
    }

    /// From handing out this event to the first byte of its response's body. Returns once all of it is here.
    pub fn first_byte(&mut self, event: &[u8]) -> Result<Duration> {
        let queued = self.api.queue([event], PATIENCE).pop().ok_or("no event was queued")?;
        let times = self.times(queued)?;
        Ok(times.first_byte - times.event)
    }

    /// Waits for an answer, which must be good.
    fn times(&mut self, invocation: Invocation) -> Result<Times> {
        let answer = async {
            let mut answer = invocation.answer().await.ok()?;
            let (mut body, mut first_byte) = (Vec::new(), None);
            loop {
                let (at, chunk) = answer.timed_chunk().await.ok()?;
                body.extend_from_slice(chunk.as_deref().unwrap_or_default());
                if chunk.is_none() || body.windows(9).any(|bytes| bytes.starts_with(&[0; 8])) {
                    first_byte.get_or_insert(at);
                }
                if let (None, Some(first_byte)) = (chunk, first_byte) {
                    return Some((answer.failed, body, Times { event: answer.began, first_byte, end: at }));
                }
            }
        };
        let (failed, body, times) = wait(&self.runtime, &mut self.child, answer)?
            .ok_or("a function ended in the middle of an answer")?;
        let good = self.good.as_bytes();
        if failed || !body.windows(good.len().max(1)).any(|window| window == good) {
            return Err(format!("a function answered {}", String::from_utf8_lossy(&body)).into());
        }
        Ok(times)
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
}

/// Waits for something that the program does, for as long as it runs.
fn wait<T>(runtime: &Runtime, child: &mut Child, event: impl Future<Output = T>) -> Result<T> {
    let start = Instant::now();
    runtime.block_on(async {
        let mut event = std::pin::pin!(event);
        loop {
            if let Ok(done) = timeout(LOOK, &mut event).await {
                return Ok(done);
            }
            if start.elapsed() > PATIENCE || matches!(child.try_wait(), Ok(Some(_))) {
                return Err("a function ended, or does not answer".into());
            }
        }
    })
}

impl Drop for Function {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests {
    use std::thread;

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
