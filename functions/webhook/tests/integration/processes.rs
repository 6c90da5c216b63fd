//! Several instances, as Lambda runs them: taps at once in two processes, and a process that is killed halfway.

use crate::support;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use onetap_config::Secret;
use onetap_line::testing::MessagingApi;
use onetap_servers::{Broken, Fault, HttpStub, Proxy};
use onetap_store::Key;
use serde_json::{Value, json};
use support::*;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

/// What the public service answers.
const WEATHER: &str = include_str!("../../../../shared/weather/tests/fixtures/open-meteo.json");

struct Instance {
    child: Child,
    tell: ChildStdin,
    hear: BufReader<ChildStdout>,
}

impl Instance {
    fn start(store: &Environment, line: &str, weather: &str, lock_seconds: u32) -> Instance {
        let tests = std::env::current_exe().unwrap();
        let example = tests.parent().and_then(|deps| deps.parent()).unwrap().join("examples/webhook_worker");
        let mut child = Command::new::<PathBuf>(example)
            .envs(store.variables().iter().map(|(name, value)| (name, value)))
            .envs([
                ("LINE_CHANNEL_SECRET", SECRET),
                ("LINE_CHANNEL_ACCESS_TOKEN", TOKEN),
                ("LINE_API_BASE_URL", line),
            ])
            .envs([("WEATHER_PROVIDER", "open-meteo"), ("OPEN_METEO_BASE_URL", weather)])
            // Each forecast is fetched, so that a test can hold it.
            .env("WEATHER_FRESH_SECONDS", "0")
            .env("PROCESSING_LOCK_TIMEOUT_SECONDS", lock_seconds.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example `webhook_worker`: built with all tests, or by `cargo build --examples`");
        let (tell, hear) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Instance { child, tell, hear }
    }

    fn deliver(&mut self, events: &[Value]) {
        writeln!(self.tell, "{}", json!(events)).unwrap();
    }

    fn status(&mut self) -> u16 {
        let mut line = String::new();
        self.hear.read_line(&mut line).unwrap();
        line.trim().parse().expect("the worker prints a status")
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A weather service that counts.
async fn weather() -> (HttpStub, Proxy) {
    let service = HttpStub::always(Fault::Status(200, WEATHER.to_owned()));
    let counting = Proxy::start(&service.url()).await;
    (service, counting)
}

/// A lock that does not end while a test runs.
const LASTING_SECONDS: u32 = 120;
/// What has not happened by then never does.
const NEVER: Duration = Duration::from_secs(60);

fn said(line: &MessagingApi) -> Vec<String> {
    line.take_replies().iter().map(|reply| reply.text().to_owned()).collect()
}

async fn taps_in_two_processes(store: &Environment) {
    let line = MessagingApi::start(Secret::new(TOKEN)).unwrap();
    let (_service, weather) = weather().await;
    let gate = Arc::new(Semaphore::new(0));
    weather.inject(Some(Fault::Held(Arc::clone(&gate))));
    let mut instances = [0, 1].map(|_| Instance::start(store, &line.url(), &weather.url(), LASTING_SECONDS));
    for each in [1, 10] {
        let user = user();
        instances[0].deliver(&[text(&user, "設定住家 永和區")]);
        assert_eq!(instances[0].status(), 200);
        line.take_replies();
        let before = weather.requests();
        for _ in 0..each {
            instances.iter_mut().for_each(|instance| instance.deliver(&[tap(&user, HOME)]));
        }
        // All but one are answered while that one waits for the weather.
        let start = Instant::now();
        while line.replies().len() < 2 * each - 1 {
            assert!(start.elapsed() < NEVER, "{} replies", line.replies().len());
            sleep(Duration::from_millis(5)).await;
        }
        gate.add_permits(1);
        for instance in &mut instances {
            assert!((0..each).all(|_| instance.status() == 200));
        }
        let said = said(&line);
        assert_eq!(said.iter().filter(|text| text.starts_with("新北市永和區")).count(), 1, "{said:?}");
        assert_eq!(said.iter().filter(|text| *text == PROCESSING).count(), 2 * each - 1, "{said:?}");
        assert_eq!(weather.requests() - before, 1, "one look at the weather");
    }
}

async fn a_killed_tap(store: &Environment) {
    let line = MessagingApi::start(Secret::new(TOKEN)).unwrap();
    let (_service, weather) = weather().await;
    weather.inject(Some(Fault::Hang));
    let user = user();
    let mut victim = Instance::start(store, &line.url(), &weather.url(), 2);
    victim.deliver(&[text(&user, "設定住家 永和區")]);
    assert_eq!(victim.status(), 200);
    line.take_replies();
    let before = weather.requests();
    victim.deliver(&[tap(&user, HOME)]);
    while weather.requests() == before {
        sleep(Duration::from_millis(5)).await;
    }
    victim.kill();
    let killed = Instant::now();
    weather.inject(None);
    let mut next = Instance::start(store, &line.url(), &weather.url(), 2);
    loop {
        next.deliver(&[tap(&user, HOME)]);
        assert_eq!(next.status(), 200);
        match said(&line).as_slice() {
            [text] if text.starts_with("新北市永和區") => break,
            [text] => assert_eq!(text, PROCESSING),
            other => panic!("{other:?}"),
        }
        assert!(killed.elapsed() < NEVER, "the lock outlived its owner");
        sleep(Duration::from_millis(50)).await;
    }
}

async fn a_crash_between_the_write_and_the_reply(environment: &Environment, store: &dyn onetap_store::Store) {
    let (_service, weather) = weather().await;
    let user = user();
    let profile = Key::new(format!("user:{user}:profile")).unwrap();
    let saved = text(&user, "設定住家 永和區");
    // LINE takes the connection and says nothing: the victim waits there, its write committed.
    let silent = Broken::accepts_and_never_answers().await;
    let mut victim = Instance::start(environment, &silent.url(), &weather.url(), 2);
    victim.deliver(std::slice::from_ref(&saved));
    let written = loop {
        if let Some(written) = store.get(&profile).await.unwrap() {
            break written;
        }
        sleep(Duration::from_millis(2)).await;
    };
    victim.kill();
    let line = MessagingApi::start(Secret::new(TOKEN)).unwrap();
    let mut next = Instance::start(environment, &line.url(), &weather.url(), 2);
    // In between the user moves house; a repeated write would move them back.
    next.deliver(&[text(&user, "設定住家 花蓮市")]);
    assert_eq!(next.status(), 200);
    line.take_replies();
    next.deliver(&[saved]);
    assert_eq!(next.status(), 200);
    assert_eq!(said(&line), ["已將住家設定為新北市永和區"], "the reply is sent");
    let now = store.get(&profile).await.unwrap().unwrap();
    assert_eq!(now, written.replace("新北市永和區", "花蓮縣花蓮市"), "and nothing is written again");
}

macro_rules! on_every_server {
    ($($backend:ident $server:ident $(#[$ignored:meta])?;)*) => {$(
        mod $backend {
            use super::*;

            #[tokio::test]
            $(#[$ignored])?
            async fn of_taps_in_two_processes_one_is_answered() {
                let (_store, environment) = start(Backend::$server).await;
                taps_in_two_processes(&environment).await;
            }

            #[tokio::test]
            $(#[$ignored])?
            async fn a_killed_tap_frees_its_user_within_the_lock() {
                let (_store, environment) = start(Backend::$server).await;
                a_killed_tap(&environment).await;
            }

            #[tokio::test]
            $(#[$ignored])?
            async fn a_crash_between_write_and_reply_repeats_only_the_reply() {
                let (store, environment) = start(Backend::$server).await;
                a_crash_between_the_write_and_the_reply(&environment, &*store).await;
            }
        }
    )*};
}

on_every_server! {
    on_redis Redis #[ignore = "needs redis-server"];
    on_upstash Upstash #[ignore = "needs redis-server"];
    on_dynamodb DynamoDb;
    on_dynamodb_local DynamoDbLocal #[ignore = "needs DynamoDB Local"];
}
