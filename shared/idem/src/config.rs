//! How long, how patient, how careful.

use std::time::Duration;

use super::MAX_KEY;
use onetap_store::{ConfigError, MAX_NAME, Variables};

/// What may be done about a run of which nothing more was heard: its owner died between the effect and the commit,
/// or before either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// When the lease is over the next caller runs the function again. For effects that their receiver dedupes, or
    /// that do no harm twice.
    #[default]
    AtLeastOnce,
    /// The function is not run again until somebody who knows has said what became of it:
    /// [`Idempotency::resolve`](super::Idempotency::resolve). While its owner runs it renews its claim, and is in
    /// progress to others, however long it takes. An owner that is alive, but has not reached the store for a whole
    /// lease, looks like one that is gone: its outcome is unknown until it is back.
    AtMostOnce,
}

/// The settings of an [`Idempotency`](super::Idempotency); the defaults are good ones.
///
/// ```
/// # use std::time::Duration;
/// # use onetap_idem::{Config, Policy};
/// let week = Duration::from_secs(7 * 86_400);
/// let config = Config::default().result_ttl(week).policy(Policy::AtMostOnce);
/// # let _ = config;
/// ```
///
/// The environment variables that the settings name are read by [`from_variables`](Config::from_variables) alone:
///
/// ```
/// # use onetap_idem::Config;
/// # use onetap_store::{ConfigError, Variables};
/// # fn main() -> Result<(), ConfigError> {
/// let config = Config::from_variables(&Variables::from_env())?;
/// # let _ = config; Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub(super) prefix: String,
    pub(super) result_ttl: Duration,
    pub(super) lease_ttl: Duration,
    pub(super) wait_timeout: Duration,
    pub(super) wait_interval: Duration,
    pub(super) policy: Policy,
    pub(super) cache_size: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            prefix: "idem:".to_owned(),
            result_ttl: Duration::from_secs(86_400),
            lease_ttl: Duration::from_secs(30),
            wait_timeout: Duration::ZERO,
            wait_interval: Duration::from_millis(50),
            policy: Policy::AtLeastOnce,
            cache_size: 0,
        }
    }
}

impl Config {
    /// Sets what every key of a record begins with (`IDEM_PREFIX`, `idem:`).
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Config {
        self.prefix = prefix.into();
        self
    }

    /// Sets how long a result is kept (`IDEM_DEFAULT_TTL_SECONDS`, a day): as long as a caller may come again.
    #[must_use]
    pub fn result_ttl(mut self, ttl: Duration) -> Config {
        self.result_ttl = ttl;
        self
    }

    /// Sets how long a claim outlives its owner (`IDEM_LOCK_TTL_SECONDS`, 30 s). It is renewed while the function runs,
    /// so it need not cover the run, only a few round trips.
    #[must_use]
    pub fn lease_ttl(mut self, ttl: Duration) -> Config {
        self.lease_ttl = ttl;
        self
    }

    /// How long a claim outlives its owner.
    pub fn get_lease_ttl(&self) -> Duration {
        self.lease_ttl
    }

    /// Sets how long a caller waits for somebody else's run (`IDEM_WAIT_TIMEOUT_MS`). Zero, the default, is *no limit*: it
    /// waits until the call's deadline, or where it has none until the caller drops it. A call that does not wait is
    /// [`Call::without_waiting`](super::Call::without_waiting).
    #[must_use]
    pub fn wait_timeout(mut self, timeout: Duration) -> Config {
        self.wait_timeout = timeout;
        self
    }

    /// Sets the first pause between two looks while waiting (`IDEM_WAIT_INTERVAL_MS`, 50 ms). It doubles up to 500 ms.
    #[must_use]
    pub fn wait_interval(mut self, interval: Duration) -> Config {
        self.wait_interval = interval;
        self
    }

    /// Sets what follows a crash ([`Policy::AtLeastOnce`]).
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Config {
        self.policy = policy;
        self
    }

    /// Sets how many finished results are remembered in this process, and replayed without asking the store. Zero, the
    /// default, remembers none.
    #[must_use]
    pub fn cache_size(mut self, results: usize) -> Config {
        self.cache_size = results;
        self
    }

    /// Reads the `IDEM_*` variables; what is unset keeps its default.
    pub fn from_variables(variables: &Variables<'_>) -> Result<Config, ConfigError> {
        let default = Config::default();
        let prefix = variables.optional("IDEM_PREFIX")?.unwrap_or(default.prefix);
        if prefix.len() > MAX_NAME - MAX_KEY {
            return Err(ConfigError::new("IDEM_PREFIX", "is too long to stand before a key"));
        }
        Ok(Config {
            prefix,
            result_ttl: variables.seconds("IDEM_DEFAULT_TTL_SECONDS", default.result_ttl.as_secs())?,
            lease_ttl: variables.seconds("IDEM_LOCK_TTL_SECONDS", default.lease_ttl.as_secs())?,
            wait_timeout: variables.millis_or_zero("IDEM_WAIT_TIMEOUT_MS", 0)?,
            wait_interval: variables.millis("IDEM_WAIT_INTERVAL_MS", 50)?,
            ..default
        })
    }
}
