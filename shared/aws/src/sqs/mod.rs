//! Amazon SQS: messages into a queue and out of it, by SQS's JSON protocol.

mod batch;
mod body;
mod client;
mod config;
mod error;
mod queue_url;
mod receive;
mod send;

pub use body::json_body;
pub use client::Client;
pub use config::Config;
pub use error::CallError;
pub use queue_url::QueueUrl;
pub use receive::{MAX_RECEIVED, Receive, ReceivedMessage};
pub use send::{InvalidMessage, MAX_MESSAGE_BYTES, Message, SendOutcome};
