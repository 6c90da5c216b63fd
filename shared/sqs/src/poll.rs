//! Calling a function as Lambda's event source mapping does.

use std::collections::HashSet;
use std::convert::Infallible;

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};

use crate::Queue;

/// Messages in a batch: Lambda's default.
const BATCH_SIZE: usize = 10;

/// Invokes `function` with batch after batch and deletes the completed messages, until this future is dropped. `None`
/// from the function means that it died: its messages are delivered again after the visibility timeout.
pub async fn poll<F, Invocation>(queue: &Queue, function: F) -> Infallible
where
    F: Fn(SqsEvent) -> Invocation,
    Invocation: Future<Output = Option<SqsBatchResponse>>,
{
    loop {
        let mut event = SqsEvent::default();
        event.records = queue.receive(BATCH_SIZE).await;
        let records = event.records.clone();
        if let Some(response) = function(event).await {
            for message in completed(&records, &response) {
                if let Some(receipt) = &message.receipt_handle {
                    queue.delete(receipt);
                }
            }
        }
    }
}

/// The messages of a batch that are completed, by Lambda's rules: those that the response does not name as failed. None
/// of them, if it names an empty id or one that is not in the batch.
pub fn completed<'a>(batch: &'a [SqsMessage], response: &SqsBatchResponse) -> Vec<&'a SqsMessage> {
    let failed: HashSet<&str> =
        response.batch_item_failures.iter().map(|failure| failure.item_identifier.as_str()).collect();
    let id = |message: &'a SqsMessage| message.message_id.as_deref().unwrap_or_default();
    let known: HashSet<&str> = batch.iter().map(id).filter(|id| !id.is_empty()).collect();
    if failed.is_subset(&known) {
        batch.iter().filter(|message| !failed.contains(id(message))).collect()
    } else {
        Vec::new()
    }
}
