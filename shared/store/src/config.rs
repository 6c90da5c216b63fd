//! The configuration of the store, from environment variables.

use std::sync::Arc;
use std::time::Duration;

use onetap_config::MAX_DURATION;

use crate::{ConfigError, Error, MAX_TTL, Secret, Store, Variables};

// A time that a variable sets may become a TTL.
const _: () = assert!(MAX_DURATION.as_secs() <= MAX_TTL.as_secs());

/// The time limit of a store call, connecting included, unless another one is set.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(500);

/// The interval of notifications on a backend without pub/sub, unless another one is set.
pub const DEFAULT_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The backend of the store, and its time limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The backend and how to reach it.
    pub backend: Backend,
    /// The limit for one store call, connecting included (`STORE_TIMEOUT_MS`).
    pub timeout: Duration,
    /// The interval of notifications on a backend without pub/sub (`SSE_POLL_MS`).
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

/// AWS credentials that do not change, as Lambda sets them in the environment of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    pub(crate) access_key_id: Secret,
    pub(crate) secret_access_key: Secret,
    pub(crate) session_token: Option<Secret>,
}

impl Credentials {
    /// An access key (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`).
    pub fn new(access_key_id: impl Into<Secret>, secret_access_key: impl Into<Secret>) -> Credentials {
        let (access_key_id, secret_access_key) = (access_key_id.into(), secret_access_key.into());
        Credentials { access_key_id, secret_access_key, session_token: None }
    }

    /// Adds the token that belongs to a temporary access key (`AWS_SESSION_TOKEN`).
    #[must_use]
    pub fn session_token(mut self, token: impl Into<Secret>) -> Credentials {
        self.session_token = Some(token.into());
        self
    }
}

impl Config {
    /// Reads the process's environment.
    pub fn from_env() -> Result<Config, ConfigError> {
        Config::from_variables(&Variables::from_env())
    }

    /// Reads variables from `lookup`.
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
            timeout: variables.millis("STORE_TIMEOUT_MS", millis(DEFAULT_TIMEOUT))?,
            poll: variables.millis("SSE_POLL_MS", millis(DEFAULT_POLL_INTERVAL))?,
        })
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn upstash(variables: &Variables<'_>) -> Result<Backend, ConfigError> {
    // Vercel KV hands out the same service under its own names.
    let name = variables.name_in_use("UPSTASH_REDIS_REST_URL", &["KV_REST_API_URL"])?;
    let url = variables.base_url(name)?.ok_or_else(|| ConfigError::not_set(name))?;
    let name = variables.name_in_use("UPSTASH_REDIS_REST_TOKEN", &["KV_REST_API_TOKEN"])?;
    let token = variables.required(name)?;
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
    let name = variables.name_in_use("AWS_REGION", &["AWS_DEFAULT_REGION"])?;
    let region = variables.required(name)?;
    if !region.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        return Err(ConfigError::new(name, "is not a region like us-east-1"));
    }
    let ignored = variables.parsed("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true or false", false)?;
    let name = variables.name_in_use("AWS_ENDPOINT_URL_DYNAMODB", &["AWS_ENDPOINT_URL"])?;
    let endpoint = if ignored { None } else { variables.base_url(name)? };
    let (id, key) = (variables.required("AWS_ACCESS_KEY_ID")?, variables.required("AWS_SECRET_ACCESS_KEY")?);
    let mut credentials = Credentials::new(id, key);
    if let Some(token) = variables.optional("AWS_SESSION_TOKEN")? {
        credentials = credentials.session_token(token);
    }
    Ok(Backend::DynamoDb { table, region, endpoint, credentials })
}

/// The store that `config` names, [observed](crate::Observed). Does not connect yet, so that it does not delay the
/// start of a function.
pub fn open(config: &Config) -> Result<Arc<dyn Store>, ConfigError> {
    Ok(Arc::new(crate::Observed::new(backend(config)?)))
}

fn backend(config: &Config) -> Result<Arc<dyn Store>, ConfigError> {
    #[allow(unused, reason = "each of these serves only some features")]
    let (timeout, rejected) =
        (config.timeout, |variable: &str, error: Error| ConfigError::new(variable, error.to_string()));
    match &config.backend {
        #[cfg(feature = "memory")]
        Backend::Memory => Ok(Arc::new(crate::Memory::new())),
        #[cfg(feature = "upstash")]
        Backend::Upstash { url, token } => match crate::Upstash::new(url, token) {
            Ok(store) => Ok(Arc::new(store.timeout(timeout))),
            // Either the URL or the token, and which variable held it is not known here.
            Err(error) => Err(rejected("STORE", error)),
        },
        #[cfg(feature = "redis")]
        Backend::Redis { url } => match crate::Redis::new(url) {
            Ok(store) => Ok(Arc::new(store.timeout(timeout))),
            Err(error) => Err(rejected("REDIS_URL", error)),
        },
        #[cfg(feature = "dynamodb")]
        Backend::DynamoDb { table, region, endpoint, credentials } => {
            let store = crate::DynamoDb::new(table, region, credentials.clone());
            let store = store.timeout(timeout).poll_interval(config.poll);
            Ok(match endpoint {
                Some(endpoint) => Arc::new(store.endpoint(endpoint)),
                None => Arc::new(store),
            })
        }
        #[allow(unreachable_patterns, reason = "reached where a feature is off")]
        _ => Err(ConfigError::new("STORE", "names a backend that this build leaves out")),
    }
}
