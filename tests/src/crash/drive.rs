//! Kills a process at every point of a scenario, and holds what a retry makes of it against a run that nothing
//! disturbed.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use onetap_config::Secret;
use onetap_line::testing::MessagingApi;
use onetap_servers::{Backend, Environment, HeavyTest, heavy_test};
use onetap_store::lease::unique_token;
use onetap_store::{Key, Store};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use super::function::{ACCESS_TOKEN, API_TOKEN, Answer, CHANNEL_SECRET, Functions, Order, Report, Request};
use super::gate::Point;
use super::ledger::Ledger;
use super::published::Published;
use super::scenario::{Observation, Scenario, observe};
use super::traces::Traces;

/// Number of runs that work at the same time; any number may wait for a lease to end.
const CONCURRENT_RUNS: usize = 3;
/// Pause before a retry that was told to come again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Time limit for all retries of a run: leases and locks end long before.
const RETRY_TIMEOUT: Duration = Duration::from_secs(40);
/// How often a process is started that is to get to a point. On a busy machine a call may take longer than the claim
/// and the lock, which are kept as short as they can be: the function then answers that the request has to come again.
const MAX_STARTS: usize = 10;

/// A backend, LINE, the functions on both, and how to start them in another process.
#[derive(Debug)]
pub struct World {
    environment: Environment,
    store: Arc<dyn Store>,
    line: MessagingApi,
    published: Option<Published>,
    traces: Traces,
    functions: Functions,
    turns: Semaphore,
    _heavy: HeavyTest,
}

/// How many points of a scenario there were.
#[derive(Clone, Copy, Debug)]
pub struct Points {
    /// At these a process died.
    pub reached: usize,
    /// No process got to these: the runs that were counted made more calls than any other.
    pub skipped: usize,
}

/// A run with nothing in its way, to compare with.
struct Undisturbed {
    answer: Answer,
    left: Observation,
}

/// A scenario whose process has ended.
struct Started {
    run: Scenario,
    id: String,
    /// The first value of the scenario before its request.
    before: Option<String>,
    status: ExitStatus,
    said: String,
}

impl World {
    /// Starts the servers. Locks and claims are as short as they can be told to be.
    pub async fn start(backend: Backend) -> World {
        World::start_with(backend, &[]).await
    }

