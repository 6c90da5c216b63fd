use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, RedisResult, Value};
use tokio::sync::Mutex;

use super::request::Command;

/// The Redis server behind the gateway.
#[derive(Debug)]
pub(super) struct Backend {
    client: Client,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl Backend {
    pub(super) fn new(url: &str) -> Backend {
        Backend { client: Client::open(url).expect("a Redis URL"), connection: Mutex::default() }
    }

    /// Sends the commands back to back, with nobody's in between, and returns a reply for each.
    ///
    /// An error is the connection's; a command's own error stands among the replies.
    pub(super) async fn send(&self, commands: impl IntoIterator<Item = &Command>) -> RedisResult<Vec<Value>> {
        let mut pipeline = Pipeline::new();
        for command in commands {
            pipeline.add_command(command.iter().fold(Cmd::new(), |mut cmd, argument| {
                cmd.arg(argument);
                cmd
            }));
        }
        self.live_connection().await?.send_packed_commands(&pipeline, 0, pipeline.len()).await
    }

    /// A connection of its own for one subscriber.
    pub(super) async fn subscriber(&self) -> RedisResult<PubSub> {
        self.client.get_async_pubsub().await
    }

    /// Asks before each use whether the connection still lives: Redis may have been restarted since, and a
    /// command that fails on a dead connection could not be sent again without the risk of doing it twice.
    async fn live_connection(&self) -> RedisResult<MultiplexedConnection> {
        let mut slot = self.connection.lock().await;
        if let Some(mut connection) = slot.clone()
            && redis::cmd("PING").exec_async(&mut connection).await.is_ok()
        {
            return Ok(connection);
        }
        // No limit on an answer: a frozen Redis makes a gateway that hangs.
        let limits = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(1)))
            .set_response_timeout(None);
        let connection = self.client.get_multiplexed_async_connection_with_config(&limits).await?;
        *slot = Some(connection.clone());
        Ok(connection)
    }
}
