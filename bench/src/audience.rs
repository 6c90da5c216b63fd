//! Clients that wait for what is published: those of the gateway, and those of the bare server.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use http::{Method, Request};
use job_events::{JobEvents, token};
use onetap_bus::{Bus, Event, Job, Published, Stages};
use onetap_config::Secret;
use onetap_local::client::Client;
use onetap_local::event_source::EventSource;
use onetap_servers::HttpStub;
use onetap_store::Store;
use onetap_store::lease::unique_token;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::{Error, Result};

/// Clients of one job.
const PER_JOB: usize = 10;
/// Time limit for an event on its way.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(60);
const SECRET: &str = "secret";
const FAR_FUTURE: u64 = 32_503_680_000;
const STAGES: &str = r#"[{"stage":"token","first":1000,"last":999999,"state":false},{"stage":"done","first":1,"last":1,"ends":1}]"#;

type Publish = Box<dyn Fn(usize, u64) -> BoxFuture<'static, Result<()>>>;

/// Some clients of some jobs, and a way to publish to each job.
pub struct Audience {
    clients: usize,
    jobs: usize,
    heard: mpsc::UnboundedReceiver<(usize, Instant)>,
    publish: Publish,
    published: u64,
    _listeners: JoinSet<()>,
    _server: Option<Box<dyn Any>>,
}

impl fmt::Debug for Audience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Audience({} clients of {} jobs)", self.clients, self.jobs)
    }
}

/// The stages of these jobs.
pub fn stages() -> Result<Stages> {
    Ok(Stages::from_json(STAGES)?)
}

/// The `n`-th event of a job.
pub fn token_event(job: &Job, n: u64, stages: &Stages) -> Result<Event> {
    Ok(Event::new(stages, job, "token", 1000 + n, &"word")?)
}

fn jobs_of(clients: usize) -> usize {
    clients.div_ceil(PER_JOB)
}

impl Audience {
    /// Publishes an event to every job at once, and waits until every client has it. Returns the time of each, in
    /// microseconds from the start of its publishing.
    pub async fn burst(&mut self) -> Result<Vec<f64>> {
        self.published += 1;
        let publish = |job: usize| {
            let published = (self.publish)(job, self.published);
            async move {
                let start = Instant::now();
                published.await.map(|()| start)
            }
        };
        let starts: Vec<Instant> =
            join_all((0..self.jobs).map(publish)).await.into_iter().collect::<Result<_>>()?;
        let mut times = Vec::with_capacity(self.clients);
        for _ in 0..self.clients {
            let (job, at) = timeout(ARRIVAL_TIMEOUT, self.heard.recv())
                .await
                .map_err(|_| "an event does not arrive")?
                .ok_or("a client has left")?;
            times.push(at.saturating_duration_since(starts[job]).as_secs_f64() * 1e6);
        }
        Ok(times)
    }

