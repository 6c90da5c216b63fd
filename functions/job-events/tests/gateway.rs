//! What clients of the gateway are told.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod client;
#[path = "../../../shared/bus/tests/support/mod.rs"]
mod support;

use std::time::Duration;

use client::{Client, Told};
use http::{Method, Request, StatusCode};
use job_events::JobEvents;
use onetap_bus::{Bus, Event};
use onetap_store::testing::{Fault, Faulty};
use support::{World, on_every_backend};
use tokio::time::Instant;

on_every_backend! {
    a_client_is_told_what_was_there_and_what_comes_and_the_end
    a_client_that_resumes_is_told_the_rest
    a_client_is_spared_what_it_has_by_its_last_seq
    a_finished_job_that_was_seen_whole_is_204
    a_trimmed_last_event_id_is_a_gap_and_then_what_is_left
    the_state_is_the_highest_seq_or_404
}

fn whole_job(world: &World) -> Vec<Event> {
    let stages = [("vision", 10), ("vision", 11), ("rule", 20), ("answer", 30), ("done", 51)];
    stages.map(|(stage, seq)| world.event("a", stage, seq)).into()
}

async fn publish(world: &World, events: &[Event]) {
    let bus = Bus::new(world.store.clone(), world.config.clone());
    for answer in bus.publish_each(events).await {
        let _ = answer.unwrap();
    }
}

fn client(world: &World) -> Client {
    Client::new(JobEvents::new(world.store.clone(), client::config()), world.job("a"))
}

fn texts(events: &[Event]) -> Vec<&str> {
    events.iter().map(Event::text).collect()
}

async fn a_client_is_told_what_was_there_and_what_comes_and_the_end(world: World) {
    let events = whole_job(&world);
    publish(&world, &events[..2]).await;
    let mut stream = client(&world).open("").await;
    let mut told = vec![stream.event().await.unwrap(), stream.event().await.unwrap()];
    for event in &events[2..] {
        publish(&world, std::slice::from_ref(event)).await;
        told.extend(stream.event().await);
    }
    assert_eq!(stream.event().await, None, "after the end of the job the stream ends");
    assert_eq!(told.iter().map(|told| told.data.as_str()).collect::<Vec<_>>(), texts(&events));
    let log = world.read(&world.log("a")).await;
    let ids: Vec<String> = log.iter().map(|record| record.position.to_string()).collect();
    assert_eq!(told.iter().map(|told| told.id.clone().unwrap()).collect::<Vec<_>>(), ids);
}

async fn a_client_that_resumes_is_told_the_rest(world: World) {
    let events = whole_job(&world);
    publish(&world, &events).await;
    let all = client(&world).open("").await.rest().await;
    assert_eq!(all.len(), 5);
    for n in 0..4 {
        let id = all[n].id.clone().unwrap();
        let by_header = client(&world).last_event_id(&id).open("").await.rest().await;
        let by_parameter = client(&world).open(&format!("&lastEventId={id}")).await.rest().await;
        assert_eq!((&by_header, &by_parameter), (&all[n + 1..].to_vec(), &all[n + 1..].to_vec()));
    }
    let [first, third] = [0, 2].map(|n: usize| all[n].id.clone().unwrap());
    let both = client(&world).last_event_id(&third).open(&format!("&lastEventId={first}")).await;
    assert_eq!(
        both.rest().await,
        all[3..],
        "what `EventSource` sends by itself is newer than the page's address"
    );
}

async fn a_client_is_spared_what_it_has_by_its_last_seq(world: World) {
    let events = whole_job(&world);
    publish(&world, &events).await;
    let told = client(&world).open("&last_seq=20").await.rest().await;
    assert_eq!(told.iter().map(|told| told.data.as_str()).collect::<Vec<_>>(), texts(&events[3..]));
}

async fn a_finished_job_that_was_seen_whole_is_204(world: World) {
    let events = whole_job(&world);
    publish(&world, &events[..4]).await;
    assert_eq!(client(&world).status("&last_seq=59").await, StatusCode::OK, "it is not finished");
    publish(&world, &events[4..]).await;
    let told = client(&world).open("").await.rest().await;
    let last = told.last().unwrap().id.clone().unwrap();
    assert_eq!(client(&world).last_event_id(&last).status("").await, StatusCode::NO_CONTENT);
    assert_eq!(client(&world).status("&last_seq=51").await, StatusCode::NO_CONTENT);
    assert_eq!(client(&world).status("").await, StatusCode::OK, "who has seen nothing is told all of it");
}

