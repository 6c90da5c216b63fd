//! What caused an error is kept, and shows no key, no value and no secret, however it is printed.

use std::error::Error as StdError;
use std::io;
use std::iter::successors;
use std::sync::Arc;
use std::time::Duration;

use onetap_servers::{Fault, HttpStub};
use onetap_store::{
    Batch, Credentials, DynamoDb, Edit, Error, ErrorKind, Expect, Key, Redis, Store, Upstash,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::dynamodb_client;
use crate::support::PATIENT;

const HOUR: Duration = Duration::from_secs(3600);

/// Every backend over the server at this address, with secrets of its own.
fn stores(address: &str, tls: bool, timeout: Duration) -> Vec<(&'static str, Arc<dyn Store>)> {
    let (http, redis) = if tls { ("https", "rediss") } else { ("http", "redis") };
    let url = format!("{http}://{address}");
    let credentials = Credentials::new("PLANTED-id", "PLANTED-secret").session_token("PLANTED-session");
    let dynamo = DynamoDb::new("PLANTED-table", "us-east-1", credentials).endpoint(&url);
    let given = DynamoDb::with_client(dynamodb_client::planted(&url), "PLANTED-table");
    let redis = format!("{redis}://PLANTED-user:PLANTED-password@{address}");
    vec![
        ("upstash", Arc::new(Upstash::new(&url, "PLANTED-token").unwrap().timeout(timeout))),
        ("redis", Arc::new(Redis::new(redis).unwrap().timeout(timeout))),
        ("dynamodb", Arc::new(dynamo.timeout(timeout))),
        ("dynamodb over a given client", Arc::new(given.timeout(timeout))),
    ]
}

fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    successors(Some(error), |error| (*error).source())
}

/// Fails if anything in the chain of sources shows what was planted.
fn hides(backend: &str, error: &(dyn StdError + 'static)) {
    let shown: String = chain(error).map(|error| format!("{error} {error:?} {error:#?} ")).collect();
    assert!(!shown.contains("PLANTED"), "{backend}: {shown}");
}

/// The error of a write, after it and those of all other ways to the store were looked at.
async fn error_of(backend: &str, store: &Arc<dyn Store>) -> Error {
    let key = Key::new("PLANTED-key").unwrap();
    let write = Batch::new().put(&key, Expect::Absent, "PLANTED-value", HOUR);
    let error = store.commit(&write).await.unwrap_err();
    hides(backend, &error);
    hides(backend, &store.get(&key).await.unwrap_err());
    let step = |_: &_| Ok::<_, io::Error>((write.clone(), ()));
    hides(backend, &Edit::of(&key).apply(&**store, step).await.unwrap_err());
    error
}

fn has_source<E: StdError + 'static>(error: &(dyn StdError + 'static), which: impl Fn(&E) -> bool) -> bool {
    chain(error).filter_map(|error| error.downcast_ref()).any(which)
}

#[tokio::test]
async fn a_refused_connection_is_the_source_of_the_error() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    for (backend, store) in stores(&closed, false, Duration::from_millis(PATIENT)) {
        let error = error_of(backend, &store).await;
        assert!(has_source(&error, refused), "{backend}: {error:?}");
        assert!(has_source(&error.clone(), refused), "{backend}: {error:?}");
        // An edit's error has the same source.
        let step = |_: &_| Ok::<_, io::Error>((Batch::new(), ()));
        let error = Edit::of(&Key::new("key").unwrap()).apply(&*store, step).await.unwrap_err();
        assert!(has_source(&error, refused), "{backend}: {error:?}");
    }
}

#[tokio::test]
async fn a_failed_handshake_is_the_source_of_the_error() {
    // It answers in plain text.
    let server = HttpStub::always(Fault::Empty);
    for (backend, store) in stores(&server.addr().to_string(), true, Duration::from_millis(PATIENT)) {
        let error = error_of(backend, &store).await;
        let handshake = |error: &io::Error| error.to_string().contains("corrupt message");
        assert!(has_source(&error, handshake), "{backend}: {error:?}");
    }
}

#[tokio::test]
async fn an_error_keeps_its_kind_and_its_source_after_a_lost_reply() {
    let caused = Error::not_sent("no connection").with_source(io::Error::other("reset"));
    assert!(caused.kind() == ErrorKind::Unavailable && !caused.maybe_applied());
    let caused = caused.after_a_lost_reply();
    assert!(caused.kind() == ErrorKind::Unavailable && caused.maybe_applied());
    assert_eq!(caused.to_string(), "the store is unavailable: no connection");
    assert_eq!(caused.source().unwrap().to_string(), "reset");
}

#[tokio::test]
async fn an_answer_is_quoted_by_no_error() {
    let answers = [
        (401, r#"{"error":"WRONGPASS PLANTED-token is wrong"}"#),
        (400, r#"{"__type":"com.amazon#UnrecognizedClientException","message":"PLANTED-token is wrong"}"#),
        (400, r#"{"__type":"com.amazon#ValidationException","message":"PLANTED-value is none"}"#),
        (500, r#"{"error":"PLANTED-value","__type":"PLANTED-type","Item":{"pk":{"S":"PLANTED-key"}}}"#),
        (200, r#"{"result":["PLANTED-value"],"Item":{"pk":{"S":"PLANTED-key"}}"#),
        (200, "PLANTED-value"),
    ];
    for (status, body) in answers {
        let server = HttpStub::always(Fault::Status(status, body.to_owned()));
        for (backend, store) in stores(&server.addr().to_string(), false, Duration::from_millis(PATIENT)) {
            if backend != "redis" {
                error_of(backend, &store).await;
            }
        }
    }
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = server.accept().await {
            // The login, in one piece.
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream.write_all(b"-WRONGPASS PLANTED-password of PLANTED-user\r\n").await;
        }
    });
    for (backend, store) in stores(&address, false, Duration::from_millis(PATIENT)) {
        if backend == "redis" {
            let error = error_of(backend, &store).await;
            assert!(error.kind() == ErrorKind::Rejected, "{error:?}");
        }
    }
}

#[tokio::test]
async fn a_broken_connection_and_a_late_answer_show_nothing() {
    for (fault, timeout) in
        [(Fault::Close, Duration::from_millis(PATIENT)), (Fault::Hang, Duration::from_millis(50))]
    {
        let server = HttpStub::always(fault);
        for (backend, store) in stores(&server.addr().to_string(), false, timeout) {
            let error = error_of(backend, &store).await;
            assert!(error.is_retryable(), "{backend}: {error:?}");
        }
    }
}
