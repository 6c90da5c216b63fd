//! The settings of a channel: its secrets, its access token, the address of the Messaging API.

use http::{HeaderValue, Uri};
use onetap_config::{ConfigError, Secret, Variables, is_http_url};

/// A LINE channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `LINE_CHANNEL_SECRET`: one, or several with commas between them while it is rotated. Any of them signs.
    pub secrets: Vec<Secret>,
    /// `LINE_CHANNEL_ACCESS_TOKEN`
    pub token: Secret,
    /// `LINE_API_BASE_URL`, else LINE's own; without a slash at its end.
    pub base_url: String,
}

impl Config {
    /// Reads `variables`.
    pub fn from_variables(variables: &Variables<'_>) -> Result<Config, ConfigError> {
        let secrets = variables.secrets("LINE_CHANNEL_SECRET")?;
        let base_url = variables.base_url("LINE_API_BASE_URL")?;
        let config = Config {
            secrets,
            token: Secret::new(variables.required("LINE_CHANNEL_ACCESS_TOKEN")?),
            base_url: base_url.unwrap_or_else(|| "https://api.line.me".to_owned()),
        };
        config.authorization()?;
        config.reply_uri()?;
        Ok(config)
    }

    pub(crate) fn authorization(&self) -> Result<HeaderValue, ConfigError> {
        let wrong = |_| {
            let problem = "is not a token: it has a character that no header can carry";
            ConfigError::new("LINE_CHANNEL_ACCESS_TOKEN", problem)
        };
        let mut value: HeaderValue = format!("Bearer {}", self.token.reveal()).parse().map_err(wrong)?;
        value.set_sensitive(true);
        Ok(value)
    }

    pub(crate) fn reply_uri(&self) -> Result<Uri, ConfigError> {
        let uri = [&self.base_url, "/v2/bot/message/reply"].concat();
        let uri = is_http_url(&uri).then(|| uri.parse().ok()).flatten();
        uri.ok_or_else(|| ConfigError::new("LINE_API_BASE_URL", "is not an http:// or https:// URL"))
    }
}