async fn a_trimmed_last_event_id_is_a_gap_and_then_what_is_left(world: World) {
    let events = whole_job(&world);
    publish(&world, &events).await;
    let told = client(&world).last_event_id("0-1").open("").await.rest().await;
    assert_eq!(told[0], Told { event: Some("gap".into()), id: Some(String::new()), data: "{}".into() });
    assert_eq!(told[1..].iter().map(|told| told.data.as_str()).collect::<Vec<_>>(), texts(&events));
}

#[tokio::test(start_paused = true)]
async fn a_log_that_expired_and_began_anew_is_a_gap() {
    let world = World::memory().await;
    let events = whole_job(&world);
    publish(&world, &events[..2]).await;
    let mut stream = client(&world).open("").await;
    let id = stream.event().await.unwrap().id.unwrap();
    tokio::time::sleep(Duration::from_secs(2 * 3600 + 1)).await;
    publish(&world, &events[2..]).await;
    let told = client(&world).last_event_id(&id).open("").await.rest().await;
    assert_eq!(told[0].event.as_deref(), Some("gap"));
    assert_eq!(told[1..].iter().map(|told| told.data.as_str()).collect::<Vec<_>>(), texts(&events[2..]));
}

async fn the_state_is_the_highest_seq_or_404(world: World) {
    let events = whole_job(&world);
    assert_eq!(
        client(&world).state().await,
        (StatusCode::NOT_FOUND, r#"{"message":"there is no state of this job"}"#.into())
    );
    publish(&world, &[events[2].clone(), events[0].clone()]).await;
    let (status, state) = client(&world).state().await;
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!((status, json(&state)), (StatusCode::OK, json(events[2].text())));
}

#[tokio::test]
async fn a_missing_wrong_or_expired_token_is_401() {
    let world = World::memory().await;
    publish(&world, &whole_job(&world)).await;
    let good = client(&world).token(32_503_680_000);
    let expired = client(&world).token(1_700_000_000);
    let other = Client::new(JobEvents::new(world.store.clone(), client::config()), world.job("b"))
        .token(32_503_680_000);
    let wrong = good.replace(".", ".0");
    for (token, status) in
        [(good.as_str(), 200), (&expired, 401), (&other, 401), (&wrong, 401), ("", 401), ("x.y", 401)]
    {
        for path in ["/events", ""] {
            let uri = format!("/jobs/{}{path}?domain={}&token={token}", world.job("a").id(), world.domain);
            assert_eq!(client(&world).get(&uri).await.status(), status, "{uri}");
        }
    }
    let without = format!("/jobs/{}/events?domain={}", world.job("a").id(), world.domain);
    assert_eq!(client(&world).get(&without).await.status(), 401);
}

#[tokio::test]
async fn ids_domains_and_parameters_that_cannot_be_are_400() {
    let world = World::memory().await;
    let client = client(&world);
    let (id, domain, token) =
        (world.job("a").id().to_owned(), world.domain.clone(), client.token(32_503_680_000));
    let good = format!("/jobs/{id}/events?domain={domain}&token={token}");
    for uri in [
        format!("/jobs/{id}/events?domain=user&token={token}"),
        format!("/jobs/{id}/events?domain=published&token={token}"),
        format!("/jobs/{id}/events?domain=Scan&token={token}"),
        format!("/jobs/{id}/events?token={token}"),
        format!("/jobs/a%7Bb%7D/events?domain={domain}&token={token}"),
        format!("/jobs/a%0Ab?domain={domain}&token={token}"),
        format!("/jobs/%FF?domain={domain}&token={token}"),
        format!("/jobs/{}?domain={domain}&token={token}", "x".repeat(129)),
        format!("{good}&last_seq=ten"),
        format!("{good}&last_seq=-1"),
        format!("{good}&lastEventId=yesterday"),
        format!("{good}&domain={domain}"),
    ] {
        assert_eq!(client.get(&uri).await.status(), 400, "{uri}");
    }
    assert_eq!(client.last_event_id("first").status("").await, 400);
}

#[tokio::test]
async fn an_escaped_id_is_the_same_job() {
    let world = World::memory().await;
    let job = onetap_bus::Job::new("scan", "a:b-1").unwrap();
    publish(&world, &[support::event(&job, "rule", 20, "{}")]).await;
    let client = Client::new(JobEvents::new(world.store.clone(), client::config()), job);
    let uri = format!("/jobs/a%3Ab%2D1?domain=scan&token={}", client.token(32_503_680_000));
    assert_eq!(client.get(&uri).await.status(), 200);
}

#[tokio::test]
async fn other_methods_are_405_and_other_paths_404() {
    let world = World::memory().await;
    let client = client(&world);
    for method in [Method::HEAD, Method::POST, Method::OPTIONS, Method::DELETE] {
        let request = Request::builder().method(method).uri("/jobs/a/events").body(()).unwrap();
        let response = client.gateway.handle(request).await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()["allow"]),
            (405, &"GET".parse().unwrap())
        );
    }
    for path in ["/", "/jobs", "/jobs/a/b", "/jobs/a/events/", "/jobs/a/events/b", "/other/a", "//jobs/a"] {
        assert_eq!(client.get(path).await.status(), 404, "{path}");
    }
    assert_eq!(client.get("/jobs//events?domain=scan").await.status(), 400);
}

