//! The configuration of the store, from environment variables.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use onetap_config::MAX_DURATION;

use crate::observed::{KeyKind, Observed};
use crate::{ConfigError, Error, MAX_TTL, Secret, Store, Variables};

// A time that a variable sets may become a TTL.
const _: () = assert!(MAX_DURATION.as_secs() <= MAX_TTL.as_secs());

/// The variable that names the backend.
const STORE: &str = "STORE";

/// The time limit of a store call, connecting included, unless another one is set.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(500);

/// The interval of notifications on a backend without pub/sub, unless another one is set.
pub const DEFAULT_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The store that environment variables name, and its time limits. A store that is not read from the environment is
/// built by the constructor of its backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    access: Access,
    timeout: Duration,
    poll_interval: Duration,
    #[cfg(feature = "testing")]
    skew: i64,
}

/// A backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// Upstash Redis over REST.
    Upstash,
    /// One DynamoDB table.
    DynamoDb,
    /// The Redis protocol.
    Redis,
    /// This process.
    Memory,
}

impl Backend {
    /// Every backend.
    pub const ALL: [Backend; 4] = [Backend::Upstash, Backend::DynamoDb, Backend::Redis, Backend::Memory];

    /// The backend as the variable `STORE` names it.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Memory => "memory",
            Backend::Upstash => "upstash",
            Backend::Redis => "redis",
            Backend::DynamoDb => "dynamodb",
        }
    }

    fn names() -> String {
        let [others @ .., last] = Backend::ALL.map(Backend::name);
        format!("{} or {last}", others.join(", "))
    }
}

impl FromStr for Backend {
    type Err = ConfigError;

    /// The backend of this [name](Backend::name).
    fn from_str(name: &str) -> Result<Backend, ConfigError> {
        let backend = Backend::ALL.into_iter().find(|backend| backend.name() == name);
        backend.ok_or_else(|| ConfigError::new(STORE, format!("is not one of {}", Backend::names())))
    }
}

/// How to reach a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(all(feature = "upstash", feature = "redis", feature = "dynamodb")),
    allow(dead_code, reason = "the variables are checked, whichever backends this build has")
)]
enum Access {
    Memory,
    Upstash {
        url: String,
        token: Secret,
    },
    /// The URL may hold a password.
    Redis {
        url: Secret,
    },
    DynamoDb {
        table: String,
        region: String,
        endpoint: Option<String>,
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

    /// Sets the time limit of each call, connecting included (`STORE_TIMEOUT_MS`, [`DEFAULT_TIMEOUT`]).
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Config {
        self.timeout = timeout;
        self
    }

    /// Sets the interval of notifications on a backend without pub/sub ([`DEFAULT_POLL_INTERVAL`]).
    #[must_use]
    pub fn poll_interval(mut self, interval: Duration) -> Config {
        self.poll_interval = interval;
        self
    }

    /// The backend.
    pub fn backend(&self) -> Backend {
        match self.access {
            Access::Memory => Backend::Memory,
            Access::Upstash { .. } => Backend::Upstash,
            Access::Redis { .. } => Backend::Redis,
            Access::DynamoDb { .. } => Backend::DynamoDb,
        }
    }

    /// The same store with a clock that is wrong by so many milliseconds, where the caller's clock judges.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn with_skew(mut self, millis: i64) -> Config {
        self.skew = millis;
        self
    }

    /// Reads `variables`.
    pub fn from_variables(variables: &Variables<'_>) -> Result<Config, ConfigError> {
        let store = variables
            .optional(STORE)?
            .ok_or_else(|| ConfigError::new(STORE, format!("is not set; it is {}", Backend::names())))?;
        let access = match store.parse()? {
            Backend::Memory if variables.optional("AWS_LAMBDA_FUNCTION_NAME")?.is_some() => {
                return Err(ConfigError::new(
                    STORE,
                    "`memory` cannot be used inside Lambda: instances would not share it",
                ));
            }
            Backend::Memory => Access::Memory,
            Backend::Upstash => upstash(variables)?,
            Backend::Redis => redis(variables)?,
            Backend::DynamoDb => dynamodb(variables)?,
        };
        Ok(Config {
            access,
            timeout: variables.millis("STORE_TIMEOUT_MS", DEFAULT_TIMEOUT.as_millis() as u64)?,
            poll_interval: DEFAULT_POLL_INTERVAL,
            #[cfg(feature = "testing")]
            skew: 0,
        })
    }
}

