//! How a function's program starts: its connection to the store is opened beside its first poll.

use std::path::Path;

use crate::{Broken, Fault, HttpStub, RuntimeApi};

/// Asserts that the program connects to its store before its first event, and sends nothing. `variables` are its own, without
/// the store's.
pub async fn connects_to_its_store(program: &str, variables: &[(&str, &str)]) {
    let (store, api) = (HttpStub::always(Fault::Empty), RuntimeApi::start());
    let url = store.url();
    let _program = api.run(Path::new(program), with_upstash(variables, &url));
    api.polled(1).await;
    store.accepted(1).await;
    assert_eq!((store.connections(), store.requests()), (1, 0), "nothing is sent");
}

/// Asserts that the program asks for its first event although its store never answers.
pub async fn starts_without_its_store(program: &str, variables: &[(&str, &str)]) {
    let (store, api) = (Broken::accepts_and_never_answers().await, RuntimeApi::start());
    let url = store.url().replace("http:", "https:");
    let _program = api.run(Path::new(program), with_upstash(variables, &url));
    api.polled(1).await;
}

fn with_upstash<'a>(variables: &[(&'a str, &'a str)], url: &'a str) -> Vec<(&'a str, &'a str)> {
    let store = [("STORE", "upstash"), ("UPSTASH_REDIS_REST_TOKEN", "t"), ("UPSTASH_REDIS_REST_URL", url)];
    variables.iter().copied().chain(store).collect()
}
