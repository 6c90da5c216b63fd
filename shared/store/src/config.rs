//! The environment, read once at start: what is missing or malformed is said with the variable's name.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::{Error, Store};

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

/// Text that no `Debug` shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides `text`.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text, for the one place that sends or compares it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Variables by name, from the environment or from a test.
pub struct Variables<'a>(Box<Lookup<'a>>);

type Lookup<'a> = dyn Fn(&str) -> Option<String> + 'a;

impl fmt::Debug for Variables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Variables(…)")
    }
}

impl<'a> Variables<'a> {
    /// Those of this process.
    pub fn from_env() -> Variables<'static> {
        Variables::from_lookup(|name| std::env::var(name).ok())
    }

    /// Those that `lookup` knows.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String> + 'a) -> Variables<'a> {
        Variables(Box::new(lookup))
    }

    /// The variable, if it is set to something: empty counts as unset, as deployment templates leave it.
    pub fn optional(&self, name: &str) -> Option<String> {
        (self.0)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// The variable, or the error that it is missing.
    pub fn required(&self, name: &str) -> Result<String, ConfigError> {
        self.optional(name).ok_or_else(|| ConfigError::new(name, "is not set"))
    }

    /// The variable as `what` it should be, or `default` where it is unset.
    pub fn parsed<T: FromStr>(&self, name: &str, what: &str, default: T) -> Result<T, ConfigError> {
        match self.optional(name) {
            None => Ok(default),
            Some(value) => value.parse().map_err(|_| ConfigError::new(name, format!("is not {what}"))),
        }
    }

    /// A whole number of at least one.
    pub fn positive(&self, name: &str, default: u64) -> Result<u64, ConfigError> {
        let number = self.parsed(name, "a whole number above 0", default)?;
        if number == 0 { Err(ConfigError::new(name, "is not a whole number above 0")) } else { Ok(number) }
    }
}

/// Which store, and how long it may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The backend and how to reach it.
    pub backend: Backend,
    /// The limit for one store call, connecting included (`STORE_TIMEOUT_MS`).
    pub timeout: Duration,
    /// How often a channel is taken to have rung where there is no pub/sub (`SSE_POLL_MS`).
    pub poll: Duration,
}

/// A backend and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// This process.
    Memory,
    /// Upstash Redis over REST.
    Upstash {
        /// `UPSTASH_REDIS_REST_URL`
        url: String,
        /// `UPSTASH_REDIS_REST_TOKEN`
        token: Secret,
    },
    /// The Redis protocol.
    Redis {
        /// `REDIS_URL`: a secret, because it may hold a password.
        url: Secret,
    },
    /// One DynamoDB table.
    DynamoDb {
        /// `DYNAMODB_TABLE`
        table: String,
        /// `AWS_REGION`
        region: String,
        /// `AWS_ENDPOINT_URL_DYNAMODB`, else the region's own.
        endpoint: Option<String>,
        /// `AWS_ACCESS_KEY_ID` and its companions, as Lambda sets them.
        credentials: Credentials,
    },
}

/// AWS credentials as the environment holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// `AWS_ACCESS_KEY_ID`
    pub access_key_id: Secret,
    /// `AWS_SECRET_ACCESS_KEY`
    pub secret_access_key: Secret,
    /// `AWS_SESSION_TOKEN`
    pub session_token: Option<Secret>,
}

impl Config {
    /// Reads the process's environment.
    pub fn from_env() -> Result<Config, ConfigError> {
        Config::from_variables(&Variables::from_env())
    }

    /// Reads what `lookup` knows.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
        Config::from_variables(&Variables::from_lookup(lookup))
    }

    /// Reads `variables`.
    pub fn from_variables(variables: &Variables<'_>) -> Result<Config, ConfigError> {
        const STORES: &str = "upstash, dynamodb, redis or memory";
        let store = variables
            .optional("STORE")
            .ok_or_else(|| ConfigError::new("STORE", format!("is not set; it is {STORES}")))?;
        let backend = match store.as_str() {
            "memory" if variables.optional("AWS_LAMBDA_FUNCTION_NAME").is_some() => {
                return Err(ConfigError::new(
                    "STORE",
                    "`memory` cannot be used inside Lambda: instances would not share it",
                ));
            }
            "memory" => Backend::Memory,
            "upstash" => upstash(variables)?,
            "redis" => redis(variables)?,
            "dynamodb" => dynamodb(variables)?,
            _ => return Err(ConfigError::new("STORE", format!("is not one of {STORES}"))),
        };
        Ok(Config {
            backend,
            timeout: Duration::from_millis(variables.positive("STORE_TIMEOUT_MS", 500)?),
            poll: Duration::from_millis(variables.positive("SSE_POLL_MS", 500)?),
        })
    }
}

