use super::super::encode::Command;
use super::super::wire::packed;
use super::*;
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};
use tokio::task::yield_now;
use tokio::time::advance;

const MINUTE: Duration = Duration::from_secs(60);

fn connection(pipe: usize) -> (Arc<Connection>, DuplexStream) {
    let (ours, theirs) = duplex(pipe);
    (Arc::new(Connection::start(Wire::new(Box::new(ours)))), theirs)
}

fn get(key: &str) -> Vec<u8> {
    packed(&[Command::of(["GET", key])])
}

/// What became of a request, in words that can be compared.
fn shown(answer: Result<Vec<Reply>, Unanswered>) -> String {
    match answer {
        Ok(replies) => {
            let texts = replies.into_iter().map(|reply| match reply {
                Reply::Text(text) => text,
                Reply::Error(_) => "an error".to_owned(),
                _ => "another reply".to_owned(),
            });
            texts.collect::<Vec<_>>().join(" ")
        }
        Err(Unanswered::NotSent(_)) => "not sent".to_owned(),
        Err(Unanswered::Broke(_)) => "broke".to_owned(),
        Err(Unanswered::TooLong(reason)) => reason,
        Err(Unanswered::OutOfTime { sent }) => format!("out of time, sent: {sent}"),
    }
}

async fn ask(connection: &Connection, key: &str) -> String {
    shown(connection.request(get(key), 1, Instant::now() + MINUTE).await)
}

/// Starts a request and lets the driver have it.
fn asking(connection: &Arc<Connection>, key: &str) -> tokio::task::JoinHandle<String> {
    let (connection, key) = (Arc::clone(connection), key.to_owned());
    tokio::spawn(async move { ask(&connection, &key).await })
}

async fn let_others_run() {
    for _ in 0..20 {
        yield_now().await;
    }
}

/// Answers `GET key` with the key, until the connection ends.
async fn echo(server: DuplexStream) {
    let (reading, mut writing) = split(server);
    let mut lines = BufReader::new(reading).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // `*2`, `$3`, `GET`, `$n`, key
        if line != "GET" {
            continue;
        }
        let _length = lines.next_line().await;
        let Ok(Some(key)) = lines.next_line().await else { return };
        if writing.write_all(format!("${}\r\n{key}\r\n", key.len()).as_bytes()).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn many_callers_share_a_connection_and_each_gets_its_own_reply() {
    let (connection, server) = connection(100);
    let server = tokio::spawn(echo(server));
    let keys: Vec<_> = (0..1000).map(|n| format!("key-{n}")).collect();
    let answers = join_all(keys.iter().map(|key| ask(&connection, key))).await;
    assert_eq!(answers, keys);
    drop(connection);
    tokio::time::timeout(MINUTE, server).await.expect("the driver closes the connection").unwrap();
}

#[tokio::test]
async fn replies_stay_matched_while_thousands_of_callers_give_up_at_random_points() {
    for pipe in [7, 64, 1 << 20] {
        let (connection, server) = connection(pipe);
        tokio::spawn(echo(server));
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut callers = Vec::new();
        for n in 0..4000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Every second one leaves, after so many polls.
            let polls = (random >> 33) % 40;
            let (connection, key) = (Arc::clone(&connection), format!("key-{n}"));
            callers.push(tokio::spawn(async move {
                let mut call = pin!(ask(&connection, &key));
                if n % 2 == 0 {
                    assert_eq!(call.await, key);
                    return;
                }
                for _ in 0..polls {
                    if let Some(answer) = call.as_mut().now_or_never() {
                        assert_eq!(answer, key);
                        return;
                    }
                    yield_now().await;
                }
            }));
            if random % 5 == 0 {
                yield_now().await;
            }
        }
        for caller in callers {
            caller.await.unwrap();
        }
        assert_eq!(ask(&connection, "last").await, "last");
        assert_eq!(connection.room.available_permits(), MAX_WAITING_BYTES / MIN_COUNTED_BYTES);
    }
}

