//! Where SQS is, and who calls it.

use http::Uri;
use onetap_config::{ConfigError, Variables, is_http_url};

use crate::Credentials;

/// SQS in one region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub(super) region: String,
    pub(super) endpoint: Uri,
    pub(super) credentials: Credentials,
}

impl Config {
    /// SQS in `region`, at AWS's own address. (An isolated region has another one, which [`Config::endpoint`] sets.)
    pub fn new(region: &str, credentials: Credentials) -> Result<Config, ConfigError> {
        Config::of("AWS_REGION", region, credentials)
    }

    /// Sets another address, `http(s)://host[:port]`.
    pub fn endpoint(self, url: &str) -> Result<Config, ConfigError> {
        Ok(Config { endpoint: endpoint("AWS_ENDPOINT_URL_SQS", url)?, ..self })
    }

    /// Reads the variables that the AWS SDKs read: the [credentials](Credentials::from_variables); the region, `AWS_REGION`, else
    /// `AWS_DEFAULT_REGION`; the address, `AWS_ENDPOINT_URL_SQS`, else `AWS_ENDPOINT_URL`, else AWS's own, which
    /// `AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true` enforces.
    pub fn from_variables(variables: &Variables<'_>) -> Result<Config, ConfigError> {
        let name = variables.name_in_use("AWS_REGION", &["AWS_DEFAULT_REGION"])?;
        let region = variables.required(name)?;
        let config = Config::of(name, &region, Credentials::from_variables(variables)?)?;
        let ignored = variables.parsed("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true or false", false)?;
        let name = variables.name_in_use("AWS_ENDPOINT_URL_SQS", &["AWS_ENDPOINT_URL"])?;
        match variables.base_url(name)?.filter(|_| !ignored) {
            Some(url) => Ok(Config { endpoint: endpoint(name, &url)?, ..config }),
            None => Ok(config),
        }
    }

    fn of(variable: &str, region: &str, credentials: Credentials) -> Result<Config, ConfigError> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if region.is_empty() || !region.bytes().all(plain) {
            return Err(ConfigError::new(variable, "is not a region like us-east-1"));
        }
        let endpoint = endpoint(variable, &format!("https://sqs.{region}.{}", domain(region)))?;
        Ok(Config { region: region.to_owned(), endpoint, credentials })
    }
}

/// The domain of a region's services.
fn domain(region: &str) -> &'static str {
    match region.split('-').next() {
        Some("cn") => "amazonaws.com.cn",
        Some("eusc") => "amazonaws.eu",
        _ => "amazonaws.com",
    }
}

fn endpoint(variable: &str, url: &str) -> Result<Uri, ConfigError> {
    let uri: Option<Uri> = is_http_url(url).then(|| url.parse().ok()).flatten();
    let uri = uri.ok_or_else(|| ConfigError::new(variable, "is not an http:// or https:// URL"))?;
    // A request is signed for the path `/`.
    if uri.path() == "/" { Ok(uri) } else { Err(ConfigError::new(variable, "has a path")) }
}