    /// `EventSource` clients of the gateway, and the bus.
    pub async fn of_gateway(
        store: Arc<dyn Store>,
        bus: onetap_bus::Config,
        clients: usize,
    ) -> Result<Audience> {
        let stages = stages()?;
        let config = job_events::Config {
            secrets: vec![Secret::new(SECRET)],
            allow_origin: http::HeaderValue::from_static("*"),
            max: Duration::from_secs(3600),
            keepalive: Duration::from_secs(15),
            grace: Duration::from_secs(3),
            stages: stages.clone(),
        };
        let gateway = Arc::new(JobEvents::new(store.clone(), config));
        let server = HttpStub::serving(move |request| {
            let gateway = gateway.clone();
            async move { gateway.handle(request).await }
        });
        let name = unique_token();
        let job = |n: usize| Job::new("bench", format!("{}-{n}", &name[..12]));
        let jobs = (0..jobs_of(clients)).map(job).collect::<std::result::Result<Vec<Job>, _>>()?;
        let (tell, heard) = mpsc::unbounded_channel();
        let (browser, mut listeners) = (Client::new(&server.url()), JoinSet::new());
        for n in 0..clients {
            let (number, tell) = (n % jobs.len(), tell.clone());
            let job = &jobs[number];
            let token = token(&Secret::new(SECRET), job, FAR_FUTURE);
            let path = format!("/jobs/{}/events?domain=bench&token={token}", job.id());
            let mut source = EventSource::new(browser.clone(), path);
            listeners.spawn(async move {
                while let Ok(Some(_)) = source.next().await {
                    let _ = tell.send((number, Instant::now()));
                }
            });
        }
        let bus = Bus::new(store, onetap_bus::Config { stages: stages.clone(), ..bus });
        let count = jobs.len();
        let publish: Publish = Box::new(move |job, n| {
            let (bus, event) = (bus.clone(), token_event(&jobs[job], n, &stages));
            async move {
                match bus.publish(&event?).await? {
                    Published::New(_) => Ok(()),
                    other => Err(format!("{other:?}").into()),
                }
            }
            .boxed()
        });
        let mut audience = Audience {
            clients,
            jobs: count,
            heard,
            publish,
            published: 0,
            _listeners: listeners,
            _server: Some(Box::new(server)),
        };
        // Whoever connects later still gets the first event: then all are connected.
        audience.burst().await?;
        Ok(audience)
    }

    /// `SUBSCRIBE` and `PUBLISH` on plain sockets.
    pub async fn of_redis(address: &str, clients: usize) -> Result<Audience> {
        let (name, jobs) = (unique_token(), jobs_of(clients));
        let channel = |job: usize| format!("bare:{name}:{job}");
        let (tell, heard) = mpsc::unbounded_channel();
        let mut listeners = JoinSet::new();
        for n in 0..clients {
            let (job, tell) = (n % jobs, tell.clone());
            let mut stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            stream.write_all(&command(&["SUBSCRIBE", &channel(job)])).await?;
            let mut lines = BufReader::new(stream).lines();
            // Three parts, each with its length but the last: subscribe, the channel, a number.
            for _ in 0..6 {
                lines.next_line().await?;
            }
            listeners.spawn(async move {
                // Three parts: message, the channel, the text.
                let mut line = 0;
                while let Ok(Some(_)) = lines.next_line().await {
                    line += 1;
                    if line % 7 == 0 {
                        let _ = tell.send((job, Instant::now()));
                    }
                }
            });
        }
        let mut publishers = Vec::new();
        for job in 0..jobs {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            publishers.push((Arc::new(Mutex::new(stream)), channel(job)));
        }
        let text = text()?;
        let publish: Publish = Box::new(move |job, _| {
            let (stream, channel) = publishers[job].clone();
            let request = command(&["PUBLISH", &channel, &text]);
            async move {
                let mut stream = stream.lock().await;
                stream.write_all(&request).await?;
                // `:10\r\n`
                while stream.read_u8().await? != b'\n' {}
                Ok(())
            }
            .boxed()
        });
        Ok(Audience { clients, jobs, heard, publish, published: 0, _listeners: listeners, _server: None })
    }

