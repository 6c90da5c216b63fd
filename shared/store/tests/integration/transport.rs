//! Servers that misbehave: every trouble gives the right error, in time, and none is read as "held" or "absent".

use crate::support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use onetap_servers::{Broken, Fault, HttpStub, Proxy, Redis, TcpProxy, Upstash, create_table};
use onetap_store::testing::conformance::Names;
use onetap_store::{Batch, Commit, Error, ErrorKind, Expect, Found, Keep, Store, Value};
use support::{PATIENT, timed};

const HOUR: Duration = Duration::from_secs(3600);
const LIMIT: u64 = 300;
/// A call that takes so long did not keep its limit, however busy the machine is. How exactly it is kept is seen on a
/// clock that stands still.
const NEVER: Duration = Duration::from_secs(10);

/// A limit on a clock that stands still while there is work: with what timers are rounded up by, and what DynamoDB's
/// client has to say how far it came.
fn exactly(limit: u64) -> Duration {
    Duration::from_millis(limit + 25)
}

/// The error of every kind of call.
async fn errors(store: &Arc<dyn Store>) -> Vec<Error> {
    errors_within(store, NEVER).await
}

/// The error of every kind of call, each made within `most`.
async fn errors_within(store: &Arc<dyn Store>, most: Duration) -> Vec<Error> {
    let names = Names::new();
    let (key, log) = (names.key("planted-user"), names.log("planted-user log"));
    let claim = Batch::new().put(&key, Expect::Absent, "planted-token", HOUR);
    let swap = Batch::new().put(&key, Expect::Is("planted-old".into()), "planted-new", HOUR);
    let event = claim.clone().append(&log, "planted-text", Keep::all_for(HOUR));
    let mut errors = Vec::new();
    let mut note = |took: Duration, error: Error| {
        assert!(took <= most, "{took:?}: {error}");
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("planted"), "{shown}");
        errors.push(error);
    };
    let (got, took) = timed(store.get(&key)).await;
    note(took, got.expect_err("get"));
    for batch in [&claim, &swap, &event] {
        let (answer, took) = timed(store.commit(batch)).await;
        note(took, answer.expect_err("commit"));
    }
    let (answers, took) = timed(store.commit_each(&[claim.clone(), swap.clone()])).await;
    assert_eq!(answers.len(), 2);
    answers.into_iter().for_each(|answer| note(took, answer.expect_err("commit_each")));
    let (read, took) = timed(store.read(&log, None, 10)).await;
    note(took, read.expect_err("read"));
    errors
}

fn all_unavailable(errors: &[Error]) {
    for error in errors {
        assert!(error.is_retryable(), "{error:?}");
    }
}

fn all_rejected(errors: &[Error], reason: &str) {
    for error in errors {
        assert!(error.kind() == ErrorKind::Rejected && error.to_string().contains(reason), "{error:?}");
    }
}

