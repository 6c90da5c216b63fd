//! Any command over the Redis protocol, by the `redis` crate: the store's own connections send only what the store needs.

use onetap_config::{ConfigError, Variables};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, Value as Reply};
use serde_json::Value;
use tokio::sync::Mutex;

use super::Failure;
use crate::store::REQUEST_TIMEOUT;

pub(crate) struct Protocol {
    client: Client,
    /// None before the first command, and after one that had no answer.
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl Protocol {
    /// Reads `REDIS_URL`, as the store does.
    pub(super) fn new(variables: &Variables<'_>) -> Result<Protocol, ConfigError> {
        let wrong = |_| ConfigError::new("REDIS_URL", "is not a redis:// or rediss:// URL");
        let client = Client::open(variables.required("REDIS_URL")?).map_err(wrong)?;
        Ok(Protocol { client, connection: Mutex::default() })
    }

    pub(super) async fn command(&self, parts: &[&str]) -> Result<Value, Failure> {
        let mut command = redis::Cmd::new();
        for part in parts {
            command.arg(*part);
        }
        let mut kept = self.connection.lock().await;
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => self.connect().await.map_err(|error| failure(&error))?,
        };
        let reply: Result<Reply, Failure> =
            command.query_async(&mut connection).await.map_err(|error| failure(&error));
        if !matches!(reply, Err(Failure::NoAnswer(_))) {
            *kept = Some(connection);
        }
        reply.map(json)
    }

    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(REQUEST_TIMEOUT))
            .set_response_timeout(Some(REQUEST_TIMEOUT));
        self.client.get_multiplexed_async_connection_with_config(&config).await
    }
}

fn failure(error: &RedisError) -> Failure {
    match error.code() {
        Some(code) => Failure::Refused(format!("{code} {}", error.detail().unwrap_or_default())),
        None if error.kind() == ErrorKind::AuthenticationFailed => Failure::Refused("WRONGPASS".to_owned()),
        None if error.is_timeout() => Failure::NoAnswer("no answer in time"),
        None if error.is_connection_refusal() => Failure::NoAnswer("nothing listens at this address"),
        None => Failure::NoAnswer("no connection to a Redis server"),
    }
}

fn json(reply: Reply) -> Value {
    match reply {
        Reply::Int(number) => number.into(),
        Reply::BulkString(bytes) => String::from_utf8_lossy(&bytes).into(),
        Reply::SimpleString(text) | Reply::VerbatimString { text, .. } => text.into(),
        Reply::Okay => "OK".into(),
        Reply::Array(replies) => replies.into_iter().map(json).collect(),
        _ => Value::Null,
    }
}