    /// The subscriptions and `PUBLISH` of the REST API.
    pub async fn of_upstash(url: &str, token: &str, clients: usize) -> Result<Audience> {
        let (name, jobs) = (unique_token(), jobs_of(clients));
        let channel = |job: usize| format!("bare:{name}:{job}");
        let authorization = format!("Bearer {token}");
        let (tell, heard) = mpsc::unbounded_channel();
        let (client, mut listeners) = (Client::new(url), JoinSet::new());
        for n in 0..clients {
            let (job, tell) = (n % jobs, tell.clone());
            let headers = [("authorization", authorization.as_str()), ("accept", "text/event-stream")];
            let opened = client.events(&format!("/subscribe/{}", channel(job)), &headers).await?;
            let mut events = opened.map_err(|status| Error::from(format!("subscribe: {status}")))?;
            events.next().await?.ok_or("no acknowledgement")?;
            listeners.spawn(async move {
                while let Ok(Some(_)) = events.next().await {
                    let _ = tell.send((job, Instant::now()));
                }
            });
        }
        let (text, channels) = (text()?, (0..jobs).map(channel).collect::<Vec<_>>());
        let publish: Publish = Box::new(move |job, _| {
            let (client, authorization) = (client.clone(), authorization.clone());
            let body = json!(["PUBLISH", channels[job], text]).to_string();
            async move {
                let headers = [("authorization", authorization.as_str())];
                let response = client.call(Method::POST, "/", &headers, body).await?;
                if response.status.is_success() { Ok(()) } else { Err(response.text.into()) }
            }
            .boxed()
        });
        Ok(Audience { clients, jobs, heard, publish, published: 0, _listeners: listeners, _server: None })
    }

    /// `GetItem` once in `interval` and `PutItem`: DynamoDB has no pub/sub.
    pub async fn of_dynamodb(url: &str, table: &str, interval: Duration, clients: usize) -> Result<Audience> {
        let (name, jobs) = (unique_token(), jobs_of(clients));
        let key = |job: usize| json!({ "pk": { "S": format!("bare:{name}:{job}") }, "sk": { "S": "value" } });
        let (tell, heard) = mpsc::unbounded_channel();
        let (client, mut listeners) = (onetap_http::Client::new(), JoinSet::new());
        for n in 0..clients {
            let (job, tell, client) = (n % jobs, tell.clone(), client.clone());
            let read = json!({ "TableName": table, "ConsistentRead": true, "Key": key(job) });
            let url = url.to_owned();
            listeners.spawn(async move {
                let mut last = Value::Null;
                loop {
                    sleep(interval).await;
                    let Ok(mut answer) = dynamodb(&client, &url, "GetItem", &read).await else { return };
                    let now = answer["Item"]["v"].take();
                    if now != last {
                        last = now;
                        let _ = tell.send((job, Instant::now()));
                    }
                }
            });
        }
        let (url, table, text) = (url.to_owned(), table.to_owned(), text()?);
        let keys: Vec<Value> = (0..jobs).map(key).collect();
        let publish: Publish = Box::new(move |job, n| {
            let mut item = keys[job].clone();
            item["v"] = json!({ "S": format!("{text} {n}") });
            let (client, url) = (client.clone(), url.clone());
            let write = json!({ "TableName": table, "Item": item });
            async move { dynamodb(&client, &url, "PutItem", &write).await.map(drop) }.boxed()
        });
        Ok(Audience { clients, jobs, heard, publish, published: 0, _listeners: listeners, _server: None })
    }
}

/// The text of an event, which the bare servers pass on.
fn text() -> Result<String> {
    Ok(token_event(&Job::new("bench", "0123456789ab-0")?, 1, &stages()?)?.text().to_owned())
}

/// A command of the Redis protocol.
fn command(parts: &[&str]) -> Vec<u8> {
    let mut text = format!("*{}\r\n", parts.len());
    for part in parts {
        text.push_str(&format!("${}\r\n{part}\r\n", part.len()));
    }
    text.into_bytes()
}

/// A call of DynamoDB, signed for show: the local servers do not check it.
async fn dynamodb(client: &onetap_http::Client, url: &str, operation: &str, input: &Value) -> Result<Value> {
    const SIGNATURE: &str = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0";
    let request = Request::post(url)
        .header("content-type", "application/x-amz-json-1.0")
        .header("x-amz-target", format!("DynamoDB_20120810.{operation}"))
        .header("x-amz-date", "20260101T000000Z")
        .header("authorization", SIGNATURE)
        .body(Bytes::from(input.to_string()))?;
    let response = client.send(request, tokio::time::Instant::now() + ARRIVAL_TIMEOUT, 1 << 20).await?;
    Ok(serde_json::from_slice(response.body())?)
}
