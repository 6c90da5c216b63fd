//! A client of a stream that behaves as `EventSource` does in browsers: it reconnects and resumes by itself.

use std::time::Duration;

use http::StatusCode;
use tokio::time::sleep;

use crate::client::{CallError, Client, Event, Events};

/// Delay before a reconnect, until the stream asks for another one.
const DEFAULT_RETRY: Duration = Duration::from_secs(1);

/// A stream that goes on over many connections.
///
/// When a connection ends or breaks, it connects again after the delay that the stream has asked for last, with the id
/// of the last event. Only a status other than 200 ends it.
#[derive(Debug)]
pub struct EventSource {
    client: Client,
    path: String,
    connection: Connection,
    last_event_id: Option<String>,
    retry: Duration,
    connections: usize,
}

#[derive(Debug)]
enum Connection {
    /// Connect now.
    Closed,
    /// Connect after the delay.
    Lost,
    Open(Events),
}

impl EventSource {
    /// The stream at `path`. Does not connect yet.
    pub fn new(client: Client, path: impl Into<String>) -> EventSource {
        EventSource {
            client,
            path: path.into(),
            connection: Connection::Closed,
            last_event_id: None,
            retry: DEFAULT_RETRY,
            connections: 0,
        }
    }

    /// Waits for the next event. `None` after the status 204, with which a server ends the reconnecting; any other
    /// status but 200 is an error. It is cancel safe; a delay that was cancelled begins anew.
    pub async fn next(&mut self) -> Result<Option<Event>, CallError> {
        loop {
            match &mut self.connection {
                Connection::Open(events) => {
                    let next = events.next_without_limit().await;
                    self.retry = events.retry().unwrap_or(self.retry);
                    match next {
                        Some(event) => {
                            self.remember(&event);
                            return Ok(Some(event));
                        }
                        None => self.connection = Connection::Lost,
                    }
                }
                Connection::Lost => {
                    sleep(self.retry).await;
                    self.connection = Connection::Closed;
                }
                Connection::Closed => {
                    let id = self.last_event_id.as_deref();
                    let headers: Vec<(&str, &str)> = id.map(|id| ("last-event-id", id)).into_iter().collect();
                    match self.client.events(&self.path, &headers).await {
                        Ok(Ok(events)) => {
                            self.connections += 1;
                            self.connection = Connection::Open(events);
                        }
                        Ok(Err(StatusCode::NO_CONTENT)) => return Ok(None),
                        Ok(Err(status)) => return Err(CallError(format!("the stream answered {status}"))),
                        Err(_) => self.connection = Connection::Lost,
                    }
                }
            }
        }
    }

    /// Closes the connection, as a network that fails does. The next one is opened without a delay.
    pub fn disconnect(&mut self) {
        self.connection = Connection::Closed;
    }

    /// The number of streams that were opened so far.
    pub fn connections(&self) -> usize {
        self.connections
    }

    fn remember(&mut self, event: &Event) {
        match event.id.as_deref() {
            Some("") => self.last_event_id = None,
            Some(id) => self.last_event_id = Some(id.to_owned()),
            None => {}
        }
    }
}
