//! A client that reconnects as browsers do.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use http::{Response, StatusCode};
use onetap_local::client::Client;
use onetap_local::event_source::EventSource;
use onetap_servers::HttpStub;

/// What a client of a server with these answers, given one after the other, makes of them: the data of the events,
/// whether it ended without an error, and the `Last-Event-ID` of each of its requests.
async fn read(answers: &[(u16, &'static str)]) -> (Vec<String>, bool, Vec<Option<String>>) {
    let answers: Mutex<VecDeque<_>> = Mutex::new(answers.iter().copied().collect());
    let ids = Arc::new(Mutex::new(Vec::new()));
    let server = HttpStub::serving({
        let ids = ids.clone();
        move |request| {
            let id = request.headers().get("last-event-id").map(|id| id.to_str().unwrap().to_owned());
            ids.lock().unwrap().push(id);
            let (status, text) = answers.lock().unwrap().pop_front().unwrap();
            let mut response = Response::new(text.to_owned());
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            async { response }
        }
    });
    let (mut source, mut data) = (EventSource::new(Client::new(&server.url()), "/events"), Vec::new());
    let ended = loop {
        match source.next().await {
            Ok(Some(event)) => data.push(event.data),
            Ok(None) => break true,
            Err(_) => break false,
        }
    };
    let ids = ids.lock().unwrap().clone();
    (data, ended, ids)
}

#[tokio::test]
async fn a_client_resumes_after_the_last_event_until_it_is_told_to_stop() {
    let (data, ended, ids) = read(&[
        (200, "retry: 1\n\nid: 1-0\ndata: a\n\nid: 2-0\ndata: b\n\nid: 3-0\ndata: cut o"),
        (200, "retry: 2\n\n"),
        (200, "id: 3-0\ndata: c\n\ndata: without an id\n\n"),
        (200, "id:\nevent: gap\ndata: {}\n\n"),
        (204, ""),
    ])
    .await;
    assert_eq!(data, ["a", "b", "c", "without an id", "{}"]);
    assert_eq!(ids, [None, Some("2-0"), Some("2-0"), Some("3-0"), None].map(|id| id.map(str::to_owned)));
    assert!(ended);
}

#[tokio::test]
async fn a_client_does_not_come_back_after_any_other_status() {
    for status in [400, 401, 404, 500, 503] {
        let (data, ended, ids) = read(&[(200, "retry: 1\ndata: a\n\n"), (status, "data: b\n\n")]).await;
        assert_eq!((data.len(), ended, ids.len()), (1, false, 2), "{status}");
    }
}
