//! The Redis protocol: a connection that many callers share, subscriptions that the network forgot, replies that are too
//! long.

use crate::support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use onetap_servers::{Broken, Redis, TcpProxy};
use onetap_store::testing::conformance::Names;
use onetap_store::{Batch, Commit, ErrorKind, Expect, Keep};
use support::PATIENT;

const HOUR: Duration = Duration::from_secs(3600);
const MIB: usize = 1 << 20;

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_subscription_that_the_network_forgot_ends_with_an_error() {
    let redis = Redis::start().await;
    let proxy = TcpProxy::start(redis.addr()).await;
    let store = support::store(&support::redis(proxy.url(), PATIENT));
    let mut notifications = store.watch(&Names::new().channel("c")).await.unwrap();
    // The connection stays open, and nothing arrives on it any more.
    proxy.stall(true);
    tokio::time::pause();
    let next = tokio::time::timeout(Duration::from_secs(120), notifications.next()).await;
    let error = next.expect("it ends by itself").expect("an error").unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    assert!(notifications.next().await.is_none());
    tokio::time::resume();
    proxy.stall(false);
    let again = store.watch(&Names::new().channel("c")).await;
    assert!(again.is_ok(), "the caller watches again");
}

/// A server that answers every connection's first bytes with `start`, and then with `piece` until it has sent `most`
/// bytes or the client closes the connection: its URL, the number of connections, and the bytes that it sent.
fn long_winded(start: &str, piece: Vec<u8>, most: usize) -> (String, Arc<[AtomicUsize; 2]>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let (start, counts) = (start.to_owned(), Arc::<[AtomicUsize; 2]>::default());
    let seen = Arc::clone(&counts);
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            seen[0].fetch_add(1, Ordering::SeqCst);
            let _ = client.read(&mut [0; 4096]).and_then(|_| client.write_all(start.as_bytes()));
            for _ in 0..most / piece.len() {
                if client.write_all(&piece).is_err() {
                    break;
                }
                seen[1].fetch_add(piece.len(), Ordering::SeqCst);
            }
        }
    });
    (url, counts)
}

#[tokio::test]
async fn a_reply_that_is_too_long_is_an_error_that_says_so_and_is_not_read_to_its_end() {
    // No batch writes a longer value than the limit. Redis itself would send one of up to 512 MB.
    for start in ["$500000000\r\n", "*2\r\n$2\r\nok\r\n$8000001\r\n"] {
        let most = 100 * MIB;
        let (url, counts) = long_winded(start, vec![b'x'; 64 * 1024], most);
        let store = support::store(&support::redis(url, PATIENT));
        // A put of an absent key could be sent again; its answer would be as long.
        let claim = Batch::new().put(&Names::new().key("k"), Expect::Absent, "v", HOUR);
        let error = store.commit(&claim).await.expect_err("too long");
        assert!(error.kind() == ErrorKind::Unavailable && error.maybe_applied(), "{start}: {error:?}");
        assert!(error.to_string().contains("longer than"), "{start}: {error}");
        let [connections, sent] = counts.each_ref().map(|count| count.load(Ordering::SeqCst));
        assert_eq!(connections, 1, "{start}: it is sent once");
        assert!(sent < most, "{start}: {sent} bytes were read");
    }
}

