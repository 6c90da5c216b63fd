//! A thousand callers over four processes, on stores that processes can share.

use crate::support;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use onetap_store::lease::unique_token;
use onetap_store::{Key, Store};
use support::Environment;

const PROCESSES: usize = 4;
const CALLERS: usize = 250;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn a_thousand_callers_in_four_processes_run_it_once_on_redis() {
    let server = onetap_servers::Redis::start().await;
    suite(support::redis(server.url(), support::PATIENT), Pace { lease: 3, look: 50 }).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn a_thousand_callers_in_four_processes_run_it_once_on_upstash() {
    let server = onetap_servers::Redis::start().await;
    let gateway = onetap_servers::Upstash::start(&server.url()).await;
    suite(support::upstash(gateway.url(), gateway.token(), support::PATIENT), Pace { lease: 20, look: 2000 })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_callers_in_four_processes_run_it_once_on_dynamodb() {
    let server = onetap_servers::Dynamo::start().await;
    onetap_servers::create_table(&server.url(), "onetap").await;
    suite(support::dynamodb(server.url(), support::PATIENT), Pace { lease: 20, look: 3000 }).await;
}

/// What a test server on two cores can bear of a thousand callers: it must still answer the one of them that runs,
/// within its lease. `lease` is in seconds, `look` in milliseconds.
struct Pace {
    lease: u32,
    look: u32,
}

/// The promises, on the store that `environment` names.
async fn suite(mut environment: Environment, pace: Pace) {
    let _heavy = onetap_servers::heavy_test();
    let store = support::store(&environment);
    environment.push(("IDEM_LOCK_TTL_SECONDS", pace.lease.to_string()));
    environment.push(("IDEM_WAIT_INTERVAL_MS", pace.look.to_string()));
    many_callers_run_it_once(&environment, &store).await;
    when_the_first_fails_one_runs_next(&environment, &store).await;
    when_the_first_is_killed_one_takes_over(&environment, &store).await;
}

async fn many_callers_run_it_once(environment: &Environment, store: &Arc<dyn Store>) {
    let trial = Trial::new("ok");
    let lines = ended(trial.start(environment, PROCESSES)).await;
    assert_eq!(trial.runs(store).await, 1);
    all_equal(&lines, PROCESSES * CALLERS);
}

async fn when_the_first_fails_one_runs_next(environment: &Environment, store: &Arc<dyn Store>) {
    let trial = Trial::new("fail-first");
    let lines = ended(trial.start(environment, PROCESSES)).await;
    assert_eq!(trial.runs(store).await, 2);
    let (failed, others): (Vec<_>, Vec<_>) =
        lines.into_iter().partition(|line| line == "error the first run fails");
    assert_eq!(failed.len(), 1);
    all_equal(&others, PROCESSES * CALLERS - 1);
}

async fn when_the_first_is_killed_one_takes_over(environment: &Environment, store: &Arc<dyn Store>) {
    let trial = Trial::new("hang");
    // The victim alone, so that it is the first; the others while it holds the claim.
    let mut victim = trial.start(environment, 1).remove(0);
    let mut output = BufReader::new(victim.stdout.take().unwrap());
    let (line, output) = blocking(move || {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        (line, output)
    })
    .await;
    assert_eq!(line, "hanging\n");
    let others = trial.start(environment, PROCESSES - 1);
    tokio::time::sleep(Duration::from_millis(300)).await;
    // On Unix this is SIGKILL: no destructor, no release.
    victim.kill().unwrap();
    victim.wait().unwrap();
    drop(output);
    let lines = ended(others).await;
    assert_eq!(trial.runs(store).await, 2);
    all_equal(&lines, (PROCESSES - 1) * CALLERS);
}

fn all_equal(lines: &[String], count: usize) {
    let odd: Vec<_> = lines.iter().filter(|line| **line != lines[0]).take(3).collect();
    assert!(odd.is_empty(), "{:?} and {odd:?}", lines[0]);
    assert!(lines[0].starts_with(r#"ok {"run":"#), "{:?}", lines[0]);
    assert_eq!(lines.len(), count);
}

/// One key, called by several processes.
struct Trial {
    mode: &'static str,
    key: String,
    counter: String,
}

impl Trial {
    fn new(mode: &'static str) -> Trial {
        let name = unique_token();
        Trial { mode, key: format!("processes:{name}"), counter: format!("runs:{name}") }
    }

    fn start(&self, environment: &Environment, processes: usize) -> Vec<Child> {
        let start = |_| {
            Command::new(worker())
                .args([&self.key, &CALLERS.to_string(), self.mode, &self.counter])
                .envs(environment.iter().map(|(name, value)| (*name, value.as_str())))
                .stdout(Stdio::piped())
                .spawn()
                .expect("the worker is an example: cargo builds it with the tests")
        };
        (0..processes).map(start).collect()
    }

    async fn runs(&self, store: &Arc<dyn Store>) -> usize {
        let counter = store.get(&Key::new(self.counter.as_str()).unwrap()).await.unwrap().unwrap();
        // The number stands before the token of its writer.
        counter.split(' ').next().unwrap().parse().unwrap()
    }
}

/// Every line of processes that have all ended well.
async fn ended(children: Vec<Child>) -> Vec<String> {
    let mut lines = Vec::new();
    // All at once: a child whose pipe is full would wait for us.
    let outputs: Vec<_> =
        children.into_iter().map(|child| blocking(|| child.wait_with_output().unwrap())).collect();
    for output in futures_util::future::join_all(outputs).await {
        assert!(output.status.success());
        lines.extend(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned));
    }
    lines
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// `target/<profile>/examples/idem_worker`, from `target/<profile>/deps/<this test>`.
fn worker() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("examples").join("idem_worker")
}