    /// The same with these variables too.
    pub async fn start_with(backend: Backend, more: &[(&'static str, &str)]) -> World {
        let heavy = heavy_test();
        let line = MessagingApi::start(Secret::new(ACCESS_TOKEN)).unwrap();
        let mut environment = Environment::start(backend)
            .await
            .with("LINE_API_BASE_URL", line.url())
            .with("LINE_CHANNEL_SECRET", CHANNEL_SECRET)
            .with("LINE_CHANNEL_ACCESS_TOKEN", ACCESS_TOKEN)
            .with("EDIT_API_TOKEN", API_TOKEN)
            .with("WEATHER_PROVIDER", "sample")
            // Each forecast is fetched and written: a kept one would hide two of the calls.
            .with("WEATHER_FRESH_SECONDS", "0")
            .with("PROCESSING_LOCK_TIMEOUT_SECONDS", "1")
            .with("PROCESSING_LOCK_SCOPE", "all")
            .with("IDEM_LOCK_TTL_SECONDS", "1")
            .with("IDEM_WAIT_TIMEOUT_MS", "1");
        for (name, value) in more {
            environment = environment.with(name, *value);
        }
        let redis = environment.redis().map(|redis| redis.url());
        let published = match &redis {
            Some(url) => Some(Published::on(url).await),
            None => None,
        };
        let lookup = |name: &str| environment.lookup(name);
        let traces = Traces::new(&lookup, redis.as_deref());
        let store = environment.store();
        let functions = Functions::patient(&lookup);
        World {
            store,
            functions,
            published,
            traces,
            environment,
            line,
            turns: Semaphore::new(CONCURRENT_RUNS),
            _heavy: heavy,
        }
    }

    /// Kills a process at every point of every scenario, retries, and compares. The points of each.
    pub async fn survives(&self, scenarios: &[Scenario]) -> Vec<(&'static str, Points)> {
        let each = scenarios.iter().map(|it| async move { (it.name, self.survives_one(it).await) });
        join_all(each).await
    }

    async fn survives_one(&self, scenario: &Scenario) -> Points {
        let (calls, landed) = self.undisturbed_twice(scenario).await;
        let landed = &landed;
        let otherwise = match &scenario.between {
            Some(_) => Some(self.with_the_other_first(scenario).await),
            None => None,
        };
        let not_landed = otherwise.as_ref().unwrap_or(landed);
        let points = Point::all(&calls);
        let crashes = points.iter().map(|point| {
            let what = format!("{}: {point:?}, a {}", scenario.name, calls[point.call].what);
            async move { self.crash(scenario, *point, &what, landed, not_landed).await }
        });
        let reached = join_all(crashes).await.into_iter().filter(|died| *died).count();
        Points { reached, skipped: points.len() - reached }
    }

    /// Kills a process at every point, and the one that retries at every point again. How many pairs there were.
    pub async fn survives_two_crashes(&self, scenario: &Scenario) -> usize {
        assert!(scenario.between.is_none(), "nobody else comes between");
        let (calls, expected) = self.undisturbed_twice(scenario).await;
        let (points, expected) = (Point::all(&calls), &expected);
        let pairs = points.iter().flat_map(|first| points.iter().map(move |second| [*first, *second]));
        let crashes = pairs.map(|pair| async move { self.crash_twice(scenario, pair, expected).await });
        join_all(crashes).await.len()
    }

    async fn crash_twice(&self, scenario: &Scenario, pair: [Point; 2], expected: &Undisturbed) {
        let (run, id) = self.prepared(scenario).await;
        for point in pair {
            // Where somebody's claim stands the process would only be told to come again.
            for claim in run.keys.iter().filter(|key| key.starts_with("idem:")) {
                self.settled(claim, |text| text.contains(r#""ok":"#)).await;
            }
            for lock in &run.locks {
                self.freed(lock).await;
            }
            // A retry that finds everything done makes fewer calls, and may live.
            let order = Order { request: again(&run.request), point: Some(point) };
            let (status, said) = self.process(&order).await;
            assert!(status.success() || status.signal() == Some(9), "{}: {pair:?}: {said}", run.name);
        }
        let answer = self.retried(&again(&run.request)).await;
        assert!(run.ends_with.contains(&answer.status), "{}: {pair:?}: {answer:?}", run.name);
        assert_eq!(self.left(&run, &id).await, expected.left, "{}: {pair:?}", run.name);
    }

    /// Two runs that nothing disturbs come to the same. On a busy machine one may make a call more, such as a second try:
    /// the calls are those of the shorter one.
    async fn undisturbed_twice(&self, scenario: &Scenario) -> (Vec<super::Call>, Undisturbed) {
        let (one, other) = (self.undisturbed(scenario).await, self.undisturbed(scenario).await);
        assert_eq!(one.1.left, other.1.left, "{}: two undisturbed runs", scenario.name);
        if other.0.len() < one.0.len() { other } else { one }
    }

    /// The request in a process that is let live, then what comes between. The calls it made, and what it came to.
    async fn undisturbed(&self, scenario: &Scenario) -> (Vec<super::Call>, Undisturbed) {
        let Started { run, id, status, said, .. } = self.start_at(scenario, None).await;
        assert!(status.success(), "{}: {said}", run.name);
        let Report { answer, calls } = serde_json::from_str(&said).unwrap();
        assert_eq!(answer.status, run.ends_with[0], "{}: {answer:?}", run.name);
        assert!(!calls.is_empty(), "{}: it calls nobody", run.name);
        self.somebody_else(&run).await;
        let left = self.left(&run, &id).await;
        for token in &scenario.replies {
            assert_eq!(left[token].len(), 1, "{}: {token} has its reply: {left:?}", run.name);
        }
        let mut records = 0;
        for user in &run.ledgers {
            records += Ledger::read(user, &run.words(), &*self.store).await.count();
        }
        assert_eq!(records, run.records, "{}: records of the ledger: {left:?}", run.name);
        (calls, Undisturbed { answer, left })
    }

    /// What it comes to if it is only begun after what comes between.
    async fn with_the_other_first(&self, scenario: &Scenario) -> Undisturbed {
        let (run, id) = self.prepared(scenario).await;
        self.somebody_else(&run).await;
        let answer = self.retried(&run.request).await;
        Undisturbed { answer, left: self.left(&run, &id).await }
    }

    /// One process dies; the platform tries again. Returns whether the process got to the point: if not, it has done
    /// everything, and what it left is compared all the same.
    async fn crash(
        &self,
        scenario: &Scenario,
        point: Point,
        what: &str,
        landed: &Undisturbed,
        not_landed: &Undisturbed,
    ) -> bool {
        let Started { run, id, before, status, said } = self.start_at(scenario, Some(point)).await;
        let died = status.signal() == Some(9);
        assert!(died || is_over_before(&said, point), "{what}: it dies there; {said}");
        let expected = if self.first_value(&run).await == before { not_landed } else { landed };
        self.somebody_else(&run).await;

        let answer = self.retried(&again(&run.request)).await;
        assert!(run.ends_with.contains(&answer.status), "{what}: {answer:?}");
        if run.keyed {
            assert_eq!(
                (answer.status, &answer.body),
                (expected.answer.status, &expected.answer.body),
                "{what}"
            );
        }
        assert_eq!(self.left(&run, &id).await, expected.left, "{what}");
        died
    }

    /// The request of a scenario in a process of its own, which dies at `point`. One that was told to come again, because
    /// it was too slow, or that did not get to the point, counts for nothing: the scenario starts anew. If no start gets to
    /// the point, it returns one that has done everything with fewer calls, if there was one.
    async fn start_at(&self, scenario: &Scenario, point: Option<Point>) -> Started {
        let mut lived = None;
        for _ in 0..MAX_STARTS {
            let started = self.start_once(scenario, point).await;
            let report = serde_json::from_str::<Report>(&started.said).ok();
            let is_over = report.as_ref().is_some_and(|report| !comes_again(&report.answer));
            if report.is_none() || is_over && point.is_none() {
                return started;
            }
            if is_over || lived.is_none() {
                lived = Some(started);
            }
        }
        lived.expect("it was started")
    }

    async fn start_once(&self, scenario: &Scenario, point: Option<Point>) -> Started {
        let (run, id) = self.prepared(scenario).await;
        let before = self.first_value(&run).await;
        let (status, said) = self.process(&Order { request: run.request.clone(), point }).await;
        Started { run, id, before, status, said }
    }

    /// The run of a scenario, up to its request.
    async fn prepared(&self, scenario: &Scenario) -> (Scenario, String) {
        let id = unique_token();
        let run = scenario.with_id(&id);
        for request in &run.before {
            let answer = self.retried(request).await;
            assert!(answer.status < 300, "{}, before: {answer:?}", run.name);
        }
        for lock in &run.locks {
            self.freed(lock).await;
        }
        (run, id)
    }

    async fn somebody_else(&self, run: &Scenario) {
        if let Some(request) = &run.between {
            let answer = self.retried(request).await;
            assert!(answer.status < 300, "{}, between: {answer:?}", run.name);
        }
    }

    /// Asks until it is not told to come again.
    async fn retried(&self, request: &Request) -> Answer {
        let started = Instant::now();
        loop {
            let turn = self.turns.acquire().await.unwrap();
            let answer = self.functions.handle(request).await;
            drop(turn);
            if !comes_again(&answer) {
                return answer;
            }
            assert!(started.elapsed() < RETRY_TIMEOUT, "it is never done: {answer:?}");
            sleep(RETRY_PAUSE).await;
        }
    }

    /// What is to be seen of a run when it has come once more than it had to, and its locks have ended.
    async fn left(&self, run: &Scenario, id: &str) -> Observation {
        let repeats = run.keyed || !matches!(run.request, Request::Http { .. });
        if repeats {
            let answer = self.retried(&again(&run.request)).await;
            assert!(answer.status < 300, "{}, once more: {answer:?}", run.name);
            assert_eq!(answer.replayed, run.keyed, "{}, once more", run.name);
        }
        for lock in &run.locks {
            self.freed(lock).await;
        }
        let mut left = observe(run, id, &*self.store, &self.line.replies()).await;
        if let Some(published) = &self.published {
            let texts = published.with(id).await.into_iter().map(|text| text.replace(id, "{id}"));
            left.insert("published".to_owned(), texts.collect());
        }
        if !run.afterwards.is_empty() {
            for request in &run.afterwards {
                let answer = self.retried(request).await;
                assert!(answer.status < 300, "{}, afterwards: {answer:?}", run.name);
            }
            let then = observe(run, id, &*self.store, &self.line.replies()).await;
            left.extend(then.into_iter().map(|(name, texts)| (format!("{name}, afterwards"), texts)));
            for user in &run.ledgers {
                let traces = self.traces.of(user, &run.words()).await;
                left.insert(format!("traces of {user}").replace(id, "{id}"), traces);
            }
        }
        left
    }

    async fn freed(&self, lock: &str) {
        self.settled(lock, |_| false).await;
    }

    /// Waits until there is nothing under `key`, or something that may stay.
    async fn settled(&self, key: &str, may_stay: impl Fn(&str) -> bool) {
        let (name, started) = (Key::new(key).unwrap(), Instant::now());
        while self.store.get(&name).await.unwrap().is_some_and(|text| !may_stay(&text)) {
            assert!(started.elapsed() < RETRY_TIMEOUT, "{key} is left behind");
            sleep(RETRY_PAUSE).await;
        }
    }

    async fn first_value(&self, run: &Scenario) -> Option<String> {
        let key = run.keys.first().map(|key| Key::new(key.as_str()).unwrap())?;
        self.store.get(&key).await.unwrap()
    }

    /// Carries out `order` in a process of its own: how it ended, and what it said.
    async fn process(&self, order: &Order) -> (ExitStatus, String) {
        let _turn = self.turns.acquire().await.unwrap();
        let mut child = Command::new(example("crash_worker"))
            .env_clear()
            .envs(self.environment.variables().iter().map(|(name, value)| (*name, value.as_str())))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the example `crash_worker`: built with all tests, or by `cargo build --examples`");
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&serde_json::to_vec(order).unwrap()).await.unwrap();
        drop(stdin);
        let output = child.wait_with_output().await.unwrap();
        (output.status, String::from_utf8(output.stdout).unwrap())
    }
}

/// Whether a process says that it has done everything, with fewer calls than it takes to get to `point`.
fn is_over_before(said: &str, point: Point) -> bool {
    let report = serde_json::from_str::<Report>(said);
    report.is_ok_and(|report| !comes_again(&report.answer) && report.calls.len() <= point.call)
}

/// Whether the answer says that the request has to come again.
fn comes_again(answer: &Answer) -> bool {
    matches!(answer.status, 409 | 500 | 503)
}

/// The same request, as the platform brings it again.
fn again(request: &Request) -> Request {
    let mut request = request.clone();
    if let Request::Delivery(events) = &mut request {
        for event in events.as_array_mut().unwrap() {
            event["deliveryContext"]["isRedelivery"] = true.into();
        }
    }
    request
}

/// Where cargo puts examples: beside the folder of the test binaries.
fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(name)
}
