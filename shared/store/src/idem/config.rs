//! How long, how patient, how careful.

use std::time::Duration;

use super::MAX_KEY;
use crate::MAX_NAME;
use onetap_config::{ConfigError, Variables};

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What every key of a record begins with (`IDEM_PREFIX`, `idem:`).
    pub prefix: String,
    /// How long a result is kept (`IDEM_DEFAULT_TTL_SECONDS`, a day): as long as a caller may come again.
    pub result_ttl: Duration,
    /// How long a claim outlives its owner (`IDEM_LOCK_TTL_SECONDS`, 30 s). It is renewed while the function runs,
    /// so it need not cover the run, only a few round trips.
    pub lease_ttl: Duration,
    /// How long a caller waits for somebody else's run (`IDEM_WAIT_TIMEOUT_MS`). Zero, the default, waits until the
    /// call's deadline, or where it has none until the caller drops it.
    pub wait_timeout: Duration,
    /// The first pause between two looks while waiting (`IDEM_WAIT_INTERVAL_MS`, 50 ms). It doubles up to 500 ms.
    pub wait_interval: Duration,
    /// What follows a crash.
    pub policy: Policy,
    /// So many finished results are remembered in this process, and replayed without asking the store. Zero, the
    /// default, remembers none.
    pub cache_size: usize,
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
