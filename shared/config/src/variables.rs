use std::env::VarError;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::{ConfigError, Secret, is_http_url};

/// The longest time that a variable can set: ten years.
pub const MAX_DURATION: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// Variables by name, from the environment or from a test.
pub struct Variables<'a>(Box<Lookup<'a>>);

type Lookup<'a> = dyn Fn(&str) -> Result<Option<String>, ConfigError> + 'a;

impl fmt::Debug for Variables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Variables(…)")
    }
}

impl<'a> Variables<'a> {
    /// The variables of this process.
    pub fn from_env() -> Variables<'static> {
        Variables::try_from_lookup(|name| match std::env::var(name) {
            Ok(value) => Ok(Some(value)),
            Err(VarError::NotPresent) => Ok(None),
            Err(VarError::NotUnicode(_)) => Err(ConfigError::new(name, "is not UTF-8 text")),
        })
    }

    /// The variables for which `lookup` returns a value.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String> + 'a) -> Variables<'a> {
        Variables::try_from_lookup(move |name| Ok(lookup(name)))
    }

    /// The same where a variable can be set to something that is not text.
    pub fn try_from_lookup(
        lookup: impl Fn(&str) -> Result<Option<String>, ConfigError> + 'a,
    ) -> Variables<'a> {
        Variables(Box::new(lookup))
    }

    /// The variable, if it is set to something: empty counts as unset, as deployment templates leave it.
    pub fn optional(&self, name: &str) -> Result<Option<String>, ConfigError> {
        let value = (self.0)(name)?;
        Ok(value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty()))
    }

    /// The variable, or the error that it is missing.
    pub fn required(&self, name: &str) -> Result<String, ConfigError> {
        self.optional(name)?.ok_or_else(|| ConfigError::not_set(name))
    }

    /// Of `name` and its alternative names, the first that is set; `name` itself if none is.
    pub fn name_in_use<'n>(&self, name: &'n str, alternatives: &[&'n str]) -> Result<&'n str, ConfigError> {
        for candidate in [name].iter().chain(alternatives) {
            if self.optional(candidate)?.is_some() {
                return Ok(candidate);
            }
        }
        Ok(name)
    }

    /// The variable as a list of secrets with commas between them, at least one: the new and the old one, while a
    /// secret is rotated.
    pub fn secrets(&self, name: &str) -> Result<Vec<Secret>, ConfigError> {
        let list = self.required(name)?;
        let secrets = list.split(',').map(str::trim).filter(|secret| !secret.is_empty());
        let secrets: Vec<Secret> = secrets.map(Secret::new).collect();
        if secrets.is_empty() { Err(ConfigError::not_set(name)) } else { Ok(secrets) }
    }

    /// The variable as the address of an HTTP service, `http(s)://host[:port][/path]`, without a slash at its end.
    pub fn base_url(&self, name: &str) -> Result<Option<String>, ConfigError> {
        match self.optional(name)? {
            Some(url) if !is_http_url(&url) => {
                Err(ConfigError::new(name, "is not an http:// or https:// URL"))
            }
            url => Ok(url.map(|url| url.trim_end_matches('/').to_owned())),
        }
    }

    /// The variable as `what` it should be, or `default` where it is unset.
    pub fn parsed<T: FromStr>(&self, name: &str, what: &str, default: T) -> Result<T, ConfigError> {
        match self.optional(name)? {
            None => Ok(default),
            Some(value) => value.parse().map_err(|_| ConfigError::new(name, format!("is not {what}"))),
        }
    }

    /// A whole number of at least one.
    pub fn positive(&self, name: &str, default: u64) -> Result<u64, ConfigError> {
        let number = self.parsed(name, "a whole number above 0", default)?;
        if number == 0 { Err(ConfigError::new(name, "is not a whole number above 0")) } else { Ok(number) }
    }

    /// A time in whole seconds, at least one and at most [`MAX_DURATION`].
    pub fn seconds(&self, name: &str, default: u64) -> Result<Duration, ConfigError> {
        limited(name, Duration::from_secs(self.positive(name, default)?))
    }

    /// A time in whole seconds, from zero to [`MAX_DURATION`].
    pub fn seconds_or_zero(&self, name: &str, default: u64) -> Result<Duration, ConfigError> {
        limited(name, Duration::from_secs(self.parsed(name, "a whole number", default)?))
    }

    /// A time in whole days, from zero to [`MAX_DURATION`].
    pub fn days_or_zero(&self, name: &str, default: u64) -> Result<Duration, ConfigError> {
        let days: u64 = self.parsed(name, "a whole number", default)?;
        limited(name, Duration::from_secs(days.saturating_mul(24 * 3600)))
    }

    /// A time in whole milliseconds, at least one and at most [`MAX_DURATION`].
    pub fn millis(&self, name: &str, default: u64) -> Result<Duration, ConfigError> {
        limited(name, Duration::from_millis(self.positive(name, default)?))
    }

    /// A time in whole milliseconds, from zero to [`MAX_DURATION`].
    pub fn millis_or_zero(&self, name: &str, default: u64) -> Result<Duration, ConfigError> {
        limited(name, Duration::from_millis(self.parsed(name, "a whole number", default)?))
    }
}

fn limited(name: &str, time: Duration) -> Result<Duration, ConfigError> {
    if time > MAX_DURATION { Err(ConfigError::new(name, "is more than ten years")) } else { Ok(time) }
}
