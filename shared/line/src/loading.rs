//! The loading animation: dots that a user sees while the bot prepares its answer.

use serde::Serialize;
use tokio::time::Instant;

use crate::{CallError, Client};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    chat_id: &'a str,
    loading_seconds: u32,
}

impl Client {
    /// Shows the loading animation to a user, until the next message of the bot, for `seconds` at most. LINE knows 5 to 60
    /// seconds in steps of 5: other numbers are rounded up to the next of these. It is for chats with one user; the user sees it
    /// only while the chat is open.
    pub async fn start_loading(
        &self,
        user_id: &str,
        seconds: u32,
        deadline: Instant,
    ) -> Result<(), CallError> {
        let loading_seconds = seconds.clamp(1, 60).div_ceil(5) * 5;
        // This cannot fail: texts and numbers always serialize.
        let body = serde_json::to_vec(&Body { chat_id: user_id, loading_seconds }).unwrap_or_default();
        let response = self.post("/v2/bot/chat/loading/start", body, None, deadline).await?;
        if response.status().is_success() { Ok(()) } else { Err(CallError::of(response.status())) }
    }
}
