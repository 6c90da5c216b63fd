#![doc = include_str!("../README.md")]

mod secret;
mod url;
mod variables;

use std::fmt;

pub use secret::Secret;
pub use url::is_http_url;
pub use variables::{MAX_DURATION, Variables};

/// A variable that stops the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    variable: String,
    problem: String,
}

impl ConfigError {
    /// `variable` is wrong in the way `problem` says; never quote a secret in it.
    pub fn new(variable: impl Into<String>, problem: impl Into<String>) -> ConfigError {
        ConfigError { variable: variable.into(), problem: problem.into() }
    }

    /// `variable` is required and not set.
    pub fn not_set(variable: impl Into<String>) -> ConfigError {
        ConfigError::new(variable, "is not set")
    }

    /// The variable to mend.
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
