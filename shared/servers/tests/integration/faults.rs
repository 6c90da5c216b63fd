//! Each fault looks on the wire as it is named.

use crate::support;

use std::time::Duration;

use hyper::Request;
use onetap_servers::{Broken, Fault, HttpStub, Proxy, TcpProxy};
use support::{send, text};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

fn get(url: String) -> Request<String> {
    Request::get(url).body(String::new()).unwrap()
}

#[tokio::test]
async fn a_status_comes_with_its_body() {
    let broken = HttpStub::always(Fault::Status(429, "slow down".to_owned()));
    let answer = send(get(broken.url())).await.unwrap();
    assert_eq!(answer.status(), 429);
    assert_eq!(text(answer).await.unwrap(), "slow down");
    assert_eq!((broken.connections(), broken.requests()), (1, 1));
}

#[tokio::test]
async fn html_and_nothing_are_both_200() {
    for (fault, starts) in [(Fault::Html, "<!doctype html>"), (Fault::Empty, "")] {
        let broken = HttpStub::always(fault);
        let answer = send(get(broken.url())).await.unwrap();
        assert_eq!(answer.status(), 200);
        assert!(text(answer).await.unwrap().starts_with(starts));
    }
}

#[tokio::test]
async fn half_a_body_is_announced_whole() {
    let broken = HttpStub::always(Fault::HalfBody);
    let mut stream = TcpStream::connect(broken.addr()).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("content-length: 15\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n{\"resu"), "{answer}");
    assert!(text(send(get(broken.url())).await.unwrap()).await.is_err());
}

#[tokio::test]
async fn a_closed_connection_gives_no_answer() {
    for fault in [Fault::Close, Fault::DropReply] {
        let broken = HttpStub::always(fault);
        assert!(send(get(broken.url())).await.is_err());
        assert_eq!(broken.requests(), 1);
    }
}

#[tokio::test]
async fn a_hanging_server_takes_the_request_and_a_mute_one_the_connection() {
    let patience = Duration::from_millis(50);
    let hanging = HttpStub::always(Fault::Hang);
    assert!(timeout(patience, send(get(hanging.url()))).await.is_err());
    assert_eq!((hanging.connections(), hanging.requests()), (1, 1));
    let mute = Broken::accepts_and_never_answers().await;
    assert!(timeout(patience, send(get(mute.url()))).await.is_err());
    assert_eq!(mute.connections(), 1);
}

#[tokio::test]
async fn a_dropped_server_refuses_connections() {
    let broken = HttpStub::always(Fault::Hang);
    let addr = broken.addr();
    let _open = TcpStream::connect(addr).await.unwrap();
    drop(broken);
    assert!(TcpStream::connect(addr).await.is_err());
}

#[tokio::test]
async fn the_proxy_says_502_when_there_is_no_upstream() {
    let proxy = Proxy::start("http://127.0.0.1:1").await;
    assert_eq!(send(get(proxy.url())).await.unwrap().status(), 502);
    assert_eq!(proxy.requests(), 1);
}

#[tokio::test]
async fn a_tcp_proxy_forwards_stalls_cuts_and_refuses() {
    let echo = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = echo.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = echo.accept().await {
            tokio::spawn(async move {
                let (mut requests, mut answers) = stream.split();
                let _ = tokio::io::copy(&mut requests, &mut answers).await;
            });
        }
    });
    let proxy = TcpProxy::start(addr).await;
    let connect = || TcpStream::connect(("127.0.0.1", proxy.port()));
    let mut stream = connect().await.unwrap();
    let mut buffer = [0; 4];

    stream.write_all(b"ping").await.unwrap();
    stream.read_exact(&mut buffer).await.unwrap();
    assert_eq!(&buffer, b"ping");

    proxy.stall(true);
    stream.write_all(b"pong").await.unwrap();
    assert!(timeout(Duration::from_millis(50), stream.read_exact(&mut buffer)).await.is_err());
    proxy.stall(false);
    stream.read_exact(&mut buffer).await.unwrap();
    assert_eq!(&buffer, b"pong");

    proxy.cut();
    assert!(matches!(stream.read(&mut buffer).await, Ok(0) | Err(_)));

    proxy.refuse(true);
    assert!(matches!(connect().await.unwrap().read(&mut buffer).await, Ok(0) | Err(_)));
    assert_eq!(proxy.connections(), 2);
}
