//! What was sent and what was not, and when a connection is used again.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::time::Duration;

use http::Request;
use onetap_http::{Bytes, Client, Error};
use onetap_servers::{Broken, Fault, HttpStub};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, timeout};

fn post(url: &str) -> Request<Bytes> {
    Request::post(url).body(Bytes::from_static(b"{}")).unwrap()
}

/// For servers that answer.
fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// For servers that never answer: long enough to connect on a busy machine.
fn soon() -> Instant {
    Instant::now() + Duration::from_secs(2)
}

/// Reads a request and answers it.
async fn answer(stream: &mut TcpStream) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n{}") {
        request.push(stream.read_u8().await.unwrap());
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
}

async fn sent(url: &str) -> Result<u16, Error> {
    let (sender, opener) = (Client::new(), Client::new());
    let (answer, opened) =
        tokio::join!(sender.send(post(url), soon(), 1 << 10), opener.open(post(url), soon()));
    let status = answer.map(|answer| answer.status().as_u16());
    let opened = opened.map(|answer| answer.status().as_u16());
    let shown = |status: &Result<u16, Error>| status.as_ref().map_or_else(Error::to_string, u16::to_string);
    assert_eq!(shown(&opened), shown(&status), "opening and sending agree");
    status
}

fn is_not_connected<T>(answer: &Result<T, Error>) -> bool {
    matches!(answer, Err(Error::NotConnected(_)))
}

#[tokio::test]
async fn a_time_out_before_the_server_accepts_sent_nothing() {
    let server = Broken::never_accepts().await;
    assert!(is_not_connected(&sent(&server.url()).await));
}

#[tokio::test]
async fn a_time_out_during_the_tls_handshake_sent_nothing() {
    let server = Broken::accepts_and_never_answers().await;
    assert!(is_not_connected(&sent(&server.url().replace("http:", "https:")).await));
    assert_eq!(server.connections(), 2, "both were accepted");
}

#[test]
fn a_time_out_during_the_name_look_up_sent_nothing() {
    // Names are looked up on the threads for blocking calls. The only one there is stays occupied.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
    let runtime = runtime.unwrap();
    let (done, wait) = std::sync::mpsc::channel::<()>();
    runtime.spawn_blocking(move || wait.recv());
    runtime.block_on(async {
        let server = HttpStub::always(Fault::Status(200, "{}".into()));
        let named = format!("http://localhost:{}", server.addr().port());
        assert!(is_not_connected(&sent(&named).await));
        assert_eq!(server.connections(), 0);
    });
    drop(done);
}

#[tokio::test]
async fn a_time_out_after_the_request_was_sent_leaves_open_whether_it_was_carried_out() {
    let server = HttpStub::always(Fault::Hang);
    assert!(matches!(sent(&server.url()).await, Err(Error::TimedOut)));
    assert_eq!(server.requests(), 2, "both arrived");
}

#[tokio::test]
async fn where_nobody_listens_nothing_was_sent() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    assert!(is_not_connected(&sent(&format!("http://127.0.0.1:{port}")).await));
    assert!(is_not_connected(&sent("/a-path-without-a-server").await));
}

