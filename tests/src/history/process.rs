//! A client as a process of its own, which can be killed and stopped.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use onetap_store::{Config, Store, open};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::client::{Client, Plan};
use super::journal::Journal;
use super::seed::Seed;

/// What a client process is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Orders {
    /// What it is called.
    pub name: String,
    /// What it draws from.
    pub seed: u64,
    /// By how many milliseconds its clock is ahead.
    pub skew: i64,
    /// Number of clients that work in the process at the same time.
    pub tasks: u64,
    /// Where it writes its history.
    pub journal: PathBuf,
    /// What all clients agree on.
    pub plan: Plan,
}

/// What a client process does: the whole of `examples/history_client.rs`.
pub fn work(orders: &str) {
    let orders: Orders = serde_json::from_str(orders).expect("orders in JSON");
    // Whoever started it holds the other end, and if that is gone the work is nobody's.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = store(orders.skew);
        let journal = Journal::in_file(&orders.journal, &orders.name, orders.skew * 1000).expect("a journal");
        let mut tasks = JoinSet::new();
        for task in 0..orders.tasks {
            let (name, seed) = (format!("{}-{task}", orders.name), Seed::new(orders.seed).fork(task));
            let client =
                Client::new(Arc::clone(&store), Arc::clone(&journal), orders.plan.clone(), name, seed);
            tasks.spawn(client.run());
        }
        while let Some(ended) = tasks.join_next().await {
            ended.expect("a client does not panic");
        }
    });
}

/// The store that the environment names, with a clock that is wrong where callers keep the time.
fn store(skew: i64) -> Arc<dyn Store> {
    let config = Config::from_env().expect("an environment that names a store");
    open(&config.with_skew(skew)).expect("a store that can be opened")
}

/// A running client process; killed when dropped.
#[derive(Debug)]
pub struct Member(Child);

impl Member {
    /// Starts one with these orders and this environment.
    pub fn start(orders: &Orders, variables: &[(&'static str, String)]) -> Member {
        let program = program();
        let orders = serde_json::to_string(orders).expect("orders are JSON");
        let child = Command::new(&program)
            .arg(orders)
            .envs(variables.iter().map(|(name, value)| (*name, value.as_str())))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        Member(child.unwrap_or_else(|error| {
            panic!("{} cannot be started: {error}; `cargo test` builds it with the tests", program.display())
        }))
    }

    /// SIGKILL: no destructor, no release.
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// SIGSTOP.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Returns once it has ended by itself, which it does soon after the run's end.
    pub async fn ended(&mut self) {
        let since = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("our own child") {
                assert!(status.success(), "a client process failed: {status}");
                return;
            }
            assert!(since.elapsed() < Duration::from_secs(90), "a client process does not end");
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn signal(&self, signal: Signal) {
        // It may have ended by itself a moment ago.
        let _ = kill_process(Pid::from_child(&self.0), signal);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `target/<profile>/examples/history_client`, from a test in `deps` or an example beside it.
fn program() -> PathBuf {
    let this = std::env::current_exe().expect("a program knows where it is");
    let folder = this.parent().and_then(|folder| folder.parent()).expect("a program in target");
    folder.join("examples").join("history_client")
}
