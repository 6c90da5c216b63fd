//! What LINE knows of the bot and its users: quota, profiles, the bot itself.

use std::fmt;

use serde::Deserialize;
use tokio::time::Instant;

use crate::client::path_id;
use crate::{CallError, Client};

/// The messages of this month. Replies do not count, a push counts once for each user who gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quota {
    /// How many may be sent; `None` without a limit.
    pub limit: Option<u64>,
    /// How many were sent, roughly: LINE counts with some delay.
    pub used: u64,
}

impl Quota {
    /// How many may still be sent; `None` without a limit.
    pub fn remaining(self) -> Option<u64> {
        self.limit.map(|limit| limit.saturating_sub(self.used))
    }
}

/// A user. `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Profile {
    /// The name that the user has chosen.
    pub display_name: String,
    /// The user's language, such as `zh-TW`. LINE leaves it out until the user has agreed to its privacy policy.
    pub language: Option<String>,
    /// The user's picture, if there is one.
    pub picture_url: Option<String>,
    /// What the user has written below the name, if anything.
    pub status_message: Option<String>,
}

/// The bot.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct BotInfo {
    /// The bot's user id: the `destination` of its webhooks.
    pub user_id: String,
    /// The id that users search for, such as `@123abcde`.
    pub basic_id: String,
    /// The id that was bought for it, if one was.
    pub premium_id: Option<String>,
    /// The bot's name.
    pub display_name: String,
    /// The bot's picture, if there is one.
    pub picture_url: Option<String>,
    /// `chat` if people may answer users by hand too, else `bot`.
    pub chat_mode: Option<String>,
}

impl Client {
    /// Asks for the quota and how much of it is used, in two requests.
    pub async fn quota(&self, deadline: Instant) -> Result<Quota, CallError> {
        #[derive(Deserialize)]
        #[serde(tag = "type", rename_all = "lowercase")]
        enum Limit {
            None,
            Limited { value: u64 },
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Consumption {
            total_usage: u64,
        }
        let limit = match self.get("/v2/bot/message/quota", deadline).await? {
            Limit::None => None,
            Limit::Limited { value } => Some(value),
        };
        let Consumption { total_usage } = self.get("/v2/bot/message/quota/consumption", deadline).await?;
        Ok(Quota { limit, used: total_usage })
    }

    /// Asks for the profile of a user who has added the bot as a friend, or has sent it a message. [`CallError::NotFound`] if the user
    /// is unknown, has not agreed that bots get the profile, has done neither, or has blocked the bot.
    pub async fn profile(&self, user_id: &str, deadline: Instant) -> Result<Profile, CallError> {
        self.get(&["/v2/bot/profile/", path_id(user_id)?].concat(), deadline).await
    }

    /// Asks who the bot is.
    pub async fn bot_info(&self, deadline: Instant) -> Result<BotInfo, CallError> {
        self.get("/v2/bot/info", deadline).await
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Profile(…)")
    }
}
