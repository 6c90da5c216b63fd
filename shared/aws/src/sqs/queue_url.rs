//! The URL of a queue, which is the queue's name for SQS.

use std::fmt;

use onetap_config::{ConfigError, Variables, is_http_url};

/// The end of a FIFO queue's name.
const FIFO: &str = ".fifo";
/// Limit of SQS for a queue's name, the end of a FIFO queue's included.
const MAX_NAME_LEN: usize = 80;

/// The URL of a queue, such as `https://sqs.us-east-1.amazonaws.com/111122223333/answers.fifo`. It names the queue and its account;
/// requests go to the address of the [configuration](super::Config).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct QueueUrl(String);

impl QueueUrl {
    /// The URL of a queue, if `url` is one.
    pub fn new(url: impl Into<String>) -> Option<QueueUrl> {
        let url = QueueUrl(url.into());
        let name = url.name();
        let stem = name.strip_suffix(FIFO).unwrap_or(name);
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        let is_name = !stem.is_empty() && name.len() <= MAX_NAME_LEN && stem.bytes().all(plain);
        // The last part of a URL without a path would be its host.
        let has_path = url.0.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
        (is_name && has_path && is_http_url(&url.0)).then_some(url)
    }

    /// Reads the variable `name`, which is required.
    pub fn from_variables(variables: &Variables<'_>, name: &str) -> Result<QueueUrl, ConfigError> {
        let url = QueueUrl::new(variables.required(name)?);
        url.ok_or_else(|| ConfigError::new(name, "is not the URL of a queue"))
    }

    /// The URL.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The queue's name.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// Whether it is a FIFO queue, which keeps the order of each message group.
    pub fn is_fifo(&self) -> bool {
        self.name().ends_with(FIFO)
    }
}

impl fmt::Debug for QueueUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
