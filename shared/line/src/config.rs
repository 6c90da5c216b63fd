//! The settings of a channel: its secrets, its access token, the addresses of the Messaging API.

use http::{HeaderValue, Uri};
use onetap_config::{ConfigError, Secret, Variables, is_http_url};

const BASE_URL: &str = "https://api.line.me";
const DATA_BASE_URL: &str = "https://api-data.line.me";

/// A LINE channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `LINE_CHANNEL_SECRET`: one, or several with commas between them while it is rotated. Any of them signs.
    pub secrets: Vec<Secret>,
    /// `LINE_CHANNEL_ACCESS_TOKEN`
    pub token: Secret,
    /// `LINE_API_BASE_URL`, else LINE's own; without a slash at its end.
    pub base_url: String,
    /// `LINE_DATA_API_BASE_URL`, else `LINE_API_BASE_URL`, else LINE's own; without a slash at its end. What users sent is
    /// downloaded from there.
    pub data_base_url: String,
}

impl Config {
    /// Reads `variables`.
    pub fn from_variables(variables: &Variables<'_>) -> Result<Config, ConfigError> {
        let secrets = variables.secrets("LINE_CHANNEL_SECRET")?;
        let base_url = variables.base_url("LINE_API_BASE_URL")?;
        let data_base_url = variables.base_url("LINE_DATA_API_BASE_URL")?.or_else(|| base_url.clone());
        let config = Config {
            secrets,
            token: Secret::new(variables.required("LINE_CHANNEL_ACCESS_TOKEN")?),
            base_url: base_url.unwrap_or_else(|| BASE_URL.to_owned()),
            data_base_url: data_base_url.unwrap_or_else(|| DATA_BASE_URL.to_owned()),
        };
        config.authorization()?;
        config.api_uri()?;
        config.data_uri()?;
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

    pub(crate) fn api_uri(&self) -> Result<Uri, ConfigError> {
        valid_uri(&self.base_url, "LINE_API_BASE_URL")
    }

    pub(crate) fn data_uri(&self) -> Result<Uri, ConfigError> {
        valid_uri(&self.data_base_url, "LINE_DATA_API_BASE_URL")
    }
}

/// The address of a call, which shows that calls below `base_url` have one.
fn valid_uri(base_url: &str, variable: &str) -> Result<Uri, ConfigError> {
    let uri = [base_url, "/v2/bot"].concat();
    let uri = is_http_url(&uri).then(|| uri.parse().ok()).flatten();
    uri.ok_or_else(|| ConfigError::new(variable, "is not an http:// or https:// URL"))
}