fn faults() -> Vec<Fault> {
    vec![
        Fault::Status(500, r#"{"error":"internal"}"#.into()),
        Fault::Status(502, "<html>Bad gateway</html>".into()),
        Fault::Status(429, r#"{"error":"ERR too many requests"}"#.into()),
        Fault::Status(200, r#"{"result"#.into()),
        Fault::Status(200, r#"{"other":1}"#.into()),
        Fault::Status(200, "[]".into()),
        Fault::Status(200, r#"["OK",null]"#.into()),
        Fault::Status(400, r#"["ERR","no"]"#.into()),
        Fault::Status(200, "null".into()),
        Fault::Status(204, String::new()),
        Fault::Status(302, String::new()),
        Fault::Html,
        Fault::HalfBody,
        Fault::Empty,
        Fault::Close,
        Fault::Hang,
    ]
}

#[tokio::test]
async fn upstash_in_trouble_is_unavailable_and_never_an_answer() {
    for fault in faults() {
        let server = HttpStub::always(fault.clone());
        let store = support::store(&support::upstash(server.url(), "planted-secret", LIMIT));
        all_unavailable(&errors(&store).await);
        assert!(store.watch(&Names::new().channel("c")).await.is_err(), "{fault:?}");
    }
}

#[tokio::test]
async fn dynamodb_in_trouble_is_unavailable_and_never_an_answer() {
    for fault in faults() {
        // DynamoDB answers a write with any object at all, so that an object is no trouble.
        if matches!(&fault, Fault::Status(200, body) if body.contains("other")) {
            continue;
        }
        let server = HttpStub::always(fault.clone());
        let store = support::store(&support::dynamodb(server.url(), LIMIT));
        all_unavailable(&errors(&store).await);
    }
}

/// A server that answers every request with `start` and then with `piece` over and over, as fast as it is read.
fn endless(status: &str, start: &str, piece: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let start = format!("HTTP/1.1 {status}\r\ncontent-type: text/event-stream\r\n\r\n{start}");
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let start = start.clone();
            std::thread::spawn(move || {
                let _ = client.read(&mut [0; 4096]).and_then(|_| client.write_all(start.as_bytes()));
                while client.write_all(piece).is_ok() {}
            });
        }
    });
    url
}

const LETTERS: &[u8] = &[b'x'; 64 * 1024];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_keeps_its_limit_although_data_keeps_coming() {
    for status in ["200 OK", "400 Bad Request"] {
        for piece in [LETTERS, b": keep-alive\n\n".repeat(1000).leak()] {
            let store = support::store(&support::upstash(endless(status, "", piece), "t", LIMIT));
            let (watched, took) = timed(store.watch(&Names::new().channel("c"))).await;
            // Far below what it takes to look at all of it again with every piece.
            assert!(watched.is_err() && took < NEVER, "{status}: {took:?}");
        }
    }
}

#[tokio::test]
async fn a_message_of_any_length_rings_and_a_line_without_end_ends_the_subscription() {
    let long = "x".repeat(8_000_000);
    let start = format!("data: subscribe,c,1\n\ndata: message,c,short\n\ndata: message,c,{long}\n\n");
    let store = support::store(&support::upstash(endless("200 OK", &start, LETTERS), "t", PATIENT));
    let rings = store.watch(&Names::new().channel("c")).await.unwrap();
    let all = tokio::time::timeout(Duration::from_secs(60), rings.collect::<Vec<_>>()).await;
    assert_eq!(all.expect("it ends").len(), 2);
}

#[tokio::test]
async fn a_wrong_token_is_rejected_and_said() {
    let denied = r#"{"error":"WRONGPASS invalid or missing auth token"}"#;
    for body in [denied, "Unauthorized", ""] {
        let server = HttpStub::always(Fault::Status(401, body.into()));
        let store = support::store(&support::upstash(server.url(), "planted-secret", PATIENT));
        all_rejected(&errors(&store).await, "the token");
        assert!(store.watch(&Names::new().channel("c")).await.is_err());
    }
    let denied = r#"{"__type":"com.amazon.coral.service#UnrecognizedClientException","message":"no"}"#;
    let server = HttpStub::always(Fault::Status(400, denied.into()));
    all_rejected(&errors(&support::store(&support::dynamodb(server.url(), PATIENT))).await, "credentials");
}

#[tokio::test]
async fn a_missing_table_is_rejected_as_one_that_does_not_exist() {
    let server = onetap_servers::Dynamo::start().await;
    let store = support::store(&support::dynamodb(server.url(), PATIENT));
    let key = Names::new().key("k");
    let error = store.get(&key).await.unwrap_err();
    assert!(error.to_string().contains("the table does not exist") && !error.is_retryable(), "{error}");
    let error = store.commit(&Batch::new().put(&key, Expect::Absent, "v", HOUR)).await.unwrap_err();
    assert!(error.to_string().contains("the table does not exist"), "{error}");
}

#[tokio::test]
async fn nobody_there_is_unavailable_and_surely_not_applied() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let environments = [
        support::upstash(format!("http://127.0.0.1:{port}"), "t", LIMIT),
        support::redis(format!("redis://127.0.0.1:{port}"), LIMIT),
        support::dynamodb(format!("http://127.0.0.1:{port}"), LIMIT),
    ];
    for environment in environments {
        let errors = errors(&support::store(&environment)).await;
        all_unavailable(&errors);
        assert!(errors.iter().all(|error| !error.maybe_applied()), "{errors:?}");
    }
}

#[tokio::test]
async fn out_of_time_while_connecting_is_unavailable_and_surely_not_applied() {
    let (full, mute) = (Broken::never_accepts().await, Broken::accepts_and_never_answers().await);
    let tls = mute.url().replace("http:", "https:");
    for url in [full.url(), tls] {
        let environments = [support::upstash(url.clone(), "t", LIMIT), support::dynamodb(url, LIMIT)];
        for environment in environments {
            let errors = errors(&support::store(&environment)).await;
            all_unavailable(&errors);
            assert!(errors.iter().all(|error| !error.maybe_applied()), "{environment:?} {errors:?}");
        }
    }
}

#[tokio::test]
async fn connecting_ahead_fails_within_the_limit_where_there_is_no_connection() {
    let (full, mute) = (Broken::never_accepts().await, Broken::accepts_and_never_answers().await);
    let tls = mute.url().replace("http:", "https:");
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let environments = [
        support::upstash(full.url(), "planted-secret", LIMIT),
        support::upstash(tls.clone(), "planted-secret", LIMIT),
        support::dynamodb(full.url(), LIMIT),
        support::dynamodb(tls.clone(), LIMIT),
        support::dynamodb(format!("http://{gone}"), LIMIT),
        support::redis(full.url().replace("http:", "redis:"), LIMIT),
        support::redis(tls.replace("https:", "rediss:"), LIMIT),
        // The login is a part of connecting.
        support::redis(format!("redis://:planted-password@{}", mute.addr()), LIMIT),
    ];
    for environment in environments {
        let store = support::store(&environment);
        let (connected, took) = timed(store.connect()).await;
        let error = connected.expect_err("no connection");
        assert!(error.is_retryable() && !error.maybe_applied() && took < NEVER, "{took:?} {error:?}");
        assert!(!format!("{error} {error:?}").contains("planted"), "{error:?}");
    }
}

/// Connects ahead, several times, through a proxy that counts.
async fn connect_ahead(store: &Arc<dyn Store>, proxy: &TcpProxy) {
    let (first, second) = tokio::join!(store.connect(), store.connect());
    assert_eq!((first.is_ok(), second.is_ok(), store.connect().await.is_ok()), (true, true, true));
    proxy.accepted(1).await;
    assert_eq!(proxy.connections(), 1);
}

/// The first call comes over the connection that was opened ahead. One that was closed since is replaced.
async fn call_over_it(store: &Arc<dyn Store>, proxy: &TcpProxy) {
    assert_eq!(store.get(&Names::new().key("k")).await.unwrap(), None);
    assert_eq!(proxy.connections(), 1);
    blocked(|| proxy.cut());
    assert_eq!(
        (store.connect().await.is_ok(), store.get(&Names::new().key("k")).await.unwrap()),
        (true, None)
    );
    assert_eq!(store.get(&Names::new().key("k")).await.unwrap(), None);
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn the_first_call_to_upstash_uses_the_connection_that_was_opened_ahead() {
    let redis = Redis::start().await;
    let gateway = Upstash::start(&redis.url()).await;
    let proxy = TcpProxy::start(gateway.url().trim_start_matches("http://")).await;
    let url = format!("http://127.0.0.1:{}", proxy.port());
    let store = support::store(&support::upstash(url, gateway.token(), PATIENT));
    connect_ahead(&store, &proxy).await;
    assert_eq!(gateway.requests(), 0, "nothing is sent, nothing is billed");
    call_over_it(&store, &proxy).await;
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn the_first_call_to_redis_uses_the_connection_that_was_opened_ahead() {
    let redis = Redis::start().await;
    let proxy = TcpProxy::start(redis.addr()).await;
    let store = support::store(&support::redis(format!("{}/3", proxy.url()), PATIENT));
    let mut monitor = redis.monitor().await;
    connect_ahead(&store, &proxy).await;
    assert_eq!(monitor.top_level_commands().await, Vec::<String>::new(), "none but those of the login");
    call_over_it(&store, &proxy).await;
}

#[tokio::test]
async fn the_first_call_to_dynamodb_uses_the_connection_that_was_opened_ahead() {
    let server = onetap_servers::Dynamo::start().await;
    create_table(&server.url(), "onetap").await;
    let requests = Proxy::start(&server.url()).await;
    let proxy = TcpProxy::start(requests.url().trim_start_matches("http://")).await;
    let store = support::store(&support::dynamodb(format!("http://127.0.0.1:{}", proxy.port()), PATIENT));
    connect_ahead(&store, &proxy).await;
    assert_eq!(requests.requests(), 0, "nothing is sent, nothing is billed");
    call_over_it(&store, &proxy).await;
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_call_waits_for_the_connection_that_is_being_opened() {
    let redis = Redis::start().await;
    let proxy = TcpProxy::start(redis.addr()).await;
    let store = support::store(&support::redis(proxy.url(), PATIENT));
    let key = Names::new().key("k");
    let (connected, got) = tokio::join!(store.connect(), store.get(&key));
    assert_eq!((connected.is_ok(), got.unwrap(), proxy.connections()), (true, None, 1));
}

#[tokio::test]
async fn a_server_that_accepts_and_never_answers_costs_the_limit_and_no_more() {
    let server = Broken::accepts_and_never_answers().await;
    let environments = [
        support::upstash(server.url(), "t", LIMIT),
        support::redis(format!("redis://{}", server.addr()), LIMIT),
        support::dynamodb(server.url(), LIMIT),
    ];
    for environment in environments {
        let store = support::store(&environment);
        all_unavailable(&errors(&store).await);
        // Once more on a clock that moves only when there is nothing left to do.
        tokio::time::pause();
        all_unavailable(&errors_within(&store, exactly(LIMIT)).await);
        if store.capabilities().pub_sub {
            let (watched, took) = timed(store.watch(&Names::new().channel("c"))).await;
            assert!(watched.is_err() && took <= exactly(LIMIT), "{took:?}");
        }
        tokio::time::resume();
    }
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_redis_that_stops_answering_costs_the_limit_and_comes_back() {
    let server = Redis::start().await;
    let store = support::store(&support::redis(server.url(), PATIENT));
    let key = Names::new().key("k");
    assert_eq!(store.get(&key).await.unwrap(), None);
    server.pause();
    tokio::time::pause();
    all_unavailable(&errors_within(&store, exactly(PATIENT)).await);
    tokio::time::resume();
    server.resume();
    let claim = Batch::new().put(&key, Expect::Absent, "v", HOUR);
    assert!(matches!(store.commit(&claim).await, Ok(Commit::Applied(_))));
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_wrong_password_is_rejected() {
    let server = Redis::start().await;
    let url = server.url().replace("redis://", "redis://:planted@");
    let store = support::store(&support::redis(url, PATIENT));
    let error = store.get(&Names::new().key("k")).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Rejected && !error.to_string().contains("planted"), "{error}");
}

/// The tests below run on one thread: while it is blocked, nothing of ours can notice that the other side hung up,
/// as in a Lambda that was frozen.
fn blocked(close: impl FnOnce()) {
    close();
    std::thread::sleep(Duration::from_millis(20));
}

async fn works_after(store: &Arc<dyn Store>, close: impl Fn()) {
    let names = Names::new();
    let (key, log) = (names.key("k"), names.log("l"));
    assert_eq!(store.get(&key).await.unwrap(), None);
    blocked(&close);
    assert_eq!(store.get(&key).await.unwrap(), None, "get");
    blocked(&close);
    let claim = Batch::new().put(&key, Expect::Absent, "mine", HOUR);
    assert!(matches!(store.commit(&claim).await, Ok(Commit::Applied(_))), "claim");
    blocked(&close);
    let event = Batch::new().put(&names.key("m"), Expect::Absent, Value::PositionOf(0), HOUR);
    let event = event.append(&log, "event", Keep::all_for(HOUR));
    assert!(matches!(store.commit(&event).await, Ok(Commit::Applied(_))), "event");
    blocked(&close);
    assert_eq!(store.read(&log, None, 10).await.unwrap().len(), 1, "read");
    blocked(&close);
    let release = Batch::new().delete(&key, "mine");
    assert!(matches!(store.commit_each(&[release]).await[0], Ok(Commit::Applied(_))), "release");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn an_idle_connection_that_upstash_closed_is_no_failure() {
    let redis = Redis::start().await;
    let gateway = Upstash::start(&redis.url()).await;
    let store = support::store(&support::upstash(gateway.url(), gateway.token(), PATIENT));
    works_after(&store, || gateway.close_idle_connections()).await;
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn an_idle_connection_that_redis_closed_is_no_failure() {
    let redis = Redis::start().await;
    let wire = TcpProxy::start(redis.addr()).await;
    let store = support::store(&support::redis(wire.url(), PATIENT));
    works_after(&store, || wire.cut()).await;
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn an_idle_connection_that_redis_closed_is_seen_before_a_swap_is_sent() {
    let redis = Redis::start().await;
    let proxy = TcpProxy::start(redis.addr()).await;
    let store = support::store(&support::redis(proxy.url(), PATIENT));
    let key = Names::new().key("k");
    let claim = Batch::new().put(&key, Expect::Absent, "old", HOUR);
    assert!(matches!(store.commit(&claim).await, Ok(Commit::Applied(_))));
    // Long enough idle that the store looks for the end before it sends.
    blocked(|| proxy.cut());
    // A swap is never sent twice: had it been sent into the closed connection, its outcome would be unknown.
    let swap = Batch::new().put(&key, Expect::Is("old".into()), "new", HOUR);
    let answer = store.commit(&swap).await;
    assert!(matches!(answer, Ok(Commit::Applied(_))), "{answer:?}");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_request_that_is_polled_and_then_held_does_not_hold_up_others() {
    let redis = Redis::start().await;
    let proxy = TcpProxy::start(redis.addr()).await;
    let store = support::store(&support::redis(proxy.url(), 2 * PATIENT));
    let names = Names::new();
    assert_eq!(store.get(&names.key("warm")).await.unwrap(), None);
    proxy.stall(true);
    let other = tokio::spawn({
        let (store, key) = (Arc::clone(&store), names.key("other"));
        async move { store.get(&key).await }
    });
    let key = names.key("held");
    let mut held = Box::pin(store.get(&key));
    // Polled last, and more than once, so that it has sent its request and is the one that the reply wakes.
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!((&mut held).now_or_never().is_none());
    }
    proxy.stall(false);
    let both = async { (other.await.unwrap(), store.get(&names.key("later")).await) };
    let both = tokio::time::timeout(Duration::from_millis(PATIENT), both).await;
    let (first, second) = both.expect("they wait for the held request");
    assert_eq!((first.unwrap(), second.unwrap()), (None, None));
    drop(held);
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_connection_that_answered_readonly_is_not_used_again() {
    let (old, new) = (Redis::start().await, Redis::start().await);
    let proxy = TcpProxy::start(old.addr()).await;
    let store = support::store(&support::redis(proxy.url(), PATIENT));
    let client = redis::Client::open(old.url()).unwrap();
    let mut direct = client.get_multiplexed_async_connection().await.unwrap();
    let names = Names::new();
    // READONLY is the answer to a plain command, to a script, and to the second of two commands.
    let claim = Batch::new().put(&names.key("claim"), Expect::Absent, "v", HOUR);
    let event = claim.clone().append(&names.log("event"), "record", Keep::all_for(HOUR));
    let check = Batch::new().check(&names.key("none"), Expect::Absent);
    for batches in [vec![claim], vec![event.clone()], vec![check, event]] {
        redis::cmd("REPLICAOF").arg(&["NO", "ONE"]).exec_async(&mut direct).await.unwrap();
        proxy.redirect(old.addr());
        proxy.cut();
        assert_eq!(store.get(&names.key("warm")).await.unwrap(), None);
        // The primary is demoted. The connection to it lives on; a new one leads to the server that was promoted.
        redis::cmd("REPLICAOF").arg(&["127.0.0.1", "1"]).exec_async(&mut direct).await.unwrap();
        proxy.redirect(new.addr());
        let commit = async || match &batches[..] {
            [one] => store.commit(one).await,
            _ => store.commit_each(&batches).await.pop().unwrap(),
        };
        let error = commit().await.expect_err("a replica takes no writes");
        assert!(error.is_retryable() && !error.maybe_applied(), "{error:?}");
        let answer = commit().await;
        assert!(answer.is_ok(), "{answer:?}");
    }
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn many_callers_at_once_share_a_bounded_number_of_connections() {
    let redis = Redis::start().await;
    let proxy = TcpProxy::start(redis.addr()).await;
    let store = support::store(&support::redis(proxy.url(), PATIENT));
    let names = Arc::new(Names::new());
    let callers = (0..500).map(|n| {
        let (store, names) = (Arc::clone(&store), Arc::clone(&names));
        tokio::spawn(async move {
            let (key, value) = (names.key(&n.to_string()), format!("value-{n}"));
            let claim = Batch::new().put(&key, Expect::Absent, value.as_str(), HOUR);
            assert!(matches!(store.commit(&claim).await, Ok(Commit::Applied(_))));
            assert_eq!(store.get(&key).await.unwrap(), Some(value), "each gets its own reply");
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    assert!(proxy.connections() <= 32, "{}", proxy.connections());
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn the_reply_of_a_caller_that_gave_up_goes_to_nobody_else() {
    let redis = Redis::start().await;
    let proxy = TcpProxy::start(redis.addr()).await;
    let store = support::store(&support::redis(proxy.url(), PATIENT));
    let names = Names::new();
    let [left, next] = ["left", "next"].map(|name| names.key(name));
    for key in [&left, &next] {
        let claim = Batch::new().put(key, Expect::Absent, key.as_str(), HOUR);
        assert!(matches!(store.commit(&claim).await, Ok(Commit::Applied(_))));
    }
    proxy.stall(true);
    assert!(tokio::time::timeout(Duration::from_millis(50), store.get(&left)).await.is_err());
    proxy.stall(false);
    for _ in 0..3 {
        assert_eq!(store.get(&next).await.unwrap().as_deref(), Some(next.as_str()));
    }
}

#[tokio::test]
async fn an_idle_connection_that_dynamodb_closed_is_no_failure() {
    let server = onetap_servers::Dynamo::start().await;
    create_table(&server.url(), "onetap").await;
    let proxy = Proxy::start(&server.url()).await;
    let store = support::store(&support::dynamodb(proxy.url(), PATIENT));
    works_after(&store, || proxy.close_idle_connections()).await;
}

/// A reply that was lost: what recognises itself is sent again and found done; a swap is not.
async fn lost_reply(store: &Arc<dyn Store>, lose_next: impl Fn()) {
    let names = Names::new();
    let (key, log) = (names.key("k"), names.log("l"));
    let claim = Batch::new().put(&key, Expect::Absent, "1", HOUR).append(&log, "effect", Keep::all_for(HOUR));
    lose_next();
    match store.commit(&claim).await {
        Ok(Commit::Refused(refusal)) => assert_eq!(refusal.get(&key), Some(Found::Text("1")), "mine"),
        other => panic!("{other:?}"),
    }
    assert_eq!(store.read(&log, None, 10).await.unwrap().len(), 1, "the effect happened once");
    lose_next();
    let swap = Batch::new().put(&key, Expect::Is("1".into()), "2", HOUR);
    let error = store.commit(&swap).await.expect_err("a swap cannot know whether it was the one");
    assert!(error.maybe_applied(), "{error:?}");
    assert_eq!(store.get(&key).await.unwrap().as_deref(), Some("2"));
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_lost_reply_of_upstash_doubles_nothing() {
    let redis = Redis::start().await;
    let gateway = Upstash::start(&redis.url()).await;
    let store = support::store(&support::upstash(gateway.url(), gateway.token(), PATIENT));
    lost_reply(&store, || gateway.inject_next(vec![Fault::DropReply])).await;
}

#[tokio::test]
async fn a_lost_reply_of_dynamodb_doubles_nothing() {
    let server = onetap_servers::Dynamo::start().await;
    create_table(&server.url(), "onetap").await;
    let proxy = Proxy::start(&server.url()).await;
    let store = support::store(&support::dynamodb(proxy.url(), PATIENT));
    let key = Names::new().key("k");
    let claim = Batch::new().put(&key, Expect::Absent, "mine", HOUR);
    proxy.inject_next(vec![Fault::DropReply]);
    match store.commit(&claim).await {
        Ok(Commit::Refused(refusal)) => assert_eq!(refusal.get(&key), Some(Found::Text("mine"))),
        other => panic!("{other:?}"),
    }
    // In an event the read comes first: it is the transaction's reply that is lost.
    let names = Names::new();
    let (marker, log) = (names.key("m"), names.log("l"));
    let event =
        Batch::new().put(&marker, Expect::Absent, "1", HOUR).append(&log, "event", Keep::all_for(HOUR));
    proxy.inject_next(vec![Fault::Delay(Duration::ZERO), Fault::DropReply]);
    match store.commit(&event).await {
        Ok(Commit::Refused(refusal)) => assert_eq!(refusal.get(&marker), Some(Found::Text("1"))),
        other => panic!("{other:?}"),
    }
    assert_eq!(store.read(&log, None, 10).await.unwrap().len(), 1);
    proxy.inject_next(vec![Fault::DropReply]);
    let swap = Batch::new().put(&key, Expect::Is("mine".into()), "2", HOUR);
    assert!(store.commit(&swap).await.expect_err("a swap").maybe_applied());
}

fn canceled(code: &str) -> Fault {
    let body = format!(
        r#"{{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","Message":"cancelled",
            "CancellationReasons":[{{"Code":"{code}"}},{{"Code":"None"}}]}}"#
    );
    Fault::Status(400, body)
}

#[tokio::test]
async fn a_transaction_conflict_is_contention_and_no_refusal() {
    let server = onetap_servers::Dynamo::start().await;
    create_table(&server.url(), "onetap").await;
    let proxy = Proxy::start(&server.url()).await;
    let store = support::store(&support::dynamodb(proxy.url(), PATIENT));
    let names = Names::new();
    let (a, b) = (names.key("a"), names.key("b"));
    let pair = Batch::new().put(&a, Expect::Absent, "1", HOUR).put(&b, Expect::Absent, "1", HOUR);
    proxy.inject_next(vec![canceled("TransactionConflict"), canceled("TransactionConflict")]);
    assert!(matches!(store.commit(&pair).await, Ok(Commit::Applied(_))), "after two conflicts");

    let conflict =
        r#"{"__type":"com.amazonaws.dynamodb.v20120810#TransactionConflictException","message":"busy"}"#;
    proxy.inject_next(vec![Fault::Status(400, conflict.into())]);
    let one = Batch::new().put(&names.key("c"), Expect::Absent, "1", HOUR);
    assert!(matches!(store.commit(&one).await, Ok(Commit::Applied(_))), "a single write meets it too");

    let store = support::store(&support::dynamodb(proxy.url(), LIMIT));
    proxy.inject(Some(canceled("TransactionConflict")));
    let (answer, took) = timed(store.commit(&pair)).await;
    // What ran out of time between two sends surely did nothing; amid one, nobody can know.
    assert!(answer.expect_err("a conflict that never ends").is_retryable());
    assert!(took < NEVER, "{took:?}");

    proxy.inject(Some(canceled("ThrottlingError")));
    assert!(store.commit(&pair).await.expect_err("throttled").is_retryable());
    let store = support::store(&support::dynamodb(proxy.url(), PATIENT));
    proxy.inject(Some(canceled("ValidationError")));
    assert!(store.commit(&pair).await.is_err_and(|error| error.kind() == ErrorKind::Rejected));
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_redis_that_takes_no_more_clients_is_unavailable_and_never_an_answer() {
    let redis = Redis::start().await;
    let client = redis::Client::open(redis.url()).unwrap();
    let mut only = client.get_multiplexed_async_connection().await.unwrap();
    redis::cmd("CONFIG").arg(&["SET", "maxclients", "1"]).exec_async(&mut only).await.unwrap();
    let with_password = redis.url().replace("redis://", "redis://:planted@");
    for url in [redis.url(), with_password] {
        let store = support::store(&support::redis(url, PATIENT));
        for _ in 0..5 {
            all_unavailable(&errors(&store).await);
        }
    }
}
