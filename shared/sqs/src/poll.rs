//! Calling a function as Lambda's event source mapping does.

use std::collections::HashSet;
use std::convert::Infallible;

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};

use crate::Queue;

/// What Lambda hands to a function at a time, unless it is told otherwise.
const BATCH: usize = 10;

/// Calls `function` with batch after batch and deletes what it has done, until this future is dropped. `None` from the
/// function says that it died: its batch comes again when it is due.
pub async fn poll<F, Answer>(queue: &Queue, function: F) -> Infallible
where
    F: Fn(SqsEvent) -> Answer,
    Answer: Future<Output = Option<SqsBatchResponse>>,
{
    loop {
        let mut event = SqsEvent::default();
        event.records = queue.receive(BATCH).await;
        let records = event.records.clone();
        if let Some(answer) = function(event).await {
            for done in settle(&records, &answer) {
                if let Some(receipt) = &done.receipt_handle {
                    queue.delete(receipt);
                }
            }
        }
    }
}

/// The messages that an answer says are done, by Lambda's rules: those it does not name; none at all if it names one
/// that was not in the batch, or nothing in particular.
pub fn settle<'a>(batch: &'a [SqsMessage], answer: &SqsBatchResponse) -> Vec<&'a SqsMessage> {
    let failed: HashSet<&str> =
        answer.batch_item_failures.iter().map(|failure| failure.item_identifier.as_str()).collect();
    let id = |message: &'a SqsMessage| message.message_id.as_deref().unwrap_or_default();
    let known: HashSet<&str> = batch.iter().map(id).filter(|id| !id.is_empty()).collect();
    if failed.is_subset(&known) {
        batch.iter().filter(|message| !failed.contains(id(message))).collect()
    } else {
        Vec::new()
    }
}
