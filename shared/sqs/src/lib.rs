#![doc = include_str!("../README.md")]

mod poll;
mod queue;

pub use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
pub use poll::{completed, poll};
pub use queue::Queue;
