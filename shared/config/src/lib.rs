#![doc = include_str!("../README.md")]

mod secret;
mod url;
mod variables;

use std::fmt;

pub use secret::Secret;
pub use url::is_http_url;
pub use variables::{MAX_DURATION, Variables};

/// An environment variable that is missing or invalid. The program does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    variable: String,
    problem: String,
}

impl ConfigError {
    /// An error about `variable`. `problem` must not quote the value, which may be a secret.
    pub fn new(variable: impl Into<String>, problem: impl Into<String>) -> ConfigError {
        ConfigError { variable: variable.into(), problem: problem.into() }
    }

    /// `variable` is required and not set.
    pub fn not_set(variable: impl Into<String>) -> ConfigError {
        ConfigError::new(variable, "is not set")
    }

    /// The name of the variable.
    pub fn variable(&self) -> &str {
        &self.variable
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.variable, self.problem)
    }
}

impl std::error::Error for ConfigError {}
