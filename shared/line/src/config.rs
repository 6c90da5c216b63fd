//! The settings of a channel: its secrets, its access token, the addresses of the Messaging API.

use http::{HeaderValue, Uri};
use onetap_config::{ConfigError, Secret, Variables, is_http_url};

const HOST: &str = "api.line.me";
const BASE_URL: &str = "https://api.line.me";
/// LINE serves downloads, and nothing else, from here.
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
    /// `LINE_DATA_API_BASE_URL`, else LINE's own if `base_url` is LINE's, else `base_url`; without a slash at its end. What
    /// users sent is downloaded from there.
    pub data_base_url: String,
}

impl Config {
    /// Reads `variables`.
    pub fn from_variables(variables: &Variables<'_>) -> Result<Config, ConfigError> {
        let secrets = variables.secrets("LINE_CHANNEL_SECRET")?;
        let base_url = variables.base_url("LINE_API_BASE_URL")?.unwrap_or_else(|| BASE_URL.to_owned());
        let data_base_url = match variables.base_url("LINE_DATA_API_BASE_URL")? {
            Some(url) => url,
            None if is_lines(&base_url) => DATA_BASE_URL.to_owned(),
            None => base_url.clone(),
        };
        let token = Secret::new(variables.required("LINE_CHANNEL_ACCESS_TOKEN")?);
        let config = Config { secrets, token, base_url, data_base_url };
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

/// Whether it is LINE's own Messaging API, and not something in its place.
fn is_lines(base_url: &str) -> bool {
    base_url.parse::<Uri>().is_ok_and(|uri| uri.host().is_some_and(|host| host.eq_ignore_ascii_case(HOST)))
}

/// Checks that a call's address below `base_url` parses.
fn valid_uri(base_url: &str, variable: &str) -> Result<Uri, ConfigError> {
    let uri = [base_url, "/v2/bot"].concat();
    let uri = is_http_url(&uri).then(|| uri.parse().ok()).flatten();
    uri.ok_or_else(|| ConfigError::new(variable, "is not an http:// or https:// URL"))
}
