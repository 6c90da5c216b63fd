//! An Upstash-compatible REST gateway in front of a Redis server.
//!
//! It does what Upstash documents of its REST API, in the shapes its own clients expect;
//! `tests/official_clients.rs` runs those clients against it.
//!
//! Layout: `request` reads a call from HTTP, `rules` holds where Upstash differs from Redis, `scripts` makes
//! scripts written for Upstash run on Redis, `backend` talks to Redis, `reply` and `subscription` write the
//! answers.

mod backend;
mod reply;
mod request;
mod rules;
mod scripts;
mod subscription;

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use hyper::{Method, Request, Response, StatusCode};
use redis::{RedisError, Value};
use serde_json::json;

use self::backend::Backend;
use self::reply::Encoding;
use self::request::{Call, Command};
use self::rules::Outcome;
use self::scripts::Scripts;
use crate::fault::{Body, Fault, response};
use crate::http::{Handler, HttpServer};

/// Largest body of a request, as Upstash limits it.
const MAX_REQUEST_BYTES: usize = 10 * 1024 * 1024;

/// The gateway, on a free loopback port. It stops when dropped.
#[derive(Debug)]
pub struct Upstash(HttpServer<Gateway>);

impl Upstash {
    /// Starts a gateway with a random token in front of the Redis server at `redis_url`.
    pub async fn start(redis_url: &str) -> Upstash {
        Upstash(HttpServer::start(Gateway {
            token: format!("{:016x}", getrandom::u64().expect("the system's randomness")),
            backend: Backend::new(redis_url),
            scripts: Scripts::default(),
            commands: AtomicUsize::new(0),
        }))
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        self.0.url()
    }

    /// The token that opens it.
    pub fn token(&self) -> &str {
        &self.0.app().token
    }

    /// How many HTTP requests it received so far, on any path, faults included.
    pub fn requests(&self) -> usize {
        self.0.requests()
    }

    /// How many commands it received so far. A request that a fault replaced brings none.
    pub fn commands(&self) -> usize {
        self.0.app().commands.load(Ordering::SeqCst)
    }

    /// Injects `fault` into every request from now on, or none.
    pub fn inject(&self, fault: Option<Fault>) {
        self.0.faults().always(fault);
    }

    /// Injects one fault into each of the next requests, before what [`Upstash::inject`] set.
    pub fn inject_next(&self, faults: Vec<Fault>) {
        self.0.faults().queue(faults);
    }

    /// Whether `PUBLISH` fails inside scripts, as on a server that forbids it there.
    pub fn refuse_publish_in_scripts(&self, on: bool) {
        self.0.app().scripts.refuse_publish(on);
    }

    /// Whether scripts reach Redis with their `allow-key-locking` line, which stock Redis refuses.
    pub fn pass_on_the_key_locking_line(&self, on: bool) {
        self.0.app().scripts.pass_on_key_locking(on);
    }

    /// Closes the idle connections of its clients; returns when they are closed.
    pub fn close_idle_connections(&self) {
        self.0.connections.close();
    }
}

#[derive(Debug)]
struct Gateway {
    token: String,
    backend: Backend,
    scripts: Scripts,
    commands: AtomicUsize,
}

/// Why a call has no result.
enum CallError {
    /// The command or the request is wrong; the text is worded as Redis does.
    Command(String),
    /// Redis cannot be reached.
    Backend(RedisError),
}

impl From<RedisError> for CallError {
    fn from(error: RedisError) -> CallError {
        CallError::Backend(error)
    }
}

impl Handler for Gateway {
    async fn answer(&self, request: Request<Bytes>) -> Response<Body> {
        if ![Method::HEAD, Method::GET, Method::POST, Method::PUT].contains(request.method()) {
            return reply::error(StatusCode::METHOD_NOT_ALLOWED, "ERR method not allowed");
        }
        if request::token(&request).as_ref() != Some(&self.token) {
            return reply::error(StatusCode::UNAUTHORIZED, "WRONGPASS invalid or missing auth token");
        }
        let size = request.body().len();
        if size > MAX_REQUEST_BYTES {
            let text = format!(
                "ERR max request size exceeded. Limit: {MAX_REQUEST_BYTES} bytes, Actual: {size} bytes"
            );
            return reply::error(StatusCode::PAYLOAD_TOO_LARGE, &text);
        }
        let answer = match request::parse(&request) {
            Ok(call) => self.execute(call, Encoding::asked_for(request.headers())).await,
            Err(text) => Err(CallError::Command(text)),
        };
        match answer {
            Ok(response) => response,
            Err(CallError::Command(text)) => reply::error(StatusCode::BAD_REQUEST, &text),
            // Not JSON: without its database a load balancer would answer.
            Err(CallError::Backend(error)) => {
                response(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", format!("no database: {error}"))
            }
        }
    }
}

impl Gateway {
    async fn execute(&self, call: Call, encoding: Encoding) -> Result<Response<Body>, CallError> {
        self.commands.fetch_add(call.commands(), Ordering::SeqCst);
        let body = match call {
            Call::One(command) => match self.run(command).await? {
                Ok(value) => json!({ "result": encoding.json(value) }),
                Err(text) => return Err(CallError::Command(text)),
            },
            Call::Pipeline(commands) => {
                let mut items = Vec::new();
                // One by one: between them other clients get their turn, as Upstash warns.
                for command in commands {
                    items.push(encoding.item(self.run(command).await?));
                }
                items.into()
            }
            Call::Transaction(commands) => {
                self.transact(commands).await?.into_iter().map(|item| encoding.item(item)).collect()
            }
            Call::Subscribe(subscription) => return Ok(subscription.open(&self.backend).await?),
        };
        Ok(reply::json(StatusCode::OK, &body))
    }

    async fn run(&self, command: Command) -> Result<Outcome, CallError> {
        let prepared = match rules::prepare(command, &self.scripts) {
            Ok(prepared) => prepared,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut replies = self.backend.send([&prepared.command]).await?;
        Ok(prepared.outcome(replies.pop().unwrap_or(Value::Nil)))
    }

    async fn transact(&self, commands: Vec<Command>) -> Result<Vec<Outcome>, CallError> {
        let mut prepared = Vec::new();
        for command in commands {
            prepared.push(rules::prepare(command, &self.scripts).map_err(CallError::Command)?);
        }
        let (multi, exec) = (vec!["MULTI".to_owned()], vec!["EXEC".to_owned()]);
        let queued = prepared.iter().map(|one| &one.command);
        let mut replies = self.backend.send([&multi].into_iter().chain(queued).chain([&exec])).await?;
        match replies.pop() {
            Some(Value::Array(values)) => {
                let pairs = prepared.iter().zip(values);
                Ok(pairs.map(|(one, value)| one.outcome(value)).collect())
            }
            // Discarded: the first command that could not be queued says why.
            aborted => {
                let error = replies.iter().chain(&aborted).find_map(rules::error_text);
                Err(CallError::Command(error.unwrap_or_else(|| "ERR transaction discarded".to_owned())))
            }
        }
    }
}