#[tokio::test]
async fn a_break_is_unknown_for_what_was_written_and_for_nothing_else() {
    let length = get("key-00").len();
    for (pipe, answered) in
        [(0, 0), (1, 0), (length, 1), (10 * length + 5, 0), (10 * length + 5, 7), (50 * length, 20)]
    {
        let (connection, mut server) = connection(pipe.max(1));
        let keys: Vec<_> = (0..50).map(|n| format!("key-{n:02}")).collect();
        let callers: Vec<_> = keys.iter().map(|key| asking(&connection, key)).collect();
        if pipe > 0 {
            let_others_run().await;
        }
        for key in &keys[..answered] {
            server.write_all(format!("$6\r\n{key}\r\n").as_bytes()).now_or_never().unwrap_or(Ok(())).unwrap();
            let_others_run().await;
        }
        // All that was written: the driver does not run until the next await.
        let mut bytes = vec![0; 100 * length];
        let written = server.read(&mut bytes).now_or_never().map_or(0, Result::unwrap);
        drop(server);
        for (n, (key, caller)) in keys.iter().zip(callers).enumerate() {
            let answer = caller.await.unwrap();
            match () {
                () if n < answered => assert_eq!(&answer, key),
                () if n * length < written => assert_eq!(answer, "broke", "{n} of {pipe}"),
                () => assert_eq!(answer, "not sent", "{n} of {pipe}"),
            }
        }
        assert!(!connection.is_usable());
    }
}

