//! Clients that hang up: before the claim, during it, while they wait, and during the run.

use super::*;

use std::collections::HashMap;
use std::sync::Mutex;

use onetap_idem::{Policy, digest};
use onetap_store::Key;
use onetap_store::testing::random::Random;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Longer than any test: what has to wait for it hangs or fails.
const LEASE: Duration = Duration::from_secs(3600);

/// Clients that send at the same time, and the requests of each.
const CLIENTS: u64 = 16;
const ROUNDS: usize = 160;

fn patient(store: Arc<dyn Store>, policy: Policy) -> IdempotencyLayer {
    let config = Config::default().lease_ttl(LEASE).policy(policy);
    let config = config.wait_timeout(Duration::from_secs(60)).wait_interval(Duration::from_millis(1));
    IdempotencyLayer::new(Idempotency::with_config(store, config), Caller::anyone())
}

/// The text of the record of a `POST /a` that names no caller.
async fn record(store: &Arc<dyn Store>, key: &str) -> Option<String> {
    let name = format!("idem:{}", digest(&[b"POST", b"/a", b"", key.as_bytes()]));
    store.get(&Key::new(name).unwrap()).await.unwrap()
}

/// How often the work of each key was begun and ended.
#[derive(Clone, Default)]
struct Works(Arc<Mutex<HashMap<String, (usize, usize)>>>);

impl Works {
    fn begin(&self, key: &str) {
        self.0.lock().unwrap().entry(key.to_owned()).or_default().0 += 1;
    }

    fn end(&self, key: &str) {
        self.0.lock().unwrap().entry(key.to_owned()).or_default().1 += 1;
    }

    fn of(&self, key: &str) -> (usize, usize) {
        self.0.lock().unwrap().get(key).copied().unwrap_or_default()
    }
}

/// Work in a few steps of random length, behind the layer.
fn working(
    layer: IdempotencyLayer,
    works: &Works,
    random: &Arc<Mutex<Random>>,
) -> Wrapped<
    impl Service<Request<Body>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static
    + use<>,
> {
    let (works, random) = (works.clone(), Arc::clone(random));
    layer.layer(tower::service_fn(move |request: Request<Body>| {
        let works = works.clone();
        let key = request.headers()["idempotency-key"].to_str().unwrap().to_owned();
        let steps = 1 + random.lock().unwrap().below(4);
        works.begin(&key);
        async move {
            for _ in 0..steps {
                tokio::task::yield_now().await;
            }
            if steps == 4 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            works.end(&key);
            Ok::<_, Infallible>(Response::new(Full::from("done")))
        }
    }))
}

/// Lets other tasks run for `time`, without the timer's granularity of a millisecond.
async fn spin(time: Duration) {
    let start = std::time::Instant::now();
    while start.elapsed() < time {
        tokio::task::yield_now().await;
    }
}

/// Some calls take a while before and after they are executed, as a server's do.
fn slow(store: &Arc<dyn Store>) -> Arc<dyn Store> {
    let random = Mutex::new(Random::new(7));
    TestStore::faulty(Arc::clone(store), move |_| {
        let mut random = random.lock().unwrap();
        let late = Duration::from_micros(random.number() % 2000);
        match random.below(4) {
            0 => Fault::SentLate(late),
            1 => Fault::AnsweredLate(late),
            _ => Fault::Pass,
        }
    })
}