#[tokio::test]
async fn a_connection_is_used_again_until_it_was_idle_for_too_long() {
    let server = HttpStub::always(Fault::Status(200, "{}".into()));
    let client = Client::new();
    for _ in 0..3 {
        assert_eq!(client.send(post(&server.url()), later(), 1 << 10).await.unwrap().body(), "{}");
    }
    assert_eq!(server.connections(), 1);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(21)).await;
    tokio::time::resume();
    assert_eq!(client.send(post(&server.url()), later(), 1 << 10).await.unwrap().status(), 200);
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_connection_to_a_server_that_is_not_asked_again_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (client, once) = (Client::new(), format!("http://{}", listener.local_addr().unwrap()));
    let first = tokio::spawn({
        let client = client.clone();
        async move { client.send(post(&once), later(), 1 << 10).await }
    });
    let (mut stream, _) = listener.accept().await.unwrap();
    answer(&mut stream).await;
    assert_eq!(first.await.unwrap().unwrap().status(), 200);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(21)).await;
    tokio::time::resume();
    let another = HttpStub::always(Fault::Status(200, "{}".into()));
    assert_eq!(client.send(post(&another.url()), later(), 1 << 10).await.unwrap().status(), 200);
    assert_eq!(timeout(Duration::from_secs(60), stream.read(&mut [0])).await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn a_request_that_waits_for_a_connection_takes_one_that_becomes_idle() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let listener = socket.listen(1).unwrap();
    let (client, addr) = (Client::new(), listener.local_addr().unwrap());
    let request = || {
        let client = client.clone();
        tokio::spawn(async move { client.send(post(&format!("http://{addr}")), later(), 1 << 10).await })
    };
    let first = request();
    let (mut stream, _) = listener.accept().await.unwrap();
    // From here on nobody is accepted, and the queue is full.
    let mut queue = Vec::new();
    while let Ok(connection) = timeout(Duration::from_millis(200), TcpStream::connect(addr)).await {
        queue.push(connection.unwrap());
    }
    let second = request();
    tokio::time::sleep(Duration::from_millis(100)).await;
    answer(&mut stream).await;
    answer(&mut stream).await;
    assert_eq!(first.await.unwrap().unwrap().status(), 200);
    assert_eq!(second.await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn a_connection_whose_request_ran_out_of_time_is_not_used_again() {
    let server = HttpStub::always(Fault::Hang);
    let client = Client::new();
    for n in 1..=2 {
        let answer = client.send(post(&server.url()), soon(), 1 << 10).await;
        assert!(matches!(answer, Err(Error::TimedOut)));
        assert_eq!(server.connections(), n);
    }
}

#[tokio::test]
async fn a_connection_that_was_opened_ahead_is_used_by_the_first_request() {
    let server = HttpStub::always(Fault::Status(200, "{}".into()));
    let (client, uri) = (Client::new(), server.url().parse().unwrap());
    for _ in 0..3 {
        client.connect(&uri, later()).await.unwrap();
    }
    server.accepted(1).await;
    assert_eq!((server.connections(), server.requests()), (1, 0), "opened once, and nothing is sent");
    assert_eq!(client.send(post(&server.url()), later(), 1 << 10).await.unwrap().status(), 200);
    assert_eq!((server.connections(), server.requests()), (1, 1));
}

#[tokio::test]
async fn a_request_waits_for_the_connection_that_is_being_opened() {
    let server = HttpStub::always(Fault::Status(200, "{}".into()));
    let (client, uri, url) = (Client::new(), server.url().parse().unwrap(), server.url());
    let (opened, sent) =
        tokio::join!(client.connect(&uri, later()), client.send(post(&url), later(), 1 << 10));
    assert_eq!((opened.is_ok(), sent.unwrap().status().as_u16()), (true, 200));
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_request_connects_by_itself_when_the_opening_ahead_ran_out_of_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    // TLS to a server that says nothing: the connection is never ready.
    let (client, tls) = (Client::new(), format!("https://{addr}"));
    let uri = tls.parse().unwrap();
    let (opened, sent) = tokio::join!(
        client.connect(&uri, Instant::now() + Duration::from_millis(50)),
        client.send(post(&tls), soon(), 1 << 10),
    );
    assert!(is_not_connected(&opened));
    assert!(is_not_connected(&sent));
    for _ in 0..2 {
        assert!(timeout(Duration::from_secs(60), listener.accept()).await.unwrap().is_ok());
    }
}

#[tokio::test]
async fn a_connection_cannot_be_opened_where_nobody_answers_in_time() {
    let (full, mute) = (Broken::never_accepts().await, Broken::accepts_and_never_answers().await);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let refused = format!("http://127.0.0.1:{port}");
    let no_tls = HttpStub::always(Fault::Empty);
    let https = |url: String| url.replace("http:", "https:");
    for url in [full.url(), https(mute.url()), refused, https(no_tls.url()), "/a-path".to_owned()] {
        let opened = Client::new().connect(&url.parse().unwrap(), soon()).await;
        assert!(is_not_connected(&opened), "{url}");
    }
}

#[tokio::test]
async fn a_connection_that_is_ready_after_its_deadline_is_not_kept() {
    let server = HttpStub::always(Fault::Status(200, "{}".into()));
    let (client, uri) = (Client::new(), server.url().parse().unwrap());
    let deadline = Instant::now() + Duration::from_millis(50);
    // Blocked in the middle, as by a freeze.
    let blocked = async { std::thread::sleep(Duration::from_millis(100)) };
    assert!(is_not_connected(&tokio::join!(client.connect(&uri, deadline), blocked).0));
    assert_eq!(client.send(post(&server.url()), later(), 1 << 10).await.unwrap().status(), 200);
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_connection_that_was_opened_ahead_and_closed_since_does_no_harm() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (client, url) = (Client::new(), format!("http://{}", listener.local_addr().unwrap()));
    client.connect(&url.parse().unwrap(), later()).await.unwrap();
    // Closed while the client's runtime is blocked, as by a freeze: it cannot have noticed.
    let (stream, _) = listener.accept().await.unwrap();
    drop(stream);
    std::thread::sleep(Duration::from_millis(20));
    let sent = tokio::spawn(async move { client.send(post(&url), later(), 1 << 10).await });
    let (mut stream, _) = timeout(Duration::from_secs(60), listener.accept()).await.unwrap().unwrap();
    answer(&mut stream).await;
    assert_eq!(sent.await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn a_request_does_not_wait_for_a_connection_whose_opening_hangs() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let (client, uri) = (Client::new(), url.parse().unwrap());
    let minute = Instant::now() + Duration::from_secs(60);
    let opening = tokio::spawn({
        let client = client.clone();
        async move { client.connect(&uri, minute).await }
    });
    // It is accepted, and its handshake is never answered.
    let (_hangs, _) = listener.accept().await.unwrap();
    let sent = tokio::spawn(async move { client.send(post(&url), minute, 1 << 10).await });
    let own = timeout(Duration::from_secs(30), listener.accept()).await;
    assert!(own.is_ok(), "the request opens a connection of its own");
    opening.abort();
    sent.abort();
}

#[tokio::test]
async fn the_sources_of_an_error_say_what_was_wrong_with_the_connection() {
    let chain = async |url: &str| {
        let (uri, client) = (url.parse().unwrap(), Client::new());
        let error = client.connect(&uri, later()).await.unwrap_err();
        let sources = std::iter::successors(std::error::Error::source(&error), |error| (*error).source());
        sources.map(|source| format!("{source} ")).collect::<String>()
    };
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let refused = chain(&format!("http://{closed}")).await;
    assert!(refused.contains("refused"), "{refused}");
    let server = HttpStub::always(Fault::Empty);
    let not_tls = chain(&server.url().replace("http:", "https:")).await;
    assert!(not_tls.contains("InvalidContentType"), "{not_tls}");
}
