//! Requests with several entries, and the answer to each.

use serde::{Deserialize, Serialize, Serializer};
use tokio::time::Instant;

use super::client::MAX_ANSWER_BYTES;
use super::{CallError, Client};

/// Limit of SQS for the entries of one request.
pub(super) const MAX_ENTRIES: usize = 10;

/// What SQS did for the entries of a request. The id of an entry is its place in what the caller gave.
pub(super) struct BatchAnswer(Result<Answer, CallError>);

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    #[serde(default)]
    successful: Vec<Success>,
    #[serde(default)]
    failed: Vec<Failure>,
}

/// What SQS did for one entry, or for a message that was sent alone.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Success {
    id: String,
    pub(super) message_id: String,
    pub(super) sequence_number: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    id: String,
    #[serde(default)]
    sender_fault: bool,
    #[serde(default)]
    code: String,
}

impl BatchAnswer {
    /// Takes the answer to the entry at this place. If the request has failed, so has every entry.
    pub(super) fn take(&mut self, place: usize) -> Result<Success, CallError> {
        let answer = self.0.as_mut().map_err(|error| error.clone())?;
        let id = place.to_string();
        if let Some(failure) = answer.failed.iter().find(|failure| failure.id == id) {
            return Err(CallError::of_entry(&failure.code, failure.sender_fault));
        }
        let at = answer.successful.iter().position(|success| success.id == id);
        at.map(|at| answer.successful.swap_remove(at)).ok_or(CallError::NotUnderstood)
    }
}

impl Client {
    pub(super) async fn ask_batch(
        &self,
        target: &'static str,
        input: &impl Serialize,
        deadline: Instant,
    ) -> BatchAnswer {
        BatchAnswer(self.ask(target, input, deadline, MAX_ANSWER_BYTES).await)
    }
}

/// Serializes the id of an entry.
pub(super) fn as_text<S: Serializer>(place: &Option<usize>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&place.unwrap_or_default())
}
