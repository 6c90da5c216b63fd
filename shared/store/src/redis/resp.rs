//! The Redis protocol, over the `redis` crate: one multiplexed connection, made when it is first needed and again
//! when it broke.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, TryFutureExt};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, ErrorKind, IntoConnectionInfo, RedisError, Value};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};

use super::encode::{Command, Reply, ServerError};
use super::{Failure, Scripted, Transport};
use crate::config::Secret;
use crate::{BoxStream, Error};

/// A Redis server.
pub struct Resp {
    client: Client,
    connection: Mutex<Slot>,
}

/// The connection that is in use, numbered, so that whoever finds it broken removes that one and no later one.
#[derive(Default)]
struct Slot {
    number: u64,
    connection: Option<MultiplexedConnection>,
}

impl fmt::Debug for Resp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resp")
    }
}

impl Scripted<Resp> {
    /// The server at `url`, each call within `limit`. Connects to nothing yet.
    pub fn new(url: &Secret, limit: Duration) -> Result<Scripted<Resp>, Error> {
        // The crate's TLS asks for the process's provider. Somebody else having set one is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Small commands one after the other: none is to wait for the reply to the one before.
        let tcp = TcpSettings::default().set_nodelay(true);
        let client = url
            .reveal()
            .into_connection_info()
            .and_then(|server| Client::open(server.set_tcp_settings(tcp)))
            .map_err(|_| Error::rejected("not a redis:// or rediss:// URL"))?;
        Ok(Scripted::over(Resp { client, connection: Mutex::default() }, limit))
    }
}

impl Resp {
    async fn connection(&self) -> Result<(u64, MultiplexedConnection), Error> {
        let mut slot = self.connection.lock().await;
        if let Some(connection) = &slot.connection {
            return Ok((slot.number, connection.clone()));
        }
        // The caller's deadline bounds both; the crate's own limits would only cut it short.
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let connection =
            self.client.get_multiplexed_async_connection_with_config(&config).await.map_err(not_connected)?;
        slot.number += 1;
        slot.connection = Some(connection.clone());
        Ok((slot.number, connection))
    }

    /// Whoever holds the slot for longer is replacing the connection already, and may take more time than is left.
    async fn drop_connection(&self, number: u64) {
        if let Ok(mut slot) = timeout(Duration::from_millis(20), self.connection.lock()).await
            && slot.number == number
        {
            slot.connection = None;
        }
    }
}

#[async_trait]
impl Transport for Resp {
    const READS_ARE_FRESH: bool = true;
    const SCRIPT_HEAD: &'static str = "";

    async fn send(&self, commands: &[Command<'_>], deadline: Instant) -> Result<Vec<Reply>, Failure> {
        let mut pipeline = redis::Pipeline::with_capacity(commands.len());
        for command in commands {
            let mut parts = command.parts().iter();
            let mut cmd = redis::cmd(parts.next().map_or("", |name| name));
            for part in parts {
                cmd.arg(part.as_bytes());
            }
            pipeline.add_command(cmd);
        }
        let (number, mut connection) = match timeout_at(deadline, self.connection()).await {
            Ok(connection) => connection.map_err(Failure::Final)?,
            Err(_) => return Err(Failure::Final(Error::not_sent("no connection in time"))),
        };
        let sent = connection.send_packed_commands(&pipeline, 0, commands.len());
        match timeout_at(deadline, sent).await {
            // One that cannot be read is one command's trouble: the others were carried out.
            Ok(Ok(values)) => Ok(values
                .into_iter()
                .map(|value| reply(value).unwrap_or_else(|error| Reply::Error(error.into())))
                .collect()),
            Ok(Err(_)) => {
                self.drop_connection(number).await;
                Err(Failure::Interrupted)
            }
            // A connection that is late may be one that will never answer again: the next call makes a new one.
            Err(_) => {
                self.drop_connection(number).await;
                Err(Failure::Final(Error::unknown("no answer in time")))
            }
        }
    }

    async fn subscribe(
        &self,
        channel: &str,
        deadline: Instant,
    ) -> Result<BoxStream<'static, Result<(), Error>>, Error> {
        let subscribed = async {
            let mut connection = self.client.get_async_pubsub().map_err(not_connected).await?;
            connection.subscribe(channel).map_err(not_connected).await?;
            Ok(connection.into_on_message().map(|_| Ok(())).boxed())
        };
        timeout_at(deadline, subscribed)
            .await
            .unwrap_or_else(|_| Err(Error::not_sent("no connection in time")))
    }
}

fn not_connected(error: RedisError) -> Error {
    match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) | (_, Some("WRONGPASS" | "NOAUTH" | "NOPERM")) => {
            Error::rejected("the server refuses the user or password of the URL")
        }
        _ => Error::not_sent("no connection"),
    }
}

fn reply(value: Value) -> Result<Reply, Error> {
    Ok(match value {
        Value::Nil => Reply::Nil,
        Value::Int(number) => Reply::Int(number),
        Value::Okay => Reply::Text("OK".to_owned()),
        Value::SimpleString(text) => Reply::Text(text),
        Value::BulkString(bytes) => {
            Reply::Text(String::from_utf8(bytes).map_err(|_| Error::decode("a value is not UTF-8 text"))?)
        }
        Value::Array(values) => Reply::List(values.into_iter().map(reply).collect::<Result<_, _>>()?),
        Value::ServerError(error) => Reply::Error(ServerError::new(&format!(
            "{} {}",
            error.code(),
            error.details().unwrap_or_default()
        ))),
        _ => return Err(Error::unknown("a reply of a kind that was not asked for")),
    })
}
