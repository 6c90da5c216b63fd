//! What clients of the gateway are told.

use crate::{client, support};

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use client::{Client, GRACE, Told};
use http::{Method, Request, StatusCode};
use job_events::{Config, JobEvents};
use onetap_bus::{Bus, Event, Stages};
use onetap_servers::HttpStub;
use onetap_store::testing::{Fault, TestStore};
use onetap_store::{Batch, Commit, Expect, open};
use support::{World, on_every_backend};
use tokio::time::Instant;

on_every_backend! {
    a_client_is_told_what_was_there_and_what_comes_and_the_end
    a_client_that_resumes_is_told_the_rest
    a_client_is_spared_what_it_has_by_its_last_seq
    a_finished_job_that_was_seen_whole_is_204
    a_job_of_other_stages_ends_by_its_own_table
    an_event_that_the_last_one_overtook_is_told
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

/// A client of a gateway that waits longer for what was overtaken than any machine needs to publish it.
fn patient_client(world: &World) -> Client {
    let [max, grace] = [100, 90].map(Duration::from_secs);
    let config = Config { max, grace, ..client::config() };
    Client::new(JobEvents::new(world.store.clone(), config), world.job("a"))
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

async fn a_job_of_other_stages_ends_by_its_own_table(world: World) {
    let stages = Stages::from_json(support::TOKENS).unwrap();
    let event = |stage: &str, seq: u64| {
        Event::parse(support::event_text(&world.job("a"), stage, seq, "{}"), &stages).unwrap()
    };
    let gateway = || {
        let config = Config { stages: stages.clone(), ..client::config() };
        Client::new(JobEvents::new(world.store.clone(), config), world.job("a"))
    };
    publish(&world, &[event("plan", 1), event("token", 1000)]).await;
    let mut stream = gateway().open("").await;
    publish(&world, &[event("token", 1001), event("done", 12)]).await;
    let mut last = None;
    while let Some(told) = stream.event().await {
        last = told.id;
    }
    assert_eq!(gateway().last_event_id(&last.unwrap()).status("").await, StatusCode::NO_CONTENT);
    assert!(gateway().state().await.1.contains(r#""seq":12"#));
}

async fn an_event_that_the_last_one_overtook_is_told(world: World) {
    let mut events = whole_job(&world);
    events.swap(3, 4);
    publish(&world, &events[..4]).await;
    let mut stream = patient_client(&world).open("").await;
    let mut told = Vec::new();
    for _ in 0..4 {
        told.extend(stream.event().await);
    }
    // `done` was told: whoever sees it lose its connection now comes back for the rest.
    let last = told[3].id.clone().unwrap();
    publish(&world, &events[4..]).await;
    told.extend(stream.event().await);
    assert_eq!(told.iter().map(|told| told.data.as_str()).collect::<Vec<_>>(), texts(&events));
    let resumed = patient_client(&world).last_event_id(&last).open("").await.event().await;
    assert_eq!(resumed.as_ref(), told.last());
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
async fn a_read_that_takes_longer_than_the_keep_alive_is_not_begun_again() {
    let world = World::memory().await;
    publish(&world, &whole_job(&world)[..1]).await;
    let keepalive = Duration::from_secs(1);
    let slow = TestStore::faulty(world.store.clone(), |_| Fault::AnsweredLate(Duration::from_secs(5)));
    let config = Config { keepalive, ..client::config() };
    let mut stream = Client::new(JobEvents::new(slow.clone(), config), world.job("a")).open("").await;
    assert!(stream.event().await.is_some());
    publish(&world, &whole_job(&world)[1..2]).await;
    let before = slow.calls();
    let mut comments = 0;
    loop {
        match stream.frame().await.expect("the event comes before the stream ends") {
            frame if frame.starts_with(':') => comments += 1,
            frame => break assert!(frame.starts_with("id: "), "{frame}"),
        }
    }
    assert_eq!((comments, slow.calls() - before), (4, 1), "comments while it reads, and one read");
}

#[tokio::test(start_paused = true)]
async fn the_stream_of_a_finished_job_stays_open_for_the_grace_and_then_ends() {
    let world = World::memory().await;
    publish(&world, &whole_job(&world)).await;
    let start = Instant::now();
    assert_eq!(client(&world).open("").await.rest().await.len(), 5);
    assert_eq!(start.elapsed(), GRACE);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_back_within_the_grace_is_told_what_was_overtaken() {
    let world = World::memory().await;
    let mut events = whole_job(&world);
    events.swap(3, 4);
    publish(&world, &events[..4]).await;
    let mut stream = client(&world).open("").await;
    let mut last = None;
    for _ in 0..4 {
        last = stream.event().await;
    }
    drop(stream);
    // It has seen the job's end and all that there is. A 204 would end its reconnecting for good.
    let back = client(&world).last_event_id(&last.unwrap().id.unwrap());
    let overtaken = async {
        tokio::time::sleep(GRACE / 2).await;
        publish(&world, &events[4..]).await;
    };
    let (told, ()) = tokio::join!(async { back.open("").await.rest().await }, overtaken);
    assert_eq!(told.iter().map(|told| told.data.as_str()).collect::<Vec<_>>(), texts(&events[4..]));
    let start = Instant::now();
    let whole = client(&world).last_event_id(&told[0].id.clone().unwrap()).status("").await;
    assert_eq!((whole, start.elapsed()), (StatusCode::NO_CONTENT, GRACE));
}

#[tokio::test(start_paused = true)]
async fn a_client_of_a_store_that_cannot_be_read_is_asked_to_come_back() {
    let world = World::memory().await;
    let down = TestStore::faulty(world.store.clone(), |_| Fault::NotSent);
    let broken = Client::new(JobEvents::new(down, client::config()), world.job("a"));
    let mut pauses = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let response = broken.get(&broken.uri("/events", "")).await;
        // `EventSource` never comes back after any other status, nor to what is no event stream.
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["access-control-allow-origin"], "https://page.example");
        pauses.insert(retry(&client::text(response).await));
    }
    assert!(pauses.iter().all(|pause| (2000..=5000).contains(pause)), "{pauses:?}");
    assert!(pauses.len() > 1, "not all of them at the same moment: {pauses:?}");
    assert_eq!(broken.state().await.0, 503, "a page that asks for the state can read a status");
    let unknown = broken.get("/jobs/a/events?domain=scan").await;
    assert_eq!(unknown.status(), 401, "what does not pass stays what it is");
}

#[tokio::test]
async fn a_client_of_a_store_that_will_not_be_read_is_not_asked_to_come_back() {
    let world = World::memory().await;
    let log = onetap_store::Key::new(world.log("a").as_str()).unwrap();
    let value = Batch::new().put(&log, Expect::Absent, "no log", Duration::from_secs(3600));
    assert!(matches!(world.store.commit(&value).await, Ok(Commit::Applied(_))));
    let refusing = HttpStub::always(onetap_servers::Fault::Status(401, String::new()));
    let lookup = |name: &str| match name {
        "STORE" => Some("upstash".to_owned()),
        "UPSTASH_REDIS_REST_URL" => Some(refusing.url()),
        "UPSTASH_REDIS_REST_TOKEN" => Some("stale".to_owned()),
        "STORE_TIMEOUT_MS" => Some("60000".to_owned()),
        _ => None,
    };
    let wrong_token = open(&onetap_store::Config::from_lookup(lookup).unwrap()).unwrap();
    for store in [world.store.clone(), wrong_token] {
        let client = Client::new(JobEvents::new(store, client::config()), world.job("a"));
        // Another try in some seconds would find the same: a page that stays open must not make it for ever.
        assert_eq!(client.status("").await, StatusCode::SERVICE_UNAVAILABLE);
    }
}

/// The pause that a stream of nothing else asks for, in milliseconds.
fn retry(text: &str) -> u64 {
    text.strip_prefix("retry: ").and_then(|rest| rest.strip_suffix("\n\n")).unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_in_the_middle_ends_the_stream_and_nothing_is_lost_or_repeated() {
    let world = World::memory().await;
    let events = whole_job(&world);
    publish(&world, &events[..1]).await;
    let failing = TestStore::first(world.store.clone(), vec![Fault::Pass, Fault::NotSent]);
    let mut stream = Client::new(JobEvents::new(failing, client::config()), world.job("a")).open("").await;
    let first = stream.event().await.unwrap();
    publish(&world, &events[1..]).await;
    assert!((2000..=5000).contains(&retry(&stream.frame().await.unwrap())));
    assert_eq!(stream.frame().await, None);
    let rest = client(&world).last_event_id(&first.id.unwrap()).open("").await.rest().await;
    assert_eq!(
        rest.iter().map(|told| told.data.as_str()).collect::<Vec<_>>(),
        texts(&events[1..]),
        "and it resumes"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_its_token_and_says_so_last() {
    let world = World::memory().await;
    let events = whole_job(&world);
    publish(&world, &events[..2]).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let client = client(&world);
    // Longer than the machine can be busy with other things, shorter than a stream.
    let start = Instant::now();
    let told = client.open_until(now + 20).await.rest().await;
    assert!(start.elapsed() <= Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(told.len(), 3);
    assert_eq!(told[2], Told { event: Some("expired".into()), id: None, data: "{}".into() });
    let told = client.open_until(now + 1000).await.rest().await;
    assert_eq!(told.len(), 2, "a stream that ends before its token says nothing of it");
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
