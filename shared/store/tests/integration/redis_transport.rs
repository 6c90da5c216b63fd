//! The Redis protocol: subscriptions that the network forgot, replies that are too long.

use crate::support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use onetap_servers::{Redis, TcpProxy};
use onetap_store::testing::conformance::Names;
use onetap_store::{Batch, Error, Expect};
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
    // No batch writes a value that is so long. Redis itself would send one of up to 512 MB.
    for start in ["$500000000\r\n", "*2\r\n$2\r\nok\r\n$8000001\r\n"] {
        let most = 100 * MIB;
        let (url, counts) = long_winded(start, vec![b'x'; 64 * 1024], most);
        let store = support::store(&support::redis(url, PATIENT));
        // A put of an absent key could be sent again; its answer would be as long.
        let claim = Batch::new().put(&Names::new().key("k"), Expect::Absent, "v", HOUR);
        let error = store.commit(&claim).await.expect_err("too long");
        assert!(matches!(error, Error::Unavailable { .. }) && error.maybe_applied(), "{start}: {error:?}");
        assert!(error.to_string().contains("longer than"), "{start}: {error}");
        let [connections, sent] = counts.each_ref().map(|count| count.load(Ordering::SeqCst));
        assert_eq!(connections, 1, "{start}: it is sent once");
        assert!(sent < most, "{start}: {sent} bytes were read");
    }
}
