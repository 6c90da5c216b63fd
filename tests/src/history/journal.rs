//! Writes a history: a line before each call, a line after it.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use super::event::{Answer, Call, Fault, Layer, Line};

/// Tells the time in microseconds.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// `CLOCK_MONOTONIC`, which all processes of a machine share.
    Machine,
    /// tokio's, which a test can pause, since this moment.
    Tokio(Instant),
}

impl Clock {
    /// Now.
    pub fn now(self) -> u64 {
        match self {
            Clock::Machine => {
                let time = clock_gettime(ClockId::Monotonic);
                u64::try_from(time.tv_sec * 1_000_000 + time.tv_nsec / 1_000).unwrap_or(0)
            }
            Clock::Tokio(start) => u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX),
        }
    }
}

/// The history of one client. Each line is written before the call continues, so that the calls of a killed client are
/// known.
pub struct Journal {
    clock: Clock,
    calls: AtomicU64,
    out: Mutex<Box<dyn Write + Send>>,
}

/// Identifies a call that has begun and has no answer yet.
#[derive(Debug)]
#[must_use]
pub struct CallId(u64);

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("calls", &self.calls).finish_non_exhaustive()
    }
}

impl Journal {
    /// The journal of the client `name`.
    pub fn new(clock: Clock, name: &str, skew: i64, out: impl Write + Send + 'static) -> Arc<Journal> {
        let journal = Journal { clock, calls: AtomicU64::new(0), out: Mutex::new(Box::new(out)) };
        journal.write(&Line::Client { name: name.to_owned(), skew });
        Arc::new(journal)
    }

    /// The journal of a process, in a file of its own.
    pub fn in_file(path: &Path, name: &str, skew: i64) -> io::Result<Arc<Journal>> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Journal::new(Clock::Machine, name, skew, file))
    }

    /// Its clock.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// A call begins.
    pub fn call(&self, layer: Layer, call: Call) -> CallId {
        let id = self.calls.fetch_add(1, Ordering::SeqCst);
        self.write(&Line::Call { id, at: self.clock.now(), layer, call });
        CallId(id)
    }

    /// The call has ended.
    pub fn answer(&self, call_id: CallId, answer: Answer) {
        self.write(&Line::Answer { id: call_id.0, at: self.clock.now(), answer });
    }

    /// A fault since `from` is over.
    pub fn fault(&self, kind: &str, from: u64) {
        self.write(&Line::Fault(Fault { kind: kind.to_owned(), from, to: self.clock.now() }));
    }

    fn write(&self, line: &Line) {
        let mut text = serde_json::to_vec(line).expect("a line is JSON");
        text.push(b'\n');
        // A client that cannot write down what it does must not do it.
        self.out.lock().unwrap().write_all(&text).expect("the journal takes a line");
    }
}

/// Bytes that several journals write, each into its own, and a test reads.
#[derive(Clone, Debug, Default)]
pub struct Pages(Arc<Mutex<Vec<u8>>>);

impl Pages {
    /// What was written.
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).expect("JSON is UTF-8")
    }
}

impl Write for Pages {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