#[tokio::test]
async fn a_request_that_is_given_up_before_it_is_written_is_never_sent() {
    let (connection, mut server) = connection(16);
    let first = asking(&connection, "first-key");
    let_others_run().await;
    let second = asking(&connection, "second-key");
    let third = asking(&connection, "third-key");
    let_others_run().await;
    second.abort();
    assert!(second.await.is_err());
    let mut all = vec![0; get("first-key").len() + get("third-key").len()];
    server.read_exact(&mut all).await.unwrap();
    assert_eq!(all, [get("first-key"), get("third-key")].concat());
    server.write_all(b"+one\r\n+three\r\n").await.unwrap();
    assert_eq!((first.await.unwrap(), third.await.unwrap()), ("one".to_owned(), "three".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_out_of_time_knows_whether_it_was_sent() {
    let (connection, server) = connection(16);
    let (first, second) = (asking(&connection, "written-in-part"), asking(&connection, "not-written"));
    assert_eq!(first.await.unwrap(), "out of time, sent: true");
    assert_eq!(second.await.unwrap(), "out of time, sent: false");
    assert!(!connection.is_usable(), "later callers do not wait for it");
    drop(server);
}

#[tokio::test]
async fn a_connection_to_a_read_only_replica_does_not_come_back() {
    for said in [
        "-READONLY You can't write against a read only replica.\r\n",
        "-ERR Error running script: -READONLY You can't write\r\n",
        "*2\r\n:1\r\n-READONLY no\r\n",
    ] {
        let (connection, mut server) = connection(4096);
        let callers = ["a", "b", "c"].map(|key| asking(&connection, key));
        let_others_run().await;
        server.write_all(b"+before\r\n").await.unwrap();
        server.write_all(said.as_bytes()).await.unwrap();
        let_others_run().await;
        assert!(!connection.is_usable() && connection.is_read_only(), "{said}");
        assert_eq!(ask(&connection, "later").await, "not sent", "{said}");
        // What was written is answered.
        server.write_all(b"+after\r\n").await.unwrap();
        let [before, refused, after] = callers;
        assert_eq!(before.await.unwrap(), "before");
        assert!(refused.await.unwrap().contains("error") || said.starts_with('*'));
        assert_eq!(after.await.unwrap(), "after");
        assert_eq!(server.read_to_end(&mut Vec::new()).await.unwrap(), 3 * get("a").len(), "it is closed");
    }
}

#[tokio::test]
async fn a_read_only_connection_closes_when_the_last_caller_leaves() {
    let (connection, mut server) = connection(4096);
    let (first, last) = (asking(&connection, "a"), asking(&connection, "b"));
    let_others_run().await;
    server.write_all(b"-READONLY no\r\n").await.unwrap();
    assert_eq!(first.await.unwrap(), "an error");
    last.abort();
    tokio::time::timeout(MINUTE, server.read_to_end(&mut Vec::new())).await.expect("closed").unwrap();
}

#[tokio::test]
async fn a_connection_that_ended_or_spoke_unasked_has_sent_nothing() {
    for said in ["", "+OK\r\n", "$", "-ERR max number of clients reached\r\n"] {
        let (connection, mut server) = connection(4096);
        server.write_all(said.as_bytes()).await.unwrap();
        let server = (!said.is_empty()).then_some(server);
        assert_eq!(ask(&connection, "key").await, "not sent", "{said}");
        assert!(!connection.is_usable(), "{said}");
        drop(server);
    }
}

#[tokio::test]
async fn a_reply_too_many_or_before_the_request_is_whole_breaks_the_connection() {
    let (connection, mut server) = connection(4096);
    let call = asking(&connection, "key");
    let_others_run().await;
    server.write_all(b"+OK\r\n+OK\r\n").await.unwrap();
    assert_eq!(call.await.unwrap(), "OK");
    assert_eq!(ask(&connection, "key").await, "not sent");

    let (connection, mut server) = self::connection(16);
    let call = asking(&connection, "a-key-that-does-not-fit-into-the-pipe");
    let_others_run().await;
    server.write_all(b"+OK\r\n").await.unwrap();
    assert_eq!(call.await.unwrap(), "broke");
}

#[tokio::test]
async fn a_reply_that_is_too_long_fails_its_request_and_is_unknown_to_the_others() {
    let (connection, mut server) = connection(4096);
    let (first, second) = (asking(&connection, "a"), asking(&connection, "b"));
    let_others_run().await;
    server.write_all(b"$500000000\r\n").await.unwrap();
    assert!(first.await.unwrap().contains("longer than"));
    assert_eq!(second.await.unwrap(), "broke");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_silent_or_was_idle_for_long_takes_no_further_requests() {
    let (connection, mut server) = connection(4096);
    advance(MAX_IDLE / 2).await;
    assert!(connection.is_usable());
    let call = asking(&connection, "key");
    let_others_run().await;
    advance(MAX_SILENCE / 2).await;
    assert!(connection.is_usable());
    // A request that is written later does not make the server less silent.
    let later = asking(&connection, "key");
    let_others_run().await;
    advance(MAX_SILENCE / 2).await;
    assert!(!connection.is_usable());
    server.write_all(b"+OK\r\n+OK\r\n").await.unwrap();
    assert_eq!((call.await.unwrap(), later.await.unwrap()), ("OK".to_owned(), "OK".to_owned()));
    assert!(connection.is_usable());
    advance(MAX_IDLE).await;
    assert!(!connection.is_usable());
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_finds_no_room_in_time_has_sent_nothing() {
    let (connection, server) = connection(4096);
    let large = "x".repeat(MAX_WAITING_BYTES - MIN_COUNTED_BYTES);
    let first = asking(&connection, &large);
    let_others_run().await;
    let soon = Instant::now() + MINUTE / 2;
    let second = connection.request(get(&large), 1, soon).await;
    assert_eq!(shown(second), "out of time, sent: false");
    first.abort();
    assert!(first.await.is_err());
    drop(server);
}

#[tokio::test]
async fn a_reply_takes_room_until_its_caller_has_it() {
    let (connection, mut server) = connection(4096);
    let mut held = Box::pin(ask(&connection, "key"));
    assert!((&mut held).now_or_never().is_none());
    let_others_run().await;
    server.write_all(b"+OK\r\n").await.unwrap();
    let_others_run().await;
    let all = MAX_WAITING_BYTES / MIN_COUNTED_BYTES;
    assert_eq!(connection.room.available_permits(), all - 1);
    assert_eq!(held.await, "OK");
    assert_eq!(connection.room.available_permits(), all);
}

#[test]
fn a_runtime_that_ends_takes_its_connections_along() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let (connection, _server) = first.block_on(async { connection(16) });
    let polled = |key: &'static str| {
        let connection = Arc::clone(&connection);
        async move { ask(&connection, key).await }
    };
    let mut written = Box::pin(polled("does-not-fit-into-the-pipe"));
    let mut queued = Box::pin(polled("another-key"));
    first.block_on(async {
        assert!((&mut written).now_or_never().is_none() && (&mut queued).now_or_never().is_none());
        let_others_run().await;
    });
    drop(first);
    assert!(!connection.is_usable());
    let answers =
        runtime().block_on(async { (written.await, queued.await, ask(&connection, "later").await) });
    assert_eq!(answers, ("broke".to_owned(), "not sent".to_owned(), "not sent".to_owned()));
}
