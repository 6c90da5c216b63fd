//! A consumer that can be killed: a process with SIGKILL, in memory a task that is dropped.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onetap_servers::environment::Variable;
use onetap_sqs::{SqsBatchResponse, SqsEvent};
use queue_consumer::QueueConsumer;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{Mutex, Notify};

use super::later;

pub struct Worker {
    body: Body,
    kill: Notify,
    /// How many batches its deaths interrupted.
    pub interrupted: AtomicUsize,
}

enum Body {
    Task(Arc<QueueConsumer>),
    Process(Vec<Variable>, Mutex<Option<Box<Process>>>),
}

struct Process {
    child: Child,
    tell: ChildStdin,
    hear: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    pub fn task(consumer: QueueConsumer) -> Worker {
        Worker::new(Body::Task(Arc::new(consumer)))
    }

    pub fn process(environment: &[Variable]) -> Worker {
        Worker::new(Body::Process(environment.to_vec(), Mutex::default()))
    }

    fn new(body: Body) -> Worker {
        Worker { body, kill: Notify::new(), interrupted: AtomicUsize::new(0) }
    }

    /// Kills it in the middle of what it does, or of the next thing it does.
    pub fn kill(&self) {
        self.kill.notify_one();
    }

    /// Its answer, as Lambda gets it; none if it died.
    pub async fn invoke(&self, event: SqsEvent) -> Option<SqsBatchResponse> {
        let answer = match &self.body {
            Body::Task(consumer) => {
                let consumer = consumer.clone();
                let mut task = tokio::spawn(async move { consumer.handle(event, later()).await });
                tokio::select! {
                    answer = &mut task => Some(answer.unwrap()),
                    () = self.kill.notified() => {
                        task.abort();
                        None
                    }
                }
            }
            Body::Process(environment, process) => {
                let mut slot = process.lock().await;
                let process = slot.get_or_insert_with(|| Box::new(Process::start(environment)));
                let answer = tokio::select! {
                    answer = process.ask(&event) => answer,
                    () = self.kill.notified() => {
                        process.child.kill().await.unwrap();
                        None
                    }
                };
                if answer.is_none() {
                    *slot = None;
                }
                answer
            }
        };
        self.interrupted.fetch_add(usize::from(answer.is_none()), Ordering::SeqCst);
        answer
    }
}

impl Process {
    fn start(environment: &[Variable]) -> Process {
        let mut child = Command::new(example("consumer_worker"))
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the example `consumer_worker`: built with all tests, or by `cargo build --examples`");
        let (tell, hear) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Process { child, tell, hear: BufReader::new(hear).lines() }
    }

    async fn ask(&mut self, event: &SqsEvent) -> Option<SqsBatchResponse> {
        let line = format!("{}\n", serde_json::to_string(event).unwrap());
        self.tell.write_all(line.as_bytes()).await.ok()?;
        let answer = self.hear.next_line().await.ok()??;
        Some(serde_json::from_str(&answer).expect("an answer as Lambda takes it"))
    }
}

/// Where cargo puts examples: beside the folder of the test binaries.
fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(name)
}
