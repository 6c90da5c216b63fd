//! 100 claims from 4 processes have one winner, 50 times in a row.

use crate::support;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use onetap_store::testing::conformance::Names;
use support::{Environment, PATIENT};

const PROCESSES: usize = 4;
const CLAIMS: &str = "25";
const ROUNDS: usize = 50;

struct Racer {
    child: Child,
    tell: ChildStdin,
    hear: BufReader<ChildStdout>,
}

impl Racer {
    fn start(environment: &Environment) -> Racer {
        let mut child = Command::new(example("racer"))
            .arg(CLAIMS)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example `racer`: built with all tests, or by `cargo build --examples`");
        let (tell, hear) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Racer { child, tell, hear: BufReader::new(hear) }
    }

    fn won(&mut self) -> usize {
        let mut line = String::new();
        self.hear.read_line(&mut line).unwrap();
        line.trim().parse().expect("the racer says how many of its claims won")
    }
}

impl Drop for Racer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where cargo puts examples: beside the folder of the test binaries.
fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(name)
}

fn one_winner_every_time(environment: &Environment) {
    let names = Names::new();
    let mut racers: Vec<Racer> = (0..PROCESSES).map(|_| Racer::start(environment)).collect();
    for round in 0..ROUNDS {
        let key = names.key(&format!("round {round}"));
        for racer in &mut racers {
            writeln!(racer.tell, "{}", key.as_str()).unwrap();
        }
        let won: Vec<usize> = racers.iter_mut().map(Racer::won).collect();
        assert_eq!(won.iter().sum::<usize>(), 1, "round {round}: {won:?}");
    }
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_hundred_claims_from_four_processes_have_one_winner_on_redis() {
    let (_, server) = support::open_redis().await;
    one_winner_every_time(&support::redis(server.url(), PATIENT));
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_hundred_claims_from_four_processes_have_one_winner_on_upstash() {
    let (_, (gateway, _redis)) = support::open_upstash().await;
    one_winner_every_time(&support::upstash(gateway.url(), gateway.token(), PATIENT));
}

#[tokio::test]
async fn a_hundred_claims_from_four_processes_have_one_winner_on_dynamodb() {
    let (_, server) = support::open_dynoxide().await;
    one_winner_every_time(&support::dynamodb(server.url(), PATIENT));
}

#[tokio::test]
#[ignore = "needs DynamoDB Local"]
async fn a_hundred_claims_from_four_processes_have_one_winner_on_dynamodb_local() {
    support::open_dynamodb_local().await;
    one_winner_every_time(&support::dynamodb(onetap_servers::dynamodb_local(), PATIENT));
}