fn upstash(variables: &Variables<'_>) -> Result<Backend, ConfigError> {
    // Vercel KV hands out the same service under its own names.
    let either = |name: &'static str, other: &'static str| {
        [name, other]
            .into_iter()
            .find_map(|name| Some((name, variables.optional(name)?)))
            .ok_or_else(|| ConfigError::new(name, "is not set"))
    };
    let (name, url) = either("UPSTASH_REDIS_REST_URL", "KV_REST_API_URL")?;
    http_url(name, &url)?;
    let (name, token) = either("UPSTASH_REDIS_REST_TOKEN", "KV_REST_API_TOKEN")?;
    if !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(ConfigError::new(name, "is not a token: it has a space or a character outside ASCII"));
    }
    Ok(Backend::Upstash { url: url.trim_end_matches('/').to_owned(), token: Secret::new(token) })
}

fn redis(variables: &Variables<'_>) -> Result<Backend, ConfigError> {
    let url = variables.required("REDIS_URL")?;
    let rest = url.strip_prefix("redis://").or_else(|| url.strip_prefix("rediss://"));
    match rest {
        Some(rest) if !rest.is_empty() => Ok(Backend::Redis { url: Secret::new(url) }),
        _ => Err(ConfigError::new("REDIS_URL", "is not a redis:// or rediss:// URL")),
    }
}

fn dynamodb(variables: &Variables<'_>) -> Result<Backend, ConfigError> {
    let table = variables.required("DYNAMODB_TABLE")?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
    if !(3..=255).contains(&table.len()) || !table.bytes().all(plain) {
        return Err(ConfigError::new(
            "DYNAMODB_TABLE",
            "is not a table's name: 3 to 255 of a-z A-Z 0-9 _ . -",
        ));
    }
    let region = variables
        .optional("AWS_REGION")
        .or_else(|| variables.optional("AWS_DEFAULT_REGION"))
        .ok_or_else(|| ConfigError::new("AWS_REGION", "is not set"))?;
    if !region.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        return Err(ConfigError::new("AWS_REGION", "is not a region like us-east-1"));
    }
    let ignored = variables.parsed("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true or false", false)?;
    let endpoint = ["AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL"]
        .into_iter()
        .filter(|_| !ignored)
        .find_map(|name| Some((name, variables.optional(name)?)))
        .map(|(name, url)| http_url(name, &url).map(|()| url))
        .transpose()?;
    let credentials = Credentials {
        access_key_id: Secret::new(variables.required("AWS_ACCESS_KEY_ID")?),
        secret_access_key: Secret::new(variables.required("AWS_SECRET_ACCESS_KEY")?),
        session_token: variables.optional("AWS_SESSION_TOKEN").map(Secret::new),
    };
    Ok(Backend::DynamoDb { table, region, endpoint, credentials })
}

/// `http(s)://host[:port][/path]`; what the URL holds is not repeated, it may be a secret pasted into the wrong line.
fn http_url(variable: &str, url: &str) -> Result<(), ConfigError> {
    let wrong = || ConfigError::new(variable, "is not an http:// or https:// URL");
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")).ok_or_else(wrong)?;
    let host = rest.split('/').next().unwrap_or_default();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b".-_:[]".contains(&b);
    let tail = |b: u8| b.is_ascii_graphic() && !b"?#\"<>{}|\\^`".contains(&b);
    if host.is_empty() || host.starts_with(':') || !host.bytes().all(plain) || !rest.bytes().all(tail) {
        return Err(wrong());
    }
    Ok(())
}

/// The store that `config` names, [observed](crate::Observed). Connects to nothing yet: a function that starts must not
/// wait.
pub fn open(config: &Config) -> Result<Arc<dyn Store>, ConfigError> {
    Ok(Arc::new(crate::Observed::new(backend(config)?)))
}

fn backend(config: &Config) -> Result<Arc<dyn Store>, ConfigError> {
    #[allow(unused, reason = "each of these serves only some features")]
    let (limit, rejected) =
        (config.timeout, |variable: &str, error: Error| ConfigError::new(variable, error.to_string()));
    match &config.backend {
        #[cfg(feature = "memory")]
        Backend::Memory => Ok(Arc::new(crate::Memory::new())),
        #[cfg(feature = "upstash")]
        Backend::Upstash { url, token } => match crate::Upstash::new(url, token, limit) {
            Ok(store) => Ok(Arc::new(store)),
            Err(error) => Err(rejected("UPSTASH_REDIS_REST_URL", error)),
        },
        #[cfg(feature = "redis")]
        Backend::Redis { url } => match crate::Redis::new(url, limit) {
            Ok(store) => Ok(Arc::new(store)),
            Err(error) => Err(rejected("REDIS_URL", error)),
        },
        #[cfg(feature = "dynamodb")]
        Backend::DynamoDb { table, region, endpoint, credentials } => {
            let endpoint = endpoint.as_deref();
            Ok(Arc::new(crate::DynamoDb::new(table, region, endpoint, credentials, limit, config.poll)))
        }
        #[allow(unreachable_patterns, reason = "reached where a feature is off")]
        _ => Err(ConfigError::new("STORE", "names a backend that this build leaves out")),
    }
}
