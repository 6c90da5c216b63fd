//! The environment, read once at start: what is missing or malformed is said with the variable's name.

use std::env::VarError;
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;

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

type Lookup<'a> = dyn Fn(&str) -> Result<Option<String>, ConfigError> + 'a;

impl fmt::Debug for Variables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Variables(…)")
    }
}

impl<'a> Variables<'a> {
    /// Those of this process.
    pub fn from_env() -> Variables<'static> {
        Variables::try_from_lookup(|name| match std::env::var(name) {
            Ok(value) => Ok(Some(value)),
            Err(VarError::NotPresent) => Ok(None),
            Err(VarError::NotUnicode(_)) => Err(ConfigError::new(name, "is not UTF-8 text")),
        })
    }

    /// Those that `lookup` knows.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String> + 'a) -> Variables<'a> {
        Variables::try_from_lookup(move |name| Ok(lookup(name)))
    }

    /// Those that `lookup` knows, where a variable can be set and yet have no value.
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

    /// The first of several names that is set to something, and its value.
    fn first<'n>(&self, names: &[&'n str]) -> Result<Option<(&'n str, String)>, ConfigError> {
        for name in names {
            if let Some(value) = self.optional(name)? {
                return Ok(Some((name, value)));
            }
        }
        Ok(None)
    }

    /// The variable, or the error that it is missing.
    pub fn required(&self, name: &str) -> Result<String, ConfigError> {
        self.optional(name)?.ok_or_else(|| ConfigError::new(name, "is not set"))
    }

    /// The variable as the address of an HTTP service, `http(s)://host[:port][/path]`, without a slash at its end.
    pub fn base_url(&self, name: &str) -> Result<Option<String>, ConfigError> {
        self.optional(name)?.map(|url| base_url(name, &url)).transpose()
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
            .optional("STORE")?
            .ok_or_else(|| ConfigError::new("STORE", format!("is not set; it is {STORES}")))?;
        let backend = match store.as_str() {
            "memory" if variables.optional("AWS_LAMBDA_FUNCTION_NAME")?.is_some() => {
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
        variables.first(&[name, other])?.ok_or_else(|| ConfigError::new(name, "is not set"))
    };
    let (name, url) = either("UPSTASH_REDIS_REST_URL", "KV_REST_API_URL")?;
    let url = base_url(name, &url)?;
    let (name, token) = either("UPSTASH_REDIS_REST_TOKEN", "KV_REST_API_TOKEN")?;
    if !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(ConfigError::new(name, "is not a token: it has a space or a character outside ASCII"));
    }
    Ok(Backend::Upstash { url, token: Secret::new(token) })
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
    let (name, region) = variables
        .first(&["AWS_REGION", "AWS_DEFAULT_REGION"])?
        .ok_or_else(|| ConfigError::new("AWS_REGION", "is not set"))?;
    if !region.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        return Err(ConfigError::new(name, "is not a region like us-east-1"));
    }
    let ignored = variables.parsed("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true or false", false)?;
    let endpoint = match variables.first(&["AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL"])? {
        Some((name, url)) if !ignored => Some(base_url(name, &url)?),
        _ => None,
    };
    let credentials = Credentials {
        access_key_id: Secret::new(variables.required("AWS_ACCESS_KEY_ID")?),
        secret_access_key: Secret::new(variables.required("AWS_SECRET_ACCESS_KEY")?),
        session_token: variables.optional("AWS_SESSION_TOKEN")?.map(Secret::new),
    };
    Ok(Backend::DynamoDb { table, region, endpoint, credentials })
}

/// `http(s)://host[:port][/path]`, without a slash at its end. What the URL holds is not repeated: it may be a secret
/// pasted into the wrong line.
fn base_url(variable: &str, url: &str) -> Result<String, ConfigError> {
    match is_http_url(url) {
        true => Ok(url.trim_end_matches('/').to_owned()),
        false => Err(ConfigError::new(variable, "is not an http:// or https:// URL")),
    }
}

/// Whether `url` is `http(s)://host[:port][/path]`, with a host and a port that a client can connect to.
pub fn is_http_url(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let (Some("http" | "https"), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return false };
    let host = authority.host();
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_".contains(&b)),
    };
    // Neither the name and password before a host, which would be shown wherever the address is, nor a wrong port.
    let is_port = match authority.as_str().strip_prefix(host) {
        Some("") => true,
        Some(port) => {
            port.strip_prefix(':').and_then(|port| port.parse().ok()).is_some_and(|port: u16| port > 0)
        }
        None => false,
    };
    let is_path = |b: u8| b.is_ascii_graphic() && !b"?#\"<>{}|\\^`".contains(&b);
    is_host && is_port && url.bytes().all(is_path)
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
            // Either the URL or the token, and which variable held it is not known here.
            Err(error) => Err(rejected("STORE", error)),
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