/// Requests whose clients hang up at a random moment of `moments`, each repeated at once by a client that stays.
async fn hang_up_at_random(
    (memory, store): (Arc<dyn Store>, Arc<dyn Store>),
    policy: Policy,
    moments: Duration,
) {
    let (works, steps) = (Works::default(), Arc::new(Mutex::new(Random::new(8))));
    let service = working(patient(store, policy), &works, &steps);
    let clients: Vec<JoinHandle<()>> = (0..CLIENTS)
        .map(|client| {
            let (service, works, memory) = (service.clone(), works.clone(), Arc::clone(&memory));
            tokio::spawn(async move {
                let mut random = Random::new(100 + client);
                for round in 0..ROUNDS {
                    let key = format!("{client}-{round}");
                    let size = match round % 64 {
                        0 => 1 << 20,
                        n if n % 8 == 0 => 32 << 10,
                        _ => 10,
                    };
                    let send = || {
                        let (service, request) = (service.clone(), post("/a", Some(&key), vec![b'x'; size]));
                        tokio::spawn(async move { ask(&service, request).await })
                    };
                    let first = send();
                    // A larger body takes longer to hash: the moments are spread over that too.
                    let longest = moments.as_micros() as u64 + size as u64 / 16;
                    spin(Duration::from_micros(random.number() % longest)).await;
                    first.abort();
                    let _ = first.await;
                    let again = send().await.unwrap();
                    assert_eq!(
                        (again.status(), &*again.body),
                        (200, &b"done"[..]),
                        "{key}: {:?}",
                        again.body
                    );
                    assert_eq!(works.of(&key), (1, 1), "{key} with {size} bytes");
                    let record = record(&memory, &key).await.unwrap();
                    assert!(record.contains(r#""ok":"#), "{key}: {record}");
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hang_up_at_any_moment_never_ends_a_run_that_has_begun() {
    // A store that answers at once leaves the claim and the begin of the run to one poll.
    let memory = memory();
    let both = (Arc::clone(&memory), memory);
    hang_up_at_random(both, Policy::AtMostOnce, Duration::from_micros(300)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hang_up_at_any_moment_neither_repeats_a_run_nor_strands_its_key() {
    let memory = memory();
    let both = (Arc::clone(&memory), slow(&memory));
    hang_up_at_random(both, Policy::AtLeastOnce, Duration::from_millis(4)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hang_up_at_any_moment_never_leaves_an_at_most_once_key_unknown() {
    let memory = memory();
    let both = (Arc::clone(&memory), slow(&memory));
    hang_up_at_random(both, Policy::AtMostOnce, Duration::from_millis(4)).await;
}

/// The store whose call number `n` is held, before it is executed or with its reply.
fn held(store: &Arc<dyn Store>, n: usize, after: bool) -> (Arc<dyn Store>, Gate) {
    let gate = Gate::new();
    let held = gate.clone();
    let store = TestStore::faulty(Arc::clone(store), move |call| match (call == n, after) {
        (true, true) => Fault::HeldAfter(held.clone()),
        (true, false) => Fault::HeldBefore(held.clone()),
        (false, _) => Fault::Pass,
    });
    (store, gate)
}

/// A request in a task of its own, to be aborted.
fn client<S>(service: &Wrapped<S>, key: &str) -> JoinHandle<Answer>
where
    Wrapped<S>: Service<Request<Body>, Response = Response<onetap_idem::Body>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static,
{
    let (service, request) = (service.clone(), post("/a", Some(key), "body"));
    tokio::spawn(async move { Answer::of(service.oneshot(request).await.unwrap()).await })
}

async fn hang_up(client: JoinHandle<Answer>) {
    client.abort();
    assert!(client.await.is_err_and(|ended| ended.is_cancelled()));
}

#[tokio::test]
async fn a_claim_whose_client_hangs_up_before_the_run_is_released_and_nothing_runs() {
    for policy in [Policy::AtLeastOnce, Policy::AtMostOnce] {
        let (memory, asked) = (memory(), Asked::default());
        let (store, gate) = held(&memory, 1, true);
        let service = counting(patient(store, policy), &asked, |_| 200);
        let first = client(&service, "key");
        gate.reached().await;
        assert!(record(&memory, "key").await.is_some(), "it is claimed, and the reply is on its way");
        hang_up(first).await;
        gate.open();
        let released = async {
            while record(&memory, "key").await.is_some() {
                tokio::task::yield_now().await;
            }
        };
        let released = tokio::time::timeout(Duration::from_secs(60), released).await;
        released.unwrap_or_else(|_| panic!("{policy:?}: the claim was left"));
        assert_eq!(asked.times(), 0, "{policy:?}: nobody is there for the answer");
    }
}

#[tokio::test]
async fn a_claim_that_is_sent_after_its_client_hung_up_makes_room_for_the_retry() {
    for (policy, after) in [Policy::AtLeastOnce, Policy::AtMostOnce].map(|p| [(p, false), (p, true)]).concat()
    {
        let (memory, asked) = (memory(), Asked::default());
        let (store, gate) = held(&memory, 1, after);
        let service = counting(patient(store, policy), &asked, |_| 200);
        let first = client(&service, "key");
        gate.reached().await;
        hang_up(first).await;
        let retry = client(&service, "key");
        gate.open();
        let again = retry.await.unwrap();
        assert_eq!((again.status(), again.header("x-answer")), (200, Some("1")), "{policy:?}, {after}");
        assert_eq!(asked.times(), 1);
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_while_it_looks_for_anothers_result_leaves_no_claim() {
    let (memory, asked) = (memory(), Asked::default());
    let door = Arc::new(Semaphore::new(0));
    let failing = |store: &Arc<dyn Store>| {
        let layer = patient(Arc::clone(store), Policy::AtMostOnce).keep_if(|_| false);
        behind_a_door(layer, &asked, &door)
    };
    // The waiter's first look finds the first run, its second one the key that the first run has released.
    let (store, gate) = held(&memory, 2, false);
    let first = client(&failing(&memory), "key");
    while asked.times() == 0 {
        tokio::task::yield_now().await;
    }
    let waiter = client(&failing(&store), "key");
    gate.reached().await;
    door.add_permits(1);
    assert_eq!(first.await.unwrap().status(), 200);
    hang_up(waiter).await;
    gate.open();
    let service = counting(patient(Arc::clone(&memory), Policy::AtMostOnce), &Asked::default(), |_| 200);
    assert_eq!(ask(&service, post("/a", Some("key"), "body")).await.status(), 200);
    assert_eq!(asked.times(), 1, "the waiter's claim was let go, and nothing was run for it");
}

#[tokio::test]
async fn a_request_whose_client_hangs_up_before_its_body_is_there_claims_nothing() {
    let (counted, asked) = (TestStore::counting(memory()), Asked::default());
    let service = counting(patient(counted.clone(), Policy::AtMostOnce), &asked, |_| 200);
    let taken = Asked::default();
    let frames = futures_util::stream::unfold(taken.clone(), |taken| async move {
        if taken.next() > 1 {
            std::future::pending::<()>().await;
        }
        Some((Ok::<_, Infallible>(Bytes::from_static(b"half")), taken))
    });
    let request = post("/a", Some("key"), Body::from_stream(frames));
    let client = tokio::spawn(async move { ask(&service, request).await });
    while taken.times() < 2 {
        tokio::task::yield_now().await;
    }
    hang_up(client).await;
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert_eq!((counted.calls(), asked.times()), (0, 0));
}

/// A service that counts its calls and then waits for a permit.
fn behind_a_door(
    layer: IdempotencyLayer,
    asked: &Asked,
    door: &Arc<Semaphore>,
) -> Wrapped<
    impl Service<Request<Body>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static
    + use<>,
> {
    let (asked, door) = (asked.clone(), Arc::clone(door));
    layer.layer(tower::service_fn(move |_: Request<Body>| {
        let (asked, door) = (asked.clone(), Arc::clone(&door));
        async move {
            asked.next();
            door.acquire().await.unwrap().forget();
            Ok::<_, Infallible>(Response::new(Full::from("done")))
        }
    }))
}

#[test]
fn a_request_that_is_dropped_outside_its_runtime_ends_inside() {
    let (asked, door) = (Asked::default(), Arc::new(Semaphore::new(0)));
    let service = behind_a_door(patient(memory(), Policy::AtMostOnce), &asked, &door);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut first = Box::pin(service.clone().oneshot(post("/a", Some("key"), "body")));
    runtime.block_on(async { assert!(futures_util::poll!(first.as_mut()).is_pending()) });
    assert_eq!(asked.times(), 1);
    drop(first);
    door.add_permits(1);
    let again = runtime.block_on(ask(&service, post("/a", Some("key"), "body")));
    assert_eq!((again.status(), again.header("idempotency-replayed")), (200, Some("true")));
    assert_eq!(asked.times(), 1);
}

#[test]
fn a_request_that_outlives_its_runtime_is_dropped_as_in_a_crash() {
    let (memory, asked, door) = (memory(), Asked::default(), Arc::new(Semaphore::new(0)));
    let service = behind_a_door(patient(Arc::clone(&memory), Policy::AtMostOnce), &asked, &door);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut first = Box::pin(service.oneshot(post("/a", Some("key"), "body")));
    runtime.block_on(async { assert!(futures_util::poll!(first.as_mut()).is_pending()) });
    drop(runtime);
    drop(first);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let left = runtime.block_on(record(&memory, "key")).unwrap();
    assert!(!left.contains(r#""ok":"#), "its claim is left to the policy: {left}");
}
