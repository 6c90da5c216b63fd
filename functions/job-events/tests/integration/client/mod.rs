//! A client of the gateway, as far as these tests need one.
#![allow(unreachable_pub, reason = "a module of tests")]

use std::collections::VecDeque;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use job_events::{Body, Config, JobEvents, token};
use onetap_bus::{Job, Stages};
use onetap_config::Secret;
use tokio::time::timeout;

/// The one of the events in the repository.
pub const SECRET: &str = "secret";

/// How long a finished job's stream stays open in these tests.
pub const GRACE: Duration = Duration::from_millis(200);

pub fn config() -> Config {
    Config {
        secrets: vec![Secret::new(SECRET)],
        allow_origin: "https://page.example".parse().unwrap(),
        max: Duration::from_secs(25),
        keepalive: Duration::from_secs(15),
        grace: GRACE,
        stages: Stages::default(),
    }
}

pub struct Client {
    pub gateway: JobEvents,
    job: Job,
    last_event_id: Option<String>,
}

/// One event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub event: Option<String>,
    pub id: Option<String>,
    pub data: String,
}

impl Client {
    pub fn new(gateway: JobEvents, job: Job) -> Client {
        Client { gateway, job, last_event_id: None }
    }

    pub fn last_event_id(self, id: &str) -> Client {
        Client { last_event_id: Some(id.to_owned()), ..self }
    }

    pub fn token(&self, expiry: u64) -> String {
        token(&Secret::new(SECRET), &self.job, expiry)
    }

    pub fn uri(&self, path: &str, parameters: &str) -> String {
        let token = self.token(32_503_680_000);
        format!("/jobs/{}{path}?domain={}&token={token}{parameters}", self.job.id(), self.job.domain())
    }

    pub async fn get(&self, uri: &str) -> Response<Body> {
        let mut request = Request::get(uri);
        if let Some(id) = &self.last_event_id {
            request = request.header("Last-Event-ID", id);
        }
        self.gateway.handle(request.body(()).unwrap()).await
    }

    pub async fn status(&self, parameters: &str) -> StatusCode {
        self.get(&self.uri("/events", parameters)).await.status()
    }

    pub async fn open(&self, parameters: &str) -> Stream {
        self.stream(&self.uri("/events", parameters)).await
    }

    /// With a token that ends then.
    pub async fn open_until(&self, expiry: u64) -> Stream {
        let (job, token) = (&self.job, self.token(expiry));
        self.stream(&format!("/jobs/{}/events?domain={}&token={token}", job.id(), job.domain())).await
    }

    async fn stream(&self, uri: &str) -> Stream {
        let response = self.get(uri).await;
        assert_eq!(response.status(), StatusCode::OK);
        Stream { body: response.into_body(), told: VecDeque::new() }
    }

    pub async fn state(&self) -> (StatusCode, String) {
        let response = self.get(&self.uri("", "")).await;
        (response.status(), text(response).await)
    }
}

pub async fn text(response: Response<Body>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

pub struct Stream {
    body: Body,
    told: VecDeque<Told>,
}

impl Stream {
    pub async fn frame(&mut self) -> Option<String> {
        let frame = timeout(Duration::from_secs(60), self.body.frame()).await.expect("a frame or the end")?;
        Some(String::from_utf8(frame.unwrap().into_data().unwrap().to_vec()).unwrap())
    }

    /// The next event, by the rules of the format; `None` at the end.
    pub async fn event(&mut self) -> Option<Told> {
        while self.told.is_empty() {
            let text = self.frame().await?;
            assert!(text.ends_with("\n\n"), "a frame is whole");
            self.told.extend(text.split("\n\n").filter_map(told));
        }
        self.told.pop_front()
    }

    pub async fn rest(mut self) -> Vec<Told> {
        let mut told = Vec::new();
        while let Some(event) = self.event().await {
            told.push(event);
        }
        told
    }
}

fn told(block: &str) -> Option<Told> {
    let field = |name: &str| {
        let values: Vec<&str> = block
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(|value| value.strip_prefix(' ').unwrap_or(value))
            .collect();
        (!values.is_empty()).then(|| values.join("\n"))
    };
    Some(Told { event: field("event"), id: field("id"), data: field("data")? })
}
