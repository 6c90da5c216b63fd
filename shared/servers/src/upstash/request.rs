use bytes::Bytes;
use hyper::Request;
use hyper::header::AUTHORIZATION;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::subscription::Subscription;

/// A command and its arguments.
pub(super) type Command = Vec<String>;

/// What a request asks for.
pub(super) enum Call {
    One(Command),
    Pipeline(Vec<Command>),
    Transaction(Vec<Command>),
    Subscribe(Subscription),
}

impl Call {
    pub(super) fn commands(&self) -> usize {
        match self {
            Call::One(_) | Call::Subscribe(_) => 1,
            Call::Pipeline(commands) | Call::Transaction(commands) => commands.len(),
        }
    }
}

/// The token of the `Authorization` header, or of the query's `_token`.
pub(super) fn token(request: &Request<Bytes>) -> Option<String> {
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = header.and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned);
    bearer.or_else(|| query(request).find(|(name, _)| name == "_token").and_then(|(_, value)| value))
}

/// Reads the call; an error is worded as the gateway answers it.
pub(super) fn parse(request: &Request<Bytes>) -> Result<Call, String> {
    let path: Vec<String> = request.uri().path().trim_start_matches('/').split('/').map(decode).collect();
    let channels = || path[1..].to_vec();
    match path[0].to_lowercase().as_str() {
        "" => Ok(Call::One(command(&json(request)?)?)),
        "pipeline" => Ok(Call::Pipeline(commands(&json(request)?)?)),
        "multi-exec" => Ok(Call::Transaction(commands(&json(request)?)?)),
        "subscribe" if path.len() > 1 => Ok(Call::Subscribe(Subscription::Channels(channels()))),
        "psubscribe" if path.len() > 1 => Ok(Call::Subscribe(Subscription::Patterns(channels()))),
        _ => path_command(path, request),
    }
}

/// `/set/key?EX=100` with a body is `SET key BODY EX 100`: first the path, then the body, then the query.
fn path_command(mut command: Command, request: &Request<Bytes>) -> Result<Call, String> {
    if !request.body().is_empty() {
        let body = str::from_utf8(request.body()).map_err(|_| "ERR the body is not UTF-8")?;
        command.push(body.to_owned());
    }
    for (name, value) in query(request).filter(|(name, _)| name != "_token") {
        command.push(name);
        command.extend(value);
    }
    Ok(Call::One(command))
}

fn json(request: &Request<Bytes>) -> Result<Value, String> {
    serde_json::from_slice(request.body())
        .map_err(|error| format!("ERR failed to parse the request body: {error}"))
}

fn commands(body: &Value) -> Result<Vec<Command>, String> {
    match body.as_array() {
        Some(rows) if !rows.is_empty() => rows.iter().map(command).collect(),
        _ => Err("ERR a non-empty array of commands is expected".to_owned()),
    }
}

fn command(body: &Value) -> Result<Command, String> {
    match body.as_array() {
        Some(arguments) if !arguments.is_empty() => arguments.iter().map(argument).collect(),
        _ => Err("ERR a command is expected as a non-empty array".to_owned()),
    }
}

fn argument(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        _ => Err(format!("ERR an argument must be a string, a number or a boolean, not {value}")),
    }
}

fn query(request: &Request<Bytes>) -> impl Iterator<Item = (String, Option<String>)> {
    let pairs = request.uri().query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| match pair.split_once('=') {
        Some((name, value)) => (decode(name), Some(decode(value))),
        None => (decode(pair), None),
    })
}

fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}
