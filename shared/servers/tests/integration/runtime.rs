//! Lambda's runtime API, as an instance of a function meets it.

use std::time::Duration;

use onetap_servers::RuntimeApi;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const LIMIT: Duration = Duration::from_secs(60);

/// An instance that asks for an event.
async fn polling(api: &RuntimeApi) -> TcpStream {
    let [(_, address), ..] = api.variables();
    let mut instance = TcpStream::connect(address).await.unwrap();
    instance.write_all(b"GET /2018-06-01/runtime/invocation/next HTTP/1.1\r\n\r\n").await.unwrap();
    instance
}

#[tokio::test]
async fn an_event_goes_to_an_instance_that_lives_and_its_answer_comes_chunk_by_chunk() {
    let api = RuntimeApi::start();
    let gone = polling(&api).await;
    api.polled(1).await;
    drop(gone);
    let mut instance = polling(&api).await;
    api.polled(2).await;
    let answer = async {
        let (mut event, mut buffer) = (Vec::new(), [0; 1024]);
        while !event.ends_with(b"an event") {
            let read = instance.read(&mut buffer).await.unwrap();
            event.extend_from_slice(&buffer[..read]);
        }
        let head = "POST /2018-06-01/runtime/invocation/request-1/response HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        for part in
            [head, "3\r\none\r\n", "3\r\ntwo\r\n", "0\r\nLambda-Runtime-Function-Error-Type: none\r\n\r\n"]
        {
            instance.write_all(part.as_bytes()).await.unwrap();
        }
        instance
    };
    let (answering, mut instance) = tokio::join!(api.open("an event", LIMIT), answer);
    let mut answering = answering.unwrap();
    assert!(!answering.failed);
    for chunk in [Some("one"), Some("two"), None] {
        assert_eq!(answering.chunk().await.unwrap().as_deref(), chunk.map(str::as_bytes));
    }
    let (mut head, mut buffer) = (Vec::new(), [0; 1024]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = instance.read(&mut buffer).await.unwrap();
        assert!(read > 0, "the answer was not accepted");
        head.extend_from_slice(&buffer[..read]);
    }
    assert!(head.starts_with(b"HTTP/1.1 202 "), "{}", String::from_utf8_lossy(&head));
    // The end of the API is the end of its connections.
    drop(api);
    instance.read_to_end(&mut Vec::new()).await.unwrap();
}