fn upstash(variables: &Variables<'_>) -> Result<Access, ConfigError> {
    // Vercel KV hands out the same service under its own names.
    let name = variables.name_in_use("UPSTASH_REDIS_REST_URL", &["KV_REST_API_URL"])?;
    let url = variables.base_url(name)?.ok_or_else(|| ConfigError::not_set(name))?;
    let name = variables.name_in_use("UPSTASH_REDIS_REST_TOKEN", &["KV_REST_API_TOKEN"])?;
    let token = variables.required(name)?;
    if !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(ConfigError::new(name, "is not a token: it has a space or a character outside ASCII"));
    }
    Ok(Access::Upstash { url, token: Secret::new(token) })
}

fn redis(variables: &Variables<'_>) -> Result<Access, ConfigError> {
    let url = variables.required("REDIS_URL")?;
    let rest = url.strip_prefix("redis://").or_else(|| url.strip_prefix("rediss://"));
    match rest {
        Some(rest) if !rest.is_empty() => Ok(Access::Redis { url: Secret::new(url) }),
        _ => Err(ConfigError::new("REDIS_URL", "is not a redis:// or rediss:// URL")),
    }
}

fn dynamodb(variables: &Variables<'_>) -> Result<Access, ConfigError> {
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
    Ok(Access::DynamoDb { table, region, endpoint, credentials })
}

/// The store that `config` names, [observed](Observed). Does not connect yet, so that it does not delay the start of a
/// function.
pub fn open(config: &Config) -> Result<Arc<dyn Store>, ConfigError> {
    Ok(Arc::new(Observed::new(backend(config)?)))
}

/// The same, with hits and misses counted by the kind of their key.
pub fn open_with_kinds(config: &Config, kind: KeyKind) -> Result<Arc<dyn Store>, ConfigError> {
    Ok(Arc::new(Observed::with_kinds(backend(config)?, kind)))
}

fn backend(config: &Config) -> Result<Arc<dyn Store>, ConfigError> {
    #[allow(unused, reason = "each of these serves only some features")]
    let (timeout, rejected) =
        (config.timeout, |variable: &str, error: Error| ConfigError::new(variable, error.to_string()));
    match &config.access {
        #[cfg(feature = "memory")]
        Access::Memory => Ok(Arc::new(crate::Memory::new())),
        #[cfg(feature = "upstash")]
        Access::Upstash { url, token } => match crate::Upstash::new(url, token) {
            Ok(store) => Ok(Arc::new(store.timeout(timeout))),
            // Either the URL or the token, and which variable held it is not known here.
            Err(error) => Err(rejected(STORE, error)),
        },
        #[cfg(feature = "redis")]
        Access::Redis { url } => match crate::Redis::new(url) {
            Ok(store) => Ok(Arc::new(store.timeout(timeout))),
            Err(error) => Err(rejected("REDIS_URL", error)),
        },
        #[cfg(feature = "dynamodb")]
        Access::DynamoDb { table, region, endpoint, credentials } => {
            let store = crate::DynamoDb::new(table, region, credentials.clone());
            let store = store.timeout(timeout).poll_interval(config.poll_interval);
            #[cfg(feature = "testing")]
            let store = store.with_skew(config.skew);
            Ok(match endpoint {
                Some(endpoint) => Arc::new(store.endpoint(endpoint)),
                None => Arc::new(store),
            })
        }
        #[allow(unreachable_patterns, reason = "reached where a feature is off")]
        _ => Err(ConfigError::new(
            STORE,
            "names a backend that this build leaves out: it is a feature of that name of the onetap crate that you add",
        )),
    }
}