#[test]
#[ignore = "needs redis-server"]
fn a_store_that_is_used_from_several_runtimes_connects_anew_in_each() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (servers, first, second) = (runtime(), runtime(), runtime());
    let redis = servers.block_on(Redis::start());
    let store = support::store(&support::redis(redis.url(), PATIENT));
    let key = Names::new().key("k");
    assert_eq!(first.block_on(store.get(&key)).unwrap(), None);
    // The first runtime still exists, and runs nothing: its connections are not driven.
    assert_eq!(second.block_on(store.get(&key)).unwrap(), None);
    assert_eq!(first.block_on(store.get(&key)).unwrap(), None);
    // With the first one its connection ends.
    drop(first);
    assert_eq!(second.block_on(store.get(&key)).unwrap(), None);
    drop(second);
    let claim = Batch::new().put(&key, Expect::Absent, "v", HOUR);
    assert!(matches!(runtime().block_on(store.commit(&claim)), Ok(Commit::Applied(_))));
    assert_eq!(runtime().block_on(store.get(&key)).unwrap(), Some("v".to_owned()));
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_server_that_hangs_holds_up_no_caller_after_it() {
    let (mute, redis) = (Broken::accepts_and_never_answers().await, Redis::start().await);
    for gives_up in [false, true] {
        let proxy = TcpProxy::start(mute.addr()).await;
        let store = support::store(&support::redis(proxy.url(), PATIENT));
        assert!(store.connect().await.is_ok());
        let key = Names::new().key("k");
        let swap = Batch::new().put(&key, Expect::Is("old".into()), "new", HOUR);
        let mut call = store.commit(&swap);
        while proxy.bytes()[0] == 0 {
            assert!((&mut call).now_or_never().is_none());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::pause();
        if gives_up {
            // This caller gives up before the store does.
            tokio::time::advance(Duration::from_millis(1_001)).await;
            drop(call);
        } else {
            assert!(call.await.expect_err("no answer").maybe_applied());
        }
        tokio::time::resume();
        proxy.redirect(redis.addr());
        assert_eq!(store.get(&key).await.unwrap(), None);
        assert_eq!(proxy.connections(), 2);
    }
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_large_request_does_not_hold_up_small_ones() {
    let redis = Redis::start().await;
    let proxy = TcpProxy::start(redis.addr()).await;
    let store = support::store(&support::redis(proxy.url(), PATIENT));
    let names = Names::new();
    assert_eq!(store.get(&names.key("warm")).await.unwrap(), None);
    let large = Batch::new().put(&names.key("large"), Expect::Absent, "x".repeat(7_000_000), HOUR);
    assert!(matches!(store.commit(&large).await, Ok(Commit::Applied(_))));
    assert_eq!(proxy.connections(), 2, "it has a connection of its own");
    assert_eq!(store.get(&names.key("warm")).await.unwrap(), None);
    assert!(matches!(store.commit(&large).await, Ok(Commit::Refused(_))));
    assert_eq!(proxy.connections(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs redis-server"]
async fn replies_stay_matched_while_thousands_of_callers_give_up_and_connections_break() {
    let redis = Redis::start().await;
    let proxy = Arc::new(TcpProxy::start(redis.addr()).await);
    let store = support::store(&support::redis(proxy.url(), PATIENT));
    let names = Arc::new(Names::new());
    let mut callers = tokio::task::JoinSet::new();
    for n in 0..3000_u64 {
        let (store, names) = (Arc::clone(&store), Arc::clone(&names));
        callers.spawn(async move {
            let (key, value) = (names.key(&format!("k{n}")), format!("value-{n}"));
            let claim = Batch::new().put(&key, Expect::Absent, value.as_str(), HOUR);
            let claim = claim.append(&names.log(&format!("l{n}")), value.as_str(), Keep::all_for(HOUR));
            // Every third caller gives up soon.
            let patience = Duration::from_micros(if n % 3 == 0 { n * 7 % 5000 } else { 60_000_000 });
            let committed = tokio::time::timeout(patience, store.commit(&claim)).await;
            let mut got = store.get(&key).await;
            while matches!(&got, Err(error) if error.is_retryable()) {
                got = store.get(&key).await;
            }
            match committed {
                Ok(Ok(Commit::Applied(_) | Commit::Refused(_))) => assert_eq!(got.unwrap(), Some(value)),
                Ok(Err(error)) if !error.maybe_applied() => assert_eq!(got.unwrap(), None, "{error:?}"),
                _ => assert!(got.unwrap().is_none_or(|got| got == value)),
            }
        });
        if n % 100 == 0 {
            tokio::task::yield_now().await;
        }
        if n % 750 == 749 {
            proxy.cut();
        }
    }
    while let Some(caller) = callers.join_next().await {
        caller.unwrap();
    }
}