#[tokio::test]
async fn every_answer_may_be_read_by_the_page_and_kept_by_no_one() {
    let world = World::memory().await;
    publish(&world, &whole_job(&world)).await;
    let client = client(&world);
    let (good, state) = (client.uri("/events", ""), client.uri("", ""));
    for (uri, media) in
        [(good.as_str(), "text/event-stream"), (&state, "application/json"), ("/jobs/a", "application/json")]
    {
        let response = client.get(uri).await;
        let headers = response.headers();
        assert_eq!(headers["access-control-allow-origin"], "https://page.example");
        assert_eq!(
            (&headers["cache-control"], &headers["content-type"]),
            (&"no-store".parse().unwrap(), &media.parse().unwrap())
        );
    }
}

#[tokio::test(start_paused = true)]
async fn silence_is_broken_by_comments_and_ended_in_time() {
    let world = World::memory().await;
    let mut stream = client(&world).open("").await;
    let start = Instant::now();
    let mut comments = Vec::new();
    while let Some(frame) = stream.frame().await {
        if frame.starts_with(':') {
            comments.push(start.elapsed().as_secs());
        }
    }
    assert_eq!(comments, [15], "after 15 s of 25");
    assert_eq!(start.elapsed(), Duration::from_secs(25));
}

#[tokio::test(start_paused = true)]
async fn events_put_the_comments_off() {
    let world = World::memory().await;
    let mut stream = client(&world).open("").await;
    let publisher = async {
        for event in &whole_job(&world)[..2] {
            tokio::time::sleep(Duration::from_secs(10)).await;
            publish(&world, std::slice::from_ref(event)).await;
        }
    };
    let listener = async {
        let mut frames = Vec::new();
        while let Some(frame) = stream.frame().await {
            frames.push(frame.starts_with(':'));
        }
        frames
    };
    let (frames, ()) = tokio::join!(listener, publisher);
    assert_eq!(frames, [false, false, false], "its head and two events, and never 15 s without");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_be_read_is_503_and_in_the_middle_an_end() {
    let world = World::memory().await;
    let down = Faulty::new(world.store.clone(), |_| Fault::NotSent);
    let broken = Client::new(JobEvents::new(down, client::config()), world.job("a"));
    assert_eq!(broken.status("").await, 503);
    assert_eq!(broken.state().await.0, 503);
    let events = whole_job(&world);
    publish(&world, &events[..1]).await;
    let failing = Faulty::first(world.store.clone(), vec![Fault::Pass, Fault::NotSent]);
    let mut stream = Client::new(JobEvents::new(failing, client::config()), world.job("a")).open("").await;
    let first = stream.event().await.unwrap();
    publish(&world, &events[1..]).await;
    assert_eq!(stream.event().await, None);
    let rest = client(&world).last_event_id(&first.id.unwrap()).open("").await.rest().await;
    assert_eq!(
        rest.iter().map(|told| told.data.as_str()).collect::<Vec<_>>(),
        texts(&events[1..]),
        "and it resumes"
    );
}

#[tokio::test]
async fn the_events_of_the_repository_are_answered_as_their_names_say() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../events/job-events");
    let world = World::memory().await;
    let job = onetap_bus::Job::new("scan", "job-1").unwrap();
    publish(&world, &[support::event(&job, "vision", 10, "{}"), support::event(&job, "done", 51, "{}")])
        .await;
    let gateway = JobEvents::new(world.store.clone(), client::config());
    let mut seen = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let request = lambda_http::request::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let status = match path.file_stem().and_then(|name| name.to_str()).unwrap() {
            "follow-a-job" | "resume" | "state" => 200,
            "without-a-token" => 401,
            "reserved-domain" => 400,
            name => panic!("what of {name}?"),
        };
        assert_eq!(gateway.handle(request).await.status(), status, "{}", path.display());
        seen += 1;
    }
    assert_eq!(seen, 5);
}
